//! Which slices are this node's.
//!
//! The node learns of a withdrawn slice at once, in the order of the events. It learns of a new one after
//! everything that it needs was read, or not at all if the slice was withdrawn meanwhile.

use std::sync::Arc;

use tenure_api::whereabouts::NodeSlicePool;
use tenure_ipam::{Address, Cidr};
use tenure_watch::{Change, Heard};
use tenure_whereabouts::ledger::PoolId;
use tenure_whereabouts::slices::{network_of, slice_of};

use super::{Shared, pool_of};
use crate::node::Event;
use crate::objects::lock;

/// What is kept of a `NodeSlicePool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenPool {
    pub(super) network: String,
    /// What is cut.
    pub(super) whole: Option<Cidr>,
    /// This node's slice, or why there is none.
    pub(super) slice: Result<Cidr, String>,
}

/// A slice that the node was told of.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The UID of the node's block.
    pub(super) block: String,
    pub(super) id: PoolId,
    /// The name of its `IPPool`.
    pub(super) object: String,
    /// What is cut.
    pub(super) whole: Option<Cidr>,
    /// Addresses that the whole range's records keep back.
    pub(super) kept_back: Vec<Address>,
    /// The `IPPool`s that do.
    pub(super) around: Vec<String>,
    /// Whether what is cut is another range than when they were read.
    pub(super) grown: bool,
    /// The `NodeSlicePool` that it is of.
    pub(super) pool_uid: String,
    /// Whether somebody takes this node for gone, and means to release its object or has.
    pub(super) marked: bool,
}

impl SeenPool {
    pub(super) fn of(pool: &NodeSlicePool, node: &str) -> Self {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let network = network_of(pool);
        let slice =
            slice_of(&name, Some(pool), node).map_err(|refusal| refusal.to_string()).and_then(|cidr| {
                let named = PoolId::of_node(&network, node, cidr).name();
                named.map(|_| cidr).map_err(|error| error.to_string())
            });
        Self { network, whole: pool.spec.range.parse().ok(), slice }
    }
}

impl Shared {
    pub(super) fn hear_pool(self: &Arc<Self>, heard: Heard<SeenPool>) {
        // Told under the lock: what is told in another order than it was heard would be wrong.
        let mut state = lock(&self.state);
        for change in state.pools.hear(heard) {
            let (name, seen) = match change {
                Change::Seen { key, uid, value } => (key, Some((uid, value))),
                Change::Gone { key, .. } => (key, None),
            };
            let same = |taken: &super::Taken| {
                seen.as_ref().is_some_and(|(uid, pool)| {
                    taken.pool_uid == *uid
                        && pool.slice == Ok(taken.id.range)
                        && pool.network == taken.id.network
                })
            };
            if let Some(taken) = state.taken.get_mut(&name).filter(|taken| same(taken)) {
                if let Some((_, pool)) = &seen {
                    taken.grown |= taken.whole != pool.whole;
                    taken.whole = pool.whole;
                }
                continue;
            }
            state.aside.remove(&name);
            if let Some(taken) = state.taken.remove(&name) {
                tracing::info!(pool = name, slice = %taken.id.range, "a slice is not this node's any more");
                self.node.tell(Event::BlockGone { name: taken.object, uid: taken.block });
                self.node.tell(Event::PoolGone { name: pool_of(&name) });
                self.dirty.notify_one();
            }
            if let Some((uid, pool)) = seen
                && pool.slice.is_ok()
            {
                self.spawn(Arc::clone(self).take(name, uid, pool));
            }
        }
        drop(state);
        self.changed.send_modify(|version| *version += 1);
        self.tell_if_all_read();
    }

    /// Whether the pool is still as it was seen.
    pub(super) fn is_current(&self, name: &str, uid: &str, pool: &SeenPool) -> bool {
        let state = lock(&self.state);
        state.pools.uid(name) == Some(uid) && state.pools.facts(name) == Some(pool)
    }
}
