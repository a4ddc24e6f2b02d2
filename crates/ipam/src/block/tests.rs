//! What a block promises, one promise a test.

use std::time::Duration;

use tenure_handles::Timestamp;

use super::restart::restarted;
use super::*;
use crate::cidr::Cidr;
use crate::pool::Subnet;
use crate::range::{Exclusion, Range};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const MINUTE: Duration = Duration::from_mins(1);

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn every(cidr: &str) -> Range {
    Range::every(cidr.parse().unwrap())
}

fn block(cidr: &str, rest: Duration) -> Block<String> {
    Block::new(every(cidr), rest)
}

/// Holds, and says which address.
fn hold(block: &mut Block<String>, key: &str, choice: Choice) -> String {
    block.hold(key.into(), choice, NOW).unwrap().hold().addresses.to_string()
}

fn release(block: &mut Block<String>, key: &str, now: Timestamp) {
    let sequence = block.find(&key.to_owned()).unwrap().sequence;
    assert!(matches!(block.release(&key.to_owned(), sequence, now), Release::Freed(_)));
}

#[test]
fn invariant_1_an_address_has_one_holder() {
    let mut block = block("10.0.0.0/30", Duration::ZERO);
    hold(&mut block, "a", Choice::Named(address("10.0.0.1")));
    let error = block.hold("b".into(), Choice::Named(address("10.0.0.1")), NOW).unwrap_err();
    assert_eq!(error.to_string(), "cannot hold 10.0.0.1: it has a holder");
    let error = block.replay("b".into(), address("10.0.0.1"), None).unwrap_err();
    assert_eq!(error.to_string(), "cannot replay the hold of 10.0.0.1: it has another holder");
    let mut given: Vec<String> =
        ["b", "c", "d"].iter().map(|key| hold(&mut block, key, Choice::LowestFree)).collect();
    given.sort();
    assert_eq!(given, ["10.0.0.0", "10.0.0.2", "10.0.0.3"]);
    let error = block.hold("e".into(), Choice::LowestFree, NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot hold an address of 10.0.0.0/30: none of its 4 is free (4 held, 0 reserved)"
    );
}

#[test]
fn invariant_2_a_block_hands_out_nothing_outside_its_space() {
    let mut block = block("10.0.0.0/30", Duration::ZERO);
    let error = block.hold("a".into(), Choice::Named(address("10.0.0.4")), NOW).unwrap_err();
    assert_eq!(error.to_string(), "cannot hold a named address: 10.0.0.4 is not in 10.0.0.0/30");
    assert!(block.hold("a".into(), Choice::Named(address("fd00::1")), NOW).is_err());
    assert!(block.replay("a".into(), address("10.0.0.4"), None).is_err());
    assert!(block.state(address("9.255.255.255")).is_err());
}

#[test]
fn invariant_3_what_was_replayed_is_not_handed_out() {
    let mut block = block("10.0.0.0/29", MINUTE);
    for (key, at, number) in [("a", "10.0.0.0", 7), ("b", "10.0.0.2", 9), ("c", "10.0.0.5", 8)] {
        block.replay(key.into(), address(at), Some(Sequence(number))).unwrap();
        assert!(!block.replay(key.into(), address(at), Some(Sequence(number))).unwrap().is_new());
    }
    let next = block.hold("d".into(), Choice::NextAfterLast, NOW).unwrap().hold();
    assert_eq!((next.addresses.to_string(), next.sequence), ("10.0.0.3".into(), Sequence(10)));
    assert_eq!(hold(&mut block, "e", Choice::LowestFree), "10.0.0.1");
}

#[test]
fn invariant_4_a_late_release_never_touches_a_successor() {
    let mut block = block("10.0.0.0/32", Duration::ZERO);
    let key = "a".to_owned();
    let first = block.hold(key.clone(), Choice::LowestFree, NOW).unwrap().hold();
    assert_eq!(block.release(&key, first.sequence, NOW), Release::Freed(first));
    assert_eq!(block.release(&key, first.sequence, NOW), Release::Nothing);
    let second = block.hold(key.clone(), Choice::LowestFree, NOW).unwrap().hold();
    assert_eq!(second.addresses, first.addresses);
    assert_eq!(block.release(&key, first.sequence, NOW), Release::Nothing);
    assert_eq!(block.find(&key), Some(second));
}

#[test]
fn invariant_4_sequence_numbers_never_repeat_also_after_a_restart() {
    let mut block = block("10.0.0.0/30", Duration::ZERO);
    let mut last = Sequence(0);
    for turn in 0..20 {
        let hold = block.hold(format!("{turn}"), Choice::LowestFree, NOW).unwrap().hold();
        assert!(hold.sequence > last);
        last = hold.sequence;
        block.release(&format!("{turn}"), hold.sequence, NOW);
        block = restarted(&block, Some((format!("{turn}"), hold.offset, hold.sequence)), NOW);
    }
    block.replay("x".into(), address("10.0.0.1"), Some(Sequence(100))).unwrap();
    assert_eq!(block.hold("y".into(), Choice::LowestFree, NOW).unwrap().hold().sequence, Sequence(101));
    for number in [0, u64::MAX] {
        assert!(block.replay("z".into(), address("10.0.0.2"), Some(Sequence(number))).is_err());
    }
}

#[test]
fn invariant_5_holding_again_answers_the_same_hold() {
    let mut block = block("10.0.0.0/30", Duration::ZERO);
    let first = block.hold("a".into(), Choice::NextAfterLast, NOW).unwrap();
    for choice in [Choice::NextAfterLast, Choice::LowestFree, Choice::Named(address("10.0.0.0"))] {
        assert_eq!(block.hold("a".into(), choice, NOW), Ok(Granted::Existing(first.hold())));
    }
    let error = block.hold("a".into(), Choice::Named(address("10.0.0.3")), NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot hold 10.0.0.3: the same holder has 10.0.0.0, which it must release first"
    );
}

#[test]
fn invariant_6_a_freed_address_cools_before_it_is_handed_out_again() {
    let mut block = block("10.0.0.0/30", MINUTE);
    hold(&mut block, "a", Choice::LowestFree);
    release(&mut block, "a", NOW);
    assert_eq!(hold(&mut block, "b", Choice::LowestFree), "10.0.0.1");
    let State::Cooling(cooling) = block.state(address("10.0.0.0")).unwrap() else { panic!("not cooling") };
    assert_eq!((cooling.last.key.as_str(), cooling.until), ("a", NOW.plus(MINUTE)));
    block.advance(Timestamp::from_millis(NOW.plus(MINUTE).as_millis() - 1));
    assert_eq!(block.counts().cooling, 1);
    block.advance(NOW.plus(MINUTE));
    assert_eq!((block.counts().cooling, hold(&mut block, "c", Choice::LowestFree)), (0, "10.0.0.0".into()));
}

#[test]
fn invariant_6_cooling_survives_a_restart() {
    let mut block = block("10.0.0.0/30", MINUTE);
    hold(&mut block, "a", Choice::LowestFree);
    release(&mut block, "a", NOW);
    let mut block = restarted(&block, None, NOW);
    assert_eq!(hold(&mut block, "b", Choice::LowestFree), "10.0.0.1");
    let cooling: Vec<_> = block.cooling().map(|cooling| cooling.last.key.clone()).collect();
    assert_eq!(cooling, ["a"]);
}

#[test]
fn invariant_6_cooling_gives_way_oldest_first_rather_than_failing() {
    let mut block = block("10.0.0.0/30", MINUTE);
    for key in ["a", "b", "c", "d"] {
        hold(&mut block, key, Choice::LowestFree);
    }
    for (key, millis) in [("c", 1), ("a", 2), ("d", 3)] {
        release(&mut block, key, Timestamp::from_millis(NOW.as_millis() + millis));
    }
    let now = Timestamp::from_millis(NOW.as_millis() + 10);
    for (key, at, choice) in [
        ("x", "10.0.0.2", Choice::LowestFree),
        ("y", "10.0.0.0", Choice::NextAfterLast),
        ("z", "10.0.0.3", Choice::LowestFree),
    ] {
        assert_eq!(block.hold(key.into(), choice, now).unwrap().hold().addresses.to_string(), at);
    }
    assert!(matches!(block.hold("v".into(), Choice::LowestFree, now), Err(HoldError::Exhausted { .. })));
}

#[test]
fn a_named_request_may_take_a_cooling_address() {
    let mut block = block("10.0.0.0/30", MINUTE);
    hold(&mut block, "a", Choice::LowestFree);
    release(&mut block, "a", NOW);
    assert_eq!(hold(&mut block, "b", Choice::Named(address("10.0.0.0"))), "10.0.0.0");
    assert_eq!((block.counts().cooling, block.cooling().count()), (0, 0));
}

#[test]
fn cooling_starts_anew_when_the_clock_is_set_back() {
    let mut block = block("10.0.0.0/30", MINUTE);
    hold(&mut block, "a", Choice::LowestFree);
    release(&mut block, "a", Timestamp::from_millis(4_000_000_000_000));
    block.advance(NOW);
    assert_eq!(block.cooling().next().unwrap().until, NOW.plus(MINUTE));
    block.advance(NOW.plus(MINUTE));
    assert_eq!(block.counts().cooling, 0);
}

#[test]
fn invariant_10_a_refusal_names_what_it_refuses() {
    let range = every("10.0.0.0/30").without([Exclusion::from(address("10.0.0.2"))]);
    let mut block: Block<String> = Block::new(range, Duration::ZERO);
    block.reserve(address("10.0.0.1"), address("10.0.0.1")).unwrap();
    let refusal = |block: &mut Block<String>, at: &str| {
        block.hold("a".into(), Choice::Named(address(at)), NOW).unwrap_err().to_string()
    };
    assert_eq!(refusal(&mut block, "10.0.0.1"), "cannot hold 10.0.0.1: it is reserved");
    assert_eq!(refusal(&mut block, "10.0.0.2"), "cannot hold 10.0.0.2: it is excluded from its range");
}

#[test]
fn a_reservation_counts_as_far_as_it_lies_in_the_space_and_is_refused_where_it_does_not() {
    let mut block = block("10.0.0.0/30", Duration::ZERO);
    block.reserve(address("9.0.0.0"), address("10.0.0.1")).unwrap();
    assert_eq!(block.counts().reserved, 2);
    block.unreserve(address("10.0.0.1"), address("10.1.0.0")).unwrap();
    assert_eq!(block.counts().reserved, 1);
    let error = block.reserve(address("10.0.0.4"), address("10.0.0.9")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot change the reservation of addresses: 10.0.0.4 is not in 10.0.0.0/30"
    );
    assert!(matches!(block.reserve(address("10.0.0.2"), address("10.0.0.1")), Err(ReserveError::Ends(_))));
    assert!(block.reserve(address("fd00::"), address("fd00::1")).is_err());
}

#[test]
fn next_after_last_reuses_as_late_as_possible_and_lowest_free_at_once() {
    let mut slow = block("10.4.0.0/30", Duration::ZERO);
    assert_eq!(hold(&mut slow, "a", Choice::NextAfterLast), "10.4.0.0");
    assert_eq!(hold(&mut slow, "b", Choice::NextAfterLast), "10.4.0.1");
    release(&mut slow, "a", NOW);
    assert_eq!(hold(&mut slow, "c", Choice::NextAfterLast), "10.4.0.2");
    assert_eq!(hold(&mut slow, "d", Choice::NextAfterLast), "10.4.0.3");
    assert_eq!(hold(&mut slow, "e", Choice::NextAfterLast), "10.4.0.0");

    let mut lowest = block("10.4.0.0/30", Duration::ZERO);
    hold(&mut lowest, "a", Choice::LowestFree);
    release(&mut lowest, "a", NOW);
    assert_eq!(hold(&mut lowest, "b", Choice::LowestFree), "10.4.0.0");
}

#[test]
fn a_dual_stack_block_fills_and_wraps_with_both_addresses() {
    let subnet = Subnet::dual("10.0.0.0/31".parse().unwrap(), "fd00::/127".parse().unwrap());
    let mut block: Block<String> = Block::new(subnet.space().unwrap().unwrap(), Duration::ZERO);
    assert_eq!(hold(&mut block, "a", Choice::NextAfterLast), "10.0.0.0 and fd00::");
    assert_eq!(hold(&mut block, "b", Choice::NextAfterLast), "10.0.0.1 and fd00::1");
    assert!(block.hold("c".into(), Choice::NextAfterLast, NOW).is_err());
    release(&mut block, "a", NOW);
    assert_eq!(hold(&mut block, "c", Choice::Named(address("fd00::"))), "10.0.0.0 and fd00::");
    assert!(matches!(block.state(address("10.0.0.0")), Ok(State::Held(_))));
}

#[test]
fn a_hold_at_an_address_that_is_reserved_or_not_usable_any_more_is_replayed_and_not_cooled() {
    let range = every("10.0.0.0/30").without([Exclusion::from(address("10.0.0.0"))]);
    let mut block: Block<String> = Block::new(range, MINUTE);
    block.reserve(address("10.0.0.1"), address("10.0.0.1")).unwrap();
    block.replay("a".into(), address("10.0.0.0"), None).unwrap();
    block.replay("b".into(), address("10.0.0.1"), None).unwrap();
    let counts = Counts { capacity: 3, held: 2, cooling: 0, reserved: 0, free: 2 };
    assert_eq!(block.counts(), counts);
    release(&mut block, "a", NOW);
    release(&mut block, "b", NOW);
    assert_eq!(block.counts(), Counts { held: 0, reserved: 1, ..counts });
    assert_eq!(block.state(address("10.0.0.0")), Ok(State::NotUsable));
    assert_eq!(block.state(address("10.0.0.1")), Ok(State::Reserved));
}

#[test]
fn the_last_address_of_the_largest_spaces_is_handed_out_and_needs_memory_only_for_itself() {
    for cidr in ["10.0.0.0/8", "fd00::/64", "::/0", "0.0.0.0/0"] {
        let cidr: Cidr = cidr.parse().unwrap();
        for choice in [Choice::LowestFree, Choice::NextAfterLast] {
            let mut block: Block<u128> = Block::new(Range::every(cidr), Duration::ZERO);
            block.reserve(cidr.first(), cidr.last().previous().unwrap()).unwrap();
            assert_eq!(
                block.counts().free,
                u128::from(cidr.prefix() != 0 || cidr.family() == crate::Family::V4)
            );
            let hold = block.hold(1, choice, NOW).unwrap().hold();
            assert_eq!(hold.offset, cidr.last_offset());
            assert!(block.hold(2, choice, NOW).is_err());
            assert!(block.memory() < 10_000, "{}", block.memory());
            block.unreserve(cidr.first(), cidr.first()).unwrap();
            assert_eq!(block.hold(2, choice, NOW).unwrap().hold().offset, 0);
        }
    }
}

#[test]
fn memory_is_for_what_is_held_and_goes_when_it_is_released() {
    let mut block: Block<u128> = Block::new(every("10.0.0.0/8"), Duration::ZERO);
    let empty = block.memory();
    let count = 100_000_u128;
    let sequences: Vec<Sequence> =
        (0..count).map(|key| block.hold(key, Choice::LowestFree, NOW).unwrap().hold().sequence).collect();
    let each = (block.memory() - empty) / usize::try_from(count).unwrap();
    assert!(each < 40, "{each} bytes a hold");
    for (key, sequence) in (0..count).zip(sequences) {
        block.release(&key, sequence, NOW);
    }
    let left = block.memory() - empty;
    assert!(left < 300_000, "{left} bytes are left");
    assert!(block.is_empty());
}

#[test]
fn a_block_of_either_and_both_families_fills_up_wraps_around_and_refuses_when_full() {
    let pair = Space::pair(every("10.1.0.8/30"), every("fd01::8/126")).unwrap();
    for (space, first, last) in [
        (every("10.1.0.8/30").into(), "10.1.0.8", "10.1.0.11"),
        (every("fd01::8/126").into(), "fd01::8", "fd01::b"),
        (pair, "10.1.0.8 and fd01::8", "10.1.0.11 and fd01::b"),
    ] {
        let mut block: Block<String> = Block::new(space, Duration::ZERO);
        let keys = ["a", "b", "c", "d"];
        let given = keys.map(|key| hold(&mut block, key, Choice::NextAfterLast));
        assert_eq!((given[0].as_str(), given[3].as_str()), (first, last));
        assert!(block.hold("e".into(), Choice::NextAfterLast, NOW).is_err(), "a full block gave something");
        // What was freed first comes again only after the end was reached.
        release(&mut block, "b", NOW);
        release(&mut block, "a", NOW);
        let again = ["e", "f"].map(|key| hold(&mut block, key, Choice::NextAfterLast));
        assert_eq!(again, [given[0].clone(), given[1].clone()]);
    }
}
