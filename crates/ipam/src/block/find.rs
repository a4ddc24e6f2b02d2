//! Queries on a block: one address, all holds, all cooling addresses.

use tenure_handles::Timestamp;

use crate::address::Address;
use crate::block::chunk::{Chunk, split};
use crate::block::chunks::Spot;
use crate::block::{Block, NotInSpace, Sequence};
use crate::space::Addresses;

/// A holder and the sequence number of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a, K> {
    /// Who.
    pub key: &'a K,
    /// The number that its release must name.
    pub sequence: Sequence,
}

/// One held address (or pair).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a, K> {
    /// Its distance from the network address.
    pub offset: u128,
    /// The address, or the address of each family.
    pub addresses: Addresses,
    /// The holder.
    pub active: Holder<'a, K>,
}

/// One freed address (or pair) that cools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooling<'a, K> {
    /// Its distance from the network address.
    pub offset: u128,
    /// The address, or the address of each family.
    pub addresses: Addresses,
    /// Who held it last.
    pub last: Holder<'a, K>,
    /// When cooling ends.
    pub until: Timestamp,
}

/// What a block knows about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a, K> {
    /// Ready to be assigned.
    Free,
    /// Somebody has it.
    Held(Entry<'a, K>),
    /// Somebody had it.
    Cooling(Cooling<'a, K>),
    /// Reserved without a holder.
    Reserved,
    /// Excluded, outside first to last, or a first or last address that is not usable.
    NotUsable,
}

impl<K> Block<K> {
    /// The state of an address, as of the last call that passed a time. For a cooling address this searches
    /// all cooling ones.
    pub fn state(&self, address: Address) -> Result<State<'_, K>, NotInSpace> {
        let offset = self.offset_of(address)?;
        let (number, position) = split(offset);
        if let Some(spot) = self.chunks.spot(number, position) {
            if self.chunks.get(spot).is_held(position) {
                return Ok(State::Held(self.entry(spot)));
            }
            if self.chunks.get(spot).is_cooling(position)
                && let Some(cooling) = self.cooling().find(|cooling| cooling.offset == offset)
            {
                return Ok(State::Cooling(cooling));
            }
        }
        Ok(match self.vacancy.is_blocked(offset) {
            false => State::Free,
            true if self.reserved.contains(offset) => State::Reserved,
            true => State::NotUsable,
        })
    }

    /// All holds, in address order.
    pub fn holds(&self) -> impl Iterator<Item = Entry<'_, K>> {
        self.chunks.spots(Chunk::held).map(|spot| self.entry(spot))
    }

    /// All cooling addresses, oldest first.
    pub fn cooling(&self) -> impl Iterator<Item = Cooling<'_, K>> {
        self.cooling.iter().filter(|entry| entry.is_live(&self.chunks)).map(|entry| {
            let offset = self.chunks.offset(entry.spot);
            Cooling {
                offset,
                addresses: self.addresses(offset),
                last: self.holder(entry.spot),
                until: entry.freed_at.plus(self.rest),
            }
        })
    }

    fn entry(&self, spot: Spot) -> Entry<'_, K> {
        let offset = self.chunks.offset(spot);
        Entry { offset, addresses: self.addresses(offset), active: self.holder(spot) }
    }

    fn holder(&self, spot: Spot) -> Holder<'_, K> {
        let chunk = self.chunks.get(spot);
        Holder { key: chunk.key(spot.position()), sequence: Sequence(chunk.sequence(spot.position())) }
    }
}
