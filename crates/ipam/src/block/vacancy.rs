//! Which offsets may not be assigned to anybody, and which chunks are full.
//!
//! It promises that [`Vacancy::next_open`] finds the next chunk with a free offset in logarithmic time in the
//! number of runs of full chunks, whether one huge exclusion or a million holds fill them.

use crate::block::chunk::{Bits, LAST_NUMBER, POSITION_BITS, WIDTH, join};
use crate::block::chunks::Chunks;
use crate::intervals::IntervalSet;
use crate::space::Space;

#[derive(Debug)]
pub(super) struct Vacancy {
    /// Offsets that are unusable or reserved.
    blocked: IntervalSet,
    /// Numbers of chunks without a free offset, and all numbers that have no chunk.
    full: IntervalSet,
}

impl Vacancy {
    pub(super) fn new(space: &Space) -> Self {
        let usable: IntervalSet = space.runs().iter().collect();
        let blocked = usable.gaps_within(0, u128::MAX).collect();
        let mut vacancy = Self { blocked, full: IntervalSet::new() };
        vacancy.full.insert(LAST_NUMBER + 1, u128::MAX);
        vacancy.refill(0, u128::MAX, &Chunks::<()>::new());
        vacancy
    }

    /// The lowest chunk from `number` on that has a free offset.
    pub(super) fn next_open(&self, number: u128) -> Option<u128> {
        self.full.next_gap(number)
    }

    /// Records that a chunk is full.
    pub(super) fn fill(&mut self, number: u128) {
        self.full.insert(number, number);
    }

    /// Records that a chunk has a free offset again.
    pub(super) fn open(&mut self, number: u128) {
        self.full.remove(number, number);
    }

    pub(super) fn is_blocked(&self, offset: u128) -> bool {
        self.blocked.contains(offset)
    }

    /// The blocked offsets of a chunk.
    pub(super) fn blocked_bits(&self, number: u128) -> Bits {
        let first = join(number, 0);
        let intervals = self.blocked.within(first, first | u128::from(WIDTH - 1));
        intervals.fold(0, |bits, interval| {
            let (low, high) = (interval.start() - first, interval.end() - first);
            bits | ((Bits::MAX << low) & (Bits::MAX >> (u128::from(WIDTH - 1) - high)))
        })
    }

    /// Blocks `first` to `last`.
    pub(super) fn block(&mut self, first: u128, last: u128) {
        self.blocked.insert(first, last);
    }

    /// Unblocks `first` to `last`.
    pub(super) fn unblock(&mut self, first: u128, last: u128) {
        self.blocked.remove(first, last);
    }

    /// Recomputes which of the chunks with offsets `first` to `last` are full.
    pub(super) fn refill<K>(&mut self, first: u128, last: u128, chunks: &Chunks<K>) {
        let (low, high) = (first >> POSITION_BITS, last >> POSITION_BITS);
        self.full.remove(low, high);
        for interval in self.blocked.within(join(low, 0), join(high, WIDTH - 1)) {
            // The chunks that lie completely in the interval: none if the ends come out swapped.
            let whole = interval.start().div_ceil(u128::from(WIDTH));
            match interval.end().checked_add(1) {
                None => self.full.insert(whole, LAST_NUMBER),
                Some(end) if end >> POSITION_BITS > whole => {
                    self.full.insert(whole, (end >> POSITION_BITS) - 1);
                }
                Some(_) => {}
            }
        }
        for chunk in chunks.iter_between(low..=high).filter(|chunk| chunk.free() == 0) {
            self.full.insert(chunk.number, chunk.number);
        }
    }

    /// Bytes used.
    pub(super) fn memory(&self) -> usize {
        self.blocked.memory() + self.full.memory()
    }
}
