//! Coil's dialect: pools are cut into blocks, and nodes ask for them.

mod carved;
mod create;
mod events;
mod locks;
mod metrics;
mod missing_nodes;
mod perform;
mod pools;
mod release;
mod requests;
mod share;
mod write;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::overlap::{Overlaps, overlaps};
use tenure_handles::Timestamp;

use crate::cache::Cache;
use crate::changes::Changed;
use crate::kind::{Cached, cached_kind};
use crate::part::{Board, Count, Part, Perform, Plan};
use crate::release::{MISSING_NODE_REST, Releases};
use crate::suspicions::Suspicions;
use crate::watch::{Watch, Watches};
use crate::world::World;
use crate::write::Write;
pub(crate) use carved::{Carved, belongs_to};
#[cfg(test)]
pub(crate) use locks::locks;
#[cfg(test)]
pub(crate) use missing_nodes::release as release_block;
pub use write::{Because, BlockWrite};

/// How long a pool has to be missing before a request for it is refused: pools and requests arrive by two watches, so
/// a pool made just before the request may be seen just after it.
const MISSING_POOL: Duration = Duration::from_secs(1);

/// Coil's dialect, as a part of the controller.
#[derive(Clone, Debug)]
pub struct Coil {
    /// How long a node has to be missing, and no pod bound to it, before its blocks are released.
    pub missing_node_rest: Duration,
}

impl Default for Coil {
    fn default() -> Self {
        Self { missing_node_rest: MISSING_NODE_REST }
    }
}

impl Part for Coil {
    fn watch(&self, watches: &mut Watches<'_>) {
        let client = watches.client();
        watches.add::<AddressPool>(Api::all(client.clone()), Watch::default());
        watches.add::<AddressBlock>(Api::all(client.clone()), Watch::default());
        watches.add::<BlockRequest>(Api::all(client.clone()), Watch::default());
        watches.add::<Node>(Api::all(client), Watch::default());
    }

    fn planner(&self) -> Box<dyn Plan> {
        Box::new(CoilPlanner::new(self.missing_node_rest))
    }

    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>) {
        (write::PART, Arc::new(perform::CoilPerformer::new(client.clone())))
    }

    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count> {
        Box::new(metrics::CoilMetrics::registered(registry))
    }
}

/// What of pools can be carved, for parts that carve blocks, too.
#[derive(Debug)]
pub(crate) struct Carving {
    pub(crate) overlaps: Overlaps,
    pub(crate) carved: Carved,
    /// The names of blocks that this plan promises or creates for nodes.
    pub(crate) promised: Vec<String>,
    /// Pools of which other blocks can be carved than at the plan before.
    pub(crate) changed_pools: Changed,
}

/// Plans for pools, blocks and requests.
#[derive(Debug)]
pub(crate) struct CoilPlanner {
    blocks_without_node: Releases,
    requests_without_pool: Suspicions,
    #[cfg(test)]
    pub(crate) planted: Option<crate::plan::Planted>,
}

impl CoilPlanner {
    pub(crate) fn new(missing_node_rest: Duration) -> Self {
        Self {
            blocks_without_node: Releases::resting(missing_node_rest),
            requests_without_pool: Suspicions::lasting(MISSING_POOL),
            #[cfg(test)]
            planted: None,
        }
    }
}

impl Plan for CoilPlanner {
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write> {
        let overlaps = overlaps(world.pools.iter());
        let carved = Carved::of(world);
        #[cfg(test)]
        let carved = if self.planted == Some(crate::plan::Planted::OwnNumbersOnly) {
            carved.by_numbers()
        } else {
            carved
        };
        let mut writes = requests::serve(world, &overlaps, &carved, &mut self.requests_without_pool, now);
        writes.extend(pools::keep(world, &overlaps, &carved, now));
        let released = missing_nodes::release_blocks(world, &mut self.blocks_without_node, now);
        #[cfg(test)]
        let released = crate::plan::plant(self.planted, world, released);
        writes.extend(released);
        writes.extend(locks::unlock(world));
        let promised = writes.iter().filter_map(BlockWrite::block).map(str::to_owned).collect();
        board.put(Carving { overlaps, carved, promised, changed_pools: Changed::All });
        writes.into_iter().map(Write::from).collect()
    }

    fn next_look(&self) -> Option<Timestamp> {
        [self.blocks_without_node.next(), self.requests_without_pool.next()].into_iter().flatten().min()
    }
}

impl Cached for AddressPool {
    type Kept = Self;

    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.pools
    }

    fn kept(self) -> Self {
        self
    }
}

impl Cached for AddressBlock {
    type Kept = Self;

    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.blocks
    }

    fn kept(self) -> Self {
        self
    }
}

impl Cached for BlockRequest {
    type Kept = Self;

    fn cache(world: &mut World) -> &mut Cache<Self> {
        &mut world.requests
    }

    fn kept(self) -> Self {
        self
    }
}

cached_kind!(AddressPool, "AddressPool");
cached_kind!(AddressBlock, "AddressBlock");
cached_kind!(BlockRequest, "BlockRequest");
