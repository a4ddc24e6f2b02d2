//! Addresses of claims that lie in a range of a pool: the machine of the pod that has the claim has them as aliases.
//!
//! The record of a claim is in a floating `AddressBlock`, and its [slots](tenure_claims::Slots) say which pod has it now, as on every
//! other network. Here is only where its packets arrive. A pod that the record does not name has nothing, whatever the slots say:
//! tenants can write those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::claims::PodRecord;
use tenure_claims::in_block;
use tenure_cloud::Managed;
use tenure_ipam::{Address, Cidr};

use crate::world::World;

/// The addresses of claims, and at which node each is to be.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// What is on record, by block.
    blocks: BTreeMap<Arc<str>, Vec<Held>>,
    /// By `namespace/name` of claims: the blocks with their records.
    of_claims: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// By node: the addresses, and the claims that have them.
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
    /// Where it is to be.
    node: Option<String>,
}

impl Claimed {
    /// The addresses that claims have at a node.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = (&Address, &ClaimId)> {
        self.of_nodes.get(node).into_iter().flatten()
    }

    /// The addresses that claims have of a network, wherever they are.
    pub(super) fn within(&self, cidr: Cidr) -> impl Iterator<Item = Address> {
        let all = self.blocks.values().flatten().map(|held| held.address);
        all.filter(move |address| cidr.contains(*address))
    }

    /// The nodes at which claims have addresses of a network.
    pub(super) fn nodes_within(&self, cidr: Cidr) -> impl Iterator<Item = &String> {
        let all = self.blocks.values().flatten().filter(move |held| cidr.contains(held.address));
        all.filter_map(|held| held.node.as_ref())
    }

    /// Takes in a block, and says which nodes had or have an address of it. `managed` are the ranges of all pools.
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

    /// Takes in a claim, and says which nodes that concerns.
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

/// The node of the pod that has the claim now.
fn node_of(world: &World, held: &Held) -> Option<String> {
    let claim = world.claims().all.get(&held.claim.name).filter(|claim| claim.facts.uid == held.claim.uid)?;
    let active = claim.facts.slots.active.as_ref()?;
    let pod = held.pods.iter().find(|pod| pod.uid == active.uid)?;
    Some(pod.node.clone()).filter(|node| !node.is_empty())
}
