//! Pools: kept while they have blocks; their status tells what is left.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use tenure_api::coil::condition::{self, reason};
use tenure_api::coil::{AddressPool, AddressPoolStatus, EnginePool, FINALIZER, PoolUsage};
use tenure_handles::Timestamp;
use tenure_ipam::IntervalSet;

use super::carved::Taken;
use super::index::Index;
use super::write::BlockWrite;
use crate::plan::time;
use crate::world::World;
use crate::write::At;

/// The write that a pool needs. While a block of it is being created, nodes wait for the API server, and its status is about to
/// change again.
pub(super) fn keep(world: &World, index: &Index, name: &str, now: Timestamp) -> Option<BlockWrite> {
    let pool = world.coil().pools.get(name)?;
    let status = || status(index, pool, now).filter(|_| !index.carved.is_growing(name));
    finalizer(index, pool).or_else(status)
}

/// Our finalizer is on a living pool, and is removed in deletion when its last block is gone.
fn finalizer(index: &Index, pool: &AddressPool) -> Option<BlockWrite> {
    let has = pool.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let used = index.carved.keeps_pool(&pool.name_any());
    let mut finalizers = pool.finalizers().to_vec();
    match (has, deleting, used) {
        (false, false, _) => finalizers.push(FINALIZER.to_owned()),
        (true, true, false) => finalizers.retain(|finalizer| finalizer != FINALIZER),
        _ => return None,
    }
    Some(BlockWrite::PoolFinalizers { pool: At::of(pool), finalizers })
}

/// The new status, if it differs.
fn status(index: &Index, pool: &AddressPool, now: Timestamp) -> Option<BlockWrite> {
    let before = pool.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.observed_generation = pool.metadata.generation;
    describe(index, pool, &mut after, now);
    (after != before).then(|| BlockWrite::PoolStatus { pool: At::of(pool), status: Box::new(after) })
}

fn describe(index: &Index, pool: &AddressPool, status: &mut AddressPoolStatus, now: Timestamp) {
    let name = pool.name_any();
    let mut set = |type_: &str, is: bool, reason: &str, message: String| {
        status.set_condition(Condition {
            type_: type_.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: pool.metadata.generation,
            last_transition_time: time(now),
        });
    };
    let engine = match EnginePool::try_from(&pool.spec) {
        Ok(engine) => engine,
        Err(error) => return set(condition::READY, false, reason::INVALID, error.to_string()),
    };
    let none = IntervalSet::new();
    let Index { carved, overlaps, .. } = index;
    let overlap = overlaps.younger.get(&name);
    let kept_back = carved.kept_back(&name, &engine, overlaps);
    let floating = carved.from(&name).map_or(0, |taken| taken.floating);
    let carved = carved.from(&name).map_or(&none, Taken::carved);
    let (blocks, addresses) = engine.usage(carved, &kept_back);
    let exhausted = blocks.free == "0";
    match overlap {
        Some(overlap) => set(condition::OVERLAPPING, true, overlap.reason(), overlap.message()),
        None => set(
            condition::OVERLAPPING,
            false,
            reason::DISTINCT,
            "no other pool has these addresses".to_owned(),
        ),
    }
    let PoolUsage { capacity, allocated, free } = &blocks;
    let of_nodes = carved.len().saturating_sub(floating as u128);
    let count = match floating {
        0 => format!("{free} of {capacity} blocks are free, {allocated} belong to nodes"),
        _ => format!(
            "{free} of {capacity} blocks are free, {of_nodes} belong to nodes, {floating} are for claims"
        ),
    };
    if pool.metadata.deletion_timestamp.is_some() {
        set(
            condition::READY,
            false,
            reason::DELETING,
            format!("the pool goes when its last block does; {count}"),
        );
    } else if exhausted {
        set(
            condition::READY,
            false,
            reason::OUT_OF_BLOCKS,
            format!("{count}; append a subnet to spec.subnets"),
        );
    } else {
        set(condition::READY, true, reason::BLOCKS_FREE, count.clone());
    }
    let why = if exhausted { reason::OUT_OF_BLOCKS } else { reason::BLOCKS_FREE };
    set(condition::EXHAUSTED, exhausted, why, count);
    status.blocks = Some(blocks);
    status.addresses = Some(addresses);
}
