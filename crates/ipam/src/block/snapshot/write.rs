//! From a block to bytes.

use std::ops::RangeInclusive;

use crate::address::Family;
use crate::block::chunk::Chunk;
use crate::block::{Block, SnapshotKey};
use crate::range::{Range, Usable};
use crate::wire::put;

impl<K: SnapshotKey> Block<K> {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        put(bytes, u8::from(self.space.secondary().is_some()));
        write_range(bytes, self.space.primary());
        if let Some(range) = self.space.secondary() {
            write_range(bytes, range);
        }
        put(bytes, self.rest.as_secs());
        put(bytes, self.rest.subsec_nanos());
        put(bytes, self.next_sequence);
        put(bytes, u8::from(self.cursor.is_some()));
        put(bytes, self.cursor.unwrap_or_default());
        write_intervals(bytes, self.reserved.interval_count(), self.reserved.iter());
        self.write_holds(bytes);
        self.write_moves(bytes);
        self.write_cooling(bytes);
    }

    fn write_holds(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.holders.len() as u128);
        let mut next = 0;
        for spot in self.chunks.spots(Chunk::held) {
            let (chunk, offset) = (self.chunks.get(spot), self.chunks.offset(spot));
            put(bytes, offset - next);
            put(bytes, chunk.sequence(spot.position()));
            chunk.key(spot.position()).write(bytes);
            // Beyond the last offset of all there is nothing to follow.
            next = offset.wrapping_add(1);
        }
    }

    fn write_moves(&self, bytes: &mut Vec<u8>) {
        let moving = || {
            let spots = self.chunks.spots(Chunk::held);
            let moves = spots.map(|spot| (spot, self.moves.incoming(spot), self.moves.past(spot)));
            moves.filter(|(_, incoming, past)| incoming.is_some() || past.is_some())
        };
        let count = if self.moves.is_empty() { 0 } else { moving().count() };
        put(bytes, count as u128);
        for (spot, incoming, past) in moving().take(count) {
            put(bytes, self.chunks.offset(spot));
            put(bytes, u8::from(incoming.is_some()));
            if let Some(incoming) = incoming {
                put(bytes, incoming.id.0);
                put(bytes, incoming.sequence);
                incoming.key.write(bytes);
            }
            let committed = past.and_then(|past| past.committed);
            put(bytes, u8::from(past.is_some()) + u8::from(committed.is_some()));
            past.into_iter().map(|past| past.last).chain(committed).for_each(|id| put(bytes, id.0));
        }
    }

    fn write_cooling(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.cooling.len() as u128);
        for resting in self.cooling.iter().filter(|resting| resting.is_live(&self.chunks)) {
            put(bytes, self.chunks.offset(resting.spot));
            put(bytes, resting.freed_at.as_millis());
            put(bytes, resting.sequence);
            self.chunks.key(resting.spot).write(bytes);
        }
    }
}

fn write_range(bytes: &mut Vec<u8>, range: &Range) {
    let cidr = range.cidr();
    let base = cidr.first().bits();
    put(bytes, u8::from(cidr.family() == Family::V6));
    put(bytes, cidr.prefix());
    put(bytes, base);
    put(bytes, u8::from(range.usable() == Usable::WithoutEdges));
    put(bytes, range.first().bits() - base);
    put(bytes, range.last().bits() - base);
    let exclusions: Vec<_> = range.exclusions().collect();
    let offsets = exclusions.iter().map(|part| part.first().bits() - base..=part.last().bits() - base);
    write_intervals(bytes, exclusions.len(), offsets);
}

/// Each as the distance from the one before and the distance to its own end.
fn write_intervals(bytes: &mut Vec<u8>, count: usize, intervals: impl Iterator<Item = RangeInclusive<u128>>) {
    put(bytes, count as u128);
    let mut end = 0;
    for interval in intervals {
        put(bytes, interval.start() - end);
        put(bytes, interval.end() - interval.start());
        end = *interval.end();
    }
}
