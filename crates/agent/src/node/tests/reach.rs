//! Reach: who packets for a claim's addresses arrive at, and when.

use std::time::Duration;

use super::claim_uses::{ADDRESS, claim, claim_use, found};
use super::rig::{Rig, attach};
use crate::journal::Record;
use crate::node::{Action, Attach, ClaimUse, Event, Look, Report};

fn seen(rig: &mut Rig, active: Option<&str>) {
    seen_with(rig, active, false);
}

fn seen_with(rig: &mut Rig, active: Option<&str>, contested: bool) {
    rig.event(Event::ClaimSeen { uid: "vm-uid".into(), active_pod: active.map(str::to_owned), contested });
}

/// What was asked about reach since the last time: `+a` routes lead to a's interface, `-a` they do not, `!a` it is announced,
/// again and again `!!a`, `.a` it is quiet.
fn asked(rig: &mut Rig) -> String {
    let asked = rig.reaches.drain(..).map(|action| match action {
        Action::Reach { key, addresses, reached, .. } => {
            assert_eq!(addresses.to_string(), ADDRESS);
            format!("{}{}", if reached { "+" } else { "-" }, key.container())
        }
        Action::Announce { key, netns, reached, contested, .. } => {
            assert_eq!(netns, format!("/run/netns/{}", key.container()));
            let what = match (reached, contested) {
                (true, true) => "!!",
                (true, false) => "!",
                (false, _) => ".",
            };
            format!("{what}{}", key.container())
        }
        other => panic!("{other:?}"),
    });
    asked.collect::<Vec<_>>().join(" ")
}

/// The containers of claim users that are reached.
fn reached(rig: &Rig) -> Vec<String> {
    let holds = rig.node.holds().into_iter();
    let reached = holds.filter(|hold| hold.claim.as_ref().is_some_and(|claim| claim.reached));
    reached.map(|hold| hold.key.container().to_owned()).collect()
}

fn is_exported(rig: &Rig) -> bool {
    rig.exported.contains(&format!("{ADDRESS}/32").parse().unwrap())
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn incoming() -> ClaimUse {
    ClaimUse { reached: false, ..claim("vm") }
}

/// A claim user on somebody else's interface, on a segment.
fn on_segment(container: &str, reached: bool) -> Attach {
    let addresses = vec![(ADDRESS.parse().unwrap(), 24)];
    Attach { wiring: None, ..claim_use(container, ClaimUse { addresses, reached, ..claim("vm") }) }
}

#[test]
fn an_add_that_is_not_reached_makes_the_interface_without_a_route_and_exports_nothing() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    rig.add_of(claim_use("a", incoming()));
    let [Action::Wire(job)] = &rig.jobs[..] else { panic!("{:?}", rig.jobs) };
    assert!(!job.reached);
    rig.obey();
    rig.commit();
    assert!(!is_exported(&rig));
    rig.add_of(claim_use("b", claim("vm")));
    let Some(Action::Wire(job)) = rig.jobs.first() else { panic!("{:?}", rig.jobs) };
    assert!(job.reached && is_exported(&rig));
}

#[test]
fn whoever_gains_a_claim_is_reached_at_once_and_whoever_loses_it_a_moment_longer_than_that() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", incoming()));
    seen(&mut rig, Some("elsewhere"));
    assert_eq!(asked(&mut rig), "");
    seen(&mut rig, Some("a"));
    assert_eq!(asked(&mut rig), "+a");
    assert!(is_exported(&rig));
    seen(&mut rig, Some("elsewhere"));
    assert_eq!((asked(&mut rig), reached(&rig)), (String::new(), vec![]));
    assert_eq!(rig.node.next_wake(), Some(rig.now.plus(millis(20))));
    rig.pass(millis(19));
    assert_eq!(asked(&mut rig), "");
    rig.pass(millis(1));
    assert_eq!(asked(&mut rig), "-a");
    assert!(is_exported(&rig), "until routers know the other");
    assert_eq!(rig.node.next_wake(), Some(rig.now.plus(millis(980))));
    rig.pass(millis(979));
    assert!(is_exported(&rig));
    rig.pass(millis(1));
    assert!(!is_exported(&rig));
    assert_eq!(asked(&mut rig), "", "the interface stays as it is");
    let reached: Vec<bool> = rig
        .records
        .iter()
        .filter_map(|record| match record {
            Record::ClaimUse(use_record) => Some(use_record.reached),
            _ => None,
        })
        .collect();
    assert_eq!(reached, [false, true, false], "a restart knows");
}

#[test]
fn a_claim_that_comes_back_before_its_route_went_changes_nothing() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    seen(&mut rig, Some("elsewhere"));
    rig.pass(millis(10));
    seen(&mut rig, Some("a"));
    rig.pass(Duration::from_secs(5));
    assert_eq!((asked(&mut rig), reached(&rig)), (String::new(), vec!["a".to_owned()]));
    assert!(is_exported(&rig));
    // Later than that it is put again, and repeated words change nothing.
    seen(&mut rig, None);
    rig.pass(millis(30));
    seen(&mut rig, Some("a"));
    seen(&mut rig, Some("a"));
    rig.pass(Duration::from_secs(5));
    assert_eq!(asked(&mut rig), "-a +a");
    assert!(is_exported(&rig));
}

#[test]
fn invariant_1_of_two_claim_users_of_a_claim_on_one_node_one_is_reached_and_the_new_route_comes_first() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.add_of(claim_use("b", incoming()));
    assert_eq!(reached(&rig), ["a"]);
    seen(&mut rig, Some("b"));
    assert_eq!((asked(&mut rig).as_str(), reached(&rig)), ("+b -a", vec!["b".to_owned()]));
    assert!(is_exported(&rig));
    rig.pass(Duration::from_secs(5));
    assert!(is_exported(&rig), "one of them has it");
    rig.del("b");
    assert!(reached(&rig).is_empty() && !is_exported(&rig), "the claim does not say a");
    seen(&mut rig, Some("a"));
    assert_eq!(asked(&mut rig), "+a");
}

/// The runtime makes a new sandbox for the same pod before the old one is gone.
#[test]
fn of_two_sandboxes_of_the_active_pod_the_later_one_is_reached() {
    let mut rig = Rig::with_blocks([0]);
    let again = |container: &str| {
        let mut attach = claim_use(container, claim("vm"));
        attach.pod.uid = "pod".into();
        attach
    };
    rig.add_of(again("a"));
    rig.pass(millis(10));
    rig.add_of(again("b"));
    assert_eq!((asked(&mut rig).as_str(), reached(&rig)), ("-a", vec!["b".to_owned()]));
    rig.del("a");
    assert_eq!(reached(&rig), ["b"], "a late DEL touches nobody else");
    rig.pass(millis(10));
    rig.add_of(again("c"));
    rig.del("c");
    assert_eq!(reached(&rig), ["b"]);
    assert!(asked(&mut rig).ends_with("-b +b") && is_exported(&rig));
}

#[test]
fn what_the_claim_said_last_counts_for_more_than_what_the_add_was_sent_with() {
    let mut rig = Rig::with_blocks([0]);
    seen(&mut rig, Some("a"));
    rig.add_of(claim_use("a", incoming()));
    assert_eq!(reached(&rig), ["a"]);
    seen(&mut rig, Some("elsewhere"));
    rig.del("a");
    rig.add_of(claim_use("a", claim("vm")));
    assert!(reached(&rig).is_empty());
}

#[test]
fn a_claim_user_that_is_unwired_is_given_no_route_any_more() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.prompt = false;
    let del = rig.del("a");
    assert!(!is_exported(&rig));
    seen(&mut rig, Some("elsewhere"));
    seen(&mut rig, Some("a"));
    rig.pass(Duration::from_secs(2));
    assert_eq!(asked(&mut rig), "");
    rig.obey();
    rig.commit();
    assert!(rig.removed(del));
}

#[test]
fn invariant_7_a_claim_that_is_deleted_in_use_stays_where_it_is_used() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    seen(&mut rig, Some("a"));
    rig.event(Event::ClaimGone { uid: "vm-uid".into() });
    rig.event(Event::ClaimsRead);
    rig.pass(Duration::from_mins(1));
    assert_eq!((asked(&mut rig), reached(&rig)), (String::new(), vec!["a".to_owned()]));
    // Also over a restart after which nobody speaks of it.
    let mut again = rig.restarted(vec![found("a", &[ADDRESS])]);
    again.event(Event::ApiRead);
    again.event(Event::ClaimsRead);
    again.pass(Duration::from_mins(1));
    assert_eq!((asked(&mut again), reached(&again)), (String::new(), vec!["a".to_owned()]));
    assert!(is_exported(&again));
}

#[test]
fn after_a_restart_claim_users_are_as_the_kernel_has_them_until_their_claim_is_heard_of() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.add_of(claim_use("b", incoming()));
    // The crash came after the route went, or before it came.
    for (kernel, before, told) in [
        (vec![found("a", &[ADDRESS]), found("b", &[])], vec!["a"], "+b -a"),
        (vec![found("a", &[]), found("b", &[ADDRESS])], vec!["b"], ""),
        (vec![found("a", &[]), found("b", &[])], vec![], "+b"),
    ] {
        let mut again = rig.restarted(kernel);
        again.event(Event::ApiRead);
        assert_eq!(reached(&again), before);
        assert_eq!(again.repaired.len(), before.len());
        seen(&mut again, Some("b"));
        again.event(Event::ClaimsRead);
        assert_eq!((asked(&mut again).as_str(), reached(&again)), (told, vec!["b".to_owned()]));
    }
    // Told before all is replayed, it counts as well.
    let mut again = rig.restarted(vec![found("a", &[ADDRESS]), found("b", &[])]);
    seen(&mut again, Some("b"));
    again.event(Event::ClaimsRead);
    assert_eq!(asked(&mut again), "");
    again.event(Event::ApiRead);
    assert_eq!((asked(&mut again).as_str(), reached(&again)), ("+b -a", vec!["b".to_owned()]));
}

#[test]
fn invariant_9_routes_are_repaired_for_those_who_are_reached_and_for_nobody_else() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    rig.add_of(claim_use("b", incoming()));
    let look = |rig: &mut Rig, links| {
        rig.pass(Duration::from_secs(31));
        let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("it does not look") };
        rig.repaired.clear();
        rig.event(Event::Looked { job, look: Look { links, ..Look::default() } });
        rig.repaired.iter().map(|(key, _)| key.container().to_owned()).collect::<Vec<_>>()
    };
    let mended = look(&mut rig, vec![found("a", &[ADDRESS]), found("b", &[])]);
    assert!(mended.is_empty(), "all was as it should be");
    let mended = look(&mut rig, vec![found("a", &[]), found("b", &[])]);
    assert_eq!(mended, ["a"]);
    let mended = look(&mut rig, vec![found("a", &[]), found("b", &[ADDRESS])]);
    assert_eq!(mended, ["a"]);
    let differences = rig.reports.iter().filter_map(|report| match report {
        Report::Routes { differences } => Some(differences.clone()),
        _ => None,
    });
    let differences: Vec<String> = differences.flatten().collect();
    assert!(differences.contains(&format!("{ADDRESS} led to net/b/eth0")), "{differences:?}");
}

/// A look that was taken before a move says nothing about what is after it.
#[test]
fn a_look_from_before_a_move_is_not_held_against_it() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", incoming()));
    rig.pass(Duration::from_secs(31));
    let Some(Action::Look { job, .. }) = rig.looks.pop() else { panic!("it does not look") };
    seen(&mut rig, Some("a"));
    rig.event(Event::Looked { job, look: Look { links: vec![found("a", &[])], ..Look::default() } });
    assert!(!rig.reports.iter().any(|it| matches!(it, Report::Routes { .. })));
}

#[test]
fn a_repeated_add_and_a_check_know_whether_routes_are_to_be_there() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", incoming()));
    rig.prompt = false;
    let jobs = |rig: &mut Rig| {
        rig.add_of(claim_use("a", claim("vm")));
        rig.obey();
        let ticket = rig.ticket();
        rig.event(Event::Check { ticket, attach: claim_use("a", claim("vm")), expected: Vec::new() });
        let [Action::Inspect(job)] = &rig.jobs[..] else { panic!("{:?}", rig.jobs) };
        let reached = job.reached;
        rig.obey();
        rig.add_of(attach("a", "default"));
        let [Action::Wire(job)] = &rig.jobs[..] else { panic!("{:?}", rig.jobs) };
        assert_eq!(job.reached, reached);
        rig.obey();
        reached
    };
    seen(&mut rig, Some("elsewhere"));
    assert!(!jobs(&mut rig));
    seen(&mut rig, Some("a"));
    assert!(jobs(&mut rig));
    seen(&mut rig, None);
    assert!(jobs(&mut rig), "for a moment longer");
    rig.pass(millis(20));
    assert!(!jobs(&mut rig));
}

#[test]
fn on_a_segment_whoever_gains_an_address_says_so_and_whoever_has_it_not_is_quiet() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(on_segment("a", true));
    rig.add_of(on_segment("b", false));
    assert_eq!(asked(&mut rig), "!a .b");
    seen(&mut rig, Some("b"));
    assert_eq!(asked(&mut rig), "!b .a");
    seen(&mut rig, Some("elsewhere"));
    assert_eq!(asked(&mut rig), ".b");
    rig.pass(Duration::from_secs(5));
    assert_eq!(asked(&mut rig), "", "there are no routes");
    assert!(!rig.exported.iter().any(|network| network.contains(ADDRESS.parse().unwrap())));
    // An interface that is made anew has forgotten.
    rig.add_of(on_segment("b", false));
    assert_eq!(asked(&mut rig), ".b");
    let restarted = rig.restarted(Vec::new());
    assert_eq!(restarted.reaches, [], "a restart disturbs nobody");
}

#[test]
fn on_a_segment_whoever_has_an_address_says_so_for_as_long_as_somebody_else_has_it_too() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(on_segment("a", true));
    assert_eq!(asked(&mut rig), "!a");
    seen_with(&mut rig, Some("a"), true);
    assert_eq!(asked(&mut rig), "!!a");
    seen_with(&mut rig, Some("a"), true);
    assert_eq!(asked(&mut rig), "", "it does already");
    seen_with(&mut rig, Some("elsewhere"), true);
    assert_eq!(asked(&mut rig), ".a");
    seen_with(&mut rig, Some("a"), true);
    assert_eq!(asked(&mut rig), "!!a");
    seen(&mut rig, Some("a"));
    assert_eq!(asked(&mut rig), "!a", "nobody else has it any more");
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_linger() {
    let mut rig = Rig::with_blocks([0]);
    rig.add_of(claim_use("a", claim("vm")));
    seen(&mut rig, None);
    rig.now = tenure_handles::Timestamp::from_millis(10);
    rig.pass(millis(0));
    rig.pass(millis(20));
    assert_eq!(asked(&mut rig), "-a");
    rig.pass(millis(980));
    assert!(!is_exported(&rig));
}
