//! The space that a block assigns from: one range, or an IPv4 and an IPv6 range side by side.
//!
//! Positions in it are *offsets* from the network address. In a pair, both networks have the same number of
//! host bits, so one offset names one address of each family.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::address::{Address, Family};
use crate::cidr::Cidr;
use crate::intervals::IntervalSet;
use crate::range::Range;
use crate::runs::Runs;

/// Offsets, and the one or two addresses that each stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// One range, or IPv4 and then IPv6.
    ranges: Ranges,
    /// The offsets that may be assigned: usable in every family.
    runs: Runs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ranges {
    Single(Range),
    Pair(Box<(Range, Range)>),
}

/// The addresses at one offset: one, or one of each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
}

/// Why two ranges do not make a space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// The first is not IPv4 or the second not IPv6.
    #[error("cannot pair {ipv4} with {ipv6}: accepted is an IPv4 network with an IPv6 network")]
    Families {
        /// What was given as the IPv4 network.
        ipv4: Cidr,
        /// What was given as the IPv6 network.
        ipv6: Cidr,
    },
    /// The networks have different sizes.
    #[error(
        "cannot pair {ipv4} with {ipv6}: they have {} and {} host bits; accepted is an IPv6 prefix of {}",
        .ipv4.host_bits(), .ipv6.host_bits(), 128 - .ipv4.host_bits()
    )]
    Sizes {
        /// The IPv4 network.
        ipv4: Cidr,
        /// The IPv6 network.
        ipv6: Cidr,
    },
}

impl Space {
    /// The space of an IPv4 and an IPv6 range with the same number of host bits. An offset is usable if both
    /// of its addresses are.
    pub fn pair(ipv4: Range, ipv6: Range) -> Result<Self, SpaceError> {
        let (v4, v6) = (ipv4.cidr(), ipv6.cidr());
        if (v4.family(), v6.family()) != (Family::V4, Family::V6) {
            return Err(SpaceError::Families { ipv4: v4, ipv6: v6 });
        }
        if v4.host_bits() != v6.host_bits() {
            return Err(SpaceError::Sizes { ipv4: v4, ipv6: v6 });
        }
        let last = v4.last_offset();
        let mut unusable = IntervalSet::new();
        for range in [&ipv4, &ipv6] {
            let usable: IntervalSet = offsets(range).collect();
            unusable.extend(usable.gaps_within(0, last));
        }
        let runs = Runs::new(0, last, &unusable);
        Ok(Self { ranges: Ranges::Pair(Box::new((ipv4, ipv6))), runs })
    }

    /// The range that offsets are counted in; for a pair, the IPv4 one.
    pub fn primary(&self) -> &Range {
        match &self.ranges {
            Ranges::Single(range) => range,
            Ranges::Pair(pair) => &pair.0,
        }
    }

    /// The IPv6 range of a pair.
    pub fn secondary(&self) -> Option<&Range> {
        match &self.ranges {
            Ranges::Single(_) => None,
            Ranges::Pair(pair) => Some(&pair.1),
        }
    }

    /// The highest offset.
    pub fn last_offset(&self) -> u128 {
        self.primary().cidr().last_offset()
    }

    /// How many offsets may be assigned.
    pub fn capacity(&self) -> u128 {
        self.runs.count()
    }

    /// Whether the offset may be assigned.
    pub fn is_usable(&self, offset: u128) -> bool {
        self.runs.contains(offset)
    }

    /// The offset of an address; `None` if its network is not in the space.
    pub fn offset_of(&self, address: Address) -> Option<u128> {
        let cidr = self.network_of(address.family())?;
        let offset = address.distance_from(cidr.first()).ok()?;
        (offset <= cidr.last_offset()).then_some(offset)
    }

    /// The offsets of those addresses from `first` to `last`, of one family, that are in the space.
    pub(crate) fn offsets_between(&self, first: Address, last: Address) -> Option<(u128, u128)> {
        let cidr = self.network_of(first.family())?;
        let (first, last) = (first.max(cidr.first()), last.min(cidr.last()));
        (first <= last).then(|| (first.bits() - cidr.first().bits(), last.bits() - cidr.first().bits()))
    }

    /// The addresses at an offset; `None` beyond the last one.
    pub fn addresses(&self, offset: u128) -> Option<Addresses> {
        let mut addresses = Addresses::from(self.primary().cidr().nth(offset).ok()?);
        if let Some(secondary) = self.secondary() {
            addresses.ipv6 = Addresses::from(secondary.cidr().nth(offset).ok()?).ipv6;
        }
        Some(addresses)
    }

    fn network_of(&self, family: Family) -> Option<Cidr> {
        let mut ranges = [Some(self.primary()), self.secondary()].into_iter().flatten();
        ranges.find(|range| range.family() == family).map(Range::cidr)
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        let ranges = [Some(self.primary()), self.secondary()].into_iter().flatten();
        self.runs.memory() + ranges.map(|range| range.runs().memory()).sum::<usize>()
    }

    /// The runs of offsets that may be assigned.
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }
}

/// A range's runs as offsets from its network address.
fn offsets(range: &Range) -> impl Iterator<Item = std::ops::RangeInclusive<u128>> {
    let base = range.cidr().first().bits();
    range.runs().iter().map(move |run| run.start() - base..=run.end() - base)
}

impl From<Range> for Space {
    fn from(range: Range) -> Self {
        let usable: IntervalSet = offsets(&range).collect();
        let last = range.cidr().last_offset();
        let unusable: IntervalSet = usable.gaps_within(0, last).collect();
        Self { runs: Runs::new(0, last, &unusable), ranges: Ranges::Single(range) }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.primary().cidr().fmt(f)?;
        match self.secondary() {
            Some(secondary) => write!(f, " and {}", secondary.cidr()),
            None => Ok(()),
        }
    }
}

impl Addresses {
    /// The addresses, IPv4 before IPv6.
    pub fn iter(&self) -> impl Iterator<Item = Address> {
        let ipv4 = self.ipv4.map(Address::from);
        let ipv6 = self.ipv6.map(Address::from);
        [ipv4, ipv6].into_iter().flatten()
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        match address.to_ip() {
            std::net::IpAddr::V4(ip) => Self { ipv4: Some(ip), ipv6: None },
            std::net::IpAddr::V6(ip) => Self { ipv4: None, ipv6: Some(ip) },
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ipv4, self.ipv6) {
            (Some(ipv4), Some(ipv6)) => write!(f, "{ipv4} and {ipv6}"),
            (Some(ipv4), None) => ipv4.fmt(f),
            (None, Some(ipv6)) => ipv6.fmt(f),
            (None, None) => f.write_str("no address"),
        }
    }
}

#[cfg(test)]
mod tests;
