//! A pool: an ordered list of subnets cut into blocks, numbered through.
//!
//! Each entry of the list is an IPv4 network, an IPv6 network, or both with equally many host bits. Block
//! `n` of the pool is computed from `n`, so a pool may have more than two to the 64th blocks. A pool grows
//! by appending entries and in no other way: that is what keeps every block's number what it was.

use std::fmt;
use std::ops::RangeInclusive;

use crate::address::{Address, Family};
use crate::cidr::Cidr;
use crate::intervals::IntervalSet;
use crate::range::Range;
use crate::slices::Slices;
use crate::space::{Space, SpaceError};

mod error;

pub use error::PoolError;

/// An entry of a pool's list, or one block: an IPv4 network, an IPv6 network, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// The IPv4 network.
    pub ipv4: Option<Cidr>,
    /// The IPv6 network.
    pub ipv6: Option<Cidr>,
}

/// Subnets, cut into blocks of two to the power of `block_bits` addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    block_bits: u8,
    parts: Vec<Part>,
}

/// One entry of the list, cut.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    ipv4: Option<Slices>,
    ipv6: Option<Slices>,
    /// The pool's numbers of its first and last block.
    first_index: u128,
    last_index: u128,
}

impl Pool {
    /// Cuts `subnets`, in this order, into blocks of two to the power of `block_bits` addresses.
    pub fn new(subnets: impl IntoIterator<Item = Subnet>, block_bits: u8) -> Result<Self, PoolError> {
        let mut parts: Vec<Part> = Vec::new();
        for (position, subnet) in subnets.into_iter().enumerate() {
            let first_index = match parts.last() {
                None => 0,
                Some(part) => part.last_index.checked_add(1).ok_or(PoolError::TooManyBlocks { position })?,
            };
            parts.push(Part::new(position, &subnet, block_bits, first_index)?);
        }
        if parts.is_empty() {
            return Err(PoolError::NoSubnets);
        }
        let pool = Self { block_bits, parts };
        pool.refuse_overlap(Family::V4)?;
        pool.refuse_overlap(Family::V6)?;
        Ok(pool)
    }

    /// The subnets of block `index`.
    pub fn block(&self, index: u128) -> Option<Subnet> {
        let part = &self.parts[self.parts.partition_point(|part| part.last_index < index)..].first()?;
        let within = index - part.first_index;
        Some(Subnet {
            ipv4: part.ipv4.and_then(|slices| slices.get(within)),
            ipv6: part.ipv6.and_then(|slices| slices.get(within)),
        })
    }

    /// The number of a block; `None` if these subnets are not a block of this pool.
    pub fn index_of(&self, block: &Subnet) -> Option<u128> {
        let any = block.ipv4.or(block.ipv6)?;
        let index = self.index_of_address(any.first())?;
        (self.block(index) == Some(*block)).then_some(index)
    }

    /// The number of the block that an address lies in.
    pub fn index_of_address(&self, address: Address) -> Option<u128> {
        self.parts.iter().find_map(|part| {
            let within = part.slices(address.family())?.index_of_address(address)?;
            Some(part.first_index + within)
        })
    }

    /// The numbers of the blocks that have an address in common with `cidr`: one interval for each entry of
    /// the list. With these among the taken ones, nothing is handed out of an overlap with another pool.
    pub fn indexes_overlapping(&self, cidr: &Cidr) -> impl Iterator<Item = RangeInclusive<u128>> {
        self.indexes_between(cidr.first(), cidr.last())
    }

    /// The numbers of the blocks that have an address from `first` to `last`, which are of one family: one interval for each
    /// entry of the list.
    pub fn indexes_between(
        &self,
        first: Address,
        last: Address,
    ) -> impl Iterator<Item = RangeInclusive<u128>> {
        self.parts.iter().filter_map(move |part| {
            let slices = part.slices(first.family())?;
            let (first, last) = (first.max(slices.whole().first()), last.min(slices.whole().last()));
            let index = |address| Some(part.first_index + slices.index_of_address(address)?);
            if first <= last { Some(index(first)?..=index(last)?) } else { None }
        })
    }

    /// The lowest block number that is not taken, found without walking the taken ones.
    pub fn lowest_free(&self, taken: &IntervalSet) -> Option<u128> {
        taken.next_gap(0).filter(|index| *index <= self.last_index())
    }

    /// The list.
    pub fn subnets(&self) -> impl Iterator<Item = Subnet> {
        self.parts.iter().map(|part| Subnet {
            ipv4: part.ipv4.map(|slices| slices.whole()),
            ipv6: part.ipv6.map(|slices| slices.whole()),
        })
    }

    /// The power of two of addresses in a block.
    pub fn block_bits(&self) -> u8 {
        self.block_bits
    }

    /// The number of the last block.
    pub fn last_index(&self) -> u128 {
        self.parts.last().map_or(0, |part| part.last_index)
    }

    /// How many blocks there are, 2^128 - 1 at most.
    pub fn block_count(&self) -> u128 {
        self.last_index().saturating_add(1)
    }

    /// How many addresses (or pairs) all blocks have together, 2^128 - 1 at most.
    pub fn address_count(&self) -> u128 {
        let block = 1_u128.checked_shl(self.block_bits.into()).unwrap_or(u128::MAX);
        self.block_count().saturating_mul(block)
    }

    /// Two networks that overlap are neighbours once they are sorted.
    fn refuse_overlap(&self, family: Family) -> Result<(), PoolError> {
        let wholes = self.parts.iter().enumerate();
        let mut networks: Vec<(Cidr, usize)> = wholes
            .filter_map(|(position, part)| part.slices(family).map(|slices| (slices.whole(), position)))
            .collect();
        networks.sort_unstable();
        match networks.windows(2).find(|pair| pair[0].0.overlaps(&pair[1].0)) {
            None => Ok(()),
            Some(pair) => {
                let (older, newer) =
                    if pair[0].1 < pair[1].1 { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
                Err(PoolError::Overlap {
                    position: newer.1,
                    cidr: newer.0,
                    other_position: older.1,
                    other: older.0,
                })
            }
        }
    }
}

impl Part {
    fn new(position: usize, subnet: &Subnet, block_bits: u8, first_index: u128) -> Result<Self, PoolError> {
        let cut = |cidr: Option<Cidr>, family: Family| {
            let Some(cidr) = cidr else { return Ok(None) };
            if cidr.family() != family {
                return Err(PoolError::Family { position, family, cidr });
            }
            let too_small = PoolError::TooSmall { position, cidr, block_bits };
            let prefix = family.bits().checked_sub(block_bits).ok_or(too_small.clone())?;
            Slices::new(cidr, prefix).map(Some).map_err(|_| too_small)
        };
        let (ipv4, ipv6) = (cut(subnet.ipv4, Family::V4)?, cut(subnet.ipv6, Family::V6)?);
        if let (Some(ipv4), Some(ipv6)) = (subnet.ipv4, subnet.ipv6)
            && ipv4.host_bits() != ipv6.host_bits()
        {
            return Err(PoolError::Sizes { position, ipv4, ipv6 });
        }
        let Some(slices) = ipv4.or(ipv6) else { return Err(PoolError::EmptySubnet { position }) };
        let last_index =
            first_index.checked_add(slices.last_index()).ok_or(PoolError::TooManyBlocks { position })?;
        Ok(Self { ipv4, ipv6, first_index, last_index })
    }

    fn slices(&self, family: Family) -> Option<Slices> {
        match family {
            Family::V4 => self.ipv4,
            Family::V6 => self.ipv6,
        }
    }
}

impl Subnet {
    /// Of an IPv4 network only, or of an IPv6 network only.
    pub fn single(cidr: Cidr) -> Self {
        match cidr.family() {
            Family::V4 => Self { ipv4: Some(cidr), ipv6: None },
            Family::V6 => Self { ipv4: None, ipv6: Some(cidr) },
        }
    }

    /// Of both.
    pub fn dual(ipv4: Cidr, ipv6: Cidr) -> Self {
        Self { ipv4: Some(ipv4), ipv6: Some(ipv6) }
    }

    /// The space of all its addresses, to build a block on; `None` if it has no network.
    pub fn space(&self) -> Option<Result<Space, SpaceError>> {
        match (self.ipv4, self.ipv6) {
            (Some(ipv4), Some(ipv6)) => Some(Space::pair(Range::every(ipv4), Range::every(ipv6))),
            (Some(cidr), None) | (None, Some(cidr)) => Some(Ok(Range::every(cidr).into())),
            (None, None) => None,
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ipv4, self.ipv6) {
            (Some(ipv4), Some(ipv6)) => write!(f, "{ipv4} and {ipv6}"),
            (Some(cidr), None) | (None, Some(cidr)) => cidr.fmt(f),
            (None, None) => f.write_str("no network"),
        }
    }
}

#[cfg(test)]
mod tests;
