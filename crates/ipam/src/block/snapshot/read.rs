//! From bytes to a block, believing nothing.

use std::hash::Hash;
use std::time::Duration;

use tenure_handles::Timestamp;

use crate::address::{Address, Family};
use crate::block::chunk::split;
use crate::block::cooling::Resting;
use crate::block::moves::{Incoming, Past};
use crate::block::{Block, MoveId, Sequence, SnapshotError, SnapshotKey};
use crate::cidr::Cidr;
use crate::hash::hash_of;
use crate::intervals::IntervalSet;
use crate::range::{Exclusion, Range, Usable};
use crate::space::Space;
use crate::wire::{take, take_byte};

impl<K: Eq + Hash + SnapshotKey> Block<K> {
    pub(super) fn read(mut bytes: &[u8]) -> Result<Self, SnapshotError> {
        let bytes = &mut bytes;
        let or = |part: &'static str| SnapshotError::Nonsense { part };
        let space = read_space(bytes).ok_or(or("ranges"))?;
        let rest = read_rest(bytes).ok_or(or("times"))?;
        let mut block = Self::new(space, rest);
        block.read_numbers(bytes).ok_or(or("numbers"))?;
        block.read_reserved(bytes).ok_or(or("reserved addresses"))?;
        block.read_holds(bytes).ok_or(or("holds"))?;
        block.read_moves(bytes).ok_or(or("moves"))?;
        block.read_cooling(bytes).ok_or(or("cooling addresses"))?;
        if bytes.is_empty() { Ok(block) } else { Err(or("last bytes")) }
    }

    fn read_numbers(&mut self, bytes: &mut &[u8]) -> Option<()> {
        self.next_sequence = take(bytes)?;
        let has_cursor = take_flag(bytes)?;
        let cursor: u128 = take(bytes)?;
        self.cursor = has_cursor.then_some(cursor);
        let cursor_fits = if has_cursor { cursor <= self.space.last_offset() } else { cursor == 0 };
        ((1..=Sequence::LAST + 1).contains(&self.next_sequence) && cursor_fits).then_some(())
    }

    fn read_reserved(&mut self, bytes: &mut &[u8]) -> Option<()> {
        self.reserved = read_intervals(bytes)?;
        for interval in self.reserved.iter() {
            let (first, last) = interval.into_inner();
            let usable = self.space.runs().iter_from(first).next()?;
            if *usable.start() != first || *usable.end() < last {
                return None;
            }
            self.vacancy.block(first, last);
        }
        self.blocked_changed(0, u128::MAX);
        Some(())
    }

    fn read_holds(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let count: u64 = take(bytes)?;
        let mut next = Some(0_u128);
        for _ in 0..count {
            let offset = next?.checked_add(take(bytes)?)?;
            next = offset.checked_add(1);
            let sequence = self.read_sequence(bytes)?;
            let key = K::read(bytes)?;
            let hash = hash_of(&key);
            if offset > self.space.last_offset() || self.find_hashed(&key, hash).is_some() {
                return None;
            }
            self.place(offset, key, hash, sequence)?;
        }
        Some(())
    }

    fn read_moves(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let count: u64 = take(bytes)?;
        let mut before = None;
        for _ in 0..count {
            let offset: u128 = take(bytes)?;
            if before.replace(offset).is_some_and(|before| before >= offset) {
                return None;
            }
            let (number, position) = split(offset);
            let spot = self.chunks.spot(number, position)?;
            if !self.chunks.get(spot).is_held(position) {
                return None;
            }
            let moving = take_flag(bytes)?;
            if moving {
                let id = MoveId(take(bytes)?);
                let sequence = self.read_sequence(bytes)?;
                let key = K::read(bytes)?;
                let hash = hash_of(&key);
                if self.find_hashed(&key, hash).is_some() {
                    return None;
                }
                self.moves.begin(spot, hash, Incoming { key, sequence, id });
            }
            match take_byte(bytes)? {
                0 if moving => {}
                1 => self.moves.set_past(spot, Past { last: MoveId(take(bytes)?), committed: None }),
                2 => {
                    let (last, committed) = (MoveId(take(bytes)?), MoveId(take(bytes)?));
                    self.moves.set_past(spot, Past { last, committed: Some(committed) });
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn read_cooling(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let count: u64 = take(bytes)?;
        let mut latest = Timestamp::default();
        for _ in 0..count {
            let offset: u128 = take(bytes)?;
            let freed_at = Timestamp::from_millis(take(bytes)?);
            let sequence = self.read_sequence(bytes)?;
            let key = K::read(bytes)?;
            if offset > self.space.last_offset() || freed_at < latest {
                return None;
            }
            latest = freed_at;
            let (number, position) = split(offset);
            if self.chunks.find(number).is_some_and(|chunk| chunk.occupied() >> position & 1 == 1) {
                return None;
            }
            let spot = self.occupy(offset, key, sequence)?;
            self.chunks.get_mut(spot).cool(position);
            self.cooling.push(Resting { freed_at, sequence, spot });
        }
        Some(())
    }

    fn read_sequence(&self, bytes: &mut &[u8]) -> Option<u64> {
        take(bytes).filter(|sequence| (1..self.next_sequence).contains(sequence))
    }
}

fn read_space(bytes: &mut &[u8]) -> Option<Space> {
    let dual = take_flag(bytes)?;
    let primary = read_range(bytes)?;
    if dual { Space::pair(primary, read_range(bytes)?).ok() } else { Some(primary.into()) }
}

fn read_range(bytes: &mut &[u8]) -> Option<Range> {
    let family = if take_flag(bytes)? { Family::V6 } else { Family::V4 };
    let prefix = take(bytes)?;
    let network = Address::new(family, take(bytes)?)?;
    let cidr = Cidr::new(network, prefix).filter(|cidr| cidr.first() == network)?;
    let usable = if take_flag(bytes)? { Usable::WithoutEdges } else { Usable::Every };
    let (first, last) = (cidr.nth(take(bytes)?).ok()?, cidr.nth(take(bytes)?).ok()?);
    let range = Range::new(cidr, usable).ok()?.between(Some(first), Some(last)).ok()?;
    let intervals = read_intervals(bytes)?;
    let mut exclusions = Vec::with_capacity(intervals.interval_count());
    for interval in intervals.iter() {
        let (from, to) = (cidr.nth(*interval.start()).ok()?, cidr.nth(*interval.end()).ok()?);
        if from < first || to > last {
            return None;
        }
        exclusions.push(Exclusion::between(from, to).ok()?);
    }
    Some(range.without(exclusions))
}

fn read_rest(bytes: &mut &[u8]) -> Option<Duration> {
    let (seconds, nanos) = (take(bytes)?, take(bytes)?);
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

fn read_intervals(bytes: &mut &[u8]) -> Option<IntervalSet> {
    let count: u64 = take(bytes)?;
    let (mut intervals, mut end) = (IntervalSet::new(), None::<u128>);
    for _ in 0..count {
        let distance: u128 = take(bytes)?;
        // Touching intervals would be one: it was not written like that.
        let first =
            end.map_or(Some(distance), |end| end.checked_add(distance.max(2)).filter(|_| distance > 1))?;
        let last = first.checked_add(take(bytes)?)?;
        intervals.insert(first, last);
        end = Some(last);
    }
    Some(intervals)
}

fn take_flag(bytes: &mut &[u8]) -> Option<bool> {
    match take_byte(bytes)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
