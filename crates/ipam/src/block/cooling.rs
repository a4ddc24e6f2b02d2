//! Freed addresses that cool, the oldest first.

use std::collections::VecDeque;

use tenure_handles::Timestamp;

use crate::block::chunks::{Chunks, Spot};

/// One freed address. An entry is out of date once its spot has another holder, which the sequence number
/// shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoolingEntry {
    pub(super) freed_at: Timestamp,
    pub(super) sequence: u64,
    pub(super) spot: Spot,
}

impl CoolingEntry {
    /// Whether the entry is still current.
    pub(super) fn is_live<K>(&self, chunks: &Chunks<K>) -> bool {
        let (chunk, position) = (chunks.get(self.spot), self.spot.position());
        chunk.is_cooling(position) && chunk.sequence(position) == self.sequence
    }
}

/// Freed addresses in the order in which they were freed, which is also the order of their times.
#[derive(Debug, Default)]
pub(super) struct Cooling {
    queue: VecDeque<CoolingEntry>,
    /// How many entries of the queue are current.
    live: usize,
}

impl Cooling {
    /// How many addresses cool.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// The one freed longest ago; it may be out of date.
    pub(super) fn oldest(&self) -> Option<CoolingEntry> {
        self.queue.front().copied()
    }

    /// Adds an address that was freed now.
    pub(super) fn push(&mut self, entry: CoolingEntry) {
        self.notice(entry.freed_at);
        self.queue.push_back(entry);
        self.live += 1;
    }

    /// Removes the oldest entry; `live` says whether it was current.
    pub(super) fn pop(&mut self, live: bool) {
        self.queue.pop_front();
        self.live -= usize::from(live);
        if self.queue.capacity() > 4 * self.queue.len() + 64 {
            self.queue.shrink_to(2 * self.queue.len());
        }
    }

    /// Records that one entry went out of date. Removes such entries once they are the majority.
    pub(super) fn outdate(&mut self, is_live: impl Fn(&CoolingEntry) -> bool) {
        self.live -= 1;
        if self.queue.len() > 2 * self.live + 64 {
            self.queue.retain(is_live);
            self.queue.shrink_to(2 * self.live);
        }
    }

    /// Keeps the times in order when the clock was set back: entries freed later than `now` count as freed
    /// now.
    pub(super) fn notice(&mut self, now: Timestamp) {
        for entry in self.queue.iter_mut().rev().take_while(|entry| entry.freed_at > now) {
            entry.freed_at = now;
        }
    }

    /// All in the queue, oldest first; some may be out of date.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CoolingEntry> {
        self.queue.iter()
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<CoolingEntry>()
    }
}
