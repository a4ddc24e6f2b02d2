//! How many blocks of a pool one node may have, so that a node that asks without end does not take them all from the others.
//!
//! A node needs an address for each interface of each pod, and some that cool. What it may have at most is far above that, and
//! still a small part of a pool that serves many nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::requests::promise_of;
use crate::world::World;

/// So many addresses of one pool are for each pod that a node may run.
const ADDRESSES_FOR_A_POD: u128 = 16;
/// What a node may run if its object does not say: more than twice what a kubelet does by itself.
const PODS: u128 = 256;
/// So many blocks a node may have in any case.
const LEAST: u128 = 4;

/// The blocks that each node has, or was promised, of each pool.
#[derive(Debug, Default)]
pub(super) struct Shares<'a> {
    counts: BTreeMap<(&'a str, &'a str), u128>,
}

impl<'a> Shares<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        let mut shares = Self::default();
        for block in world.blocks.iter() {
            if let (Some(pool), Some(node)) = (block.pool(), block.node()) {
                shares.add(pool, node);
            }
        }
        for request in world.requests.iter() {
            if let Some((pool, index)) = promise_of(request)
                && world.blocks.get(&tenure_api::coil::block_name(pool, index)).is_none()
            {
                shares.add(pool, &request.spec.node_name);
            }
        }
        shares
    }

    /// One more is promised.
    pub(super) fn add(&mut self, pool: &'a str, node: &'a str) {
        *self.counts.entry((pool, node)).or_default() += 1;
    }

    /// How many the node has, if it may not have more. `size` is the number of addresses in a block of this pool.
    pub(super) fn is_full(&self, world: &World, pool: &str, node: &str, size: u128) -> Option<u128> {
        let count = self.counts.get(&(pool, node)).copied().unwrap_or_default();
        (count >= most(world.nodes().get(node), size)).then_some(count)
    }
}

/// How many blocks of this many addresses a node may have.
fn most(node: Option<&Node>, size: u128) -> u128 {
    let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref()?.get("pods"));
    let pods = allocatable.and_then(|pods| pods.0.parse().ok()).unwrap_or(PODS);
    pods.saturating_mul(ADDRESSES_FOR_A_POD).div_ceil(size.max(1)).max(LEAST)
}
