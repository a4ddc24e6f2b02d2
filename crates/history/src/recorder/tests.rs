//! The recorder, compared with a model that keeps everything.

use proptest::prelude::*;
use tenure_view::{Claim, Had};

use super::*;
use crate::testing::{at, held, released};

fn take(recorder: &mut Recorder, period: Period, second: i64) -> Vec<What> {
    recorder.take(Change { at: at(second), period }).into_iter().map(|entry| entry.what).collect()
}

#[test]
fn what_is_said_again_is_not_logged_again() {
    let mut recorder = Recorder::default();
    let hold = held("a", 1, 1, 10);
    assert_eq!(take(&mut recorder, hold.clone(), 10), [What::Held(hold.clone())]);
    assert_eq!(take(&mut recorder, hold.clone(), 11), []);
    assert_eq!(recorder.compare(vec![hold.clone()], at(12), Some(at(11))), []);
    let lost = Period { block_uid: "lost:uid".into(), sequence: 0, ..hold.clone() };
    assert_eq!(take(&mut recorder, lost.clone(), 13), [], "the block is known by another name");
    let ended = take(&mut recorder, released(&lost, 20), 20);
    assert!(
        matches!(&ended[..], [What::Ended(it)] if it.from == Some(at(10)) && it.to == Some(at(20))),
        "{ended:?}"
    );
    assert_eq!(recorder.open().count(), 0);
}

#[test]
fn a_late_end_touches_no_successor_and_is_logged_for_what_it_was() {
    let mut recorder = Recorder::default();
    let (old, new) = (held("a", 1, 1, 10), held("a", 1, 2, 30));
    take(&mut recorder, old.clone(), 10);
    take(&mut recorder, released(&old, 20), 20);
    take(&mut recorder, new.clone(), 30);
    assert_eq!(take(&mut recorder, released(&old, 20), 31), [What::Ended(released(&old, 20))]);
    assert_eq!(recorder.open().collect::<Vec<_>>(), [&new]);
    // And read again, it is the same.
    recorder.replay(What::Ended(released(&old, 20)));
    assert_eq!(recorder.open().count(), 1);
}

#[test]
fn what_was_open_and_is_gone_at_a_start_was_seen_until_the_last_entry() {
    let mut recorder = Recorder::default();
    let (stays, goes) = (held("a", 1, 1, 10), held("b", 2, 2, 10));
    take(&mut recorder, stays.clone(), 10);
    take(&mut recorder, goes.clone(), 10);
    let new = held("c", 3, 3, 15);
    let logged = recorder.compare(vec![stays, new.clone()], at(50), Some(at(20)));
    let unseen = Period { to: Some(at(50)), end: Some(End::Unseen), seen: Some(at(20)), ..goes };
    let logged: Vec<What> = logged.into_iter().map(|entry| entry.what).collect();
    assert_eq!(logged, [What::Ended(unseen), What::Held(new)]);
}

#[test]
fn the_addresses_of_a_block_have_one_holder_and_a_lost_release_is_noticed_by_the_next() {
    let mut recorder = Recorder::default();
    take(&mut recorder, held("a", 1, 1, 10), 10);
    let next = held("b", 1, 2, 30);
    let logged = take(&mut recorder, next.clone(), 30);
    let replaced = Period { to: Some(at(30)), end: Some(End::Replaced), ..held("a", 1, 1, 10) };
    assert_eq!(logged, [What::Ended(replaced), What::Held(next.clone())]);
    // The same hold under a better name has not ended.
    let named = Period { sequence: 2, ..held("b2", 1, 2, 30) };
    assert_eq!(take(&mut recorder, named.clone(), 40), [What::Held(named.clone())]);
    assert_eq!(recorder.open().collect::<Vec<_>>(), [&named]);
}

#[test]
fn a_claims_holder_has_a_period_for_each_time_that_packets_arrive() {
    let mut recorder = Recorder::default();
    let user = |reached| {
        let claim = Some(Claim { name: "ns/vm".into(), uid: "u".into(), reached });
        Period { claim, block: String::new(), block_uid: String::new(), sequence: 0, ..held("a", 1, 0, 10) }
    };
    take(&mut recorder, user(false), 10);
    let other = Period { holder: held("b", 1, 0, 11).holder, ..user(true) };
    assert_eq!(take(&mut recorder, other.clone(), 11).len(), 1, "a claim may have two holders");
    let logged = take(&mut recorder, user(true), 20);
    let waited = Period { to: Some(at(20)), end: Some(End::Moved), ..user(false) };
    let arrives = Period { from: Some(at(20)), ..user(true) };
    assert_eq!(logged, [What::Ended(waited), What::Held(arrives.clone())]);
    let logged = take(&mut recorder, released(&user(true), 30), 30);
    assert_eq!(logged, [What::Ended(released(&arrives, 30))]);
    assert_eq!(recorder.open().collect::<Vec<_>>(), [&other]);
}

/// What happens on a node: a container gets an address, or loses its own.
#[derive(Clone, Debug)]
enum Step {
    Add {
        container: u8,
        address: u8,
    },
    Del {
        container: u8,
    },
    /// The agent starts again, and reads what it has logged.
    Restart,
    /// A change is told twice.
    Again,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..6, 0_u8..4).prop_map(|(container, address)| Step::Add { container, address }),
        3 => (0_u8..6).prop_map(|container| Step::Del { container }),
        1 => Just(Step::Restart),
        1 => Just(Step::Again),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever happens, the log says of each address and moment exactly who had it.
    #[test]
    fn the_log_says_who_had_what_when(steps in steps()) {
        let (mut recorder, mut log) = (Recorder::default(), Vec::<What>::new());
        let mut holds: BTreeMap<u8, Period> = BTreeMap::new();
        // Who had which address at each second.
        let mut truth: Vec<BTreeMap<u8, String>> = Vec::new();
        let (mut sequence, mut last) = (0, None);
        for (second, step) in (0..).zip(steps) {
            let change = match step {
                Step::Add { container, address } => {
                    let taken = holds.values().any(|it| it.addresses == [IpAddr::from([10, 0, 0, address])]);
                    if taken || holds.contains_key(&container) { None } else {
                        sequence += 1;
                        let hold = held(&format!("c{container}"), address, sequence, second);
                        holds.insert(container, hold.clone());
                        Some(hold)
                    }
                }
                Step::Del { container } => holds.remove(&container).map(|hold| released(&hold, second)),
                Step::Again => last.clone(),
                Step::Restart => {
                    recorder = Recorder::default();
                    for what in &log {
                        recorder.replay(what.clone());
                    }
                    let entries = recorder.compare(holds.values().cloned().collect(), at(second), Some(at(second)));
                    prop_assert_eq!(entries, [], "nothing was lost");
                    None
                }
            };
            if let Some(period) = change {
                last = Some(period.clone());
                let entries = recorder.take(Change { at: at(second), period });
                log.extend(entries.into_iter().map(|entry| entry.what));
            }
            let now = holds.values().map(|it| (octet(it), it.holder.container.clone()));
            truth.push(now.collect());
        }
        let ended = log.iter().filter_map(|what| match what {
            What::Ended(period) => Some(period),
            _ => None,
        });
        let periods: Vec<&Period> = ended.chain(recorder.open()).collect();
        for (second, expected) in (0..).zip(&truth) {
            let had = periods.iter().filter(|period| period.had(at(second)) == Had::Yes);
            let had: BTreeMap<u8, String> = had.map(|it| (octet(it), it.holder.container.clone())).collect();
            prop_assert_eq!(&had, expected, "at second {}", second);
        }
    }
}

fn octet(period: &Period) -> u8 {
    match period.addresses[0] {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => unreachable!(),
    }
}
