//! What is used of each pool. It follows changes of objects.
//!
//! Pools may grow into each other, so no pool may rely on its own numbers alone. A block is carved only where no
//! existing object has any of its addresses: no block of any pool, and no record of Whereabouts.
//! The age of two pools decides which may carve what is still free ([`tenure_api::overlap`]).
//!
//! Used addresses are counted in every pool that contains them, as numbers of that pool's blocks. So a question about
//! a pool costs what others use of it, whatever else exists.

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

/// What is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carved {
    pools: HashMap<Arc<str>, Taken>,
    subnets: PoolSubnets,
    in_flight: InFlight,
    /// Pools whose used blocks changed since this was last asked.
    changed: BTreeSet<Arc<str>>,
}

/// Numbers of a pool's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// How the pool is divided; nothing if there is no such pool, or if it cannot be understood.
    engine: Option<EnginePool>,
    /// Those that exist.
    carved: CountedIntervals,
    /// Those whose names are occupied for an older pool.
    occupied: CountedIntervals,
    /// Those with an address of something else: a block of another number or pool, or a record of Whereabouts.
    elsewhere: CountedIntervals,
    /// How many of them are floating.
    pub(super) floating: usize,
    /// How many objects belong to the pool by label. A finalizer is removed only at zero, so this also counts those
    /// whose name is not that of a block.
    objects: usize,
}

/// What the writes in flight will use.
#[derive(Clone, Debug, Default, PartialEq)]
struct InFlight {
    /// Pools that get a block.
    pools: BTreeSet<Arc<str>>,
    /// Blocks that are being created for claims.
    floating: Vec<(Number, Option<Subnet>)>,
    /// Blocks that are being created for nodes.
    of_nodes: Vec<(Number, Option<Subnet>)>,
}

/// A block by its pool and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) pool: Arc<str>,
    pub(super) index: u128,
}

/// Whether something is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

impl InFlight {
    /// All blocks that are being created.
    fn coming(&self) -> impl Iterator<Item = &(Number, Option<Subnet>)> {
        self.floating.iter().chain(&self.of_nodes)
    }
}

impl Number {
    /// The pool and number in a block's name.
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

/// Updates.
impl Carved {
    /// A pool is divided into other blocks than before, or into none. What others use of it has to be added again.
    pub(super) fn shape(&mut self, pool: &Arc<str>, engine: Option<EnginePool>) {
        let taken = self.taken(pool);
        taken.engine = engine;
        taken.elsewhere = CountedIntervals::default();
    }

    /// Finds pools by their current addresses.
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

    /// An object belongs to this pool by label.
    pub(super) fn count_object(&mut self, pool: &Arc<str>, change: Change) {
        change.count(&mut self.taken(pool).objects);
    }

    /// Addresses are used: by block `own`, if they are a block's. Only in the pools `only`, if given.
    pub(super) fn take_addresses(
        &mut self,
        own: Option<&Number>,
        networks: impl IntoIterator<Item = (Address, Address)>,
        change: Change,
        only: Option<&BTreeSet<Arc<str>>>,
    ) {
        let Self { pools, subnets, changed, .. } = self;
        for (first, last) in networks {
            let overlapping = subnets.overlapping(first, last);
            for name in overlapping.filter(|name| only.is_none_or(|only| only.contains(*name))) {
                let Some(taken) = pools.get_mut(name) else { continue };
                // The block's own number already tells.
                let own = own.filter(|own| own.pool == *name).map(|own| own.index..=own.index);
                let blocks =
                    taken.engine.iter().flat_map(|engine| engine.pool().indexes_between(first, last));
                for blocks in blocks.filter(|blocks| Some(blocks) != own.as_ref()) {
                    change.interval(&mut taken.elsewhere, *blocks.start(), *blocks.end());
                    changed.insert(Arc::clone(name));
                }
            }
        }
    }

    /// These writes are in flight. The same plan reports the same of them again, unless others come first.
    pub(super) fn set_in_flight(&mut self, writes: &[Write]) {
        let mut now = InFlight::default();
        for block in writes.iter().filter_map(|write| write.of::<BlockWrite>()?.block()) {
            let Some(number) = block.metadata.name.as_deref().and_then(Number::of_name) else { continue };
            now.pools.insert(Arc::clone(&number.pool));
            let subnet = self.subnet_of(&number);
            let coming = if block.is_floating() { &mut now.floating } else { &mut now.of_nodes };
            coming.push((number, subnet));
        }
        if now == self.in_flight {
            return;
        }
        let before = std::mem::replace(&mut self.in_flight, now);
        let both = [&before, &self.in_flight];
        for (_, subnet) in both.into_iter().flat_map(InFlight::coming) {
            let pools = networks(*subnet).flat_map(|(first, last)| self.subnets.overlapping(first, last));
            self.changed.extend(pools.cloned());
        }
        self.changed.extend(both.into_iter().flat_map(|it| &it.pools).cloned());
    }

    /// Other blocks can be carved from this pool, whatever is used.
    pub(super) fn note_change(&mut self, pool: &str) {
        self.changed.insert(pool.into());
    }

    /// The pools whose used blocks changed since this was last asked.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    /// A planted bug: ignores other pools.
    #[cfg(test)]
    pub(super) fn forget_others(&mut self) {
        for taken in self.pools.values_mut() {
            taken.elsewhere = CountedIntervals::default();
        }
    }

    fn taken(&mut self, pool: &Arc<str>) -> &mut Taken {
        self.changed.insert(Arc::clone(pool));
        self.pools.entry(Arc::clone(pool)).or_default()
    }
}

/// Queries.
impl Carved {
    /// What of this pool is used.
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

    /// The addresses of a block, computed from its pool.
    pub(super) fn subnet_of(&self, block: &Number) -> Option<Subnet> {
        self.from(&block.pool)?.engine.as_ref()?.pool().block(block.index)
    }

    /// Whether the pool has to stay: a block exists, or may be about to.
    pub(super) fn keeps_pool(&self, pool: &str) -> bool {
        self.from(pool).is_some_and(|taken| taken.objects > 0) || self.is_growing(pool)
    }

    /// Whether a block of the pool is being created.
    pub(super) fn is_growing(&self, pool: &str) -> bool {
        self.in_flight.pools.contains(pool)
    }

    /// The numbers that a pool must not carve, beside existing blocks: an older pool has their addresses, they cannot
    /// be locked against a younger one, or another existing object has one of their addresses.
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

    /// The numbers that cannot be created for nodes, beside existing blocks: all of the above, blocks being created, and
    /// those without an address to assign.
    pub(super) fn not_free(&self, name: &str, engine: &EnginePool, overlaps: &Overlaps) -> IntervalSet {
        let mut taken = self.not_free_for_claims_either(name, engine, overlaps);
        taken.extend(self.coming_of(name).map(|index| index..=index));
        taken
    }

    /// The numbers that cannot be created for claims. Those already being created are not among them: a plan has to
    /// give the same claims the same blocks again, or they would get a second address while the first is in flight.
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
        for (first, last) in self.in_flight.coming().flat_map(|(_, subnet)| networks(*subnet)) {
            taken.extend(engine.pool().indexes_between(first, last));
        }
        for own in self.coming_of(name) {
            taken.remove(own, own);
        }
        let of_nodes = self.in_flight.of_nodes.iter().filter(|(block, _)| *block.pool == *name);
        taken.extend(of_nodes.map(|(block, _)| block.index..=block.index));
        taken.extend(engine.excluded_blocks().iter());
        taken.extend(self.kept_back(name, engine, overlaps).iter());
        taken
    }

    /// The numbers of the pool's blocks that are being created for claims.
    fn coming_of(&self, name: &str) -> impl Iterator<Item = u128> {
        let own = self.in_flight.floating.iter().filter(move |(block, _)| *block.pool == *name);
        own.map(|(block, _)| block.index)
    }
}

impl Taken {
    /// The numbers of existing blocks.
    pub(super) fn carved(&self) -> &IntervalSet {
        self.carved.covered()
    }
}

/// Whether the block was carved from this very pool, not from an earlier one of the same name.
pub(crate) fn belongs_to(block: &AddressBlock, pool: &AddressPool) -> bool {
    let uid = pool.uid();
    block.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
}
