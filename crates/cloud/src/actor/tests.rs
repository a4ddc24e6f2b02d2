use super::*;
use tenure_ipam::Notation;

fn cidr(text: &str) -> Cidr {
    Notation::Strict.cidr(text).unwrap()
}

fn range(number: usize) -> AliasRange {
    AliasRange {
        cidr: cidr(&format!("10.111.{}.{}/32", number / 256, number % 256)),
        range: "live".to_owned(),
    }
}

fn ranges(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<AliasRange> {
    numbers.into_iter().map(range).collect()
}

/// What GKE puts on every node.
fn pods() -> AliasRange {
    AliasRange { cidr: cidr("10.8.3.0/24"), range: "pods".to_owned() }
}

/// An actor, its time, and an interface that does what it is told.
struct Rig {
    actor: Actor,
    now: Timestamp,
    list: BTreeSet<AliasRange>,
    version: u32,
    limit: usize,
    sent: Vec<Update>,
    requests: std::cell::Cell<u32>,
}

impl Rig {
    fn new() -> Self {
        let id = InterfaceId::first("europe-west4-a", "gke-a");
        Self {
            actor: Actor::new(
                id,
                vec![Managed::addresses(cidr("10.111.0.0/16"), "live")],
                Options::default(),
            ),
            now: Timestamp::from_millis(0),
            list: BTreeSet::from([pods()]),
            version: 1,
            limit: 150,
            sent: Vec::new(),
            requests: std::cell::Cell::default(),
        }
    }

    fn want(&mut self, numbers: impl IntoIterator<Item = usize>) {
        self.actor.want(&ranges(numbers), self.now);
    }

    /// The next request, when it comes.
    fn request(&mut self) -> Action {
        loop {
            let request = || {
                self.requests.set(self.requests.get() + 1);
                format!("request-{}", self.requests.get())
            };
            match self.actor.next(self.now, &|_| false, &request) {
                Step::Do(action) => {
                    self.actor.sent(&action);
                    return action;
                }
                Step::Until(time) => self.now = time,
                Step::Nothing => panic!("nothing to do"),
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        self.actor.answer(answer, self.now);
    }

    /// Performs a request as a cloud without problems does.
    fn perform(&mut self, action: Action) {
        let answer = match action {
            Action::Unfinished => Answer::Unfinished(Ok(None)),
            Action::Observe => Answer::Observed(Ok(Observed {
                aliases: self.list.clone(),
                version: self.version.to_string(),
                limit: self.limit,
            })),
            Action::Apply(update) => {
                assert_eq!(update.version, self.version.to_string());
                self.list.clone_from(&update.aliases);
                self.version += 1;
                self.sent.push(update);
                Answer::Applied(Ok(Ticket("operation".to_owned())))
            }
            Action::Poll(_) => Answer::Polled(Ok(Progress::Done)),
            Action::Owner(..) => Answer::Owner(Ok(Owner::Nobody)),
        };
        self.answer(answer);
    }

    /// Up to the next update, which is not performed.
    fn next_update(&mut self) -> Update {
        loop {
            match self.request() {
                Action::Apply(update) => return update,
                other => self.perform(other),
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            if self.actor.is_settled() && self.actor.known.version.is_some() {
                return;
            }
            let action = self.request();
            self.perform(action);
        }
        panic!("it does not settle: {:?}", self.actor);
    }

    fn refused(&mut self, kind: ErrorKind) {
        self.answer(Answer::Applied(Err(CloudError::new(kind, "said the cloud"))));
    }

    fn says(&self, number: usize) -> String {
        match self.actor.attachment(&range(number)) {
            Attachment::Refused(why) => why,
            other => format!("{other:?}"),
        }
    }
}

#[test]
fn a_hundred_ranges_that_are_wanted_at_once_are_one_update() {
    let mut rig = Rig::new();
    for number in 0..100 {
        rig.want(0..=number);
    }
    rig.settle();
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].added.len(), 100);
    assert!(rig.list.contains(&pods()), "what others attached stays");
}

#[test]
fn what_is_wanted_while_an_update_is_under_way_is_the_next_one() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    for number in 2..100 {
        rig.want(1..=number);
    }
    rig.perform(Action::Apply(update));
    rig.settle();
    assert_eq!(rig.sent.iter().map(|update| update.added.len()).collect::<Vec<_>>(), [1, 98]);
}

#[test]
fn additions_and_removals_are_separate_updates_and_neither_waits_for_ever() {
    let mut rig = Rig::new();
    rig.want(0..3);
    rig.settle();
    rig.want(2..5);
    rig.settle();
    let kinds: Vec<_> = rig.sent.iter().map(|update| (update.added.len(), update.removed.len())).collect();
    assert_eq!(kinds, [(3, 0), (0, 2), (2, 0)]);
    // After a removal additions come first, because a pod waits for them.
    rig.want(4..7);
    rig.settle();
    let last: Vec<_> =
        rig.sent[3..].iter().map(|update| (update.added.len(), update.removed.len())).collect();
    assert_eq!(last, [(0, 2), (2, 0)], "the last update was an addition, so the removal's turn comes");
}

#[test]
fn the_last_range_goes_by_an_explicit_empty_list() {
    let mut rig = Rig::new();
    rig.list.clear();
    rig.want([1]);
    rig.settle();
    rig.want([]);
    rig.settle();
    let last = rig.sent.last().unwrap();
    assert!(last.aliases.is_empty() && last.removed == ranges([1]), "{last:?}");
}

#[test]
fn a_stale_version_is_read_again_at_once() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    rig.version = 7;
    rig.refused(ErrorKind::Conflict);
    let before = rig.now;
    let again = rig.next_update();
    assert_eq!((again.version.as_str(), rig.now), ("7", before));
    assert_ne!(again.request, update.request, "it is another request");
}

#[test]
fn a_lost_answer_is_followed_by_the_same_request() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    rig.want([1, 2]);
    rig.refused(ErrorKind::Transient);
    assert_eq!(rig.next_update(), update);
    rig.perform(Action::Apply(update));
    rig.settle();
    assert_eq!(rig.list, ranges([1, 2]).into_iter().chain([pods()]).collect());
}

#[test]
fn after_many_lost_answers_it_is_asked_what_became_of_the_update() {
    let mut rig = Rig::new();
    rig.want([1]);
    rig.next_update();
    for _ in 0..MOST_LOST {
        rig.refused(ErrorKind::Transient);
        assert!(matches!(rig.request(), Action::Apply(_)));
    }
    rig.refused(ErrorKind::Transient);
    assert_eq!(rig.request(), Action::Unfinished);
}

#[test]
fn a_refusal_of_the_second_try_does_not_say_what_became_of_the_first() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    rig.refused(ErrorKind::Transient);
    assert_eq!(rig.next_update(), update);
    rig.refused(ErrorKind::NotReady);
    assert_eq!(rig.request(), Action::Unfinished);
}

#[test]
fn a_range_in_use_is_left_out_and_its_owner_named() {
    let mut rig = Rig::new();
    rig.want(0..3);
    rig.next_update();
    rig.answer(Answer::Applied(Ok(Ticket("operation".to_owned()))));
    assert!(matches!(rig.request(), Action::Poll(_)));
    let error =
        CloudError::new(ErrorKind::InUse(Some(range(1).cidr)), "IP '10.111.0.1/32' is already being used");
    rig.answer(Answer::Polled(Ok(Progress::Failed(error))));
    let read = rig.request();
    rig.perform(read);
    assert_eq!(rig.request(), Action::Owner(range(1), None));
    rig.answer(Answer::Owner(Ok(Owner::Interface(InterfaceId::first("europe-west4-b", "gke-b")))));
    assert_eq!(rig.next_update().added, ranges([0, 2]), "the others do not wait for it");
    assert_eq!(
        rig.says(1),
        "10.111.0.1/32 is attached to nic0 of europe-west4-b/gke-b; it can be added to nic0 of europe-west4-a/gke-a when it is removed there"
    );
}

#[test]
fn a_refusal_that_names_no_range_is_narrowed_down() {
    let mut rig = Rig::new();
    rig.want(0..8);
    let mut sizes = Vec::new();
    loop {
        let update = rig.next_update();
        sizes.push(update.added.len());
        if !update.added.contains(&range(5)) {
            rig.perform(Action::Apply(update));
        } else if update.added.len() == 1 {
            rig.refused(ErrorKind::Invalid(None));
            break;
        } else {
            rig.refused(ErrorKind::Invalid(None));
        }
    }
    assert!(sizes.len() < 12, "{sizes:?}");
    assert!(
        rig.says(5).starts_with("adding 10.111.0.5/32 to nic0 of europe-west4-a/gke-a: said"),
        "{}",
        rig.says(5)
    );
    for _ in 0..30 {
        let action = rig.request();
        rig.perform(action);
    }
    assert!(
        (0..8).filter(|number| *number != 5).all(|number| rig.list.contains(&range(number))),
        "{:?}",
        rig.list
    );
}

#[test]
fn too_many_requests_wait_for_the_next_whole_minute() {
    let mut rig = Rig::new();
    rig.now = Timestamp::from_millis(90_500);
    rig.want([1]);
    rig.next_update();
    rig.refused(ErrorKind::Throttled(None));
    rig.next_update();
    assert_eq!(rig.now, Timestamp::from_millis(120_000));
}

#[test]
fn a_busy_machine_is_waited_for_longer_and_longer() {
    let mut rig = Rig::new();
    rig.want([1]);
    rig.next_update();
    let mut waits = Vec::new();
    for _ in 0..8 {
        let before = rig.now;
        rig.refused(ErrorKind::NotReady);
        rig.next_update();
        waits.push(rig.now.since(before).as_millis());
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
}

#[test]
fn the_151st_range_is_refused_with_a_clear_message_and_added_when_there_is_room() {
    let mut rig = Rig::new();
    rig.want(0..150);
    for _ in 0..8 {
        let action = rig.request();
        rig.perform(action);
    }
    assert_eq!((rig.list.len(), rig.sent.len()), (150, 1));
    assert_eq!(
        rig.says(149),
        "nic0 of europe-west4-a/gke-a takes 150 alias ranges at most, and 1 of others and 149 of pods fill it: spread the pods over more \
         machines, or attach blocks (attach: block)"
    );
    rig.want(1..150);
    rig.settle();
    assert!(rig.list.contains(&range(149)) && rig.list.len() == 150);
}

#[test]
fn a_machine_that_is_gone_has_nothing() {
    let mut rig = Rig::new();
    rig.want([1]);
    rig.settle();
    rig.want([1, 2]);
    rig.next_update();
    rig.refused(ErrorKind::NotFound);
    assert!(!rig.actor.may_have(&range(1)), "another machine can have it");
    assert!(rig.says(1).ends_with("said the cloud"), "{}", rig.says(1));
}

#[test]
fn what_is_being_removed_is_not_attached_even_if_it_is_wanted_again() {
    let mut rig = Rig::new();
    rig.want([1]);
    rig.settle();
    rig.want([]);
    let removal = rig.next_update();
    assert_eq!(rig.actor.attachment(&range(1)), Attachment::Detaching);
    rig.want([1]);
    assert_eq!(rig.actor.attachment(&range(1)), Attachment::Attaching);
    assert!(rig.actor.may_have(&range(1)));
    rig.perform(Action::Apply(removal));
    rig.settle();
    assert_eq!(rig.actor.attachment(&range(1)), Attachment::Attached);
}

#[test]
fn an_update_of_the_leader_before_is_waited_for() {
    let mut rig = Rig::new();
    rig.want([1]);
    assert_eq!(rig.request(), Action::Unfinished);
    rig.answer(Answer::Unfinished(Ok(Some(Ticket("earlier".to_owned())))));
    assert_eq!(rig.request(), Action::Poll(Ticket("earlier".to_owned())));
    rig.answer(Answer::Polled(Ok(Progress::Done)));
    assert_eq!(rig.request(), Action::Observe);
}

#[test]
fn an_update_that_never_ends_is_looked_for_again_and_said() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    rig.perform(Action::Apply(update));
    while let Action::Poll(_) = rig.request() {
        rig.answer(Answer::Polled(Ok(Progress::Running)));
    }
    assert!(rig.now >= Timestamp::from_millis(600_000));
    assert!(rig.says(1).contains("operation operation has been under way for 6"), "{}", rig.says(1));
    rig.answer(Answer::Unfinished(Ok(None)));
    rig.settle();
}

#[test]
fn what_others_change_is_seen_by_the_next_look_and_put_right() {
    let mut rig = Rig::new();
    rig.want([1]);
    rig.settle();
    rig.list.remove(&range(1));
    rig.version += 1;
    assert_eq!(rig.request(), Action::Observe);
    rig.perform(Action::Observe);
    assert_eq!(rig.actor.attachment(&range(1)), Attachment::Attaching);
    rig.settle();
    assert!(rig.list.contains(&range(1)));
}

#[test]
fn what_the_pool_does_not_attach_is_not_ours_though_it_has_its_addresses() {
    let mut rig = Rig::new();
    // A pool over the range that the cluster's own network uses, and an alias of the same address in another range.
    let network = AliasRange { cidr: cidr("10.111.3.0/24"), range: "live".to_owned() };
    let other = AliasRange { cidr: cidr("10.111.0.9/32"), range: "other".to_owned() };
    rig.list.extend([network.clone(), other.clone(), range(8)]);
    rig.want([1]);
    let mut done = rig.next_update();
    loop {
        assert!(done.aliases.contains(&network) && done.aliases.contains(&other), "{done:?}");
        if !done.removed.is_empty() {
            break;
        }
        rig.perform(Action::Apply(done));
        done = rig.next_update();
    }
    assert_eq!(done.removed, ranges([8]));
    assert_eq!(rig.actor.others(), 3, "with that of every node");
    // A pool that has attached blocks of that size may remove them.
    let managed =
        Managed { cidr: cidr("10.111.0.0/16"), range: "live".to_owned(), prefixes: [24, 32].into() };
    assert!(managed.has(&network) && managed.has(&range(8)) && !managed.has(&other));
}

#[test]
fn each_machine_has_its_own_limit() {
    let mut rig = Rig::new();
    rig.limit = 4;
    rig.want(0..6);
    assert_eq!(rig.next_update().added, ranges(0..3), "one is the node's own");
    assert_eq!(rig.actor.limit(), 4);
}

#[test]
fn an_owner_is_looked_for_page_by_page_and_each_page_is_a_request() {
    let mut rig = Rig::new();
    rig.want(0..2);
    rig.next_update();
    rig.answer(Answer::Applied(Ok(Ticket("operation".to_owned()))));
    assert!(matches!(rig.request(), Action::Poll(_)));
    let error = CloudError::new(ErrorKind::InUse(Some(range(1).cidr)), "in use");
    rig.answer(Answer::Polled(Ok(Progress::Failed(error))));
    let read = rig.request();
    rig.perform(read);
    assert_eq!(rig.request(), Action::Owner(range(1), None));
    rig.answer(Answer::Owner(Ok(Owner::NextPage("two".to_owned()))));
    assert_eq!(rig.request(), Action::Owner(range(1), Some("two".to_owned())));
    rig.answer(Answer::Owner(Err(CloudError::new(ErrorKind::Transient, "lost"))));
    assert_eq!(rig.request(), Action::Owner(range(1), None), "another list has other pages");
    rig.answer(Answer::Owner(Ok(Owner::NextPage("two".to_owned()))));
    rig.request();
    rig.answer(Answer::Owner(Ok(Owner::Interface(InterfaceId::first("europe-west4-b", "gke-b")))));
    assert_eq!(rig.next_update().added, ranges([0]));
    assert!(rig.says(1).contains("is attached to nic0 of europe-west4-b/gke-b"));
}

#[test]
fn a_machine_that_was_made_anew_is_read_again_before_its_time() {
    let mut rig = Rig::new();
    rig.want([1]);
    let update = rig.next_update();
    rig.perform(Action::Apply(update));
    while rig.actor.attachment(&range(1)) != Attachment::Attached {
        let next = rig.request();
        rig.perform(next);
    }
    let before = rig.now;
    rig.list = BTreeSet::from([pods()]);
    rig.actor.look_again();
    assert_eq!(rig.next_update().added, ranges([1]));
    assert!(rig.now.since(before) < Options::default().look);
}
