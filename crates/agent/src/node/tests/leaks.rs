//! What was left over is seen and put away, after it was seen twice; and nothing else is.

use std::time::Duration;

use super::claim_uses::{ADDRESS, claim, claim_use};
use super::rig::*;
use crate::key::HoldKey;
use crate::node::{Action, Attach, Event, Found, Job, Leak, Look, Report};

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

fn link(container: &str, addresses: &[&str]) -> Found {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Found { key: key(container), pod: pod(container), addresses }
}

fn without_interface(container: &str) -> Attach {
    Attach { wiring: None, ..attach(container, "default") }
}

impl Rig {
    /// Lets half a minute pass. Says the number of the look, and whom it asks about.
    fn ask(&mut self) -> (Job, Vec<HoldKey>, Vec<(HoldKey, String)>) {
        self.pass(HALF_A_MINUTE);
        match self.looks.pop() {
            Some(Action::Look { job, interfaces, namespaces }) => (job, interfaces, namespaces),
            other => panic!("{other:?} is no look"),
        }
    }

    /// Lets half a minute pass, and the kernel have these links; whatever else was asked about is gone.
    fn look(&mut self, links: &[Found]) {
        let (job, interfaces, namespaces) = self.ask();
        let asked = interfaces.into_iter().chain(namespaces.into_iter().map(|(key, _)| key));
        let gone = asked.filter(|key| links.iter().all(|link| link.key != *key)).collect();
        let look = Look { links: links.to_vec(), gone, strays: Vec::new() };
        self.event(Event::Looked { job, look });
    }

    fn leaks(&self) -> Vec<(HoldKey, Leak)> {
        let leak = |report: &Report| match report {
            Report::Leak { key, leak, .. } => Some((key.clone(), leak.clone())),
            _ => None,
        };
        self.reports.iter().filter_map(leak).collect()
    }
}

#[test]
fn invariant_9_a_hold_whose_interface_is_gone_is_released_after_two_observations_never_one() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    rig.look(&[link("b", &["10.0.7.1"])]);
    assert_eq!((rig.node.holds().len(), rig.leaks()), (2, vec![]), "seen once is not enough");
    let seen: Vec<(HoldKey, Leak)> = rig.node.leaks().into_iter().map(|it| (it.key, it.leak)).collect();
    assert_eq!(seen, [(key("a"), Leak::NoInterface)], "but it can be seen");
    rig.look(&[link("b", &["10.0.7.1"])]);
    assert_eq!(rig.node.holds().len(), 1);
    assert_eq!(rig.leaks(), [(key("a"), Leak::NoInterface)]);
    assert_eq!((rig.node.leaks(), rig.node.repaired_leaks()), (vec![], 1));
    assert_eq!(rig.node.pools()[0].counts.cooling, 1, "it cools like any other");
    let late = rig.del("a");
    assert!(rig.removed(late), "the DEL that comes later succeeds");
}

#[test]
fn invariant_9_what_is_there_again_is_not_suspected_any_more() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    for _ in 0..3 {
        rig.look(&[]);
        rig.look(&[link("a", &["10.0.7.0"])]);
        assert_eq!(rig.node.leaks(), []);
    }
    rig.look(&[]);
    // A repeated ADD puts the interface back.
    rig.give("a");
    assert_eq!(rig.node.leaks(), []);
    rig.look(&[]);
    assert_eq!(rig.node.holds().len(), 1);
}

#[test]
fn invariant_9_the_next_hold_of_the_same_holder_is_not_suspected_of_anything() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.look(&[]);
    rig.del("a");
    rig.give("a");
    rig.look(&[]);
    assert_eq!((rig.node.holds().len(), rig.leaks()), (1, vec![]));
    rig.look(&[]);
    assert_eq!(rig.node.holds().len(), 0);
}

#[test]
fn invariant_9_two_looks_in_quick_succession_are_one_observation() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    let every = rig.node.settings.look_every;
    // The first takes until the second is due.
    for pass in [every, Duration::from_millis(1)] {
        rig.pass(pass);
        let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("no look") };
        if pass == every {
            rig.pass(every.saturating_sub(Duration::from_millis(1)));
        }
        let gone = [key("a")].into();
        rig.event(Event::Looked { job, look: Look { gone, ..Look::default() } });
        assert_eq!(rig.leaks(), []);
    }
    rig.look(&[]);
    assert_eq!(rig.leaks().len(), 1);
}

#[test]
fn invariant_9_an_add_or_del_under_way_is_never_touched() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add("a");
    for _ in 0..3 {
        let (job, interfaces, _) = rig.ask();
        assert_eq!(interfaces, [], "nobody is asked about");
        let gone = [key("a")].into();
        rig.event(Event::Looked { job, look: Look { gone, ..Look::default() } });
    }
    assert_eq!(rig.leaks(), []);
    rig.commit();
    rig.obey();
    assert_eq!(rig.address(add), "10.0.7.0");
    let del = rig.del("a");
    // Its link is still there: somebody knows about it.
    for _ in 0..3 {
        rig.look(&[link("a", &["10.0.7.0"])]);
    }
    assert_eq!(rig.leaks(), []);
    rig.obey();
    rig.commit();
    assert!(rig.removed(del));
}

#[test]
fn invariant_9_a_link_that_nobody_holds_an_address_for_goes_after_two_observations_never_one() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let left = [link("a", &["10.0.7.5"])];
    rig.look(&left);
    assert_eq!((rig.jobs.len(), rig.node.leaks().len()), (0, 1));
    rig.look(&left);
    assert!(matches!(&rig.jobs[..], [Action::Unwire { key: of, .. }] if *of == key("a")), "{:?}", rig.jobs);
    assert_eq!(rig.leaks(), [(key("a"), Leak::NoHold)]);
    // An ADD that comes meanwhile waits for it.
    let add = rig.add("a");
    assert!(rig.is_open(add));
    rig.prompt = true;
    rig.obey();
    assert_eq!(rig.address(add), "10.0.7.0");
}

#[test]
fn invariant_9_a_link_that_could_not_be_put_away_is_tried_again() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let left = [link("a", &[])];
    for round in 1..=2 {
        rig.look(&left);
        rig.look(&left);
        let job = rig.job();
        rig.jobs.clear();
        let error = crate::node::KernelError::new(crate::node::KernelErrorKind::Other, "busy");
        rig.event(Event::UnwiringFailed { job, error });
        assert_eq!(rig.leaks().len(), round);
        assert!(rig.node.is_idle());
    }
}

#[test]
fn invariant_9_a_hold_of_another_plugins_interface_goes_with_its_namespace() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(without_interface("a"));
    rig.add_of(without_interface("b"));
    rig.add_of(Attach { netns: String::new(), ..without_interface("c") });
    let (job, _, namespaces) = rig.ask();
    let paths: Vec<&str> = namespaces.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths.len(), 2, "of c nobody knows where it is: {paths:?}");
    let gone = |container: &str| Look { gone: [key(container)].into(), ..Look::default() };
    rig.event(Event::Looked { job, look: gone("a") });
    assert_eq!(rig.node.holds().len(), 3);
    // The path is remembered over a restart, and the suspicion is not.
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    for held in [3, 2] {
        let (job, _, namespaces) = again.ask();
        assert!(namespaces.contains(&(key("a"), "/run/netns/a".into())), "{namespaces:?}");
        again.event(Event::Looked { job, look: gone("a") });
        assert_eq!(again.node.holds().len(), held);
    }
    assert_eq!(again.leaks(), [(key("a"), Leak::NoNamespace("/run/netns/a".into()))]);
    assert!(again.jobs.is_empty(), "the interface is not ours");
}

#[test]
fn a_repeated_add_says_where_the_pod_is_now() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(without_interface("a"));
    rig.add_of(Attach { netns: "/run/netns/new".into(), ..without_interface("a") });
    let mut again = rig.restarted(Vec::new());
    again.event(Event::BlockSeen(block("default", 0)));
    again.event(Event::ApiRead);
    let (_, _, namespaces) = again.ask();
    assert_eq!(namespaces, [(key("a"), "/run/netns/new".into())]);
}

#[test]
fn invariant_9_routes_that_are_missing_or_too_many_are_said_and_put_right() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    rig.repaired.clear();
    rig.look(&[link("a", &["10.0.7.0"]), link("b", &["10.0.7.1"])]);
    assert!(rig.repaired.is_empty(), "all is as it should be");
    for (a, b, differences) in [
        (&[][..], &["10.0.7.1"][..], vec!["no route led to 10.0.7.0 of net/a/eth0"]),
        (&["10.0.7.0"], &["10.0.7.1", "10.0.7.6"], vec!["10.0.7.6 led to net/b/eth0"]),
        (
            &["10.0.7.1"],
            &[],
            vec![
                "no route led to 10.0.7.0 of net/a/eth0",
                "10.0.7.1 led to net/a/eth0",
                "no route led to 10.0.7.1 of net/b/eth0",
            ],
        ),
    ] {
        rig.reports.clear();
        rig.look(&[link("a", a), link("b", b)]);
        let said = differences.into_iter().map(str::to_owned).collect();
        assert_eq!(rig.reports, [Report::Routes { differences: said }]);
        let repaired: Vec<String> =
            rig.repaired.drain(..).map(|(key, addresses)| format!("{key} {addresses}")).collect();
        assert_eq!(repaired.len(), 2, "{repaired:?}");
    }
    let (job, ..) = rig.ask();
    let links = vec![link("a", &["10.0.7.0"]), link("b", &["10.0.7.1"])];
    let strays = vec!["10.0.7.7/32 dev 99 table 116 proto 30".into()];
    rig.event(Event::Looked { job, look: Look { links, strays, ..Look::default() } });
    assert_eq!(rig.repaired.len(), 2);
}

/// Of one that only the kernel knows nobody can tell whether it is of the claim.
#[test]
fn a_route_is_put_right_for_the_claim_user_that_has_the_claim_although_a_link_of_nobody_has_its_address() {
    let mut before = Rig::with_blocks([]);
    before.add_of(claim_use("a", claim("vm")));
    let mut rig = before.restarted(vec![link("a", &[]), link("b", &[ADDRESS])]);
    rig.event(Event::ApiRead);
    rig.event(Event::ClaimSeen { uid: "vm-uid".into(), active_pod: Some("a".into()), contested: false });
    rig.look(&[link("a", &[ADDRESS]), link("b", &[])]);
    rig.repaired.clear();
    rig.look(&[link("a", &[]), link("b", &[ADDRESS])]);
    let last = rig.repaired.last().map(|(key, addresses)| format!("{key} {addresses}"));
    assert_eq!(last, Some(format!("net/a/eth0 {ADDRESS}")), "the later one counts");
}

#[test]
fn a_route_is_put_right_also_while_others_are_under_way() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.prompt = false;
    rig.add("b");
    rig.look(&[link("a", &[])]);
    let keys: Vec<HoldKey> = rig.repaired.iter().map(|(key, _)| key.clone()).collect();
    assert!(keys.contains(&key("a")) && keys.contains(&key("b")), "b's route would be lost: {keys:?}");
}

#[test]
fn invariant_9_what_a_late_look_saw_is_not_missing_since_before() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.look(&[]);
    let (late, ..) = rig.ask();
    let (job, interfaces, _) = rig.ask();
    let links = vec![link("a", &["10.0.7.0"])];
    rig.event(Event::Looked { job: late, look: Look { links, ..Look::default() } });
    let gone = interfaces.into_iter().collect();
    rig.event(Event::Looked { job, look: Look { gone, ..Look::default() } });
    assert_eq!(rig.leaks(), [], "it was missing once since it was seen");
    rig.look(&[]);
    assert_eq!(rig.leaks(), [(key("a"), Leak::NoInterface)]);
}

#[test]
fn an_old_look_says_nothing_any_more() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    let (old, ..) = rig.ask();
    rig.look(&[]);
    rig.now = rig.now.plus(HALF_A_MINUTE);
    rig.event(Event::Looked { job: old, look: Look { gone: [key("a")].into(), ..Look::default() } });
    assert_eq!((rig.node.holds().len(), rig.leaks()), (1, vec![]));
}
