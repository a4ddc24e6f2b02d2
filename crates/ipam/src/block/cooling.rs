//! Freed addresses at rest, the longest-rested first.

use std::collections::VecDeque;

use tenure_handles::Timestamp;

use crate::block::chunks::{Chunks, Spot};

/// One freed address. It is out of date once its spot has another holder, which the sequence number tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resting {
    pub(super) freed_at: Timestamp,
    pub(super) sequence: u64,
    pub(super) spot: Spot,
}

impl Resting {
    /// Whether it is not out of date.
    pub(super) fn is_live<K>(&self, chunks: &Chunks<K>) -> bool {
        let (chunk, position) = (chunks.get(self.spot), self.spot.position());
        chunk.is_cooling(position) && chunk.sequence(position) == self.sequence
    }
}

/// Freed addresses in the order in which they were freed, which is also the order of their times.
#[derive(Debug, Default)]
pub(super) struct Cooling {
    queue: VecDeque<Resting>,
    /// How many of the queue are not out of date.
    live: usize,
}

impl Cooling {
    /// How many addresses cool.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// The one freed longest ago; it may be out of date.
    pub(super) fn oldest(&self) -> Option<Resting> {
        self.queue.front().copied()
    }

    /// Lets an address that was freed now rest.
    pub(super) fn push(&mut self, resting: Resting) {
        self.notice(resting.freed_at);
        self.queue.push_back(resting);
        self.live += 1;
    }

    /// Takes the oldest off; `live` says whether it was not out of date.
    pub(super) fn pop(&mut self, live: bool) {
        self.queue.pop_front();
        self.live -= usize::from(live);
        if self.queue.capacity() > 4 * self.queue.len() + 64 {
            self.queue.shrink_to(2 * self.queue.len());
        }
    }

    /// Says that one in the queue has become out of date. Sweeps those out when they are the most.
    pub(super) fn outdate(&mut self, is_live: impl Fn(&Resting) -> bool) {
        self.live -= 1;
        if self.queue.len() > 2 * self.live + 64 {
            self.queue.retain(is_live);
            self.queue.shrink_to(2 * self.live);
        }
    }

    /// Keeps the order of times when the clock was set back: what was freed later than now was freed now.
    pub(super) fn notice(&mut self, now: Timestamp) {
        for resting in self.queue.iter_mut().rev().take_while(|resting| resting.freed_at > now) {
            resting.freed_at = now;
        }
    }

    /// All in the queue, oldest first; some may be out of date.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Resting> {
        self.queue.iter()
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Resting>()
    }
}
