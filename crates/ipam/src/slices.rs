//! A network divided into equal slices.
//!
//! [`Slices`] is arithmetic only: it computes slice `n` of a /8 divided into /20s, and 2^64 slices cost no
//! more than two.

use crate::address::Address;
use crate::cidr::{Cidr, low_bits};
use crate::parse::{Notation, ParseError, prefix_length};

/// A network and the prefix length of its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    whole: Cidr,
    prefix: u8,
}

/// Why a network cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivideError {
    /// The network or the size is unreadable, or the network has host bits.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// A slice would be larger than the whole, or smaller than an address.
    #[error(
        "cannot cut {whole} into slices of /{prefix}: accepted is a prefix length from {} to {}",
        .whole.prefix(), .whole.family().bits()
    )]
    Prefix {
        /// The network.
        whole: Cidr,
        /// The prefix length asked for.
        prefix: u8,
    },
}

impl Slices {
    /// `whole`, divided into slices with a prefix of `prefix` bits.
    pub fn new(whole: Cidr, prefix: u8) -> Result<Self, DivideError> {
        if prefix < whole.prefix() || prefix > whole.family().bits() {
            return Err(DivideError::Prefix { whole, prefix });
        }
        Ok(Self { whole, prefix })
    }

    /// Parses a network without host bits, and a size like `/26` or `26`.
    pub fn parse(network: &str, size: &str) -> Result<Self, DivideError> {
        Self::new(Notation::Strict.network(network)?, prefix_length(size)?)
    }

    /// The network that is divided.
    pub fn whole(&self) -> Cidr {
        self.whole
    }

    /// The prefix length of a slice.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The index of the last slice.
    pub fn last_index(&self) -> u128 {
        low_bits(self.prefix - self.whole.prefix())
    }

    /// How many slices there are, 2^128 - 1 at most.
    pub fn count(&self) -> u128 {
        self.last_index().saturating_add(1)
    }

    /// The slice at `index`.
    pub fn get(&self, index: u128) -> Option<Cidr> {
        if index > self.last_index() {
            return None;
        }
        let offset = index.checked_shl(self.slice_bits()).unwrap_or(0);
        Cidr::new(Address::masked(self.whole.family(), self.whole.first().bits() | offset), self.prefix)
    }

    /// The index of the slice that `address` lies in.
    pub fn index_of_address(&self, address: Address) -> Option<u128> {
        let offset = address.distance_from(self.whole.first()).ok()?;
        let inside = offset <= self.whole.last_offset();
        inside.then(|| offset.checked_shr(self.slice_bits()).unwrap_or(0))
    }

    /// The index of a slice; `None` if it is not one of these.
    pub fn index_of(&self, slice: &Cidr) -> Option<u128> {
        if slice.prefix() == self.prefix { self.index_of_address(slice.first()) } else { None }
    }

    /// All slices, lowest first, computed one at a time.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Cidr> {
        let slices = *self;
        (0..=self.last_index()).filter_map(move |index| slices.get(index))
    }

    fn slice_bits(&self) -> u32 {
        u32::from(self.whole.family().bits() - self.prefix)
    }
}

#[cfg(test)]
mod tests;
