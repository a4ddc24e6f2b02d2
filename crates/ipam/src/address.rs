//! One IP address as a family and a 128-bit number, and arithmetic on it.
//!
//! Nothing here silently wraps, truncates or mixes families: a computation without a result is an
//! [`AddressError`]. The names of the two exceptions say so: [`Address::wrapping_next`] and
//! [`Address::wrapping_previous`] wrap around at the end of the family, as Whereabouts' increments do.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    /// How many bits an address of this family has.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The highest address of this family, as a number.
    pub const fn max(self) -> u128 {
        match self {
            Self::V4 => u32::MAX as u128,
            Self::V6 => u128::MAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An IPv4 or IPv6 address. Every IPv4 address sorts before every IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    family: Family,
    /// Never above `family.max()`.
    bits: u128,
}

/// Why a computation on addresses has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The result would lie outside the family.
    #[error(
        "cannot add {offset} to {base}: the highest {} address is {}",
        .base.family(), Address::highest(.base.family())
    )]
    BeyondFamily {
        /// The address that something was added to.
        base: Address,
        /// What was added.
        offset: u128,
    },
    /// The two addresses are of different families.
    #[error(
        "cannot compute the distance from {base} to {address}: one is {} and the other {}",
        .base.family(), .address.family()
    )]
    OtherFamily {
        /// Where the distance starts.
        base: Address,
        /// Where it ends.
        address: Address,
    },
    /// The address is below the one to measure from.
    #[error("cannot compute the distance from {base} up to {address}: {address} is the lower one")]
    BelowBase {
        /// Where the distance starts.
        base: Address,
        /// Where it ends.
        address: Address,
    },
}

impl Address {
    /// The address of `family` with the number `bits`, if the family has one.
    pub const fn new(family: Family, bits: u128) -> Option<Self> {
        if bits <= family.max() { Some(Self { family, bits }) } else { None }
    }

    /// The highest address of a family.
    pub const fn highest(family: Family) -> Self {
        Self { family, bits: family.max() }
    }

    /// The address of `family` with the low bits of `bits`. The caller knows that no other bits are set.
    pub(crate) const fn masked(family: Family, bits: u128) -> Self {
        Self { family, bits: bits & family.max() }
    }

    /// The family.
    pub const fn family(self) -> Family {
        self.family
    }

    /// The address as a number.
    pub const fn bits(self) -> u128 {
        self.bits
    }

    /// The address `offset` above this one.
    pub fn plus(self, offset: u128) -> Result<Self, AddressError> {
        self.bits
            .checked_add(offset)
            .and_then(|bits| Self::new(self.family, bits))
            .ok_or(AddressError::BeyondFamily { base: self, offset })
    }

    /// How far this address is above `base`, in all 128 bits.
    pub fn distance_from(self, base: Self) -> Result<u128, AddressError> {
        if self.family != base.family {
            return Err(AddressError::OtherFamily { base, address: self });
        }
        self.bits.checked_sub(base.bits).ok_or(AddressError::BelowBase { base, address: self })
    }

    /// The address after this one, unless this is the highest.
    pub fn next(self) -> Option<Self> {
        self.plus(1).ok()
    }

    /// The address before this one, unless this is the lowest.
    pub fn previous(self) -> Option<Self> {
        Some(Self { bits: self.bits.checked_sub(1)?, ..self })
    }

    /// The address after this one; after the highest comes the lowest.
    #[must_use]
    pub fn wrapping_next(self) -> Self {
        Self::masked(self.family, self.bits.wrapping_add(1))
    }

    /// The address before this one; before the lowest comes the highest.
    #[must_use]
    pub fn wrapping_previous(self) -> Self {
        Self::masked(self.family, self.bits.wrapping_sub(1))
    }

    /// Whether the address is in `first` to `last`, both included. Always false for another family.
    pub fn is_between(self, first: Self, last: Self) -> bool {
        self.family == first.family && self.family == last.family && first <= self && self <= last
    }

    /// The standard library's type for the address.
    pub fn to_ip(self) -> IpAddr {
        #[expect(clippy::cast_possible_truncation, reason = "an IPv4 address never has more than 32 bits")]
        match self.family {
            Family::V4 => Ipv4Addr::from_bits(self.bits as u32).into(),
            Family::V6 => Ipv6Addr::from_bits(self.bits).into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Self {
        Self { family: Family::V4, bits: ip.to_bits().into() }
    }
}

impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Self {
        Self { family: Family::V6, bits: ip.to_bits() }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        address.to_ip()
    }
}

#[cfg(test)]
pub(crate) mod tests;
