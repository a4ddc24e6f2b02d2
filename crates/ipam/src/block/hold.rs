//! Holding and releasing an address.

use std::fmt;
use std::hash::Hash;

use tenure_handles::Timestamp;

use crate::address::Address;
use crate::block::chunk::{Bits, join, split};
use crate::block::chunks::Spot;
use crate::block::{Block, HoldError, ReplayError};
use crate::hash::hash_of;
use crate::range::Range;
use crate::space::Addresses;

/// The number of a hold. It is larger than that of every earlier hold of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub(super) u64);

/// Which address to assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The next free one after the last one chosen this way; after the end, from the start. An address is
    /// reused as late as possible.
    NextAfterLast,
    /// The lowest free one, as Whereabouts chooses.
    LowestFree,
    /// This one, even while it cools. Either address of a pair names both.
    Named(Address),
}

/// An address (or pair), held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its distance from the network address.
    pub offset: u128,
    /// The address, or the address of each family.
    pub addresses: Addresses,
    /// The number that a release must name.
    pub sequence: Sequence,
}

/// The answer to a request for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// Held from now on.
    New(Hold),
    /// The key held it already; nothing changed.
    Existing(Hold),
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The address is cooling or free.
    Freed(Hold),
    /// Nothing is held under this key and sequence number: a late or repeated release.
    Nothing,
}

impl<K: Eq + Hash> Block<K> {
    /// Holds an address for `key`, or returns the hold that it already has.
    ///
    /// If no address is free, the one that cooled longest is assigned. [`Choice::Named`] is refused if the
    /// key holds another address.
    pub fn hold(&mut self, key: K, choice: Choice, now: Timestamp) -> Result<Granted, HoldError> {
        self.advance(now);
        let hash = hash_of(&key);
        if let Some(hold) = self.find_hashed(&key, hash) {
            return match choice {
                Choice::Named(asked) if self.space.offset_of(asked) != Some(hold.offset) => {
                    Err(HoldError::HoldsAnother { held: hold.addresses, asked })
                }
                _ => Ok(Granted::Existing(hold)),
            };
        }
        let offset = match choice {
            Choice::NextAfterLast => self.next_after_last().or_else(|| self.longest_cooling()),
            Choice::LowestFree => self.lowest_free().or_else(|| self.longest_cooling()),
            Choice::Named(address) => Some(self.named(address)?),
        };
        let offset = offset.ok_or_else(|| self.exhausted())?;
        let sequence = self.next_sequence;
        let spot = self.place(offset, key, hash, sequence).ok_or(HoldError::Crowded)?;
        self.next_sequence += 1;
        if choice == Choice::NextAfterLast {
            self.cursor = Some(offset);
        }
        Ok(Granted::New(self.hold_at(spot, sequence)))
    }

    /// Releases what `key` holds under `sequence`. Anything else is left alone.
    pub fn release(&mut self, key: &K, sequence: Sequence, now: Timestamp) -> Release {
        self.advance(now);
        let hash = hash_of(key);
        let Some(spot) = self.holders.find(hash, key, &self.chunks) else { return Release::Nothing };
        if self.chunks.get(spot).sequence(spot.position()) != sequence.0 {
            return Release::Nothing;
        }
        let hold = self.hold_at(spot, sequence.0);
        self.holders.remove(hash, spot, &self.chunks);
        self.free(spot, now);
        Release::Freed(hold)
    }

    /// Restores a hold that already exists, from a journal, the kernel or the API. Every address of the space
    /// is accepted, even one that is reserved or no longer usable. A hold without a sequence number gets a
    /// new one. Replaying a hold twice has the same effect as once.
    pub fn replay(
        &mut self,
        key: K,
        address: Address,
        sequence: Option<Sequence>,
    ) -> Result<Granted, ReplayError> {
        let offset = self.offset_of(address)?;
        let hash = hash_of(&key);
        if let Some(hold) = self.find_hashed(&key, hash) {
            let same = hold.offset == offset && sequence.is_none_or(|sequence| sequence == hold.sequence);
            return if same {
                Ok(Granted::Existing(hold))
            } else {
                Err(ReplayError::HoldsAnother { address, held: hold.addresses, sequence: hold.sequence })
            };
        }
        let (number, position) = split(offset);
        if self.chunks.find(number).is_some_and(|chunk| chunk.is_held(position)) {
            return Err(ReplayError::Taken { address });
        }
        let sequence = sequence.map_or(self.next_sequence, |sequence| sequence.0);
        if sequence == 0 || sequence > Sequence::LAST {
            return Err(ReplayError::Sequence { address, sequence });
        }
        let spot = self.place(offset, key, hash, sequence).ok_or(ReplayError::Crowded)?;
        if sequence >= self.next_sequence {
            // The last assigned offset stays the last, so that addresses are reused late even after a
            // restart.
            self.next_sequence = sequence + 1;
            self.cursor = Some(offset);
        }
        Ok(Granted::New(self.hold_at(spot, sequence)))
    }

    /// Assigns an offset that nobody holds to `key`; `None` only if there are too many chunks.
    pub(super) fn place(&mut self, offset: u128, key: K, hash: u64, sequence: u64) -> Option<Spot> {
        let spot = self.occupy(offset, key, sequence)?;
        self.holders.insert(hash, spot, &self.chunks);
        Some(spot)
    }

    fn named(&self, address: Address) -> Result<u128, HoldError> {
        let offset = self.offset_of(address)?;
        let (number, position) = split(offset);
        if self.chunks.find(number).is_some_and(|chunk| chunk.is_held(position)) {
            return Err(HoldError::Taken { address });
        }
        if self.reserved.contains(offset) {
            return Err(HoldError::Reserved { address });
        }
        if !self.space.is_usable(offset) {
            return Err(HoldError::NotUsable { address });
        }
        Ok(offset)
    }
}

impl<K> Block<K> {
    /// Removes an offset that nobody holds from the free or cooling ones.
    pub(super) fn occupy(&mut self, offset: u128, key: K, sequence: u64) -> Option<Spot> {
        let (number, position) = split(offset);
        let vacancy = &self.vacancy;
        let spot = self.chunks.make(number, position, || vacancy.blocked_bits(number))?;
        let chunk = self.chunks.get_mut(spot);
        let (was_cooling, blocked) = (chunk.is_cooling(position), chunk.is_blocked(position));
        chunk.hold(position, key, sequence);
        let full = chunk.free() == 0;
        if was_cooling {
            let chunks = &self.chunks;
            self.cooling.outdate(|entry| entry.is_live(chunks));
        } else if blocked {
            *self.occupied_though_blocked(offset) += 1;
        } else if full {
            self.vacancy.fill(number);
        }
        Some(spot)
    }

    /// The lowest free address of the range, as of the last call that passed a time. Costs one lookup per run
    /// of the range.
    pub fn lowest_free_within(&self, range: &Range) -> Option<Address> {
        let address = |bits: u128| Address::masked(range.family(), bits);
        let offset = range.runs().iter().find_map(|run| {
            let (low, high) = self.space.offsets_between(address(*run.start()), address(*run.end()))?;
            self.free_from(low).filter(|offset| *offset <= high)
        })?;
        self.addresses(offset).iter().find(|address| address.family() == range.family())
    }

    fn next_after_last(&self) -> Option<u128> {
        let after = self.cursor.and_then(|cursor| cursor.checked_add(1));
        after.and_then(|from| self.free_from(from)).or_else(|| self.lowest_free())
    }

    fn lowest_free(&self) -> Option<u128> {
        self.lowest_free_of_chunks(0)
    }

    /// The lowest free offset from `from` on.
    fn free_from(&self, from: u128) -> Option<u128> {
        let (number, position) = split(from);
        let here = self.free_bits(number) & (Bits::MAX << position);
        if here != 0 {
            return Some(join(number, here.trailing_zeros()));
        }
        self.lowest_free_of_chunks(number + 1)
    }

    /// The lowest free offset of the chunks from `number` on.
    fn lowest_free_of_chunks(&self, number: u128) -> Option<u128> {
        let number = self.vacancy.next_open(number)?;
        Some(join(number, self.free_bits(number).trailing_zeros()))
    }

    fn free_bits(&self, number: u128) -> Bits {
        match self.chunks.find(number) {
            Some(chunk) => chunk.free(),
            None => !self.vacancy.blocked_bits(number),
        }
    }

    /// The offset that has cooled longest and is not reserved.
    fn longest_cooling(&mut self) -> Option<u128> {
        while let Some(oldest) = self.cooling.oldest() {
            let live = oldest.is_live(&self.chunks);
            if live && !self.chunks.get(oldest.spot).is_blocked(oldest.spot.position()) {
                return Some(self.chunks.offset(oldest.spot));
            }
            self.cooling.pop(live);
            if live {
                self.vacate(oldest.spot);
            }
        }
        None
    }

    fn exhausted(&self) -> HoldError {
        HoldError::Exhausted { space: self.space.to_string(), counts: self.counts() }
    }
}

impl Sequence {
    /// The highest number that replay accepts. It leaves as many again for later holds.
    pub(super) const LAST: u64 = u64::MAX >> 1;

    /// Reads it from a record.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// The number for a record.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Granted {
    /// The hold, new or not.
    pub fn hold(&self) -> Hold {
        match self {
            Self::New(hold) | Self::Existing(hold) => *hold,
        }
    }

    /// Whether this call created the hold.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}
