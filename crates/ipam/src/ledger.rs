//! Ledgers: held addresses in the record formats of dialects.
//!
//! There are three formats, each a codec and not an allocator: a map of decimal offsets (`{"1": holder}`,
//! Whereabouts' `IPPool`), a sorted list of offsets (`NodeIPPool`), and that list as a base64 bitmap
//! ([`bitmap`]). List and bitmap are for node addresses. All share [`Offsets`]:
//! which address offset zero stands for.
//!
//! Anyone can write a record, so unreadable entries are reported beside the readable ones. If an entry were
//! dropped silently, its address would look free and be assigned twice.

use std::collections::BTreeMap;
use std::fmt;

use crate::address::Address;
use crate::cidr::Cidr;
use crate::range::RangeError;

pub mod bitmap;

/// Which addresses a record covers: offset zero is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    first: Address,
    last: Address,
}

/// The entries of a record, and those that are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<V> {
    /// Addresses and their values in the record, lowest address first.
    pub entries: Vec<(Address, V)>,
    /// Entries that could not be read, in the record's order.
    pub refused: Vec<LedgerError>,
}

/// Why an entry of a record cannot be read, or an address cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The offset is not a number.
    #[error("offset {entry:?} is not a number: accepted are decimal digits")]
    NotANumber {
        /// The offset as it was written.
        entry: String,
    },
    /// The offset lies outside the range.
    #[error("offset {entry} is outside {first} to {last}: accepted is 0 to {}", .last.bits() - .first.bits())]
    OutsideRange {
        /// The offset as it was written.
        entry: String,
        /// The address of offset zero.
        first: Address,
        /// The last address.
        last: Address,
    },
    /// The same address appears twice.
    #[error("offset {entry} stands for {address}, which the record has already")]
    Duplicate {
        /// The offset as it was written.
        entry: String,
        /// Its address.
        address: Address,
    },
    /// The address cannot be written.
    #[error("{address} has no offset in {first} to {last}")]
    NoOffset {
        /// The address.
        address: Address,
        /// The address of offset zero.
        first: Address,
        /// The last address.
        last: Address,
    },
    /// The text is not the base64 of a bitmap.
    #[error("bitmap {start:?} is not readable: {reason}; accepted is base64")]
    NotABitmap {
        /// How the text starts.
        start: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The bitmap would not fit into an object.
    #[error("{offset} is too large an offset for a bitmap: accepted is less than {}", bitmap::LIMIT)]
    TooLong {
        /// The highest offset.
        offset: u128,
    },
}

impl Offsets {
    /// Offsets from the network address, over the whole network: Whereabouts' `IPPool`.
    pub fn of(cidr: &Cidr) -> Self {
        Self { first: cidr.first(), last: cidr.last() }
    }

    /// Offsets from `first`, up to `last`: `NodeIPPool`.
    pub fn between(first: Address, last: Address) -> Result<Self, RangeError> {
        let ordered = first.is_between(first, last);
        if ordered { Ok(Self { first, last }) } else { Err(RangeError::Inverted { first, last }) }
    }

    /// The offset of an address.
    pub fn offset(&self, address: Address) -> Result<u128, LedgerError> {
        let offset = address.distance_from(self.first).ok().filter(|_| address <= self.last);
        offset.ok_or(LedgerError::NoOffset { address, first: self.first, last: self.last })
    }

    /// The address of an offset.
    pub fn address(&self, offset: u128) -> Result<Address, LedgerError> {
        let address = self.first.plus(offset).ok().filter(|address| *address <= self.last);
        address.ok_or_else(|| self.outside(&offset))
    }

    /// Held addresses as a map of decimal offsets.
    pub fn encode_map<V>(
        &self,
        held: impl IntoIterator<Item = (Address, V)>,
    ) -> Result<BTreeMap<String, V>, LedgerError> {
        let mut map = BTreeMap::new();
        for (address, value) in held {
            let entry = self.offset(address)?.to_string();
            if map.insert(entry.clone(), value).is_some() {
                return Err(LedgerError::Duplicate { entry, address });
            }
        }
        Ok(map)
    }

    /// Reads held addresses from a map of decimal offsets. Leading zeros are accepted; two keys that then
    /// name the same address are reported.
    pub fn decode_map<S: AsRef<str>, V>(&self, map: impl IntoIterator<Item = (S, V)>) -> Decoded<V> {
        self.decode(map.into_iter().map(|(key, value)| {
            let key = key.as_ref();
            let decimal = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
            let offset = if !decimal {
                Err(LedgerError::NotANumber { entry: key.to_owned() })
            } else if let Ok(offset) = key.parse() {
                Ok(offset)
            } else {
                // More digits than a 128-bit number has.
                Err(self.outside(&key))
            };
            (offset, key.to_owned(), value)
        }))
    }

    /// Held addresses as a sorted list of offsets.
    pub fn encode_list(&self, held: impl IntoIterator<Item = Address>) -> Result<Vec<u128>, LedgerError> {
        let offsets: Result<Vec<u128>, _> = held.into_iter().map(|address| self.offset(address)).collect();
        let mut offsets = offsets?;
        offsets.sort_unstable();
        match offsets.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(offsets),
            Some(pair) => {
                let address = self.address(pair[0])?;
                Err(LedgerError::Duplicate { entry: pair[0].to_string(), address })
            }
        }
    }

    /// Reads held addresses from a list of offsets in any order, signed or not.
    pub fn decode_list<N: TryInto<u128> + fmt::Display + Copy>(
        &self,
        list: impl IntoIterator<Item = N>,
    ) -> Decoded<()> {
        self.decode(list.into_iter().map(|offset| {
            let number = offset.try_into().map_err(|_| self.outside(&offset));
            (number, offset.to_string(), ())
        }))
    }

    fn decode<V>(&self, offsets: impl Iterator<Item = (Result<u128, LedgerError>, String, V)>) -> Decoded<V> {
        let (mut entries, mut refused) = (BTreeMap::new(), Vec::new());
        for (offset, entry, value) in offsets {
            match offset.and_then(|offset| self.address(offset)) {
                Err(LedgerError::OutsideRange { first, last, .. }) => {
                    refused.push(LedgerError::OutsideRange { entry, first, last });
                }
                Err(error) => refused.push(error),
                Ok(address) if entries.contains_key(&address) => {
                    refused.push(LedgerError::Duplicate { entry, address });
                }
                Ok(address) => {
                    entries.insert(address, value);
                }
            }
        }
        Decoded { entries: entries.into_iter().collect(), refused }
    }

    fn outside(&self, entry: &dyn fmt::Display) -> LedgerError {
        LedgerError::OutsideRange { entry: entry.to_string(), first: self.first, last: self.last }
    }
}

impl<V> Decoded<V> {
    /// The entries if all could be read, else the first error.
    pub fn complete(self) -> Result<Vec<(Address, V)>, LedgerError> {
        match self.refused.into_iter().next() {
            None => Ok(self.entries),
            Some(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
