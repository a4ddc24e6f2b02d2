//! Blocks against the model: any operations in any order, everything that can be seen compared after each.

use std::time::Duration;

use proptest::prelude::*;
use tenure_handles::Timestamp;

use super::model::{Answer, Key, Model, Released};
use super::restart::restarted;
use super::*;
use crate::address::Family;
use crate::cidr::Cidr;
use crate::range::{Exclusion, Range, Usable};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Hold(Key, Choice),
    HoldNamed(Key, usize),
    /// Holds for this many keys that are not used otherwise.
    Fill(Key, u16, Choice),
    /// Releases what the key holds.
    Release(Key),
    /// Releases every hold whose key leaves this remainder.
    ReleaseSome(Key, Key),
    /// Releases with a number that may be anyone's.
    ReleaseAs(Key, u64),
    Reserve(usize, usize),
    Unreserve(usize, usize),
    Replay(Key, usize, Option<u64>),
    Wait(u64),
    SetBack(u64),
    SetRest(u64),
    Restart,
}

const KEYS: Key = 24;

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![Just(Choice::NextAfterLast), Just(Choice::LowestFree)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let (key, offset) = (0..KEYS, 0_usize..300);
    let span = (offset.clone(), 0_usize..140);
    let replay = (key.clone(), offset.clone(), prop::option::of(0_u64..90));
    prop_oneof![
        8 => (key.clone(), choice()).prop_map(|(key, choice)| Operation::Hold(key, choice)),
        3 => (key.clone(), offset.clone()).prop_map(|(key, at)| Operation::HoldNamed(key, at)),
        2 => (KEYS..1_000, 1_u16..150, choice()).prop_map(|(key, count, choice)| Operation::Fill(key, count, choice)),
        8 => key.clone().prop_map(Operation::Release),
        2 => (1..5_u64, 0..5_u64).prop_map(|(modulus, rest)| Operation::ReleaseSome(modulus, rest)),
        2 => (key, 1_u64..60).prop_map(|(key, number)| Operation::ReleaseAs(key, number)),
        1 => span.clone().prop_map(|(first, more)| Operation::Reserve(first, first + more)),
        2 => offset.prop_map(|at| Operation::Reserve(at, at)),
        2 => span.prop_map(|(first, more)| Operation::Unreserve(first, first + more)),
        2 => replay.prop_map(|(key, at, number)| Operation::Replay(key, at, number)),
        3 => (0_u64..2_000).prop_map(Operation::Wait),
        1 => (0_u64..2_000).prop_map(Operation::SetBack),
        1 => prop_oneof![Just(0), Just(500), Just(5_000)].prop_map(Operation::SetRest),
        2 => Just(Operation::Restart),
    ]
}

/// Spaces of one or two families, up to 256 offsets, with windows and exclusions.
fn space() -> impl Strategy<Value = Space> {
    let excluded = prop::collection::vec((0_u128..260, 0_u128..70), 0..6);
    (0_u8..=8, any::<bool>(), any::<bool>(), prop::option::of((0_u128..200, 0_u128..256)), excluded).prop_map(
        |(host_bits, top, dual, window, excluded)| {
            let ipv4 = if top {
                Address::highest(Family::V4)
            } else {
                Address::new(Family::V4, 0x0a00_0000).unwrap()
            };
            let cidr = Cidr::new(ipv4, 32 - host_bits).unwrap();
            let range = Range::new(cidr, Usable::WithoutEdges).unwrap_or_else(|_| Range::every(cidr));
            let at = |offset| cidr.nth(offset).ok();
            let range = match window {
                Some((first, last)) => range.clone().between(at(first), at(last)).unwrap_or(range),
                None => range,
            };
            let exclusions = excluded.into_iter().filter_map(|(first, more)| {
                Exclusion::between(at(first)?, at(first + more).unwrap_or(cidr.last())).ok()
            });
            let range = range.without(exclusions);
            if dual {
                let cidr = Cidr::new(Address::highest(Family::V6), 128 - host_bits).unwrap();
                Space::pair(range, Range::every(cidr)).unwrap()
            } else {
                range.into()
            }
        },
    )
}

/// What a block would do if it were wrong, so that the comparison is seen to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Invariant 2: what is kept back is assigned.
    ReservedHandedOut,
    /// Invariant 4: a late release ends the next hold of the same key.
    ReleaseIgnoresSequence,
    /// Invariant 4: a restart forgets the youngest number where its hold is over.
    NumbersRepeat,
    /// Invariant 5: holding again holds another address.
    HoldsAnew,
    /// Invariant 6: what was freed does not cool.
    NoCooling,
}

impl Planted {
    const ALL: [Self; 5] = [
        Self::ReservedHandedOut,
        Self::ReleaseIgnoresSequence,
        Self::NumbersRepeat,
        Self::HoldsAnew,
        Self::NoCooling,
    ];
}

struct Pair {
    planted: Option<Planted>,
    block: Block<Key>,
    model: Model,
    now: Timestamp,
    /// Every sequence number that was ever given.
    given: std::collections::BTreeSet<u64>,
}

impl Pair {
    fn new(space: Space, rest: Duration) -> Self {
        let usable: Vec<bool> = (0..=space.last_offset()).map(|offset| space.is_usable(offset)).collect();
        let model = Model::new(usable.into_iter(), rest);
        let now = Timestamp::from_millis(1_000_000);
        let given = std::collections::BTreeSet::new();
        Self { planted: None, block: Block::new(space, rest), model, now, given }
    }

    fn with_bug(self, planted: Planted) -> Self {
        Self { planted: Some(planted), ..self }
    }

    fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// The address at an offset, from either family in turn, and the offset if it is in the space.
    fn address(&self, offset: usize) -> (Address, Option<usize>) {
        let primary = self.block.space().primary().cidr();
        let ranges = [Some(self.block.space().primary()), self.block.space().secondary()];
        let cidr = ranges[offset % 2].map_or(primary, Range::cidr);
        let address = Address::masked(cidr.family(), cidr.first().bits().wrapping_add(offset as u128));
        (address, self.block.space().offset_of(address).map(|offset| usize::try_from(offset).unwrap()))
    }

    fn apply(&mut self, operation: Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Hold(key, choice) => self.hold(key, choice, None)?,
            Operation::HoldNamed(key, offset) => {
                let (address, offset) = self.address(offset);
                self.hold(key, Choice::Named(address), offset)?;
            }
            Operation::Fill(key, count, choice) => {
                for key in (key..).take(count.into()) {
                    self.hold(key, choice, None)?;
                }
            }
            Operation::Release(key) => {
                if let Some((_, sequence)) = self.model.find(key) {
                    self.release(key, sequence)?;
                }
            }
            Operation::ReleaseSome(modulus, remainder) => {
                let held: Vec<(Key, u64)> = self
                    .model
                    .places
                    .iter()
                    .filter_map(|place| place.held.as_ref().map(|held| (held.key, held.sequence)))
                    .collect();
                for (key, sequence) in held.into_iter().filter(|(key, _)| key % modulus == remainder) {
                    self.release(key, sequence)?;
                }
            }
            Operation::ReleaseAs(key, sequence) => self.release(key, sequence)?,
            Operation::Reserve(first, last) | Operation::Unreserve(first, last) => {
                // Both may lie beyond the space, of which then the part inside counts.
                let base = self.block.space().primary().cidr().first();
                if let (Ok(from), Ok(to)) = (base.plus(first as u128), base.plus(last as u128)) {
                    let reserves = matches!(operation, Operation::Reserve(..));
                    self.model.set_reserved(first, last, reserves);
                    let changed = if reserves && !self.has(Planted::ReservedHandedOut) {
                        self.block.reserve(from, to)
                    } else {
                        self.block.unreserve(from, to)
                    };
                    prop_assert_eq!(changed.is_ok(), first < self.model.places.len());
                }
            }
            Operation::Replay(key, offset, sequence) => {
                // A journal does not repeat a number that the block gave to another hold.
                let sequence = sequence.filter(|sequence| !self.given.contains(sequence));
                if let (address, Some(offset)) = self.address(offset) {
                    let real = self.block.replay(key, address, sequence.map(Sequence));
                    let expected = self.model.replay(key, offset, sequence);
                    prop_assert_eq!(answer(real.clone().ok()), expected);
                    self.given.extend(real.ok().map(|granted| granted.hold().sequence.0));
                }
            }
            Operation::Wait(millis) => self.pass(self.now.as_millis() + millis),
            Operation::SetBack(millis) => self.pass(self.now.as_millis() - millis),
            Operation::SetRest(millis) => {
                self.block.set_rest(Duration::from_millis(millis));
                self.model.rest = Duration::from_millis(millis);
            }
            Operation::Restart => {
                self.pass(self.now.as_millis());
                self.model.restart();
                let youngest = self.model.youngest.filter(|_| !self.has(Planted::NumbersRepeat));
                let youngest = youngest.map(|(key, offset, number)| (key, offset as u128, Sequence(number)));
                self.block = restarted(&self.block, youngest, self.now);
            }
        }
        Ok(())
    }

    fn pass(&mut self, millis: u64) {
        self.now = Timestamp::from_millis(millis);
        self.block.advance(self.now);
        self.model.advance(self.now);
    }

    fn hold(&mut self, key: Key, choice: Choice, named: Option<usize>) -> Result<(), TestCaseError> {
        if let Some(hold) = self.block.find(&key).filter(|_| self.has(Planted::HoldsAnew)) {
            self.block.release(&key, hold.sequence, self.now);
        }
        let real = self.block.hold(key, choice, self.now);
        let expected = self.model.hold(key, choice, named, self.now);
        prop_assert_eq!(answer(real.clone().ok()), expected, "{:?}", real);
        self.note(real.ok())
    }

    fn note(&mut self, granted: Option<Granted>) -> Result<(), TestCaseError> {
        if let Some(Granted::New(hold)) = granted {
            let highest = self.given.last().copied().unwrap_or(0);
            prop_assert!(hold.sequence.0 > highest, "{} was given after {}", hold.sequence, highest);
            self.given.insert(hold.sequence.0);
        }
        Ok(())
    }

    fn release(&mut self, key: Key, sequence: u64) -> Result<(), TestCaseError> {
        let own = self.block.find(&key).filter(|_| self.has(Planted::ReleaseIgnoresSequence));
        let number = own.map_or(Sequence(sequence), |hold| hold.sequence);
        if self.has(Planted::NoCooling) {
            self.block.set_rest(Duration::ZERO);
        }
        let real = match self.block.release(&key, number, self.now) {
            Release::Freed(_) => Released::Freed,
            Release::Nothing => Released::Nothing,
        };
        prop_assert_eq!(real, self.model.release(key, sequence, self.now));
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.block.counts(), self.model.counts());
        let mut held = self.block.holds();
        for (offset, place) in self.model.places.iter().enumerate() {
            let address = self.block.space().primary().cidr().nth(offset as u128).unwrap();
            match (self.block.state(address).unwrap(), place) {
                (State::Held(entry), place) => {
                    let model = place.held.as_ref().unwrap();
                    prop_assert_eq!(
                        (*entry.active.key, entry.active.sequence.0),
                        (model.key, model.sequence)
                    );
                    prop_assert_eq!(held.next(), Some(entry));
                    prop_assert_eq!(entry.addresses, self.block.space().addresses(offset as u128).unwrap());
                    prop_assert_eq!(self.block.find(&model.key).unwrap().offset, offset as u128);
                }
                (State::Cooling(cooling), place) => {
                    let model = place.cooling.as_ref().unwrap();
                    prop_assert_eq!(
                        (*cooling.last.key, cooling.last.sequence.0),
                        (model.key, model.sequence)
                    );
                    prop_assert_eq!(cooling.until, model.freed_at.plus(self.model.rest));
                }
                (state, place) => {
                    prop_assert!(place.held.is_none() && place.cooling.is_none());
                    let expected = match (place.usable, place.reserved) {
                        (false, _) => State::NotUsable,
                        (true, true) => State::Reserved,
                        (true, false) => State::Free,
                    };
                    prop_assert_eq!(state, expected);
                }
            }
        }
        prop_assert!(held.next().is_none());
        for key in 0..KEYS {
            prop_assert_eq!(self.block.find(&key).is_some(), self.model.find(key).is_some());
        }
        let orders: Vec<u64> = self
            .block
            .cooling()
            .map(|cooling| {
                self.model.places[usize::try_from(cooling.offset).unwrap()].cooling.as_ref().unwrap().order
            })
            .collect();
        prop_assert!(orders.is_sorted(), "oldest first: {:?}", orders);
        Ok(())
    }
}

fn answer(granted: Option<Granted>) -> Answer {
    let place = |hold: Hold| (usize::try_from(hold.offset).unwrap(), hold.sequence.0);
    match granted {
        Some(Granted::New(hold)) => Answer::New(place(hold).0, place(hold).1),
        Some(Granted::Existing(hold)) => Answer::Existing(place(hold).0, place(hold).1),
        None => Answer::Refused,
    }
}

/// A comparison that finds nothing would find nothing when there is something.
#[test]
fn every_planted_bug_of_a_block_is_found_by_the_comparison_with_the_model() {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let config =
        || Config { cases: 400, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    for planted in Planted::ALL {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let operations = prop::collection::vec(operation(), 1..60);
        let found =
            TestRunner::new_with_rng(config(), rng).run(&(space(), operations), |(space, operations)| {
                let mut pair = Pair::new(space, Duration::from_secs(1)).with_bug(planted);
                for operation in operations {
                    pair.apply(operation)?;
                    pair.compare()?;
                }
                Ok(())
            });
        assert!(found.is_err(), "{planted:?} was not found in 400 runs");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Holds invariants 1, 4, 5 and 6 of this layer, restarts included.
    #[test]
    fn a_block_does_what_the_model_does(
        space in space(),
        rest in prop_oneof![Just(0_u64), Just(1_000), Just(10_000)],
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut pair = Pair::new(space, Duration::from_millis(rest));
        for operation in operations {
            pair.apply(operation)?;
            pair.compare()?;
        }
    }
}

/// Operations that fill and empty whole chunks.
fn large_operation() -> impl Strategy<Value = Operation> {
    let fill = (0_u64..3_000, 100_u16..500, choice());
    prop_oneof![
        4 => fill.prop_map(|(key, count, choice)| Operation::Fill(key, count, choice)),
        3 => (1..4_u64, 0..4_u64).prop_map(|(modulus, rest)| Operation::ReleaseSome(modulus, rest)),
        1 => (0_usize..1_024, 0_usize..900).prop_map(|(first, more)| Operation::Reserve(first, first + more)),
        1 => (0_usize..1_024, 0_usize..900).prop_map(|(first, more)| Operation::Unreserve(first, first + more)),
        2 => (0_u64..2_000).prop_map(Operation::Wait),
        1 => Just(Operation::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_block_of_many_chunks_does_what_the_model_does(
        excluded in prop::collection::vec((0_u128..1_024, 0_u128..200), 0..4),
        rest in prop_oneof![Just(0_u64), Just(1_000)],
        operations in prop::collection::vec(large_operation(), 1..25),
    ) {
        let cidr: Cidr = "10.0.0.0/22".parse().unwrap();
        let exclusions = excluded.into_iter().map(|(first, more)| {
            Exclusion::between(cidr.nth(first).unwrap(), cidr.first().plus(first + more).unwrap()).unwrap()
        });
        let mut pair = Pair::new(Range::every(cidr).without(exclusions).into(), Duration::from_millis(rest));
        for operation in operations {
            pair.apply(operation)?;
            prop_assert_eq!(pair.block.counts(), pair.model.counts());
        }
        pair.compare()?;
    }
}

proptest! {
    #[test]
    fn the_lowest_free_address_within_a_range_is_the_lowest_that_is_free(
        held in prop::collection::vec(0_u128..600, 0..200),
        reserved in prop::collection::vec((0_u128..600, 0_u128..40), 0..3),
        excluded in prop::collection::vec((0_u128..600, 0_u128..60), 0..4),
        window in (0_u128..900, 0_u128..300),
    ) {
        let cidr: Cidr = "10.0.0.0/23".parse().unwrap();
        let wide: Cidr = "10.0.0.0/22".parse().unwrap();
        let at = |offset: u128| cidr.first().plus(offset).unwrap();
        let mut block: Block<u128> = Block::new(Range::every(cidr), Duration::from_secs(30));
        for offset in held.into_iter().filter(|offset| *offset < 512) {
            drop(block.replay(offset, at(offset), None));
        }
        for (first, more) in reserved {
            drop(block.reserve(at(first), at(first + more)));
        }
        let exclusions = excluded.into_iter().map(|(first, more)| Exclusion::between(at(first), at(first + more)).unwrap());
        let range = Range::every(wide).between(Some(at(window.0)), Some(at((window.0 + window.1).min(1023)))).unwrap();
        let range = range.without(exclusions);
        let addresses = |range: &Range| (0..range.count()).map(|rank| range.nth(rank).unwrap()).collect::<Vec<_>>();
        let free = |address: &Address| matches!(block.state(*address), Ok(State::Free));
        prop_assert_eq!(block.lowest_free_within(&range), addresses(&range).into_iter().find(free));
    }
}
