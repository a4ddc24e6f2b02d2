//! What holds of slots whatever pods do, in whatever order it is seen, and however much is missed.

use proptest::prelude::*;

use super::tests::pod;
use super::*;
use crate::pod::Launcher;

/// What one pod looks like at one look.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Look {
    there: bool,
    scheduled: bool,
    deleting: bool,
    finished: bool,
    ready: Option<i128>,
    mover: Option<i128>,
}

fn a_look() -> impl Strategy<Value = Look> {
    let stamp = || prop::option::weighted(0.3, 0_i128..6);
    let often = |chance| prop::bool::weighted(chance);
    (often(0.8), often(0.9), often(0.15), often(0.1), stamp(), stamp()).prop_map(
        |(there, scheduled, deleting, finished, ready, mover)| Look {
            there,
            scheduled,
            deleting,
            finished,
            ready,
            mover,
        },
    )
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn looks() -> impl Strategy<Value = Vec<Vec<Look>>> {
    prop::collection::vec(prop::collection::vec(a_look(), NAMES.len()), 1..12)
}

fn users(look: &[Look]) -> Vec<PodFacts> {
    let all = NAMES.iter().zip(1..).zip(look).filter(|(_, look)| look.there);
    all.map(|((name, second), look)| {
        let base = pod(name, second);
        let launcher = look.ready.map(|at| Launcher { vmi: "vm".into(), ready_at: Some(Stamp::new(at)) });
        PodFacts {
            node: base.node.clone().filter(|_| look.scheduled),
            deleting: look.deleting,
            finished: look.finished,
            launcher,
            mover_stamp: look.mover.map(Stamp::new),
            ..base
        }
    })
    .collect()
}

fn next(slots: &Slots, users: &[PodFacts]) -> Slots {
    let users: Vec<&PodFacts> = users.iter().collect();
    slots.next(&users).unwrap_or_else(|| slots.clone())
}

fn of<'p>(users: &'p [PodFacts], uid: &str) -> Option<&'p PodFacts> {
    users.iter().find(|pod| pod.uid == uid)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn invariant_1_never_two_pods_are_active_and_nobody_who_is_gone_is(looks in looks()) {
        let mut slots = Slots::default();
        for look in looks {
            let users = users(&look);
            slots = next(&slots, &users);
            if let (Some(active), Some(incoming)) = (&slots.active, &slots.incoming) {
                prop_assert_ne!(&active.uid, &incoming.uid);
            }
            prop_assert!(slots.incoming.is_none() || slots.active.is_some(), "whoever is alone is active: {slots:?}");
            for slot in slots.both() {
                prop_assert!(of(&users, &slot.uid).is_some_and(|pod| !pod.finished), "{slots:?}");
            }
        }
    }

    #[test]
    fn invariant_1_every_step_of_the_slots_may_be_repeated(looks in looks()) {
        let mut slots = Slots::default();
        for look in looks {
            let users = users(&look);
            slots = next(&slots, &users);
            prop_assert_eq!(next(&slots, &users), slots.clone());
            let read = Slots::from_annotation(&slots.to_annotation());
            prop_assert_eq!(read, Ok(slots.clone()), "also by one who reads it");
        }
    }

    #[test]
    fn the_order_in_which_pods_are_listed_does_not_matter(looks in looks()) {
        let mut slots = Slots::default();
        for look in looks {
            let mut users = users(&look);
            let forward = next(&slots, &users);
            users.reverse();
            prop_assert_eq!(next(&slots, &users), forward.clone());
            slots = forward;
        }
    }

    #[test]
    fn invariant_1_a_pod_that_stays_loses_its_place_only_to_a_newer_signal(looks in looks()) {
        let mut slots = Slots::default();
        for look in looks {
            let users = users(&look);
            let after = next(&slots, &users);
            let stays = slots.active.as_ref().and_then(|slot| of(&users, &slot.uid)).is_some_and(|pod| !pod.is_leaving());
            if stays && after.active.as_ref().map(|it| &it.uid) != slots.active.as_ref().map(|it| &it.uid) {
                prop_assert!(after.last > slots.last, "from {slots:?} to {after:?}");
                prop_assert!(after.number > slots.number);
                let target = after.active.as_ref().and_then(|slot| of(&users, &slot.uid));
                prop_assert!(target.is_some_and(|pod| !pod.is_leaving()), "and only to one that stays");
            }
            prop_assert!(after.last >= slots.last && after.number >= slots.number);
            slots = after;
        }
    }

    #[test]
    fn invariant_1_signals_that_come_and_go_do_not_move_an_address_to_and_fro(
        stamps in prop::collection::vec(0_i128..6, 2), flaps in prop::collection::vec((any::<bool>(), any::<bool>()), 1..20)
    ) {
        let signalled = |name: &str, second: u64, stamp: i128, on: bool| {
            PodFacts { mover_stamp: on.then_some(Stamp::new(stamp)), ..pod(name, second) }
        };
        let mut slots = next(&Slots::default(), &[pod("a", 1), pod("b", 2)]);
        let mut changes = 0;
        for (a, b) in flaps {
            let users = [signalled("a", 1, stamps[0], a), signalled("b", 2, stamps[1], b)];
            let after = next(&slots, &users);
            changes += usize::from(after.number != slots.number);
            slots = after;
        }
        prop_assert!(changes <= 2, "each signal moves it once at most, not {changes} times");
    }

    #[test]
    fn a_third_pod_never_pushes_one_out(looks in looks()) {
        let mut slots = Slots::default();
        for look in looks {
            let users = users(&look);
            let after = next(&slots, &users);
            for slot in slots.both() {
                let lives = of(&users, &slot.uid).is_some_and(|pod| !pod.finished);
                prop_assert!(!lives || after.has(&slot.uid), "{slot:?} lives and lost its slot");
            }
            slots = after;
        }
    }

    #[test]
    fn invariant_10_no_annotation_makes_slots_panic(
        text in "\\PC{0,40}|\\{(\"(active|incoming|number|last)\":(\\{\"pod\":\"a\",\"uid\":\"u\",\"node\":\"n\"\\}|1|\"1\"|null),?){0,4}\\}"
    ) {
        let slots = Slots::from_annotation(&text).unwrap_or_default();
        let _ = next(&slots, &[pod("a", 1), pod("b", 2)]);
    }
}
