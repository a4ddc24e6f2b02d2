//! A pool as the engine takes it: cut into blocks, with its exclusions and its cooling.
//!
//! What the API server accepted converts. What was stored before our rules were installed may not, and then the
//! error names the field and the value; such a pool serves nobody until it is replaced.

use std::time::Duration;

use tenure_ipam::{Cidr, Exclusion, IntervalSet, Pool, Range, Space, Subnet};

use super::conversion::{self, ConversionError};
use super::{AddressPoolSpec, PoolUsage};

/// A pool as the engine takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct EnginePool {
    /// Blocks have at most 2^64 addresses.
    pool: Pool,
    exclusions: Vec<Exclusion>,
    rest: Option<Duration>,
}

impl TryFrom<&AddressPoolSpec> for EnginePool {
    type Error = ConversionError;

    fn try_from(spec: &AddressPoolSpec) -> Result<Self, ConversionError> {
        let block_bits = u8::try_from(spec.block_size_bits)
            .ok()
            .filter(|bits| *bits <= 64)
            .ok_or(ConversionError::BlockSize { value: spec.block_size_bits })?;
        let subnets = spec.subnets.iter().enumerate();
        let subnets = subnets.map(|(position, subnet)| subnet.parse(&format!("spec.subnets[{position}].")));
        let pool = Pool::new(subnets.collect::<Result<Vec<_>, _>>()?, block_bits)?;
        let exclusions = spec.exclude.iter().enumerate();
        let exclusions = exclusions.map(|(position, text)| {
            conversion::exclusion(text)
                .map_err(|source| ConversionError::field(format!("spec.exclude[{position}]"), source))
        });
        Ok(Self {
            pool,
            exclusions: exclusions.collect::<Result<_, _>>()?,
            rest: conversion::rest(spec.cooling.as_deref())?,
        })
    }
}

impl EnginePool {
    /// Its subnets, cut into blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What is never handed out of it.
    pub fn exclusions(&self) -> &[Exclusion] {
        &self.exclusions
    }

    /// How long a freed address rests, if the pool says so.
    pub fn rest(&self) -> Option<Duration> {
        self.rest
    }

    /// The blocks that have no address to hand out, because all of them are excluded: carving one would be a waste.
    pub fn excluded_blocks(&self) -> IntervalSet {
        let bits = u32::from(self.pool.block_bits());
        let within = (1_u128 << bits) - 1;
        let mut blocks = IntervalSet::new();
        for (first_index, subnet) in self.parts() {
            for interval in self.excluded_offsets(&subnet).iter() {
                let first = (interval.start() >> bits) + u128::from(interval.start() & within != 0);
                let behind_last = interval.end() & within != within;
                let last = (interval.end() >> bits).checked_sub(behind_last.into());
                if let Some(last) = last.filter(|last| *last >= first) {
                    blocks.insert(first_index + first, first_index + last);
                }
            }
        }
        blocks
    }

    /// How many addresses, or pairs, can be handed out of all blocks together.
    pub fn address_capacity(&self) -> u128 {
        let excluded = self.pool.subnets().map(|subnet| self.excluded_offsets(&subnet).len());
        self.pool.address_count().saturating_sub(excluded.fold(0, u128::saturating_add))
    }

    /// The space of a block: its addresses without the excluded ones.
    pub fn space(&self, block: &Subnet) -> Result<Space, ConversionError> {
        let range = |cidr: Cidr| Range::every(cidr).without(self.exclusions.iter().copied());
        match (block.ipv4.map(range), block.ipv6.map(range)) {
            (Some(ipv4), Some(ipv6)) => Ok(Space::pair(ipv4, ipv6)?),
            (Some(range), None) | (None, Some(range)) => Ok(range.into()),
            (None, None) => Err(ConversionError::NoNetwork),
        }
    }

    /// The counts for the pool's status, blocks and then addresses: `carved` are the numbers of the blocks that nodes
    /// own, `withheld` those that an older pool has a claim to.
    pub fn usage(&self, carved: &IntervalSet, withheld: &IntervalSet) -> (PoolUsage, PoolUsage) {
        let mut kept_back = self.excluded_blocks();
        kept_back.extend(withheld.iter());
        let kept_back: IntervalSet =
            kept_back.iter().flat_map(|kept| carved.gaps_within(*kept.start(), *kept.end())).collect();
        let blocks = self.pool.block_count();
        let free = blocks.saturating_sub(carved.len()).saturating_sub(kept_back.len());
        let in_carved = self.usable_in(carved);
        let in_kept_back = self.usable_in(&kept_back);
        let capacity = self.address_capacity();
        (
            PoolUsage::new(blocks, carved.len(), free),
            PoolUsage::new(
                capacity,
                in_carved,
                capacity.saturating_sub(in_carved).saturating_sub(in_kept_back),
            ),
        )
    }

    /// How many addresses can be handed out of these blocks together. Costs what is excluded, however many blocks there are.
    fn usable_in(&self, blocks: &IntervalSet) -> u128 {
        let bits = u32::from(self.pool.block_bits());
        let within = (1_u128 << bits) - 1;
        let mut usable = blocks.len().saturating_mul(1 << bits);
        for (first_index, subnet) in self.parts() {
            for excluded in self.excluded_offsets(&subnet).iter() {
                let (first, last) =
                    (first_index + (excluded.start() >> bits), first_index + (excluded.end() >> bits));
                for part in blocks.within(first, last) {
                    let from = ((part.start() - first_index) << bits).max(*excluded.start());
                    let to = (((part.end() - first_index) << bits) | within).min(*excluded.end());
                    usable = usable.saturating_sub((to - from).saturating_add(1));
                }
            }
        }
        usable
    }

    /// The entries of the list, each with the number of its first block.
    fn parts(&self) -> impl Iterator<Item = (u128, Subnet)> {
        let bits = u32::from(self.pool.block_bits());
        let mut next = 0_u128;
        self.pool.subnets().map(move |subnet| {
            let last_offset = subnet.ipv4.or(subnet.ipv6).map_or(0, |cidr| cidr.last_offset());
            let first = next;
            next = first.saturating_add(last_offset >> bits).saturating_add(1);
            (first, subnet)
        })
    }

    /// What is excluded of a subnet, as offsets. In a pair an address takes its partner with it.
    fn excluded_offsets(&self, subnet: &Subnet) -> IntervalSet {
        let mut offsets = IntervalSet::new();
        for cidr in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
            let base = cidr.first().bits();
            for excluded in Range::every(cidr).without(self.exclusions.iter().copied()).exclusions() {
                offsets.insert(excluded.first().bits() - base, excluded.last().bits() - base);
            }
        }
        offsets
    }
}

#[cfg(test)]
mod tests;
