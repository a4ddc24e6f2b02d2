//! How many blocks of a pool one node may have, so that a node that keeps asking does not take them all.
//!
//! A node needs an address for each interface of each pod, and some that cool. The limit is far above that, and still
//! a small part of a pool that serves many nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::carved::Change;
use crate::world::World;

/// Addresses of one pool for each pod that a node may run.
const ADDRESSES_FOR_A_POD: u128 = 16;
/// How many pods a node may run if its object does not say: more than twice the kubelet's default.
const PODS: u128 = 256;
/// How many blocks a node may always have.
const LEAST: u128 = 4;

/// How many blocks each node has, by pool and node.
#[derive(Debug, Default)]
pub(super) struct Shares {
    counts: HashMap<Arc<str>, HashMap<Arc<str>, usize>>,
}

/// The same including blocks that are about to exist.
#[derive(Debug)]
pub(super) struct GrowingShares<'a> {
    of_blocks: &'a Shares,
    coming: BTreeMap<(&'a str, &'a str), usize>,
}

impl Shares {
    /// A node has a block more or less.
    pub(super) fn change(&mut self, pool: &Arc<str>, node: &Arc<str>, change: Change) {
        let nodes = self.counts.entry(Arc::clone(pool)).or_default();
        let count = nodes.entry(Arc::clone(node)).or_default();
        change.count(count);
        if *count == 0 {
            nodes.remove(node);
        }
    }

    /// The same, to which blocks can be added.
    pub(super) fn growing(&self) -> GrowingShares<'_> {
        GrowingShares { of_blocks: self, coming: BTreeMap::new() }
    }
}

impl<'a> GrowingShares<'a> {
    /// One more is about to exist.
    pub(super) fn add(&mut self, pool: &'a str, node: &'a str) {
        *self.coming.entry((pool, node)).or_default() += 1;
    }

    /// How many the node has, if it may not have more. `size` is the number of addresses in a block of this pool.
    pub(super) fn is_full(&self, world: &World, pool: &str, node: &str, size: u128) -> Option<usize> {
        let there = self.of_blocks.counts.get(pool).and_then(|nodes| nodes.get(node));
        let coming = self.coming.get(&(pool, node));
        let count = there.into_iter().chain(coming).sum();
        (count as u128 >= most(world.nodes().get(node), size)).then_some(count)
    }
}

/// How many blocks of this size a node may have.
fn most(node: Option<&Node>, size: u128) -> u128 {
    let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref()?.get("pods"));
    let pods = allocatable.and_then(|pods| pods.0.parse().ok()).unwrap_or(PODS);
    pods.saturating_mul(ADDRESSES_FOR_A_POD).div_ceil(size.max(1)).max(LEAST)
}
