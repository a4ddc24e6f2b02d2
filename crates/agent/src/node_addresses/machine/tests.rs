//! One thing after another, by hand.

use serde_json::json;
use tenure_node_addresses::DesiredState;

use super::super::record::{Configured, Mode, Trying};
use super::*;

const VERIFY: Duration = Duration::from_secs(30);

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn configured(generation: i64, interface: &str, address: &str) -> Configured {
    let (ip, prefix) = address.split_once('/').unwrap();
    let state = json!({"interfaces": [
        {"name": interface, "ipv4": {"address": [{"ip": ip, "prefix-length": prefix}]}}
    ]});
    Configured { generation, mode: Mode::Kernel, desired: DesiredState::parse(&state).unwrap(), state }
}

pub(super) fn record(uid: &str, confirmed: Option<Configured>) -> Record {
    Record {
        uid: uid.to_owned(),
        name: format!("node.{uid}"),
        policy: uid.to_owned(),
        confirmed,
        trying: None,
    }
}

pub(super) fn facts(uid: &str, generation: Option<i64>) -> Facts {
    Facts {
        ours: true,
        name: format!("node.{uid}"),
        uid: uid.to_owned(),
        policy: uid.to_owned(),
        generation,
        ..Facts::default()
    }
}

fn applied(uid: &str, generation: i64, interface: &str, address: &str) -> Done {
    Done::Applied {
        uid: uid.to_owned(),
        generation,
        record: record(uid, Some(configured(generation, interface, address))),
        found: vec![(interface.to_owned(), address.parse().unwrap())],
    }
}

fn failed(uid: &str, again: Again) -> Done {
    Done::Failed {
        uid: uid.to_owned(),
        generation: 1,
        record: None,
        found: Vec::new(),
        failure: Failure { message: "no".to_owned(), again },
    }
}

/// The name of the task, and its enactment.
fn said(task: Option<Task>) -> String {
    match task {
        None => "nothing".to_owned(),
        Some(Task::Hold(record)) => format!("hold {}", record.uid),
        Some(Task::Forget(record)) => format!("forget {}", record.uid),
        Some(Task::Release(facts, _)) => format!("release {}", facts.uid),
        Some(Task::Apply { facts, .. }) => format!("apply {}", facts.uid),
        Some(Task::Report(facts, report)) => match report.outcome {
            Outcome::Available => format!("report {} available", facts.uid),
            Outcome::Failing { .. } => format!("report {} failing", facts.uid),
            Outcome::Released => format!("report {} released", facts.uid),
        },
    }
}

#[test]
fn an_enactment_is_applied_at_its_turn_and_reported() {
    let mut machine = Machine::new(Vec::new(), VERIFY);
    assert_eq!(said(machine.next(at(0))), "nothing");
    machine.seen([facts("a", None)], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "nothing", "it is not its turn");
    machine.seen([facts("a", Some(1))], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "apply a");
    machine.done(applied("a", 1, "eth1", "10.0.0.1/24"), at(0));
    assert_eq!(said(machine.next(at(0))), "report a available");
    machine.done(Done::Reported { uid: "a".to_owned(), written: true }, at(0));
    assert_eq!(said(machine.next(at(0))), "nothing");
    assert_eq!(
        said(machine.next(at(30_000))),
        "report a available",
        "the watch never said that it is written"
    );
}

#[test]
fn an_enactment_of_another_product_is_left_alone() {
    let mut machine = Machine::new(Vec::new(), VERIFY);
    let theirs = || Facts { ours: false, ..facts("a", Some(1)) };
    machine.seen([theirs()], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "nothing");
    machine.seen([Facts { deleting: true, ..theirs() }], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "nothing");
}

#[test]
fn a_start_puts_back_what_the_file_says_before_the_api_server_is_known() {
    let mut machine = Machine::new(vec![record("a", Some(configured(1, "eth1", "10.0.0.1/24")))], VERIFY);
    assert_eq!(said(machine.next(at(0))), "hold a");
    let held = Done::Held {
        uid: "a".to_owned(),
        record: record("a", Some(configured(1, "eth1", "10.0.0.1/24"))),
        found: Vec::new(),
        problem: Some("there is no interface".to_owned()),
    };
    machine.done(held, at(0));
    assert_eq!(said(machine.next(at(0))), "nothing");
    assert_eq!(said(machine.next(at(1_000))), "hold a", "it waits for the interface");
    machine.seen([], &BTreeSet::new());
    assert_eq!(said(machine.next(at(1_000))), "forget a", "nobody has said that it should stay");
}

#[test]
fn of_two_policies_that_want_one_interface_the_older_comes_first_and_the_other_waits() {
    let mut machine = Machine::new(Vec::new(), VERIFY);
    let old = |uid: &str, created| Facts { created, ..facts(uid, Some(1)) };
    machine.seen([old("a", 7), old("b", 5)], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "apply b");
    machine.done(applied("b", 1, "eth1", "10.0.0.1/24"), at(0));
    machine.done(Done::Reported { uid: "b".to_owned(), written: true }, at(0));
    let Some(Task::Apply { taken, .. }) = machine.next(at(0)) else { panic!() };
    assert_eq!(taken, BTreeMap::from([("eth1".to_owned(), "b".to_owned())]));
    machine.done(failed("a", Again::WhenFree), at(0));
    machine.done(Done::Reported { uid: "a".to_owned(), written: true }, at(0));
    assert_eq!(machine.wake().map(Timestamp::as_millis), Some(5_000), "only reports are due");
    machine.seen([old("a", 7), Facts { deleting: true, ..old("b", 5) }], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "release b");
    machine.done(Done::Released { uid: "b".to_owned(), problem: None }, at(0));
    assert_eq!(said(machine.next(at(6_000))), "report a failing");
    machine.done(Done::Reported { uid: "a".to_owned(), written: true }, at(6_000));
    assert_eq!(said(machine.next(at(6_000))), "report b released");
    machine.done(Done::Reported { uid: "b".to_owned(), written: true }, at(6_000));
    assert_eq!(said(machine.next(at(6_000))), "apply a", "the interface is free");
}

#[test]
fn failures_are_tried_again_later_each_time_and_a_new_generation_at_once() {
    let mut machine = Machine::new(Vec::new(), VERIFY);
    machine.seen([facts("a", Some(1))], &BTreeSet::new());
    machine.done(failed("a", Again::Later), at(0));
    machine.done(Done::Reported { uid: "a".to_owned(), written: true }, at(0));
    assert_eq!(said(machine.next(at(999))), "nothing");
    assert_eq!(said(machine.next(at(1_000))), "apply a");
    machine.done(failed("a", Again::Later), at(1_000));
    assert_eq!(said(machine.next(at(2_900))), "nothing");
    assert_eq!(said(machine.next(at(3_000))), "apply a");
    machine.done(failed("a", Again::Never), at(3_000));
    assert_eq!(said(machine.next(at(4_000))), "nothing", "it is not understood");
    machine.seen([facts("a", Some(2))], &BTreeSet::new());
    assert_eq!(said(machine.next(at(4_000))), "apply a");
}

#[test]
fn what_cannot_be_taken_off_is_not_released() {
    let mut machine = Machine::new(vec![record("a", Some(configured(1, "eth1", "10.0.0.1/24")))], VERIFY);
    machine.seen([Facts { deleting: true, ..facts("a", Some(1)) }], &BTreeSet::new());
    assert_eq!(said(machine.next(at(0))), "release a", "it is not put back first");
    machine.done(Done::Released { uid: "a".to_owned(), problem: Some("busy".to_owned()) }, at(0));
    assert_eq!(said(machine.next(at(0))), "report a failing");
    machine.done(Done::Reported { uid: "a".to_owned(), written: true }, at(0));
    assert_eq!(said(machine.next(at(1_000))), "release a");
}

#[test]
fn an_attempt_that_was_not_confirmed_is_taken_back_and_forgotten() {
    let trying = Some(Trying { to: configured(1, "eth1", "10.0.0.1/24"), before: Vec::new() });
    let mut machine = Machine::new(vec![Record { trying, ..record("a", None) }], VERIFY);
    assert_eq!(said(machine.next(at(0))), "hold a");
    let held =
        Done::Held { uid: "a".to_owned(), record: record("a", None), found: Vec::new(), problem: None };
    machine.done(held, at(0));
    assert_eq!(said(machine.next(at(60_000))), "nothing");
    machine.seen([facts("a", Some(1))], &BTreeSet::new());
    assert_eq!(said(machine.next(at(60_000))), "apply a");
}

#[test]
fn what_is_given_back_is_reported_at_once_however_short_ago_the_last_report_was() {
    let mut machine = Machine::new(Vec::new(), VERIFY);
    machine.seen([facts("p", Some(1))], &BTreeSet::new());
    machine.done(applied("p", 1, "eth1", "10.10.10.8/24"), at(0));
    assert!(matches!(machine.next(at(0)), Some(Task::Report(..))));
    machine.done(Done::Reported { uid: "p".to_owned(), written: true }, at(0));
    assert!(machine.next(at(10)).is_none(), "not again before the watch has said it");
    machine.seen([Facts { deleting: true, ..facts("p", Some(1)) }], &BTreeSet::new());
    assert!(matches!(machine.next(at(10)), Some(Task::Release(..))));
    machine.done(Done::Released { uid: "p".to_owned(), problem: None }, at(10));
    let Some(Task::Report(_, report)) = machine.next(at(10)) else { panic!("{:?}", machine.next(at(10))) };
    assert_eq!(report.outcome, Outcome::Released);
}
