//! ADD, DEL, CHECK and GC.

use std::collections::BTreeSet;

use super::rig::*;
use crate::node::{Action, Done, Event, KernelError, KernelErrorKind, Report, Ticket, Wiring};

fn refused() -> KernelError {
    KernelError::new(KernelErrorKind::Other, "the kernel refused")
}

#[test]
fn an_answer_leaves_only_after_its_record_is_committed_and_the_wiring_is_done() {
    for commit_first in [true, false] {
        let mut rig = Rig::with_blocks([0]);
        rig.prompt = false;
        let add = rig.add("a");
        assert!(rig.is_open(add));
        if commit_first {
            rig.commit();
        } else {
            rig.obey();
        }
        assert!(rig.is_open(add));
        if commit_first {
            rig.obey();
        } else {
            rig.commit();
        }
        assert_eq!(rig.address(add), "10.0.7.0");
        let Some(Ok(Done::Added { link: Some(link), .. })) = rig.answers.get(&add) else { panic!() };
        assert_eq!(link.host_name, "tnra");

        let del = rig.del("a");
        rig.commit();
        assert!(rig.is_open(del), "the interface is still there");
        rig.obey();
        assert!(rig.is_open(del), "the release is not committed");
        rig.commit();
        assert!(rig.removed(del));
    }
}

#[test]
fn addresses_alone_need_no_wiring() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add_of(crate::node::Attach { wiring: None, ..attach("a", "default") });
    assert!(rig.jobs.is_empty() && rig.is_open(add));
    rig.commit();
    assert!(matches!(&rig.answers[&add], Ok(Done::Added { link: None, .. })));
    let ticket = rig.ticket();
    rig.event(Event::Del { ticket, key: key("a"), interface: false });
    assert!(rig.jobs.is_empty());
    rig.commit();
    assert!(rig.removed(ticket));
}

#[test]
fn invariant_5_add_is_idempotent_also_while_the_first_is_under_way() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let (first, second) = (rig.add("a"), rig.add("a"));
    assert_eq!(rig.jobs.len(), 1, "one interface is made");
    rig.commit();
    let third = rig.add("a");
    rig.obey();
    let addresses = [first, second, third].map(|ticket| rig.address(ticket));
    assert_eq!(addresses, ["10.0.7.0"; 3]);
    rig.prompt = true;
    assert_eq!(rig.give("a"), "10.0.7.0", "and long after");
    assert_eq!(rig.give("b"), "10.0.7.1");
    assert_eq!(rig.node.holds().len(), 2);
}

#[test]
fn invariant_5_two_adds_of_one_key_that_wait_get_one_address() {
    let mut rig = Rig::with_blocks([]);
    let (first, second) = (rig.add("a"), rig.add("a"));
    rig.grant(0);
    assert_eq!(rig.address(first), rig.address(second));
}

#[test]
fn invariant_5_a_repeated_add_verifies_the_interface_and_never_costs_the_hold() {
    let mut rig = Rig::with_blocks([0]);
    let address = rig.give("a");
    rig.prompt = false;
    let again = rig.add("a");
    rig.event(Event::WiringFailed { job: rig.job(), error: refused() });
    rig.jobs.clear();
    assert_eq!(rig.failure(again).message, "the kernel refused");
    rig.prompt = true;
    assert_eq!(rig.give("a"), address, "a running pod keeps its address");
}

#[test]
fn invariant_5_del_succeeds_when_there_is_nothing_to_do() {
    let mut rig = Rig::with_blocks([0]);
    let unknown = rig.del("a");
    assert!(rig.removed(unknown));
    rig.give("a");
    let (first, second) = (rig.del("a"), rig.del("a"));
    assert!(rig.removed(first) && rig.removed(second));
    let ticket = rig.ticket();
    rig.event(Event::Del { ticket, key: key("x"), interface: false });
    assert!(rig.removed(ticket));
}

#[test]
fn a_del_of_what_nobody_knows_still_looks_for_an_interface() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let del = rig.del("a");
    assert!(matches!(&rig.jobs[..], [Action::Unwire { .. }]));
    let add = rig.add("a");
    rig.obey();
    assert!(rig.removed(del));
    rig.commit();
    rig.obey();
    assert_eq!(rig.address(add), "10.0.7.0", "and an add that came meanwhile goes on");
}

#[test]
fn a_del_during_an_add_undoes_it() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let (add, del) = (rig.add("a"), rig.del("a"));
    assert_eq!(rig.failure(add).code, 11);
    rig.obey();
    assert!(rig.is_open(del), "wired meanwhile, and to be unwired");
    rig.obey();
    rig.commit();
    assert!(rig.removed(del));
    assert_eq!(rig.node.holds(), []);
}

#[test]
fn a_del_of_an_add_that_waits_for_a_block_ends_the_wait() {
    let mut rig = Rig::with_blocks([]);
    let (add, del) = (rig.add("a"), rig.del("a"));
    assert!(rig.removed(del));
    assert_eq!(rig.failure(add).code, 11);
    rig.grant(0);
    assert_eq!(rig.give("b"), "10.0.7.0", "nobody holds what the one who left would have got");
}

#[test]
fn an_add_after_a_del_of_the_same_key_waits_for_it_and_a_del_after_that_ends_both() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.prompt = false;
    let (del, add) = (rig.del("a"), rig.add("a"));
    rig.obey();
    rig.commit();
    assert!(rig.removed(del) && rig.is_open(add));
    rig.commit();
    rig.obey();
    assert_eq!(rig.address(add), "10.0.7.1", "the one before cools");

    let (del, add, last) = (rig.del("a"), rig.add("a"), rig.del("a"));
    assert_eq!(rig.failure(add).code, 11);
    rig.obey();
    rig.commit();
    assert!(rig.removed(del) && rig.removed(last));
}

#[test]
fn a_wiring_that_failed_costs_the_address_nothing_and_the_next_attempt_succeeds() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let add = rig.add("a");
    rig.commit();
    rig.event(Event::WiringFailed { job: rig.job(), error: refused() });
    assert_eq!(rig.failure(add).message, "the kernel refused");
    rig.jobs.remove(0);
    assert!(matches!(&rig.jobs[..], [Action::Unwire { .. }]), "the kernel may have kept a part");
    rig.obey();
    rig.commit();
    assert_eq!(rig.node.holds(), []);
    rig.prompt = true;
    rig.give("a");
}

#[test]
fn an_address_is_not_freed_while_its_interface_may_be_there() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.prompt = false;
    let del = rig.del("a");
    rig.event(Event::UnwiringFailed { job: rig.job(), error: refused() });
    rig.jobs.clear();
    assert_eq!(rig.failure(del).message, "the kernel refused");
    assert_eq!(rig.node.holds().len(), 1);
    rig.prompt = true;
    let again = rig.del("a");
    assert!(rig.removed(again));
}

#[test]
fn invariant_4_a_late_word_of_the_kernel_about_an_earlier_job_frees_nothing() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    rig.add("a");
    let job = rig.job();
    rig.obey();
    rig.commit();
    rig.del("a");
    rig.event(Event::Wired { job, link: crate::node::Link::default() });
    rig.event(Event::Unwired { job });
    rig.event(Event::WiringFailed { job, error: refused() });
    assert_eq!(rig.node.holds().len(), 1, "only the unwiring itself frees it");
}

#[test]
fn garbage_collection_ends_what_is_not_alive_and_nothing_else() {
    let mut rig = Rig::with_blocks([0]);
    for container in ["a", "b", "c"] {
        rig.give(container);
    }
    let other = crate::key::HoldKey::new("other", "z", "eth0").unwrap();
    rig.add_of(crate::node::Attach { key: other, ..attach("z", "default") });
    rig.prompt = false;
    let under_way = rig.add("d");
    let ticket = rig.ticket();
    let alive = BTreeSet::from([("b".to_owned(), "eth0".to_owned())]);
    rig.event(Event::Gc { ticket, network: "net".into(), alive: alive.clone() });
    rig.obey();
    assert!(rig.is_open(ticket));
    rig.commit();
    assert_eq!(rig.answers[&ticket], Ok(Done::Swept(2)));
    rig.obey();
    assert!(!rig.is_open(under_way), "what was under way is not garbage");
    let left: Vec<String> = rig.node.holds().iter().map(|hold| hold.key.to_string()).collect();
    assert_eq!(left, ["net/b/eth0", "net/d/eth0", "other/z/eth0"]);

    rig.prompt = true;
    let again = rig.ticket();
    rig.event(Event::Gc {
        ticket: again,
        network: "net".into(),
        alive: ["b", "d"].map(|c| (c.to_owned(), "eth0".to_owned())).into(),
    });
    assert_eq!(rig.answers[&again], Ok(Done::Swept(0)));
}

#[test]
fn garbage_collection_says_what_it_could_not_end() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.give("b");
    rig.prompt = false;
    let ticket = rig.ticket();
    rig.event(Event::Gc { ticket, network: "net".into(), alive: BTreeSet::new() });
    let jobs: Vec<Action> = rig.jobs.drain(..).collect();
    let Action::Unwire { job, .. } = jobs[0] else { panic!() };
    rig.event(Event::UnwiringFailed { job, error: refused() });
    rig.event(done(&jobs[1]));
    rig.commit();
    assert!(rig.failure(ticket).message.contains("1 holds ended, 1 could not: the kernel refused"));
}

#[test]
fn check_compares_addresses_and_then_the_interface() {
    let mut rig = Rig::with_blocks([0]);
    let address = rig.give("a");
    let check = |rig: &mut Rig, container: &str, expected: &str| -> Ticket {
        let ticket = rig.ticket();
        let expected = vec![expected.parse().unwrap()];
        rig.event(Event::Check { ticket, attach: attach(container, "default"), expected });
        ticket
    };
    let good = check(&mut rig, "a", &address);
    assert_eq!(rig.answers[&good], Ok(Done::Checked));
    let other = check(&mut rig, "a", "10.0.7.5");
    assert!(rig.failure(other).message.contains("10.0.7.5"));
    let unknown = check(&mut rig, "b", &address);
    assert_eq!(rig.failure(unknown).code, 3);
    rig.prompt = false;
    let broken = check(&mut rig, "a", &address);
    rig.event(Event::Inspected { job: rig.job(), differences: vec!["host link: expected up".into()] });
    assert!(rig.failure(broken).message.contains("expected up"));
}

#[test]
fn a_journal_that_cannot_be_written_is_said_and_nothing_is_answered_that_may_be_forgotten() {
    let mut rig = Rig::with_blocks([0]);
    rig.give("a");
    rig.prompt = false;
    let (add, del) = (rig.add("b"), rig.del("a"));
    rig.obey();
    rig.event(Event::JournalFailed { message: "cannot write to the journal: No space left".into() });
    for ticket in [add, del] {
        assert_eq!(rig.failure(ticket).code, 5);
        assert!(rig.failure(ticket).message.contains("No space left"));
    }
    assert_eq!(rig.status().unwrap_err().code, 50);
    let refused = rig.add("c");
    assert!(rig.failure(refused).message.contains("journal"));
    let repeated = rig.del("a");
    assert!(rig.is_open(repeated));
    rig.commit();
    assert!(rig.removed(repeated));
    assert!(rig.reports.contains(&Report::JournalHealed));
    assert_eq!(rig.status(), Ok(()));
    rig.prompt = true;
    assert_eq!(rig.give("b"), "10.0.7.1", "what was asked for was done");
}

#[test]
fn the_interface_is_made_as_the_call_asked_for() {
    let mut rig = Rig::with_blocks([0]);
    rig.prompt = false;
    let wiring =
        Wiring { netns: "/run/netns/x".into(), mtu: Some(1400), mac: Some("02:00:00:00:00:01".into()) };
    rig.add_of(crate::node::Attach { wiring: Some(wiring.clone()), ..attach("a", "default") });
    let [Action::Wire(job)] = &rig.jobs[..] else { panic!() };
    assert_eq!((&job.wiring, &job.key, &job.pod), (&wiring, &key("a"), &pod("a")));
}
