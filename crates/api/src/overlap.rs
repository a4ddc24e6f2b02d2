//! Pools that overlap each other, which a schema cannot detect.
//!
//! If two pools share addresses, the older one keeps them. The younger one gets the condition `Overlapping`,
//! and its blocks that share an address with an older pool are withheld: they are never carved. A pool is
//! older if it was created earlier, or in the same second and its name sorts first.
//!
//! Exclusions do not count: an address that a pool excludes today may still be held.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tenure_ipam::{Cidr, Family, IntervalSet, Subnet};

use crate::coil::{AddressPool, ConversionError, EnginePool, condition::reason};

/// All overlaps.
#[derive(Debug, Default, PartialEq)]
pub struct Overlaps {
    /// The younger pools, by name.
    pub younger: BTreeMap<String, Overlap>,
    /// Pools that cannot be parsed, by name. Their addresses are unknown, so nothing is assigned from them.
    pub invalid: BTreeMap<String, ConversionError>,
}

/// What a younger pool shares with older ones.
#[derive(Debug, Default, PartialEq)]
pub struct Overlap {
    /// The older pools, by name, with the networks that both have.
    pub older: BTreeMap<String, BTreeSet<Cidr>>,
    /// The numbers of the younger pool's blocks that must not be carved.
    pub withheld: IntervalSet,
    /// Whether that is all of them.
    pub everything: bool,
    /// The power of two of addresses in a block of the younger pool.
    pub block_bits: u8,
}

impl Overlap {
    /// The reason for the condition.
    pub fn reason(&self) -> &'static str {
        if self.everything { reason::INSIDE_OLDER_POOL } else { reason::OVERLAPS_OLDER_POOL }
    }

    /// The message for the condition: which networks belong to which pool, and the consequence.
    pub fn message(&self) -> String {
        let shared = self.older.iter().map(|(pool, networks)| {
            let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
            format!("{} belongs to the older pool \"{pool}\"", networks.join(", "))
        });
        let blocks = match self.withheld.len() {
            _ if self.everything => "no block is".to_owned(),
            1 => "1 block is not".to_owned(),
            count => format!("{count} blocks are not"),
        };
        format!("{}; {blocks} handed out from here", shared.collect::<Vec<_>>().join("; "))
    }
}

/// Which pools overlap, and what the younger ones must not assign.
pub fn overlaps<'a>(pools: impl IntoIterator<Item = &'a AddressPool>) -> Overlaps {
    let mut found = Overlaps::default();
    let mut valid = Vec::new();
    for pool in pools {
        match EnginePool::try_from(&pool.spec) {
            Ok(engine) => valid.push((pool, engine.pool().clone())),
            Err(error) => _ = found.invalid.insert(pool.name_any(), error),
        }
    }
    valid.sort_by_key(|(pool, _)| age(*pool));
    for family in [Family::V4, Family::V6] {
        let networks = valid.iter().enumerate().flat_map(|(rank, (_, pool))| {
            let network = move |subnet: Subnet| match family {
                Family::V4 => subnet.ipv4,
                Family::V6 => subnet.ipv6,
            };
            pool.subnets().filter_map(network).map(move |network| (network, rank))
        });
        for (shared, older, younger) in shared_networks(networks.collect()) {
            let overlap = found.younger.entry(valid[younger].0.name_any()).or_default();
            overlap.older.entry(valid[older].0.name_any()).or_default().insert(shared);
            overlap.withheld.extend(valid[younger].1.indexes_overlapping(&shared));
        }
    }
    for (pool, engine) in &valid {
        if let Some(overlap) = found.younger.get_mut(&pool.name_any()) {
            overlap.everything = overlap.withheld.covers(0, engine.last_index());
            overlap.block_bits = engine.block_bits();
        }
    }
    found
}

/// Whether there is no time of creation, that time in seconds, and the name.
pub type Age = (bool, Option<i64>, String);

/// Whether the first of two pools is older: that one may carve what both have and nobody has carved.
pub fn is_older(pool: &AddressPool, than: &AddressPool) -> bool {
    age(pool) < age(than)
}

/// The sort key of a pool's age. One that was never stored is the youngest.
pub fn age(pool: &impl ResourceExt) -> Age {
    let created = pool.creation_timestamp().map(|time| time.0.as_second());
    (created.is_none(), created, pool.name_any())
}

/// Every network that two owners have, with the lower and the higher owner. Networks are nested or disjoint,
/// so in sorted order those that contain the next one form a stack.
pub fn shared_networks(mut networks: Vec<(Cidr, usize)>) -> Vec<(Cidr, usize, usize)> {
    networks.sort_unstable();
    let mut around: Vec<(Cidr, usize)> = Vec::new();
    let mut shared = Vec::new();
    for (cidr, owner) in networks {
        while around.pop_if(|(outer, _)| !outer.covers(&cidr)).is_some() {}
        let others = around.iter().filter(|(_, other)| *other != owner);
        shared.extend(others.map(|(_, other)| (cidr, owner.min(*other), owner.max(*other))));
        around.push((cidr, owner));
    }
    shared
}

#[cfg(test)]
mod tests;
