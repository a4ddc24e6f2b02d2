//! How many blocks of a pool one node may have, so that a node that asks without end does not take them all from the others.
//!
//! A node needs an address for each interface of each pod, and some that cool. What it may have at most is far above that, and
//! still a small part of a pool that serves many nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tenure_api::coil::{BlockRequest, block_name};

use super::carved::Change;
use super::requests::promise_of;
use crate::world::World;

/// So many addresses of one pool are for each pod that a node may run.
const ADDRESSES_FOR_A_POD: u128 = 16;
/// What a node may run if its object does not say: more than twice what a kubelet does by itself.
const PODS: u128 = 256;
/// So many blocks a node may have in any case.
const LEAST: u128 = 4;

/// How many blocks each node has, by pool and node.
#[derive(Debug, Default)]
pub(super) struct Shares {
    counts: HashMap<Arc<str>, HashMap<Arc<str>, usize>>,
}

/// The same with the blocks that were promised, by pool and node.
#[derive(Debug)]
pub(super) struct PromisedShares<'a> {
    of_blocks: &'a Shares,
    promised: BTreeMap<(&'a str, &'a str), usize>,
}

impl Shares {
    /// A node has a block more, or less.
    pub(super) fn change(&mut self, pool: &Arc<str>, node: &Arc<str>, change: Change) {
        let nodes = self.counts.entry(Arc::clone(pool)).or_default();
        let count = nodes.entry(Arc::clone(node)).or_default();
        change.count(count);
        if *count == 0 {
            nodes.remove(node);
        }
    }

    /// With what `waiting` requests were promised and does not exist yet.
    pub(super) fn with_promises<'a>(
        &'a self,
        world: &World,
        waiting: impl Iterator<Item = &'a BlockRequest>,
    ) -> PromisedShares<'a> {
        let mut shares = PromisedShares { of_blocks: self, promised: BTreeMap::new() };
        for request in waiting {
            if let Some((pool, index)) = promise_of(request)
                && world.coil().blocks.get(&block_name(pool, index)).is_none()
            {
                shares.add(pool, &request.spec.node_name);
            }
        }
        shares
    }
}

impl<'a> PromisedShares<'a> {
    /// One more is promised.
    pub(super) fn add(&mut self, pool: &'a str, node: &'a str) {
        *self.promised.entry((pool, node)).or_default() += 1;
    }

    /// How many the node has, if it may not have more. `size` is the number of addresses in a block of this pool.
    pub(super) fn is_full(&self, world: &World, pool: &str, node: &str, size: u128) -> Option<usize> {
        let there = self.of_blocks.counts.get(pool).and_then(|nodes| nodes.get(node));
        let promised = self.promised.get(&(pool, node));
        let count = there.into_iter().chain(promised).sum();
        (count as u128 >= most(world.nodes().get(node), size)).then_some(count)
    }
}

/// How many blocks of this many addresses a node may have.
fn most(node: Option<&Node>, size: u128) -> u128 {
    let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref()?.get("pods"));
    let pods = allocatable.and_then(|pods| pods.0.parse().ok()).unwrap_or(PODS);
    pods.saturating_mul(ADDRESSES_FOR_A_POD).div_ceil(size.max(1)).max(LEAST)
}
