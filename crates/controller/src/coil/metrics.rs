//! Metrics of pools, blocks and requests.

use std::collections::{HashMap, HashSet};

use kube::ResourceExt;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_api::coil::{AddressBlock, BlockRequest, PoolUsage, RequestOutcome};
use tenure_handles::Timestamp;

use crate::metrics::{Numbers, labels, metric};
use crate::part::Count;
use crate::world::World;

/// Counts of pools, blocks and requests.
#[derive(Debug)]
pub(super) struct CoilMetrics {
    waiting: Gauge,
    pool_blocks: Numbers,
    pool_addresses: Numbers,
    node_blocks: Numbers,
    coil_max: Numbers,
    coil_allocated: Numbers,
}

impl CoilMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        Self {
            pool_blocks: metric(registry, "tenure_pool_blocks", "Blocks of a pool by state"),
            pool_addresses: metric(registry, "tenure_pool_addresses", "Addresses of a pool by state"),
            node_blocks: metric(registry, "tenure_node_blocks", "Blocks that a node owns, by pool"),
            coil_max: metric(
                registry,
                "coil_controller_max_blocks",
                "The maximum number of blocks of a pool",
            ),
            coil_allocated: metric(
                registry,
                "coil_controller_allocated_blocks",
                "The number of allocated blocks of a pool",
            ),
            waiting: metric(registry, "tenure_requests_waiting", "Requests that wait for a block"),
        }
    }
}

impl Count for CoilMetrics {
    fn count(&self, world: &World, leads: bool, _: usize, _: Timestamp) {
        let numbers = [
            &self.pool_blocks,
            &self.pool_addresses,
            &self.node_blocks,
            &self.coil_max,
            &self.coil_allocated,
        ];
        numbers.into_iter().for_each(Family::clear);
        if !leads {
            self.waiting.set(0);
            return;
        }
        self.waiting.set(i64::try_from(waiting(world)).unwrap_or(i64::MAX));
        for pool in world.coil().pools.iter() {
            let name = pool.name_any();
            let Some(status) = &pool.status else { continue };
            if let Some(usage) = &status.blocks {
                states(&self.pool_blocks, &name, usage);
                let of_pool = labels([("pool", &name)]);
                self.coil_max.get_or_create(&of_pool).set(number(&usage.capacity));
                self.coil_allocated.get_or_create(&of_pool).set(number(&usage.allocated));
            }
            if let Some(usage) = &status.addresses {
                states(&self.pool_addresses, &name, usage);
            }
        }
        let mut of_nodes: HashMap<(&str, &str), u32> = HashMap::new();
        for block in world.coil().blocks.iter() {
            if let (Some(node), Some(pool)) = (block.node(), block.pool()) {
                *of_nodes.entry((node, pool)).or_default() += 1;
            }
        }
        for ((node, pool), count) in of_nodes {
            self.node_blocks.get_or_create(&labels([("node", node), ("pool", pool)])).set(count.into());
        }
    }
}

/// How many requests wait: their status has no answer, and there is no block that is it.
fn waiting(world: &World) -> usize {
    let objects = world.coil();
    let pending = objects.requests.iter().filter(|request| request.outcome() == RequestOutcome::Pending);
    let (by_block, others): (Vec<&BlockRequest>, Vec<_>) =
        pending.partition(|request| request.is_answered_by_block());
    let mut unanswered: HashSet<&str> =
        by_block.iter().filter_map(|request| request.metadata.uid.as_deref()).collect();
    if !unanswered.is_empty() {
        objects
            .blocks
            .iter()
            .filter_map(AddressBlock::request_uid)
            .for_each(|uid| _ = unanswered.remove(uid));
    }
    others.len() + unanswered.len()
}

fn states(numbers: &Numbers, pool: &str, usage: &PoolUsage) {
    let states = [("capacity", &usage.capacity), ("allocated", &usage.allocated), ("free", &usage.free)];
    for (state, value) in states {
        numbers.get_or_create(&labels([("pool", pool), ("state", state)])).set(number(value));
    }
}

/// Parses a count in a status. Metrics are floating-point numbers; large ones lose their last digits.
fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}
