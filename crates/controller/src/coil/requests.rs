//! Serving requests: each gets the lowest block of its pool that nobody has, gets at this moment, or must not have.
//!
//! A request of which the block is the answer waits again when its block is gone. So it gets none while its node is missing or
//! out of service: such a node's blocks are released, again and again.

use std::collections::{BTreeMap, HashSet};

use kube::ResourceExt;
use tenure_api::coil::condition::reason;
use tenure_api::coil::{
    AddressBlock, AddressPool, BlockRequest, BlockRequestStatus, EnginePool, RequestOutcome,
};
use tenure_handles::Timestamp;
use tenure_ipam::IntervalSet;

use super::carved::Taken;
use super::index::Index;
use super::share::GrowingShares;
use super::write::BlockWrite;
use crate::plan::time;
use crate::suspicions::Suspicions;
use crate::world::World;
use crate::write::At;

/// The next write for every request that waits, the oldest request first.
pub(super) fn serve(
    world: &World,
    index: &Index,
    without_pool: &mut Suspicions,
    now: Timestamp,
) -> Vec<BlockWrite> {
    without_pool.look_again();
    let (mut coming, mut shares) = (HashSet::new(), index.shares.growing());
    for block in world.in_flight.iter().filter_map(|write| write.of::<BlockWrite>()?.block()) {
        if let Some((request, (pool, node))) = block.request_uid().zip(block.pool().zip(block.node())) {
            coming.insert(request);
            shares.add(pool, node);
        }
    }
    let mut allocator = Allocator { world, index, now, shares, pools: BTreeMap::new() };
    let waiting = index.waiting().filter_map(|name| world.coil().requests.get(name));
    let of_live_nodes = waiting.filter(|request| {
        let node = &request.spec.node_name;
        !world.saw_deletion_of(node) && (!request.is_answered_by_block() || world.lives(node))
    });
    of_live_nodes
        .filter(|request| !request.metadata.uid.as_deref().is_some_and(|uid| coming.contains(uid)))
        .filter_map(|request| match allocator.next_step(request) {
            Ok(write) => Some(write),
            // Not before a second look: the pool may only be late.
            Err(refusal) if refusal.reason == reason::POOL_NOT_FOUND => {
                let lasted = without_pool.suspect(request.uid().unwrap_or_default(), now);
                lasted.then(|| refusal.answer(request, now))
            }
            Err(refusal) => Some(refusal.answer(request, now)),
        })
        .collect()
}

pub(super) fn waits(request: &BlockRequest) -> bool {
    request.outcome() == RequestOutcome::Pending && request.metadata.deletion_timestamp.is_none()
}

/// What of each pool is still free.
struct Allocator<'a> {
    world: &'a World,
    index: &'a Index,
    now: Timestamp,
    shares: GrowingShares<'a>,
    pools: BTreeMap<&'a str, Result<Inventory<'a>, Refusal>>,
}

/// A pool, and the numbers of its blocks that are not free.
struct Inventory<'a> {
    pool: &'a AddressPool,
    engine: EnginePool,
    /// Those that exist.
    carved: Option<&'a IntervalSet>,
    /// Others that are not free.
    taken: IntervalSet,
    /// None below is free.
    next: u128,
}

/// Why a pool gives nothing.
#[derive(Clone)]
struct Refusal {
    reason: &'static str,
    message: String,
}

impl<'a> Allocator<'a> {
    /// The next write that serves this request: the answer if there is a block for it, otherwise the lowest free block,
    /// unless the node has its share of the pool.
    fn next_step(&mut self, request: &'a BlockRequest) -> Result<BlockWrite, Refusal> {
        let uid = request.uid().unwrap_or_default();
        if let Some(block) = self.index.answer_to(&uid) {
            let status = BlockRequestStatus::carved(block, &time(self.now));
            return Ok(BlockWrite::Answer { request: At::of(request), status });
        }
        let (pool, node) = (&request.spec.pool_name, &request.spec.node_name);
        let bits = self.inventory(pool)?.engine.pool().block_bits();
        let size = 1_u128.checked_shl(bits.into()).unwrap_or(u128::MAX);
        if let Some(count) = self.shares.is_full(self.world, pool, node, size) {
            let message = format!(
                "node \"{node}\" has {count} blocks of pool \"{pool}\", and no node gets more for the pods that it may run; \
                 raise the kubelet's maxPods if it needs them, or look who uses the node's token if not"
            );
            return Err(Refusal { reason: reason::OUT_OF_BLOCKS, message });
        }
        let block = self.inventory(pool)?.carve(node, &uid)?;
        self.shares.add(pool, node);
        Ok(BlockWrite::Create { block: Box::new(block) })
    }

    fn inventory(&mut self, name: &'a str) -> Result<&mut Inventory<'a>, Refusal> {
        let (world, index) = (self.world, self.index);
        let inventory = self.pools.entry(name).or_insert_with(|| Inventory::open(world, index, name));
        inventory.as_mut().map_err(|refusal| refusal.clone())
    }
}

impl<'a> Inventory<'a> {
    fn open(world: &'a World, index: &'a Index, name: &str) -> Result<Self, Refusal> {
        let pool = world.coil().pools.get(name).ok_or_else(|| Refusal {
            reason: reason::POOL_NOT_FOUND,
            message: match world.unreadable.why("AddressPool", name) {
                Some(why) => format!("AddressPool \"{name}\" cannot be read: {why}; correct it"),
                None => format!(
                    "there is no AddressPool \"{name}\"; create it, or correct the namespace's annotation"
                ),
            },
        })?;
        let engine = EnginePool::try_from(&pool.spec).map_err(Refusal::invalid)?;
        let Index { carved, overlaps, .. } = index;
        let taken = carved.not_free(name, &engine, overlaps);
        let carved = carved.from(name).map(Taken::carved);
        Ok(Self { pool, engine, carved, taken, next: 0 })
    }

    /// The lowest free block, for this node's request.
    fn carve(&mut self, node: &str, request_uid: &str) -> Result<AddressBlock, Refusal> {
        let name = self.pool.name_any();
        if self.pool.metadata.deletion_timestamp.is_some() {
            let message = format!("pool \"{name}\" is being deleted and gives no more blocks");
            return Err(Refusal { reason: reason::DELETING, message });
        }
        let index = self.lowest_free().ok_or_else(|| Refusal {
            reason: reason::OUT_OF_BLOCKS,
            message: format!(
                "pool \"{name}\" has no free block; append a subnet to spec.subnets, or free addresses so that nodes \
                 return blocks"
            ),
        })?;
        self.taken.insert(index, index);
        AddressBlock::carve_with(self.pool, &self.engine, index, node, Some(request_uid))
            .map_err(Refusal::invalid)
    }

    /// The lowest number that is neither taken nor exists, found without copying what exists.
    fn lowest_free(&mut self) -> Option<u128> {
        loop {
            let not_taken = self.taken.next_gap(self.next)?;
            let free = self.carved.map_or(Some(not_taken), |carved| carved.next_gap(not_taken))?;
            if free == self.next {
                return Some(free).filter(|free| *free <= self.engine.pool().last_index());
            }
            self.next = free;
        }
    }
}

impl Refusal {
    fn invalid(error: impl std::fmt::Display) -> Self {
        Self { reason: reason::INVALID, message: error.to_string() }
    }

    /// The refusal as the answer to a request. It is final: whoever still needs a block asks again.
    fn answer(&self, request: &BlockRequest, now: Timestamp) -> BlockWrite {
        let status = BlockRequestStatus::failed(self.reason, &self.message, &time(now));
        BlockWrite::Answer { request: At::of(request), status }
    }
}
