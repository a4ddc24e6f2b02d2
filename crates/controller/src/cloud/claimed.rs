//! Addresses of claims inside a pool's range: the machine of the pod that uses the claim gets them as aliases.
//!
//! The record of a claim is in a floating `AddressBlock`, and its [slots](tenure_claims::Slots) tell which pod uses
//! it now, as on every other network. This module only decides where its packets arrive. A pod that the record does
//! not name gets nothing, whatever the slots say, because tenants can write those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::claims::PodRecord;
use tenure_claims::in_block;
use tenure_cloud::Managed;
use tenure_ipam::{Address, Cidr};

use crate::world::World;

/// The addresses of claims, and the node that each should be at.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// The records, by block.
    blocks: BTreeMap<Arc<str>, Vec<Held>>,
    /// By `namespace/name` of claims: the blocks with their records.
    of_claims: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// By node: the addresses, and their claims.
    of_nodes: BTreeMap<String, BTreeMap<Address, ClaimId>>,
}

/// A claim that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimId {
    /// `namespace/name`.
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Debug)]
struct Held {
    address: Address,
    claim: ClaimId,
    pods: Vec<PodRecord>,
    /// The node that it should be at.
    node: Option<String>,
}

impl Claimed {
    /// The addresses of claims at a node.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = (&Address, &ClaimId)> {
        self.of_nodes.get(node).into_iter().flatten()
    }

    /// The addresses of claims in a network, wherever they are.
    pub(super) fn within(&self, cidr: Cidr) -> impl Iterator<Item = Address> {
        let all = self.blocks.values().flatten().map(|held| held.address);
        all.filter(move |address| cidr.contains(*address))
    }

    /// The nodes where claims have addresses of a network.
    pub(super) fn nodes_within(&self, cidr: Cidr) -> impl Iterator<Item = &String> {
        let all = self.blocks.values().flatten().filter(move |held| cidr.contains(held.address));
        all.filter_map(|held| held.node.as_ref())
    }

    /// Reads a block. Returns the nodes that had or have an address of it. `managed` has the ranges of all pools.
    pub(super) fn read_block(
        &mut self,
        world: &World,
        name: &Arc<str>,
        managed: &[Managed],
    ) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        for held in self.blocks.remove(name).unwrap_or_default() {
            nodes.extend(self.remove(&held));
            if let Some(blocks) = self.of_claims.get_mut(&held.claim.name) {
                blocks.remove(name);
                if blocks.is_empty() {
                    self.of_claims.remove(&held.claim.name);
                }
            }
        }
        let mut all = Vec::new();
        for (record, addresses) in world.coil().blocks.get(name).into_iter().flat_map(in_block) {
            let ours = |address: &Address| managed.iter().any(|range| range.cidr.contains(*address));
            let claim =
                ClaimId { name: format!("{}/{}", record.namespace, record.name), uid: record.uid.clone() };
            for address in addresses.into_iter().filter(ours) {
                let mut held = Held { address, claim: claim.clone(), pods: record.pods.clone(), node: None };
                held.node = node_of(world, &held);
                nodes.extend(self.place(&held));
                self.of_claims.entry(claim.name.clone()).or_default().insert(name.clone());
                all.push(held);
            }
        }
        if !all.is_empty() {
            self.blocks.insert(name.clone(), all);
        }
        nodes
    }

    /// Reads a claim. Returns the affected nodes.
    pub(super) fn read_claim(&mut self, world: &World, name: &str, managed: &[Managed]) -> BTreeSet<String> {
        let blocks = self.of_claims.get(name).cloned().unwrap_or_default();
        blocks.iter().flat_map(|block| self.read_block(world, block, managed)).collect()
    }

    fn place(&mut self, held: &Held) -> Option<String> {
        let node = held.node.clone()?;
        self.of_nodes.entry(node.clone()).or_default().insert(held.address, held.claim.clone());
        Some(node)
    }

    fn remove(&mut self, held: &Held) -> Option<String> {
        let node = held.node.clone()?;
        let addresses = self.of_nodes.get_mut(&node)?;
        addresses.remove(&held.address);
        if addresses.is_empty() {
            self.of_nodes.remove(&node);
        }
        Some(node)
    }
}

/// The node of the pod that uses the claim now.
fn node_of(world: &World, held: &Held) -> Option<String> {
    let claim = world.claims().all.get(&held.claim.name).filter(|claim| claim.facts.uid == held.claim.uid)?;
    let active = claim.facts.slots.active.as_ref()?;
    let pod = held.pods.iter().find(|pod| pod.uid == active.uid)?;
    Some(pod.node.clone()).filter(|node| !node.is_empty())
}
