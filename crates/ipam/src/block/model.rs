//! The block as one would write it without a care for time or memory: the law that the real one is held to.
//!
//! One list entry an offset, everything found by looking at all of them.

use std::time::Duration;

use tenure_handles::Timestamp;

use crate::block::{Choice, Counts, MoveId, Settled};

pub(super) type Key = u64;

#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) usable: bool,
    pub(super) reserved: bool,
    pub(super) held: Option<Held>,
    pub(super) cooling: Option<Cooled>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) incoming: Option<(Key, u64, MoveId)>,
    pub(super) last_move: Option<MoveId>,
    pub(super) committed: Option<MoveId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cooled {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) freed_at: Timestamp,
    /// The how-manieth release of the block it was.
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
    HandedOver,
    Withdrawn,
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) places: Vec<Place>,
    pub(super) rest: Duration,
    pub(super) next_sequence: u64,
    cursor: Option<usize>,
    releases: u64,
}

impl Model {
    pub(super) fn new(usable: impl Iterator<Item = bool>, rest: Duration) -> Self {
        let places = usable.map(|usable| Place { usable, ..Place::default() }).collect();
        Self { places, rest, next_sequence: 1, cursor: None, releases: 0 }
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

    /// The offset that a key has, its sequence number, and whether it is the active holder.
    pub(super) fn find(&self, key: Key) -> Option<(usize, u64, bool)> {
        self.places.iter().enumerate().find_map(|(offset, place)| {
            let held = place.held.as_ref()?;
            match held.incoming {
                _ if held.key == key => Some((offset, held.sequence, true)),
                Some((incoming, sequence, _)) if incoming == key => Some((offset, sequence, false)),
                _ => None,
            }
        })
    }

    /// `named` is the offset of a named address, if it is in the space.
    pub(super) fn hold(&mut self, key: Key, choice: Choice, named: Option<usize>, now: Timestamp) -> Answer {
        self.advance(now);
        let by_name = matches!(choice, Choice::Named(_));
        if let Some((offset, sequence, _)) = self.find(key) {
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
        self.give(offset, key, sequence);
        Answer::New(offset, sequence)
    }

    pub(super) fn replay(&mut self, key: Key, offset: usize, sequence: Option<u64>) -> Answer {
        if let Some((has, number, _)) = self.find(key) {
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
        }
        Answer::New(offset, sequence)
    }

    pub(super) fn release(&mut self, key: Key, sequence: u64, now: Timestamp) -> Released {
        self.advance(now);
        let Some((offset, held_as, active)) = self.find(key) else { return Released::Nothing };
        if held_as != sequence {
            return Released::Nothing;
        }
        if !active {
            self.abort(offset);
            return Released::Withdrawn;
        }
        if self.commit(offset) {
            return Released::HandedOver;
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

    pub(super) fn begin_move(&mut self, from: Key, sequence: u64, to: Key, id: MoveId) -> Answer {
        if let Some((offset, held_as, true)) = self.find(to)
            && self.held(offset).committed == Some(id)
        {
            return Answer::Existing(offset, held_as);
        }
        let Some((offset, held_as, true)) = self.find(from) else { return Answer::Refused };
        let held = self.held(offset);
        if held_as != sequence {
            return Answer::Refused;
        }
        match held.incoming {
            Some((key, incoming, other)) if (key, other) == (to, id) => {
                return Answer::Existing(offset, incoming);
            }
            Some(_) => return Answer::Refused,
            None if held.last_move.is_some_and(|last| id <= last) || self.find(to).is_some() => {
                return Answer::Refused;
            }
            None => {}
        }
        let number = self.next_sequence;
        self.next_sequence += 1;
        if let Some(held) = &mut self.places[offset].held {
            held.incoming = Some((to, number, id));
        }
        Answer::New(offset, number)
    }

    pub(super) fn commit_move(&mut self, to: Key, id: MoveId) -> Option<Settled> {
        let (offset, _, active) = self.find(to)?;
        let held = self.held(offset);
        if active {
            return (held.committed == Some(id)).then_some(Settled::Before);
        }
        let under_way = held.incoming.is_some_and(|(_, _, other)| other == id);
        (under_way && self.commit(offset)).then_some(Settled::Now)
    }

    pub(super) fn abort_move(&mut self, to: Key, id: MoveId) -> Option<Settled> {
        let Some((offset, _, active)) = self.find(to) else { return Some(Settled::Before) };
        let held = self.held(offset);
        if active {
            return (held.committed != Some(id)).then_some(Settled::Before);
        }
        if held.incoming.is_some_and(|(_, _, other)| other == id) {
            self.abort(offset);
            return Some(Settled::Now);
        }
        Some(Settled::Before)
    }

    pub(super) fn counts(&self) -> Counts {
        let count = |is: fn(&Place) -> bool| self.places.iter().filter(|place| is(place)).count() as u128;
        Counts {
            capacity: count(|place| place.usable),
            held: count(|place| place.held.is_some()),
            cooling: count(|place| place.cooling.is_some()),
            reserved: count(|place| place.reserved && place.held.is_none() && place.cooling.is_none()),
            free: count(Place::is_free),
        }
    }

    fn held(&self, offset: usize) -> Held {
        self.places[offset].held.clone().unwrap()
    }

    fn give(&mut self, offset: usize, key: Key, sequence: u64) {
        let place = &mut self.places[offset];
        place.cooling = None;
        place.held = Some(Held { key, sequence, incoming: None, last_move: None, committed: None });
    }

    /// Reserved ones lose their rest when one is needed and they are older.
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

    fn commit(&mut self, offset: usize) -> bool {
        let Some(held) = &mut self.places[offset].held else { return false };
        let Some((key, sequence, id)) = held.incoming.take() else { return false };
        *held = Held { key, sequence, incoming: None, last_move: Some(id), committed: Some(id) };
        true
    }

    fn abort(&mut self, offset: usize) {
        if let Some(held) = &mut self.places[offset].held {
            held.last_move = held.incoming.take().map(|(_, _, id)| id);
        }
    }
}

impl Place {
    fn is_free(&self) -> bool {
        self.usable && !self.reserved && self.held.is_none() && self.cooling.is_none()
    }
}
