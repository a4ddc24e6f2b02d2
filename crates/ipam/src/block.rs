//! A block: who holds which address of a space. The one allocator under every dialect.
//!
//! ```text
//!                hold                        release
//!    free ─────────────────▶ held(key, n) ─────────────▶ cooling(last key, n)
//!     ▲                        ▲                            │      │
//!     │                        └── hold: named, or as the ──┘      │
//!     │                            oldest when none is free        │ its time is over
//!     └────────────────────────────────────────────────────────────┘
//! ```
//!
//! What it promises:
//!
//! - An address has one holder, and a key holds one address: holding again returns the same hold.
//! - Every hold has a [`Sequence`] number that was never used before in this block. A release names it, so
//!   a late or repeated release never touches a successor.
//! - A freed address cools before it is assigned again, and gives way, oldest first, rather than failing
//!   a request. When the clock is set back, cooling starts anew.
//! - Holding and releasing take the same time in an empty block and with millions of holds, behind any
//!   number of exclusions, and for the last free address of a /8. Memory grows with the number of holds.
//!
//! A claim that moves between pods stays one hold. Code above this crate decides which of its pods gets the traffic.

use std::hash::Hash;
use std::time::Duration;

use tenure_handles::Timestamp;

use crate::address::Address;
use crate::hash::hash_of;
use crate::intervals::IntervalSet;
use crate::space::{Addresses, Space};

mod chunk;
mod chunks;
mod cooling;
mod error;
mod find;
mod hold;
mod holders;
mod reserve;
mod vacancy;

pub use error::{HoldError, NotInSpace, ReplayError, ReserveError};
pub use find::{Cooling, Entry, Holder, State};
pub use hold::{Choice, Granted, Hold, Release, Sequence};

use chunks::{Chunks, Spot};
use holders::Holders;
use vacancy::Vacancy;

/// Who holds which address of a [`Space`].
#[derive(Debug)]
pub struct Block<K> {
    space: Space,
    /// How long a freed address cools.
    rest: Duration,
    chunks: Chunks<K>,
    holders: Holders,
    cooling: cooling::Cooling,
    vacancy: Vacancy,
    /// Usable offsets that are reserved, with or without a holder.
    reserved: IntervalSet,
    /// Occupied offsets that are reserved, and occupied offsets that are not usable. Only replay makes
    /// either.
    occupied_reserved: usize,
    occupied_unusable: usize,
    /// The offset that [`Choice::NextAfterLast`] chose last.
    cursor: Option<u128>,
    next_sequence: u64,
}

/// How many addresses (or pairs) of a block are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Usable addresses, at most 2^128 - 1: one too few for the whole of IPv6.
    pub capacity: u128,
    /// Addresses with a holder, including replayed ones that are no longer usable.
    pub held: u128,
    /// Freed and cooling.
    pub cooling: u128,
    /// Reserved and neither held nor cooling.
    pub reserved: u128,
    /// Free to be assigned; one too few where `capacity` is.
    pub free: u128,
}

impl<K> Block<K> {
    /// A block in which nothing is held, whose freed addresses cool for `rest`.
    pub fn new(space: impl Into<Space>, rest: Duration) -> Self {
        let space = space.into();
        Self {
            vacancy: Vacancy::new(&space),
            space,
            rest,
            chunks: Chunks::new(),
            holders: Holders::default(),
            cooling: cooling::Cooling::default(),
            reserved: IntervalSet::new(),
            occupied_reserved: 0,
            occupied_unusable: 0,
            cursor: None,
            next_sequence: 1,
        }
    }

    /// The space it assigns from.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// How long a freed address cools.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// Changes how long freed addresses cool, including those that cool now.
    pub fn set_rest(&mut self, rest: Duration) {
        self.rest = rest;
    }

    /// How many addresses are in each state, as of the last call that passed a time.
    pub fn counts(&self) -> Counts {
        let occupied = self.holders.len() + self.cooling.len();
        let in_the_way = (occupied - self.occupied_reserved - self.occupied_unusable) as u128;
        let (capacity, reserved) = (self.space.capacity(), self.reserved.len());
        Counts {
            capacity,
            held: self.holders.len() as u128,
            cooling: self.cooling.len() as u128,
            reserved: reserved - self.occupied_reserved as u128,
            free: capacity.saturating_sub(reserved).saturating_sub(in_the_way),
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.holders.len() == 0
    }

    /// Bytes used, including all indexes but not what keys keep on the heap. Trees are estimated from above.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.space.memory()
            + self.chunks.memory()
            + self.holders.memory()
            + self.cooling.memory()
            + self.vacancy.memory()
            + self.reserved.memory()
    }

    fn offset_of(&self, address: Address) -> Result<u128, NotInSpace> {
        self.space.offset_of(address).ok_or_else(|| NotInSpace { address, space: self.space.to_string() })
    }

    fn addresses(&self, offset: u128) -> Addresses {
        self.space.addresses(offset).unwrap_or(Addresses { ipv4: None, ipv6: None })
    }

    /// Frees a spot whose holder is already out of the index: the spot cools, or is free at once.
    fn free(&mut self, spot: Spot, now: Timestamp) {
        let rests = !self.rest.is_zero();
        let chunk = self.chunks.get_mut(spot);
        if rests && !chunk.is_blocked(spot.position()) {
            chunk.cool(spot.position());
            let sequence = chunk.sequence(spot.position());
            self.cooling.push(cooling::CoolingEntry { freed_at: now, sequence, spot });
        } else {
            self.vacate(spot);
        }
    }

    /// Makes an occupied spot free.
    fn vacate(&mut self, spot: Spot) {
        let chunk = self.chunks.get_mut(spot);
        let was_full = chunk.free() == 0;
        chunk.vacate(spot.position());
        let (opens, empty) = (was_full && chunk.free() != 0, chunk.occupied() == 0);
        let (number, blocked) = (chunk.number, chunk.is_blocked(spot.position()));
        if opens {
            self.vacancy.open(number);
        }
        if blocked {
            *self.occupied_though_blocked(self.chunks.offset(spot)) -= 1;
        }
        if empty {
            self.chunks.retire(spot);
        }
    }

    /// The counter for occupied offsets that are blocked in the same way as this one.
    fn occupied_though_blocked(&mut self, offset: u128) -> &mut usize {
        if self.reserved.contains(offset) { &mut self.occupied_reserved } else { &mut self.occupied_unusable }
    }

    /// Ends cooling where its time is over. Every call that takes a time starts with this.
    pub fn advance(&mut self, now: Timestamp) {
        self.cooling.notice(now);
        while let Some(oldest) = self.cooling.oldest()
            && oldest.freed_at.plus(self.rest) <= now
        {
            let live = oldest.is_live(&self.chunks);
            self.cooling.pop(live);
            if live {
                self.vacate(oldest.spot);
            }
        }
    }
}

impl<K: Eq + Hash> Block<K> {
    /// The hold of a key.
    pub fn find(&self, key: &K) -> Option<Hold> {
        self.find_hashed(key, hash_of(key))
    }

    fn find_hashed(&self, key: &K, hash: u64) -> Option<Hold> {
        let spot = self.holders.find(hash, key, &self.chunks)?;
        Some(self.hold_at(spot, self.chunks.get(spot).sequence(spot.position())))
    }

    fn hold_at(&self, spot: Spot, sequence: u64) -> Hold {
        let offset = self.chunks.offset(spot);
        Hold { offset, addresses: self.addresses(offset), sequence: Sequence(sequence) }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod tests;
