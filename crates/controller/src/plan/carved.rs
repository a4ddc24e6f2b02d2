//! Which blocks are taken, by pool, gathered once for a plan.

use std::collections::HashMap;

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, split_block_name};
use tenure_ipam::{Cidr, IntervalSet};

use super::requests::promise_of;
use crate::world::World;

/// What of each pool is taken.
pub(super) struct Carved<'a> {
    pools: HashMap<&'a str, Taken>,
    /// Blocks by the UID of the request that they answer.
    pub(super) answers: HashMap<&'a str, &'a AddressBlock>,
    /// The networks of blocks whose pool is gone. No pool may carve them a second time.
    pub(super) orphans: Vec<Cidr>,
}

/// Numbers of a pool's blocks.
#[derive(Default)]
pub(super) struct Taken {
    /// Those that exist.
    pub(super) carved: IntervalSet,
    /// Those that a waiting request was promised.
    pub(super) promised: IntervalSet,
    /// Those that are being made for claims.
    pub(super) coming: IntervalSet,
    /// How many of them are floating.
    pub(super) floating: usize,
    /// How many objects say that they belong to the pool. A finalizer comes off only at zero, so this counts also those
    /// whose name is not that of a block.
    pub(super) objects: usize,
}

impl<'a> Carved<'a> {
    /// What is taken in `world`.
    pub(super) fn of(world: &'a World) -> Self {
        let mut pools: HashMap<&str, Taken> = HashMap::new();
        let (mut answers, mut orphans) = (HashMap::new(), Vec::new());
        for block in world.blocks.iter() {
            let named = block.metadata.name.as_deref().and_then(split_block_name);
            if let Some((pool, index)) = named {
                let taken = pools.entry(pool).or_default();
                taken.carved.insert(index, index);
                taken.floating += usize::from(block.is_floating());
            }
            if let Some(pool) = block.pool().or(named.map(|(pool, _)| pool)) {
                pools.entry(pool).or_default().objects += 1;
            }
            let pool = block.pool().and_then(|pool| world.pools.get(pool));
            if pool.is_none_or(|pool| !belongs_to(block, pool))
                && let Ok(subnet) = block.spec.to_subnet()
            {
                orphans.extend([subnet.ipv4, subnet.ipv6].into_iter().flatten());
            }
            if let Some(uid) = block.request_uid() {
                answers.insert(uid, block);
            }
        }
        // What cannot be read is there all the same: its name is its number.
        for (pool, index) in world.blocks.unreadable().filter_map(split_block_name) {
            let taken = pools.entry(pool).or_default();
            taken.carved.insert(index, index);
            taken.objects += 1;
        }
        // The same plan as before says the same of them again, unless others come first.
        for (name, floating) in &world.under_way {
            let Some((pool, index)) = split_block_name(name) else { continue };
            let taken = pools.entry(pool).or_default();
            taken.objects += 1;
            if *floating {
                taken.coming.insert(index, index);
            }
        }
        for request in world.requests.iter() {
            if let Some((pool, index)) = promise_of(request) {
                pools.entry(pool).or_default().promised.insert(index, index);
            }
        }
        Self { pools, answers, orphans }
    }

    /// What of this pool is taken.
    pub(super) fn from(&self, pool: &str) -> Option<&Taken> {
        self.pools.get(pool)
    }
}

/// Whether the block was carved from this very pool, and not from an earlier one of the same name.
pub(super) fn belongs_to(block: &AddressBlock, pool: &AddressPool) -> bool {
    let uid = pool.uid();
    block.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
}

impl Taken {
    /// Whether the pool has to stay: a block exists, or one may be about to.
    pub(super) fn keeps_pool(&self) -> bool {
        self.objects > 0 || !self.promised.is_empty()
    }
}
