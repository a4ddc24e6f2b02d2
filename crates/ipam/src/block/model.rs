//! The block written without regard for time or memory: the reference that the real one is compared with.
//!
//! One list entry per offset; everything is found by a full scan.

use std::time::Duration;

use tenure_handles::Timestamp;

use crate::block::{Choice, Counts};

pub(super) type Key = u64;

#[derive(Clone, Debug, Default)]
pub(super) struct OffsetState {
    pub(super) usable: bool,
    pub(super) reserved: bool,
    pub(super) held: Option<Held>,
    pub(super) cooling: Option<Cooled>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cooled {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) freed_at: Timestamp,
    /// The position of this release among all releases of the block.
    pub(super) order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    New(usize, u64),
    Existing(usize, u64),
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    Freed,
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) places: Vec<OffsetState>,
    pub(super) rest: Duration,
    pub(super) next_sequence: u64,
    cursor: Option<usize>,
    releases: u64,
    /// The hold with the highest number: whose, where, and which number.
    pub(super) youngest: Option<(Key, usize, u64)>,
}

impl Model {
    pub(super) fn new(usable: impl Iterator<Item = bool>, rest: Duration) -> Self {
        let places = usable.map(|usable| OffsetState { usable, ..OffsetState::default() }).collect();
        Self { places, rest, next_sequence: 1, cursor: None, releases: 0, youngest: None }
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        for place in &mut self.places {
            if let Some(cooled) = &mut place.cooling {
                cooled.freed_at = cooled.freed_at.min(now);
                if cooled.freed_at.plus(self.rest) <= now {
                    place.cooling = None;
                }
            }
        }
    }

    /// The offset that a key has, and its sequence number.
    pub(super) fn find(&self, key: Key) -> Option<(usize, u64)> {
        self.places.iter().enumerate().find_map(|(offset, place)| {
            let held = place.held.as_ref().filter(|held| held.key == key)?;
            Some((offset, held.sequence))
        })
    }

    /// After a restart the search continues from the youngest hold, however that was chosen.
    pub(super) fn restart(&mut self) {
        self.cursor = self.youngest.map(|(_, offset, _)| offset);
    }

    /// `named` is the offset of a named address, if it is in the space.
    pub(super) fn hold(&mut self, key: Key, choice: Choice, named: Option<usize>, now: Timestamp) -> Answer {
        self.advance(now);
        let by_name = matches!(choice, Choice::Named(_));
        if let Some((offset, sequence)) = self.find(key) {
            let same = !by_name || named == Some(offset);
            return if same { Answer::Existing(offset, sequence) } else { Answer::Refused };
        }
        let offset = if by_name {
            named.filter(|offset| {
                let place = &self.places[*offset];
                place.usable && !place.reserved && place.held.is_none()
            })
        } else {
            let start = match choice {
                Choice::NextAfterLast => self.cursor.map_or(0, |cursor| cursor + 1),
                _ => 0,
            };
            let mut in_order = (start..self.places.len()).chain(0..start.min(self.places.len()));
            in_order.find(|offset| self.places[*offset].is_free()).or_else(|| self.longest_cooling())
        };
        let Some(offset) = offset else { return Answer::Refused };
        if choice == Choice::NextAfterLast {
            self.cursor = Some(offset);
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.youngest = Some((key, offset, sequence));
        self.give(offset, key, sequence);
        Answer::New(offset, sequence)
    }

    pub(super) fn replay(&mut self, key: Key, offset: usize, sequence: Option<u64>) -> Answer {
        if let Some((has, number)) = self.find(key) {
            let same = has == offset && sequence.is_none_or(|sequence| sequence == number);
            return if same { Answer::Existing(has, number) } else { Answer::Refused };
        }
        let sequence = sequence.unwrap_or(self.next_sequence);
        if self.places[offset].held.is_some() || sequence == 0 {
            return Answer::Refused;
        }
        self.give(offset, key, sequence);
        if sequence >= self.next_sequence {
            self.next_sequence = sequence + 1;
            self.cursor = Some(offset);
            self.youngest = Some((key, offset, sequence));
        }
        Answer::New(offset, sequence)
    }

    pub(super) fn release(&mut self, key: Key, sequence: u64, now: Timestamp) -> Released {
        self.advance(now);
        let Some((offset, held_as)) = self.find(key) else { return Released::Nothing };
        if held_as != sequence {
            return Released::Nothing;
        }
        let (place, order) = (&mut self.places[offset], self.releases);
        place.held = None;
        self.releases += 1;
        if place.usable && !place.reserved && !self.rest.is_zero() {
            place.cooling = Some(Cooled { key, sequence, freed_at: now, order });
        }
        Released::Freed
    }

    pub(super) fn set_reserved(&mut self, first: usize, last: usize, reserved: bool) {
        for place in self.places.iter_mut().take(last + 1).skip(first).filter(|place| place.usable) {
            place.reserved = reserved;
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let count =
            |is: fn(&OffsetState) -> bool| self.places.iter().filter(|place| is(place)).count() as u128;
        Counts {
            capacity: count(|place| place.usable),
            held: count(|place| place.held.is_some()),
            cooling: count(|place| place.cooling.is_some()),
            reserved: count(|place| place.reserved && place.held.is_none() && place.cooling.is_none()),
            free: count(OffsetState::is_free),
        }
    }

    fn give(&mut self, offset: usize, key: Key, sequence: u64) {
        let place = &mut self.places[offset];
        place.cooling = None;
        place.held = Some(Held { key, sequence });
    }

    /// Reserved addresses stop cooling when an address is needed and they are older.
    fn longest_cooling(&mut self) -> Option<usize> {
        loop {
            let cooling = self.places.iter().enumerate();
            let (offset, _) = cooling
                .filter_map(|(offset, place)| Some((offset, place.cooling.as_ref()?.order)))
                .min_by_key(|(_, order)| *order)?;
            if !self.places[offset].reserved {
                return Some(offset);
            }
            self.places[offset].cooling = None;
        }
    }
}

impl OffsetState {
    fn is_free(&self) -> bool {
        self.usable && !self.reserved && self.held.is_none() && self.cooling.is_none()
    }
}
