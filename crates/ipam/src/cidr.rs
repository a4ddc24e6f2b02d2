//! A network in CIDR form: the masked network address and the length of its prefix.

use std::fmt;

use crate::address::{Address, AddressError, Family};

/// An aligned power of two of addresses, such as `10.0.0.0/24`. Host bits are masked when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    network: Address,
    prefix: u8,
}

impl Cidr {
    /// The network of `address` with a prefix of `prefix` bits; `None` if the family has fewer bits.
    pub fn new(address: Address, prefix: u8) -> Option<Self> {
        let family = address.family();
        let host_bits = family.bits().checked_sub(prefix)?;
        let network = Address::masked(family, address.bits() & !low_bits(host_bits));
        Some(Self { network, prefix })
    }

    /// The network of this one address.
    pub fn host(address: Address) -> Self {
        Self { network: address, prefix: address.family().bits() }
    }

    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        self.network.family()
    }

    /// The length of the prefix, in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The number of bits after the prefix: the network has two to that power addresses.
    pub fn host_bits(&self) -> u8 {
        self.family().bits() - self.prefix
    }

    /// The first address: the network address.
    pub fn first(&self) -> Address {
        self.network
    }

    /// The last address: for IPv4 the broadcast address.
    pub fn last(&self) -> Address {
        Address::masked(self.family(), self.network.bits() | self.last_offset())
    }

    /// The distance from the first to the last address.
    pub fn last_offset(&self) -> u128 {
        low_bits(self.host_bits())
    }

    /// How many addresses it has, 2^128 - 1 at most.
    pub fn size(&self) -> u128 {
        self.last_offset().saturating_add(1)
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: Address) -> bool {
        address.is_between(self.first(), self.last())
    }

    /// Whether all of `other` lies in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.network)
    }

    /// Whether the two share an address: then one covers the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The address `offset` above the network address, if it lies in the network.
    pub fn nth(&self, offset: u128) -> Result<Address, AddressError> {
        if offset > self.last_offset() {
            return Err(AddressError::BeyondFamily { base: self.network, offset });
        }
        self.network.plus(offset)
    }
}

/// A number whose `count` low bits are set.
pub(crate) fn low_bits(count: u8) -> u128 {
    1_u128.checked_shl(count.into()).map_or(u128::MAX, |bit| bit - 1)
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests;
