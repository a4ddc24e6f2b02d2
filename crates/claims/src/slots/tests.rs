use tenure_handles::Timestamp;

use super::*;
use crate::pod::Launcher;

/// A pod on the node of its name, made at that second.
pub(super) fn pod(name: &str, second: u64) -> PodFacts {
    PodFacts {
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        created: Timestamp::from_millis(second * 1000),
        node: Some(format!("node-{name}")),
        ..PodFacts::default()
    }
}

fn ready(name: &str, second: u64, at: i128) -> PodFacts {
    let launcher = Launcher { vmi: "vm".into(), ready_at: Some(Stamp::new(at)) };
    PodFacts { launcher: Some(launcher), ..pod(name, second) }
}

fn deleting(pod: PodFacts) -> PodFacts {
    PodFacts { deleting: true, ..pod }
}

fn finished(pod: PodFacts) -> PodFacts {
    PodFacts { finished: true, ..pod }
}

/// `active/incoming number`
fn shown(slots: &Slots) -> String {
    let name = |slot: &Option<Slot>| slot.as_ref().map_or("-".to_owned(), |slot| slot.pod.clone());
    format!("{}/{} {}", name(&slots.active), name(&slots.incoming), slots.number)
}

fn settle(slots: &Slots, users: &[PodFacts]) -> Slots {
    let users: Vec<&PodFacts> = users.iter().collect();
    let next = slots.next(&users).unwrap_or_else(|| slots.clone());
    assert_eq!(next.next(&users), None, "settled in one step");
    assert_eq!(Slots::from_annotation(&next.to_annotation()), Ok(next.clone()), "and read as it was written");
    next
}

/// Slots after each of several looks.
fn story(looks: &[&[PodFacts]]) -> Vec<String> {
    let mut slots = Slots::default();
    looks
        .iter()
        .map(|users| {
            slots = settle(&slots, users);
            shown(&slots)
        })
        .collect()
}

#[test]
fn a_live_migration_is_a_second_pod_a_swap_and_an_end() {
    assert_eq!(
        story(&[
            &[],
            &[pod("a", 1)],
            &[pod("a", 1), pod("b", 2)],
            &[pod("a", 1), ready("b", 2, 10)],
            &[finished(pod("a", 1)), ready("b", 2, 10)],
            &[ready("b", 2, 10)],
        ]),
        ["-/- 0", "a/- 1", "a/b 1", "b/a 2", "b/- 2", "b/- 2"]
    );
}

#[test]
fn the_time_alone_is_the_signal_and_without_it_there_is_none() {
    assert_eq!(story(&[&[pod("a", 1)], &[pod("a", 1), ready("b", 2, 10)]]), ["a/- 1", "b/a 2"]);
    let mut no_time = ready("b", 2, 10);
    no_time.launcher.as_mut().unwrap().ready_at = None;
    assert_eq!(story(&[&[pod("a", 1)], &[pod("a", 1), no_time]]), ["a/- 1", "a/b 1"]);
}

#[test]
fn a_migration_that_fails_aborts_and_another_may_begin() {
    assert_eq!(
        story(&[
            &[pod("a", 1), pod("b", 2)],
            &[pod("a", 1)],
            &[pod("a", 1), pod("c", 3)],
            &[pod("a", 1), finished(pod("c", 3))],
        ]),
        ["a/b 1", "a/- 1", "a/c 1", "a/- 1"]
    );
}

#[test]
fn the_active_pod_that_finishes_goes_or_is_being_deleted_hands_over() {
    for leaving in [vec![finished(pod("a", 1))], vec![deleting(pod("a", 1))], vec![]] {
        let still_there = leaving.iter().any(|pod| !pod.finished);
        let after: Vec<_> = leaving.into_iter().chain([pod("b", 2)]).collect();
        let expected = if still_there { "b/a 2" } else { "b/- 2" };
        assert_eq!(story(&[&[pod("a", 1), pod("b", 2)], &after]), ["a/b 1", expected]);
    }
}

#[test]
fn an_active_pod_that_is_gone_without_another_leaves_it_empty_and_one_that_is_going_stays() {
    assert_eq!(
        story(&[&[pod("a", 1)], &[deleting(pod("a", 1))], &[], &[pod("b", 2)]]),
        ["a/- 1", "a/- 1", "-/- 1", "b/- 2"]
    );
}

#[test]
fn another_movers_stamp_does_what_kubevirts_does() {
    let moved = |name: &str, second: u64, stamp: i128| PodFacts {
        mover_stamp: Some(Stamp::new(stamp)),
        ..pod(name, second)
    };
    assert_eq!(
        story(&[
            &[pod("a", 1), pod("b", 2)],
            &[pod("a", 1), moved("b", 2, 7)],
            &[moved("a", 1, 7), moved("b", 2, 7)],
            &[moved("a", 1, 8), moved("b", 2, 7)],
        ]),
        ["a/b 1", "b/a 2", "b/a 2", "a/b 3"],
        "only a newer one moves it back"
    );
}

#[test]
fn a_third_pod_waits_until_a_slot_is_free() {
    assert_eq!(
        story(&[&[pod("a", 1), pod("b", 2), pod("c", 3)], &[pod("a", 1), pod("c", 3)]]),
        ["a/b 1", "a/c 1"]
    );
}

#[test]
fn a_pod_whose_node_is_not_known_or_who_has_finished_is_not_let_in() {
    let unscheduled = PodFacts { node: None, ..pod("a", 1) };
    assert_eq!(story(&[&[unscheduled, finished(pod("b", 2))]]), ["-/- 0"]);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_is_another_pod() {
    let again = PodFacts { uid: "uid-again".into(), ..pod("web-0", 5) };
    let mut slots = settle(&Slots::default(), &[pod("web-0", 1)]);
    slots = settle(&slots, &[again]);
    assert_eq!(slots.active.as_ref().unwrap().uid, "uid-again");
    assert_eq!((slots.number, &slots.incoming), (2, &None));
}

#[test]
fn a_controller_that_was_away_finds_a_migration_where_it_is() {
    assert_eq!(story(&[&[pod("a", 1), ready("b", 2, 10)]]), ["b/a 1"]);
    let stranger = Slots::from_annotation("{").unwrap_err();
    assert!(stranger.to_string().contains("taken for empty"), "{stranger}");
}

#[test]
fn a_pod_that_is_being_deleted_is_active_only_where_nobody_else_would_be() {
    assert_eq!(
        story(&[&[deleting(pod("a", 1))]]),
        ["a/- 1"],
        "after its slots were lost, it is reached until it is gone"
    );
    assert_eq!(story(&[&[deleting(pod("a", 1)), pod("b", 2)]]), ["b/- 1"]);
}

#[test]
fn garbage_in_the_annotation_is_refused_in_words() {
    for bad in [
        "",
        "null",
        "[]",
        r#"{"active": 7}"#,
        r#"{"active": {"pod": "a"}}"#,
        r#"{"number": -1}"#,
        r#"{"last": "soon"}"#,
        r#"{"active": {"pod": "a", "uid": "", "node": "n"}}"#,
        r#"{"active": {"pod": "a", "uid": "u", "node": "n"}, "incoming": {"pod": "a", "uid": "u", "node": "n"}}"#,
    ] {
        assert!(Slots::from_annotation(bad).is_err(), "{bad}");
    }
    assert_eq!(Slots::from_annotation("{}"), Ok(Slots::default()));
}

#[test]
fn the_annotation_is_short_and_stays_as_it_is() {
    let slots = settle(&Slots::default(), &[pod("a", 1), ready("b", 2, 10)]);
    assert_eq!(
        slots.to_annotation(),
        r#"{"active":{"pod":"b","uid":"uid-b","node":"node-b","stamp":"10"},"incoming":{"pod":"a","uid":"uid-a","node":"node-a"},"number":1,"last":"10"}"#
    );
    assert!(
        slots.has("uid-a") && slots.is_active("uid-b") && !slots.is_active("uid-a") && !slots.has("uid-c")
    );
}

/// A pod that names an alias address: that it is there is the signal.
fn arriving(name: &str, second: u64) -> PodFacts {
    let mover_stamp = Some(Stamp::new(i128::from(second) * 1_000_000_000));
    PodFacts { mover_stamp, arrives: true, ..pod(name, second) }
}

#[test]
fn a_pod_whose_arrival_is_the_signal_takes_over_once_whatever_second_it_was_created_in() {
    let told = story(&[
        &[pod("s", 1)],
        &[pod("s", 1), arriving("d", 7)],
        // The first try is gone: back to the source.
        &[pod("s", 1)],
        // The second is of the same second, or of an API server whose clock is behind.
        &[pod("s", 1), arriving("e", 7)],
        &[pod("s", 1)],
        &[pod("s", 1), arriving("f", 6)],
        // The one before does not take it back.
        &[pod("s", 1), arriving("f", 6)],
    ]);
    assert_eq!(told, ["s/- 1", "d/s 2", "s/- 3", "e/s 4", "s/- 5", "f/s 6", "f/s 6"]);
    // Nor does one that arrived itself.
    let told = story(&[
        &[arriving("s", 3)],
        &[arriving("s", 3), arriving("d", 3)],
        &[arriving("s", 3), arriving("d", 3)],
    ]);
    assert_eq!(told, ["s/- 1", "d/s 2", "d/s 2"]);
}
