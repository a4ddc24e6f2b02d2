use std::time::Duration;

use tenure_handles::SeededEntropy;

use super::*;
use crate::budget::Quota;
use crate::cloud::{Observed, Owner, Ticket};
use tenure_ipam::{Cidr, Notation};

fn cidr(text: &str) -> Cidr {
    Notation::Strict.cidr(text).unwrap()
}

fn ranges(count: usize) -> BTreeSet<AliasRange> {
    (0..count)
        .map(|number| AliasRange { cidr: cidr(&format!("10.111.0.{number}/32")), range: "live".to_owned() })
        .collect()
}

/// A region and a cloud without problems, each update of which takes 3 s.
struct Rig {
    region: Region,
    now: Timestamp,
    lists: BTreeMap<InterfaceId, BTreeSet<AliasRange>>,
    done: BTreeMap<String, Timestamp>,
    updates: Vec<(InterfaceId, usize, usize)>,
}

impl Rig {
    fn new(quota: Quota) -> Self {
        Self {
            region: Region::new(
                vec![Managed::addresses(cidr("10.111.0.0/16"), "live")],
                Budget::new(quota, quota),
                Options::default(),
            ),
            now: Timestamp::from_millis(0),
            lists: BTreeMap::new(),
            done: BTreeMap::new(),
            updates: Vec::new(),
        }
    }

    /// Lets everything happen that is due until `end`.
    fn run(&mut self, end: Duration) {
        let entropy = SeededEntropy::new(1);
        let end = self.now.plus(end);
        while self.now <= end {
            for (interface, action) in self.region.next(self.now, &entropy) {
                let list = self.lists.entry(interface.clone()).or_default();
                let answer = match action {
                    Action::Unfinished => Answer::Unfinished(Ok(None)),
                    Action::Observe => Answer::Observed(Ok(Observed {
                        aliases: list.clone(),
                        version: "1".to_owned(),
                        limit: 150,
                    })),
                    Action::Apply(update) => {
                        *list = update.aliases;
                        self.updates.push((interface.clone(), update.added.len(), update.removed.len()));
                        self.done.insert(update.request.clone(), self.now.plus(Duration::from_secs(3)));
                        Answer::Applied(Ok(Ticket(update.request)))
                    }
                    Action::Poll(ticket) if self.now < self.done[&ticket.0] => {
                        Answer::Polled(Ok(Progress::Running))
                    }
                    Action::Poll(_) => Answer::Polled(Ok(Progress::Done)),
                    Action::Owner(..) => Answer::Owner(Ok(Owner::Nobody)),
                };
                self.region.answer(&interface, answer, self.now);
            }
            self.now = self.region.next_look().unwrap_or(end).max(self.now.plus(Duration::from_millis(1)));
        }
        self.now = end;
    }
}

const PLENTY: Quota = Quota { per_minute: 6_000, burst: 600 };

#[test]
fn pods_that_move_together_cost_one_removal_and_one_addition() {
    let (a, b) = (InterfaceId::first("r-a", "a"), InterfaceId::first("r-b", "b"));
    let mut rig = Rig::new(PLENTY);
    rig.region.want(&a, &ranges(20), rig.now);
    rig.region.want(&b, &BTreeSet::new(), rig.now);
    rig.run(Duration::from_secs(20));
    rig.updates.clear();
    rig.region.want(&b, &ranges(20), rig.now);
    rig.region.want(&a, &BTreeSet::new(), rig.now);
    rig.run(Duration::from_secs(20));
    assert_eq!(rig.updates, [(a, 0, 20), (b.clone(), 20, 0)]);
    assert!(ranges(20).iter().all(|range| rig.region.attachment(&b, range) == Attachment::Attached));
    assert_eq!(rig.region.known_owner(ranges(1).first().unwrap()), Some(&b));
}

#[test]
fn a_small_budget_is_shared_by_turns() {
    let mut rig = Rig::new(Quota { per_minute: 60, burst: 1 });
    let machines: Vec<InterfaceId> =
        (0..10).map(|number| InterfaceId::first("r-a", &format!("n{number}"))).collect();
    for (number, machine) in machines.iter().enumerate() {
        let range = ranges(10).into_iter().nth(number);
        rig.region.want(machine, &range.into_iter().collect(), rig.now);
    }
    rig.run(Duration::from_mins(5));
    let served: BTreeSet<_> = rig.updates.iter().map(|(machine, ..)| machine.clone()).collect();
    assert_eq!(served.len(), 10, "{:?}", rig.updates);
}

#[test]
fn a_refusal_for_one_machine_closes_the_region_for_all() {
    let entropy = SeededEntropy::new(1);
    let (a, b) = (InterfaceId::first("r-a", "a"), InterfaceId::first("r-b", "b"));
    let mut rig = Rig::new(PLENTY);
    rig.region.want(&a, &ranges(1), rig.now);
    assert_eq!(rig.region.next(rig.now, &entropy).len(), 1);
    let error = CloudError::new(ErrorKind::Throttled(None), "rateLimitExceeded");
    rig.region.answer(&a, Answer::Unfinished(Err(error)), rig.now);
    rig.region.want(&b, &BTreeSet::new(), rig.now);
    assert!(rig.region.next(Timestamp::from_millis(59_999), &entropy).is_empty());
    assert_eq!(rig.region.next(Timestamp::from_millis(60_000), &entropy).len(), 2);
}

#[test]
fn an_interface_without_anything_of_ours_is_forgotten() {
    let a = InterfaceId::first("r-a", "a");
    let mut rig = Rig::new(PLENTY);
    rig.region.want(&a, &ranges(1), rig.now);
    rig.run(Duration::from_secs(20));
    assert!(!rig.region.forget(&a));
    rig.region.want(&a, &BTreeSet::new(), rig.now);
    rig.run(Duration::from_secs(20));
    assert!(rig.region.forget(&a));
    assert_eq!(rig.region.next_look(), None);
}
