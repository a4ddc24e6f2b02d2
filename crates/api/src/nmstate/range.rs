//! The addresses of a `NodeIPPool` and its record of taken ones.
//!
//! An offset is the distance from `start`, and every address has one: excluded addresses count, and so do the addresses in larger
//! networks that end in 0 or 255. (The seed's own /16 and IPv6 examples skip some; its rule does not.) Never allocated are the
//! network's first address and, in IPv4, its last, unless the network has no more than two addresses.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_ipam::ledger::{LedgerError, Offsets};
use tenure_ipam::{Address, Block, Cidr, Exclusion, Family, Notation, ParseError, Range, RangeError};

use super::pool::{NodeIPPoolStatus, NodeIPRange};
use crate::coil::conversion::exclusion;

/// So many addresses of a pool are allocated at most: more nodes than any cluster has, and a bitmap of 175 KB.
pub const MOST: u128 = 1 << 20;
/// Pools with so many addresses have a list of offsets, larger ones a bitmap.
pub const LISTED: u128 = 1024;

/// The addresses of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRange {
    range: Range,
    offsets: Offsets,
}

/// Why a pool has no addresses. The schema refuses such pools.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NodeRangeError {
    /// A field does not parse.
    #[error("spec.range.{field}: {source}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The fields do not fit each other.
    #[error("spec.range: {0}")]
    Range(#[from] RangeError),
}

/// What a pool's record says is taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// The taken offsets.
    pub offsets: BTreeSet<u128>,
    /// What cannot be read of the record.
    pub refused: Vec<LedgerError>,
}

impl NodeRange {
    /// The addresses of a pool.
    pub fn of(spec: &NodeIPRange) -> Result<Self, NodeRangeError> {
        let field = |field| move |source| NodeRangeError::Field { field, source };
        let cidr = Notation::Strict.cidr(&spec.cidr).map_err(field("cidr"))?;
        let address = |text: &Option<String>| text.as_ref().map(|text| text.parse::<Address>()).transpose();
        let start = address(&spec.start).map_err(field("start"))?;
        let end = address(&spec.end).map_err(field("end"))?;
        let (low, high) = edges(&cidr);
        let first = start.unwrap_or_else(|| if low { cidr.first().wrapping_next() } else { cidr.first() });
        let last = end.unwrap_or_else(|| if high { cidr.last().wrapping_previous() } else { cidr.last() });
        // An end beyond the most that is recorded is no error: what is there is used.
        let last = first.plus(MOST - 1).map_or(last, |most| if most < last { most } else { last });
        let mut excluded: Vec<Exclusion> = Vec::with_capacity(spec.exclude.len() + 2);
        for text in &spec.exclude {
            excluded.push(exclusion(text).map_err(field("exclude"))?);
        }
        excluded.extend(low.then(|| Exclusion::from(cidr.first())));
        excluded.extend(high.then(|| Exclusion::from(cidr.last())));
        let range = Range::every(cidr).between(Some(first), Some(last))?.without(excluded);
        Ok(Self { offsets: Offsets::between(range.first(), range.last())?, range })
    }

    /// The address of offset 0.
    pub fn first(&self) -> Address {
        self.range.first()
    }

    /// The last address.
    pub fn last(&self) -> Address {
        self.range.last()
    }

    /// The length of the network's prefix.
    pub fn prefix(&self) -> u8 {
        self.range.cidr().prefix()
    }

    /// The network.
    pub fn cidr(&self) -> Cidr {
        self.range.cidr()
    }

    /// How many addresses can be allocated.
    pub fn capacity(&self) -> u128 {
        self.range.count()
    }

    /// How many addresses have an offset.
    pub fn size(&self) -> u128 {
        self.last().bits() - self.first().bits() + 1
    }

    /// What nobody gets of it.
    pub fn exclusions(&self) -> impl Iterator<Item = Exclusion> {
        self.range.exclusions()
    }

    /// Whether the address is allocated when its turn comes: it has an offset and is not excluded.
    pub fn is_usable(&self, address: Address) -> bool {
        self.range.contains(address)
    }

    /// The offset of an address.
    pub fn offset(&self, address: Address) -> Result<u128, LedgerError> {
        self.offsets.offset(address)
    }

    /// The address of an offset.
    pub fn address(&self, offset: u128) -> Result<Address, LedgerError> {
        self.offsets.address(offset)
    }

    /// Whether two pools have an address in common, exclusions counted.
    pub fn overlaps(&self, first: Address, last: Address) -> bool {
        first.family() == self.first().family() && first <= self.last() && self.first() <= last
    }

    /// The allocator of these addresses, in which nothing is held. It counts offsets from the network's first address, so take addresses
    /// from it and no offsets.
    pub fn block<K>(&self, rest: Duration) -> Block<K> {
        Block::new(self.range.clone(), rest)
    }

    /// What the record says is taken: the list, the bitmap, or both if somebody wrote both.
    pub fn decode(&self, status: &NodeIPPoolStatus) -> Taken {
        let list = status.allocated_offsets.iter().flatten().copied();
        let mut decoded = vec![self.offsets.decode_list(list)];
        decoded.extend(status.allocated_bitmap.as_ref().map(|text| self.offsets.decode_bitmap(text)));
        let mut taken = Taken::default();
        for decoded in decoded {
            let offsets = decoded.entries.iter().filter_map(|(address, ())| self.offset(*address).ok());
            taken.offsets.extend(offsets);
            taken.refused.extend(decoded.refused);
        }
        taken
    }

    /// Writes into a status what is taken, in the form for a pool of this size.
    pub fn encode(
        &self,
        status: &mut NodeIPPoolStatus,
        taken: impl IntoIterator<Item = u128>,
    ) -> Result<(), LedgerError> {
        let addresses: Result<Vec<Address>, _> =
            taken.into_iter().map(|offset| self.address(offset)).collect();
        (status.allocated_offsets, status.allocated_bitmap) = (None, None);
        if self.size() <= LISTED {
            let offsets = self.offsets.encode_list(addresses?)?;
            let offsets = offsets.into_iter().filter_map(|offset| i64::try_from(offset).ok());
            status.allocated_offsets = Some(offsets.collect());
        } else {
            status.allocated_bitmap = Some(self.offsets.encode_bitmap(addresses?)?);
        }
        Ok(())
    }
}

/// Whether the first and the last address of a network are no host's: in IPv4 the network and the broadcast address, in IPv6 the
/// routers' anycast address.
fn edges(cidr: &Cidr) -> (bool, bool) {
    let has_hosts_between = cidr.host_bits() >= 2;
    (has_hosts_between, has_hosts_between && cidr.family() == Family::V4)
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
