//! Coil's dialect: pools are divided into blocks, and nodes request them.

mod addresses;
mod carved;
mod create;
mod events;
mod facts;
mod index;
mod known;
mod locks;
mod metrics;
mod missing_nodes;
mod pending;
mod perform;
mod pools;
mod release;
mod requests;
mod share;
mod subnets;
mod write;

use std::collections::BTreeSet;
use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};
use prometheus_client::registry::Registry;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, split_block_name};
use tenure_api::overlap::Overlaps;
use tenure_handles::Timestamp;

use crate::changes::Changed;
use crate::kind::{cached_in, cached_kind};
use crate::part::{Board, Count, Part, Perform, Plan};
use crate::release::MISSING_NODE_REST;
use crate::suspicions::Suspicions;
use crate::watch::{Watch, Watches};
use crate::world::World;
use crate::write::Write;
pub(crate) use carved::{Carved, belongs_to};
use index::Index;
pub use known::CoilObjects;
#[cfg(test)]
pub(crate) use locks::locks;
use missing_nodes::MissingNodes;
#[cfg(test)]
pub(crate) use missing_nodes::release as release_block;
use pending::Pending;
pub use write::{Because, BlockWrite};

/// How long a pool has to be missing before a request for it is refused. Pools and requests come from two watches, so
/// a pool created just before the request may be seen just after it.
const MISSING_POOL: Duration = Duration::from_secs(1);

/// Coil's dialect, as a part of the controller.
#[derive(Clone, Debug)]
pub struct Coil {
    /// How long a node has to be missing, without a pod bound to it, before its blocks are released.
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

/// What can be carved from pools, for other parts that carve blocks.
#[derive(Debug)]
pub(crate) struct Carving {
    pub(crate) overlaps: Arc<Overlaps>,
    pub(crate) carved: Arc<Carved>,
    /// Names of blocks that this plan creates for nodes.
    pub(crate) promised: Vec<String>,
    /// Pools from which other blocks can be carved than at the last plan.
    pub(crate) changed_pools: Changed,
}

/// Plans pools, blocks and requests.
///
/// Every plan looks at all waiting requests: they are served in order, and a block created for one is not available
/// to the next. Pools and blocks are looked at when something relevant has changed, and until they need no write.
#[derive(Debug)]
pub(crate) struct CoilPlanner {
    index: Index,
    pending: Pending,
    missing_nodes: MissingNodes,
    requests_without_pool: Suspicions,
    /// Names of blocks that the last plan created for nodes.
    promised: BTreeSet<String>,
    /// When the last plan was made.
    planned: Timestamp,
    #[cfg(test)]
    pub(crate) planted: Option<crate::plan::Planted>,
    /// How many objects the last plan read.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

impl CoilPlanner {
    pub(crate) fn new(missing_node_rest: Duration) -> Self {
        Self {
            index: Index::default(),
            pending: Pending::default(),
            missing_nodes: MissingNodes::resting(missing_node_rest),
            requests_without_pool: Suspicions::lasting(MISSING_POOL),
            promised: BTreeSet::new(),
            planned: Timestamp::default(),
            #[cfg(test)]
            planted: None,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Puts what can be carved on the board; `changed` are pools whose used blocks changed.
    fn tell(&mut self, board: &mut Board, writes: &[BlockWrite], changed: Option<BTreeSet<Arc<str>>>) {
        let promised: Vec<String> =
            writes.iter().filter_map(BlockWrite::block).map(ResourceExt::name_any).collect();
        let before = std::mem::replace(&mut self.promised, promised.iter().cloned().collect());
        let changed_pools = changed.map_or(Changed::All, |mut pools| {
            let different = before.symmetric_difference(&self.promised);
            pools.extend(different.filter_map(|block| Some(split_block_name(block)?.0.into())));
            Changed::Keys(pools)
        });
        let (overlaps, carved) = (Arc::clone(&self.index.overlaps), Arc::clone(&self.index.carved));
        board.put(Carving { overlaps, carved, promised, changed_pools });
    }
}

impl Plan for CoilPlanner {
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write> {
        if now < self.planned {
            // What was due may not be due any more.
            self.look_at_all();
        }
        self.planned = now;
        let updated = self.index.update(world, &mut self.pending);
        let changed = self.index.carved().take_changed();
        #[cfg(test)]
        if self.planted == Some(crate::plan::Planted::OwnNumbersOnly) {
            self.index.carved().forget_others();
        }
        let due = self.missing_nodes.look_again(updated.all, now);
        let Self { index, pending, missing_nodes, .. } = self;
        pending.pools.0.extend(changed.iter().cloned());
        pending.blocks.0.extend(due.map(Arc::from));
        #[cfg(test)]
        {
            self.looked_at = updated.objects + index.waiting().len() + pending.len();
        }
        let mut writes = requests::serve(world, index, &mut self.requests_without_pool, now);
        writes.extend(pending.pools.look(|name| pools::keep(world, index, name, now)));
        let released = pending.blocks.look(|name| missing_nodes.look_at(world, name, now));
        #[cfg(test)]
        let released = crate::plan::plant(self.planted, world, released);
        writes.extend(released);
        writes.extend(pending.locks.look(|name| locks::unlock(world, index, name)));
        self.tell(board, &writes, (!updated.all).then_some(changed));
        writes.into_iter().map(Write::from).collect()
    }

    fn is_ready(&self, world: &World) -> bool {
        world.coil().is_complete()
    }

    fn look_at_all(&mut self) {
        self.index = Index::default();
    }

    fn next_look(&self) -> Option<Timestamp> {
        [self.missing_nodes.next(), self.requests_without_pool.next()].into_iter().flatten().min()
    }
}

cached_in!(AddressPool, Self, coil_mut.pools, identity);
cached_in!(AddressBlock, Self, coil_mut.blocks, identity);
cached_in!(BlockRequest, Self, coil_mut.requests, identity);
cached_kind!(AddressPool, "AddressPool");
cached_kind!(AddressBlock, "AddressBlock");
cached_kind!(BlockRequest, "BlockRequest");

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
