//! What is taken, gathered once for a plan: block numbers by pool, and every network that is somebody's, whichever pool it is of.
//!
//! Pools may grow into each other, so no pool may trust its own numbers alone. A block is carved only where nothing that exists
//! has any of its addresses: no block of any pool, no block that was promised, and no record of Whereabouts'. Which of two pools
//! may carve what is still free is decided by their age ([`tenure_api::overlap`]).

use std::collections::{HashMap, HashSet};

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool, split_block_name};
use tenure_api::overlap::Overlaps;
use tenure_ipam::{Address, Family, IntervalSet, Subnet};

use super::locks::MOST_LOCKS;
use super::requests::{promise_of, waits};
use super::write::BlockWrite;
use crate::world::World;

/// What is taken.
#[derive(Debug)]
pub(crate) struct Carved {
    pools: HashMap<String, Taken>,
    /// Names of blocks by the UID of the waiting request that they answer.
    pub(super) answers: HashMap<String, String>,
    /// Addresses of blocks and records that exist.
    there: Networks,
    /// Addresses of blocks that were promised to requests.
    promised: Networks,
    /// Addresses of blocks that are being made for claims.
    coming: Networks,
}

/// Numbers of a pool's blocks.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Those that exist.
    pub(super) carved: IntervalSet,
    /// Those whose names are occupied for an older pool.
    occupied: IntervalSet,
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

/// Addresses, as sets of intervals.
#[derive(Debug, Default)]
struct Networks {
    ipv4: IntervalSet,
    ipv6: IntervalSet,
}

impl Networks {
    fn of(&self, family: Family) -> &IntervalSet {
        match family {
            Family::V4 => &self.ipv4,
            Family::V6 => &self.ipv6,
        }
    }

    fn insert(&mut self, first: Address, last: Address) {
        let set = match first.family() {
            Family::V4 => &mut self.ipv4,
            Family::V6 => &mut self.ipv6,
        };
        set.insert(first.bits(), last.bits());
    }

    fn extend(&mut self, subnet: Option<Subnet>) {
        let Some(subnet) = subnet else { return };
        for cidr in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
            self.insert(cidr.first(), cidr.last());
        }
    }
}

impl Carved {
    /// What is taken in `world`.
    pub(super) fn of(world: &World) -> Self {
        let mut this = Self {
            pools: HashMap::new(),
            answers: HashMap::new(),
            there: Networks::default(),
            promised: Networks::default(),
            coming: Networks::default(),
        };
        let waiting: HashSet<&str> = world
            .requests
            .iter()
            .filter(|it| waits(it))
            .filter_map(|it| it.metadata.uid.as_deref())
            .collect();
        for block in world.blocks.iter() {
            this.add_block(block, &waiting);
        }
        for ledger in world.ledgers.pools.iter().filter(|ledger| ledger.is_of_the_cluster()) {
            for (first, last) in &ledger.held {
                this.there.insert(*first, *last);
            }
        }
        let mut engines: HashMap<String, Option<EnginePool>> = HashMap::new();
        let mut subnet = |pool: &str, index: u128| {
            let engine = || EnginePool::try_from(&world.pools.get(pool)?.spec).ok();
            engines.entry(pool.to_owned()).or_insert_with(engine).as_ref()?.pool().block(index)
        };
        // What cannot be read is there all the same: its name is its number.
        for (pool, index) in world.blocks.unreadable().filter_map(split_block_name) {
            let taken = this.taken(pool);
            taken.carved.insert(index, index);
            taken.objects += 1;
            this.there.extend(subnet(pool, index));
        }
        // The same plan as before says the same of them again, unless others come first.
        for write in world.in_flight.iter().filter_map(|write| write.of::<BlockWrite>()) {
            let Some((pool, index)) = write.block().and_then(split_block_name) else { continue };
            let taken = this.taken(pool);
            taken.objects += 1;
            if matches!(write, BlockWrite::Create { block } if block.is_floating()) {
                taken.coming.insert(index, index);
                this.coming.extend(subnet(pool, index));
            }
        }
        for request in world.requests.iter() {
            let Some((pool, index)) = promise_of(request) else { continue };
            this.taken(pool).promised.insert(index, index);
            this.promised.extend(subnet(pool, index));
        }
        this
    }

    fn taken(&mut self, pool: &str) -> &mut Taken {
        self.pools.entry(pool.to_owned()).or_default()
    }

    fn add_block(&mut self, block: &AddressBlock, waiting: &HashSet<&str>) {
        let named = block.metadata.name.as_deref().and_then(split_block_name);
        if block.is_withheld() {
            if let Some((pool, index)) = named {
                self.taken(pool).occupied.insert(index, index);
            }
            return;
        }
        if let Some((pool, index)) = named {
            let taken = self.taken(pool);
            taken.carved.insert(index, index);
            taken.floating += usize::from(block.is_floating());
        }
        if let Some(pool) = block.pool().or(named.map(|(pool, _)| pool)) {
            self.taken(pool).objects += 1;
        }
        self.there.extend(block.spec.to_subnet().ok());
        if let Some(uid) = block.request_uid().filter(|uid| waiting.contains(uid)) {
            self.answers.insert(uid.to_owned(), block.name_any());
        }
    }

    /// A planted defect: without what is known of other pools.
    #[cfg(test)]
    pub(super) fn by_numbers(self) -> Self {
        Self { there: Networks::default(), promised: Networks::default(), ..self }
    }

    /// What of this pool is taken.
    pub(crate) fn from(&self, pool: &str) -> Option<&Taken> {
        self.pools.get(pool)
    }

    /// The numbers of a pool's blocks that it must not carve: an older pool has their addresses, or they cannot be locked
    /// against a younger one, or something that exists has one of their addresses.
    pub(crate) fn kept_back(&self, name: &str, engine: &EnginePool, overlaps: &Overlaps) -> IntervalSet {
        let mut kept = IntervalSet::new();
        if let Some(overlap) = overlaps.younger.get(name) {
            kept.extend(overlap.withheld.iter());
        }
        kept.extend(self.from(name).into_iter().flat_map(|there| there.occupied.iter()));
        for younger in
            overlaps.younger.values().filter(|younger| younger.block_bits < engine.pool().block_bits())
        {
            let locks = 1_u128.checked_shl(u32::from(engine.pool().block_bits() - younger.block_bits));
            let shared = younger.older.get(name).into_iter().flatten();
            for network in shared.filter(|_| locks.is_none_or(|locks| locks > MOST_LOCKS)) {
                kept.extend(engine.pool().indexes_overlapping(network));
            }
        }
        for family in [Family::V4, Family::V6] {
            kept.extend(engine.pool().indexes_among(self.there.of(family), family).iter());
        }
        kept
    }

    /// The numbers of a pool's blocks that cannot be promised or given to claims: all of the above, what was promised, and
    /// what has no address to hand out.
    pub(crate) fn not_free(&self, name: &str, engine: &EnginePool, overlaps: &Overlaps) -> IntervalSet {
        let mut taken = self.not_free_for_claims(name, engine, overlaps);
        taken.extend(self.from(name).into_iter().flat_map(|there| there.coming.iter()));
        taken
    }

    /// The same without the blocks of this pool that are being made for claims: a plan has to give those claims the same blocks
    /// again, or they would get a second address while the first is on its way.
    pub(crate) fn not_free_for_claims(
        &self,
        name: &str,
        engine: &EnginePool,
        overlaps: &Overlaps,
    ) -> IntervalSet {
        let among = |networks: &Networks| {
            [Family::V4, Family::V6].map(|family| engine.pool().indexes_among(networks.of(family), family))
        };
        let mut taken = IntervalSet::new();
        for coming in among(&self.coming) {
            taken.extend(coming.iter());
        }
        let there = self.from(name);
        for own in there.into_iter().flat_map(|there| there.coming.iter()) {
            taken.remove(*own.start(), *own.end());
        }
        taken.extend(engine.excluded_blocks().iter());
        taken.extend(self.kept_back(name, engine, overlaps).iter());
        if let Some(there) = there {
            taken.extend(there.carved.iter());
            taken.extend(there.promised.iter());
        }
        for promised in among(&self.promised) {
            taken.extend(promised.iter());
        }
        taken
    }
}

/// Whether the block was carved from this very pool, and not from an earlier one of the same name.
pub(crate) fn belongs_to(block: &AddressBlock, pool: &AddressPool) -> bool {
    let uid = pool.uid();
    block.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
}

impl Taken {
    /// Whether the pool has to stay: a block exists, or one may be about to.
    pub(super) fn keeps_pool(&self) -> bool {
        self.objects > 0 || !self.promised.is_empty()
    }
}
