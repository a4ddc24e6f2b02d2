//! What is taken of each pool, kept up to date as objects come and go.
//!
//! Pools may grow into each other, so no pool may trust its own numbers alone. A block is carved only where nothing that exists
//! has any of its addresses: no block of any pool, no block that was promised, and no record of Whereabouts'. Which of two pools
//! may carve what is still free is decided by their age ([`tenure_api::overlap`]).
//!
//! Addresses that something has are counted in each pool that has them, too, as numbers of that pool's blocks. So a question
//! about a pool costs what others have of it, whatever else exists.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool, split_block_name};
use tenure_api::overlap::Overlaps;
use tenure_ipam::{Address, CountedIntervals, IntervalSet, Subnet};

use super::locks::MOST_LOCKS;
use super::subnets::PoolSubnets;
use super::write::BlockWrite;
use crate::write::Write;

/// What is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carved {
    pools: HashMap<Arc<str>, Taken>,
    subnets: PoolSubnets,
    in_flight: InFlight,
    /// Pools of which something else is taken than when this was last asked.
    changed: BTreeSet<Arc<str>>,
}

/// Numbers of a pool's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// What the pool is cut into; nothing if there is no such pool, or if it cannot be understood.
    engine: Option<EnginePool>,
    /// Those that exist.
    carved: CountedIntervals,
    /// Those whose names are occupied for an older pool.
    occupied: CountedIntervals,
    /// Those that a waiting request was promised.
    promised: CountedIntervals,
    /// Those of whose addresses something else has one: a block of another number or pool, or a record of Whereabouts'.
    elsewhere: CountedIntervals,
    /// Those of whose addresses another block has one that was promised.
    promised_elsewhere: CountedIntervals,
    /// How many of them are floating.
    pub(super) floating: usize,
    /// How many objects say that they belong to the pool. A finalizer comes off only at zero, so this counts also those
    /// whose name is not that of a block.
    objects: usize,
}

/// What the writes that are in flight will take.
#[derive(Clone, Debug, Default, PartialEq)]
struct InFlight {
    /// Pools that get a block, or a promise of one.
    pools: BTreeSet<Arc<str>>,
    /// Blocks that are being made for claims.
    coming: Vec<(Number, Option<Subnet>)>,
}

/// A block by its pool and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) pool: Arc<str>,
    pub(super) index: u128,
}

/// Whether something comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

/// What addresses are taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Something that exists.
    Object,
    /// A promise.
    Promise,
}

impl Number {
    /// The pool and the number that a block's name is made of.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        split_block_name(name).map(|(pool, index)| Self { pool: pool.into(), index })
    }
}

impl Change {
    fn interval(self, set: &mut CountedIntervals, first: u128, last: u128) {
        match self {
            Self::Add => set.insert(first, last),
            Self::Remove => set.remove(first, last),
        }
    }

    pub(super) fn count(self, count: &mut usize) {
        *count = match self {
            Self::Add => count.saturating_add(1),
            Self::Remove => count.saturating_sub(1),
        };
    }
}

/// The networks of a block as first and last addresses.
pub(super) fn networks(subnet: Option<Subnet>) -> impl Iterator<Item = (Address, Address)> {
    let networks = subnet.into_iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten();
    networks.map(|network| (network.first(), network.last()))
}

/// Keeping it up to date.
impl Carved {
    /// A pool is cut into other blocks than before, or into none. What others have of it is to be added again.
    pub(super) fn shape(&mut self, pool: &Arc<str>, engine: Option<EnginePool>) {
        let taken = self.taken(pool);
        taken.engine = engine;
        taken.elsewhere = CountedIntervals::default();
        taken.promised_elsewhere = CountedIntervals::default();
    }

    /// Finds pools by their addresses as they are now.
    pub(super) fn find_subnets(&mut self) {
        let engines = self.pools.iter().filter_map(|(name, taken)| Some((name, taken.engine.as_ref()?)));
        self.subnets = PoolSubnets::of(engines);
    }

    /// A block with this number exists.
    pub(super) fn carve(&mut self, block: &Number, floating: bool, change: Change) {
        let taken = self.taken(&block.pool);
        change.interval(&mut taken.carved, block.index, block.index);
        if floating {
            change.count(&mut taken.floating);
        }
    }

    /// The name of this block is occupied.
    pub(super) fn occupy(&mut self, block: &Number, change: Change) {
        change.interval(&mut self.taken(&block.pool).occupied, block.index, block.index);
    }

    /// This block was promised.
    pub(super) fn promise(&mut self, block: &Number, change: Change) {
        change.interval(&mut self.taken(&block.pool).promised, block.index, block.index);
    }

    /// An object says that it belongs to this pool.
    pub(super) fn count_object(&mut self, pool: &Arc<str>, change: Change) {
        change.count(&mut self.taken(pool).objects);
    }

    /// Addresses are taken: those of block `own`, if they are a block's. Only in the pools `only`, if that is given.
    pub(super) fn take_addresses(
        &mut self,
        own: Option<&Number>,
        networks: impl IntoIterator<Item = (Address, Address)>,
        (by, change): (By, Change),
        only: Option<&BTreeSet<Arc<str>>>,
    ) {
        let Self { pools, subnets, changed, .. } = self;
        for (first, last) in networks {
            let overlapping = subnets.overlapping(first, last);
            for name in overlapping.filter(|name| only.is_none_or(|only| only.contains(*name))) {
                let Some(taken) = pools.get_mut(name) else { continue };
                let set = match by {
                    By::Object => &mut taken.elsewhere,
                    By::Promise => &mut taken.promised_elsewhere,
                };
                // A block's own number says the same.
                let own = own.filter(|own| own.pool == *name).map(|own| own.index..=own.index);
                let blocks =
                    taken.engine.iter().flat_map(|engine| engine.pool().indexes_between(first, last));
                for blocks in blocks.filter(|blocks| Some(blocks) != own.as_ref()) {
                    change.interval(set, *blocks.start(), *blocks.end());
                    changed.insert(Arc::clone(name));
                }
            }
        }
    }

    /// These writes are in flight. The same plan as before says the same of them again, unless others come first.
    pub(super) fn set_in_flight(&mut self, writes: &[Write]) {
        let mut now = InFlight::default();
        for write in writes.iter().filter_map(|write| write.of::<BlockWrite>()) {
            let Some(block) = write.block().and_then(Number::of_name) else { continue };
            now.pools.insert(Arc::clone(&block.pool));
            if matches!(write, BlockWrite::Create { block } if block.is_floating()) {
                let subnet = self.subnet_of(&block);
                now.coming.push((block, subnet));
            }
        }
        if now == self.in_flight {
            return;
        }
        let before = std::mem::replace(&mut self.in_flight, now);
        let both = [&before, &self.in_flight];
        for (_, subnet) in both.into_iter().flat_map(|it| &it.coming) {
            let pools = networks(*subnet).flat_map(|(first, last)| self.subnets.overlapping(first, last));
            self.changed.extend(pools.cloned());
        }
        self.changed.extend(both.into_iter().flat_map(|it| &it.pools).cloned());
    }

    /// Others can be carved of this pool, whatever is taken.
    pub(super) fn note_change(&mut self, pool: &str) {
        self.changed.insert(pool.into());
    }

    /// The pools of which something else is taken than when this was last asked.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    /// A planted defect: without what is known of other pools.
    #[cfg(test)]
    pub(super) fn forget_others(&mut self) {
        for taken in self.pools.values_mut() {
            taken.elsewhere = CountedIntervals::default();
            taken.promised_elsewhere = CountedIntervals::default();
        }
    }

    fn taken(&mut self, pool: &Arc<str>) -> &mut Taken {
        self.changed.insert(Arc::clone(pool));
        self.pools.entry(Arc::clone(pool)).or_default()
    }
}

/// Asking.
impl Carved {
    /// What of this pool is taken.
    pub(super) fn from(&self, pool: &str) -> Option<&Taken> {
        self.pools.get(pool)
    }

    /// The networks of a pool, as first and last addresses.
    pub(super) fn networks_of(&self, pool: &str) -> impl Iterator<Item = (Address, Address)> {
        let engine = self.from(pool).and_then(|taken| taken.engine.as_ref());
        engine
            .into_iter()
            .flat_map(|engine| engine.pool().subnets())
            .flat_map(|subnet| networks(Some(subnet)))
    }

    /// The addresses of a block, as its pool says them.
    pub(super) fn subnet_of(&self, block: &Number) -> Option<Subnet> {
        self.from(&block.pool)?.engine.as_ref()?.pool().block(block.index)
    }

    /// Whether the pool has to stay: a block exists, or one may be about to.
    pub(super) fn keeps_pool(&self, pool: &str) -> bool {
        let used = |taken: &Taken| taken.objects > 0 || !taken.promised.covered().is_empty();
        self.from(pool).is_some_and(used) || self.in_flight.pools.contains(pool)
    }

    /// The numbers of a pool's blocks that it must not carve, beside those that exist: an older pool has their addresses, or they
    /// cannot be locked against a younger one, or something else that exists has one of their addresses.
    pub(super) fn kept_back(&self, name: &str, engine: &EnginePool, overlaps: &Overlaps) -> IntervalSet {
        let mut kept = IntervalSet::new();
        if let Some(overlap) = overlaps.younger.get(name) {
            kept.extend(overlap.withheld.iter());
        }
        for younger in
            overlaps.younger.values().filter(|younger| younger.block_bits < engine.pool().block_bits())
        {
            let locks = 1_u128.checked_shl(u32::from(engine.pool().block_bits() - younger.block_bits));
            let shared = younger.older.get(name).into_iter().flatten();
            for network in shared.filter(|_| locks.is_none_or(|locks| locks > MOST_LOCKS)) {
                kept.extend(engine.pool().indexes_overlapping(network));
            }
        }
        if let Some(taken) = self.from(name) {
            kept.extend(taken.occupied.covered().iter());
            kept.extend(taken.elsewhere.covered().iter());
        }
        kept
    }

    /// The numbers of a pool's blocks that cannot be promised, beside those that exist: all of the above, what was promised, what
    /// is being made for claims, and what has no address to hand out.
    pub(super) fn not_free(&self, name: &str, engine: &EnginePool, overlaps: &Overlaps) -> IntervalSet {
        let mut taken = self.not_free_for_claims_either(name, engine, overlaps);
        taken.extend(self.coming_of(name).map(|index| index..=index));
        taken
    }

    /// The numbers of a pool's blocks that cannot be made for claims. Those that are being made already are not among them: a plan
    /// has to give the same claims the same blocks again, or they would get a second address while the first is on its way.
    pub(crate) fn not_free_for_claims(
        &self,
        name: &str,
        engine: &EnginePool,
        overlaps: &Overlaps,
    ) -> IntervalSet {
        let mut taken = self.not_free_for_claims_either(name, engine, overlaps);
        taken.extend(self.from(name).into_iter().flat_map(|there| there.carved().iter()));
        taken
    }

    fn not_free_for_claims_either(
        &self,
        name: &str,
        engine: &EnginePool,
        overlaps: &Overlaps,
    ) -> IntervalSet {
        let mut taken = IntervalSet::new();
        for (first, last) in self.in_flight.coming.iter().flat_map(|(_, subnet)| networks(*subnet)) {
            taken.extend(engine.pool().indexes_between(first, last));
        }
        for own in self.coming_of(name) {
            taken.remove(own, own);
        }
        taken.extend(engine.excluded_blocks().iter());
        taken.extend(self.kept_back(name, engine, overlaps).iter());
        if let Some(there) = self.from(name) {
            taken.extend(there.promised.covered().iter());
            taken.extend(there.promised_elsewhere.covered().iter());
        }
        taken
    }

    /// The numbers of the pool's blocks that are being made for claims.
    fn coming_of(&self, name: &str) -> impl Iterator<Item = u128> {
        let own = self.in_flight.coming.iter().filter(move |(block, _)| *block.pool == *name);
        own.map(|(block, _)| block.index)
    }
}

impl Taken {
    /// The numbers of the blocks that exist.
    pub(super) fn carved(&self) -> &IntervalSet {
        self.carved.covered()
    }
}

/// Whether the block was carved from this very pool, and not from an earlier one of the same name.
pub(crate) fn belongs_to(block: &AddressBlock, pool: &AddressPool) -> bool {
    let uid = pool.uid();
    block.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
}
