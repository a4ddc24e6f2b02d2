//! Indexes that lead from a change to exactly the affected policies and pools.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tenure_api::nmstate::Applied;
use tenure_ipam::Address;

use super::known::{EnactmentFacts, NodeAddresses, PoolFacts, bare};
use super::planner::{Touched, View};
use crate::cache::Known;
use crate::index::Index;

/// What is needed of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ready: bool,
    pub(super) addresses: BTreeSet<Address>,
}

impl NodeFacts {
    fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|it| it.conditions.iter().flatten());
        let addresses = status.into_iter().flat_map(|it| it.addresses.iter().flatten());
        Self {
            uid: node.uid().unwrap_or_default(),
            labels: node.labels().clone(),
            // A node without a reported state is given a chance.
            ready: conditions.all(|it| it.type_ != "Ready" || it.status == "True"),
            addresses: addresses.filter_map(|it| it.address.parse().ok()).collect(),
        }
    }
}

/// What an enactment means to pools. While that is unchanged, pools ignore other changes of the enactment.
#[derive(Clone, Debug, PartialEq)]
struct Share {
    uid: String,
    policy: Option<String>,
    deleting: bool,
    reset: Option<String>,
    addresses: BTreeMap<String, Vec<String>>,
    applied: Option<Applied>,
}

/// Indexes that lead from a change to the affected policies and pools.
#[derive(Debug, Default)]
pub(super) struct Belongs {
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    shares: BTreeMap<String, Share>,
    pub(super) enactments_to_policies: Index,
    pub(super) enactments_to_pools: Index,
    enactments_to_nodes: Index,
    pub(super) enactments_by_uid: BTreeMap<String, String>,
    /// By `pool address`: the enactments that have it.
    enactments_to_addresses: Index,
    /// By address: the nodes (`node/`) and enactments (`nnce/`) that report it on an interface.
    reports: Index,
    pub(super) policies_to_pools: Index,
}

impl Belongs {
    /// Reads a node. Affected: policies that select or selected it, and pools with its addresses.
    pub(super) fn read_node(&mut self, view: View<'_>, name: &str, touched: &mut Touched) {
        let known = view.known;
        let after = view.nodes.get(name).map(NodeFacts::of);
        let before = self.nodes.get(name);
        if before == after.as_ref() {
            return;
        }
        let either = || before.into_iter().chain(after.as_ref());
        for policy in known.policies.iter() {
            if either().any(|node| policy.facts.selects(&node.labels)) {
                touched.policies.insert(policy.key());
            }
        }
        let enactments: Vec<String> = self.enactments_to_nodes.members(name).cloned().collect();
        touched
            .policies
            .extend(enactments.iter().flat_map(|it| self.enactments_to_policies.owners(it)).cloned());
        // What these want of their pools depends on the node.
        touched.pools.extend(enactments.iter().flat_map(|it| self.enactments_to_pools.owners(it)).cloned());
        let addresses: BTreeSet<Address> = either().flat_map(|node| &node.addresses).copied().collect();
        touch_pools_of(known, &addresses, touched);
        let reported = after.iter().flat_map(|node| &node.addresses).map(ToString::to_string);
        self.reports.set(&format!("node/{name}"), reported);
        match after {
            Some(after) => _ = self.nodes.insert(name.to_owned(), after),
            None => _ = self.nodes.remove(name),
        }
    }

    /// Reads a policy. Affected: its pools before and now.
    pub(super) fn read_policy(&mut self, known: &NodeAddresses, key: &str, touched: &mut Touched) {
        touched.policies.insert(key.to_owned());
        touched.pools.extend(self.policies_to_pools.owners(key).cloned());
        let facts = known.policies.get(key).map(|it| &it.facts);
        self.policies_to_pools.set(key, facts.into_iter().flat_map(|it| it.pools.keys().cloned()));
        touched.pools.extend(self.policies_to_pools.owners(key).cloned());
        let enactments: Vec<String> = self.enactments_to_policies.members(key).cloned().collect();
        for enactment in &enactments {
            self.set_pools(known, enactment);
        }
    }

    /// Reads an enactment.
    pub(super) fn read_enactment(&mut self, known: &NodeAddresses, key: &str, touched: &mut Touched) {
        let facts = known.enactments.get(key).map(|it| &it.facts);
        touched.policies.extend(self.enactments_to_policies.owners(key).cloned());
        self.enactments_to_policies.set(key, facts.and_then(|it| it.policy.clone()));
        touched.policies.extend(self.enactments_to_policies.owners(key).cloned());
        self.enactments_to_nodes.set(key, facts.map(|it| it.node.clone()));
        let share = facts.map(|it| Share {
            uid: it.at.uid.clone(),
            policy: it.policy.clone(),
            deleting: it.deleting,
            reset: it.reset.clone(),
            addresses: it.addresses.clone(),
            applied: it.applied.clone().map(|it| Applied { policy_generation: None, mode: None, ..it }),
        });
        let before = self.shares.get(key).cloned();
        if before == share {
            return;
        }
        let uids = |share: &Option<Share>| share.as_ref().map(|it| it.uid.clone());
        if let Some(gone) = uids(&before).filter(|gone| uids(&share).as_ref() != Some(gone)) {
            self.enactments_by_uid.remove(&gone);
        }
        self.enactments_by_uid.extend(uids(&share).map(|uid| (uid, key.to_owned())));
        touched.pools.extend(self.enactments_to_pools.owners(key).cloned());
        self.set_pools(known, key);
        touched.pools.extend(self.enactments_to_pools.owners(key).cloned());
        let held = facts.into_iter().flat_map(|it| &it.addresses);
        let held = held.flat_map(|(pool, all)| all.iter().map(move |it| format!("{pool} {it}")));
        self.enactments_to_addresses.set(key, held);
        let found = |share: &Option<Share>| -> BTreeSet<Address> {
            let applied = share.iter().filter_map(|it| it.applied.as_ref());
            applied.flat_map(|it| &it.addresses).filter_map(|it| bare(&it.address)).collect()
        };
        // Another pool may have the same addresses.
        let named = |share: &Option<Share>| -> BTreeSet<Address> {
            let share =
                share.iter().filter(|it| !it.deleting || it.applied.as_ref().is_none_or(|it| !it.released));
            share.flat_map(|it| it.addresses.values().flatten()).filter_map(|it| it.parse().ok()).collect()
        };
        let (was, is) = (found(&before), found(&share));
        let (was_named, is_named) = (named(&before), named(&share));
        let changed = was.symmetric_difference(&is).chain(was_named.symmetric_difference(&is_named));
        let changed = changed.copied().collect();
        touch_pools_of(known, &changed, touched);
        self.reports.set(&format!("nnce/{key}"), is.iter().map(ToString::to_string));
        match share {
            Some(share) => _ = self.shares.insert(key.to_owned(), share),
            None => _ = self.shares.remove(key),
        }
    }

    /// The pools of an enactment: those it has addresses of, and those its policy takes from.
    fn set_pools(&mut self, known: &NodeAddresses, key: &str) {
        let facts = known.enactments.get(key).map(|it| &it.facts);
        let policy = facts.and_then(|it| known.policies.get(it.policy.as_deref()?)).map(|it| &it.facts);
        let wanted = policy.into_iter().flat_map(|it| it.pools.keys());
        let held = facts.into_iter().flat_map(|it| it.addresses.keys());
        let pools: Vec<String> = wanted.chain(held).filter(|_| facts.is_some()).cloned().collect();
        self.enactments_to_pools.set(key, pools);
    }

    /// How many addresses of a pool the policy of an enactment asks for, and how many of these the enactment can
    /// have: none while another pool of the policy assigns nothing, because then they would be useless.
    pub(super) fn asks_and_wants(
        &self,
        known: &NodeAddresses,
        facts: &EnactmentFacts,
        pool: &str,
    ) -> (usize, usize) {
        let asks = self.asks(known, facts, pool);
        let policy = facts.policy.as_deref().and_then(|policy| known.policies.get(policy));
        let mut others = policy.into_iter().flat_map(|it| it.facts.pools.keys()).filter(|it| *it != pool);
        let gives = |other: &String| known.pools.get(other).is_some_and(|it| it.facts.gives());
        (asks, if others.all(gives) { asks } else { 0 })
    }

    fn asks(&self, known: &NodeAddresses, facts: &EnactmentFacts, pool: &str) -> usize {
        let policy = facts.policy.as_deref().and_then(|policy| known.policies.get(policy));
        let policy = policy.filter(|it| it.facts.object.metadata.deletion_timestamp.is_none());
        // A node that is gone, or not selected any more, is about to lose its enactment.
        let selected = self.nodes.get(&facts.node).filter(|node| node.uid == facts.node_uid);
        policy
            .filter(|it| selected.is_some_and(|node| it.facts.selects(&node.labels)))
            .and_then(|it| it.facts.pools.get(pool))
            .copied()
            .unwrap_or_default()
    }

    /// The addresses of a pool that are on interfaces, as nodes and enactments report, with node and interface.
    pub(super) fn reported<'a>(
        &'a self,
        known: &'a NodeAddresses,
        pool: &PoolFacts,
    ) -> Vec<(Address, &'a str, &'a str)> {
        let Ok(range) = &pool.range else { return Vec::new() };
        let mut reported = Vec::new();
        for (address, reporters) in self.reports.all() {
            let Ok(address) = address.parse::<Address>() else { continue };
            if range.offset(address).is_err() {
                continue;
            }
            for reporter in reporters {
                let by = match reporter.split_once('/') {
                    Some(("node", node)) => Some((node, "")),
                    Some((_, key)) => known.enactments.get(key).map(|it| {
                        (it.facts.node.as_str(), it.facts.interface_of(address).unwrap_or_default())
                    }),
                    None => None,
                };
                reported.extend(by.map(|(node, interface)| (address, node, interface)));
            }
        }
        reported
    }

    /// The addresses of a pool that nodes have, or will get, from other pools.
    pub(super) fn elsewhere(&self, known: &NodeAddresses, name: &str, pool: &PoolFacts) -> Vec<Address> {
        let Ok(range) = &pool.range else { return Vec::new() };
        let is_inside = |address: &Address| range.offset(*address).is_ok();
        let mut found = Vec::new();
        for (place, holders) in self.enactments_to_addresses.all() {
            let Some((_, address)) = place.split_once(' ').filter(|(other, _)| *other != name) else {
                continue;
            };
            let Some(address) = address.parse().ok().filter(is_inside) else { continue };
            let mut holders = holders.iter().filter_map(|key| known.enactments.get(key));
            found.extend(holders.any(|it| !it.facts.is_released()).then_some(address));
        }
        for other in known.pools.iter().map(|it| &it.facts).filter(|it| it.object.name_any() != name) {
            let Ok(theirs) = &other.range else { continue };
            if range.overlaps(theirs.first(), theirs.last())
                && let Some(status) = &other.object.status
            {
                let taken = theirs.decode(status).offsets;
                found.extend(taken.iter().filter_map(|it| theirs.address(*it).ok()).filter(is_inside));
            }
        }
        found
    }

    /// Whether no pool has a record of an address of this enactment, unless it is another's by now.
    pub(super) fn is_freed(
        &self,
        known: &NodeAddresses,
        records: &RefCell<BTreeMap<String, BTreeSet<u128>>>,
        facts: &EnactmentFacts,
    ) -> bool {
        facts.addresses.keys().all(|name| {
            let Some(pool) = known.pools.get(name).map(|it| &it.facts) else { return true };
            let Ok(range) = &pool.range else { return true };
            let mut records = records.borrow_mut();
            let taken = records.entry(name.clone()).or_insert_with(|| {
                pool.object.status.as_ref().map(|status| range.decode(status).offsets).unwrap_or_default()
            });
            facts.addresses_of(name).all(|address| {
                let on_record = range.offset(address).is_ok_and(|offset| taken.contains(&offset));
                let holder = format!("{name} {address}");
                let others = self.enactments_to_addresses.members(&holder);
                let another = others.filter(|key| **key != facts.at.name);
                let another =
                    another.filter_map(|key| known.enactments.get(key)).any(|it| !it.facts.is_released());
                let promised = pool.object.status.iter().flat_map(|it| &it.promised);
                let promised = promised
                    .filter(|it| it.uid != facts.at.uid)
                    .any(|it| range.offset(address).ok() == u128::try_from(it.offset).ok());
                let kept = pool.object.status.iter().flat_map(|it| &it.kept);
                let kept = kept
                    .filter(|it| it.enactment == facts.at.name)
                    .any(|it| range.offset(address).ok() == u128::try_from(it.offset).ok());
                !on_record || another || promised || kept
            })
        })
    }
}

/// Pools that have one of these addresses.
fn touch_pools_of(known: &NodeAddresses, addresses: &BTreeSet<Address>, touched: &mut Touched) {
    if addresses.is_empty() {
        return;
    }
    let has = |pool: &PoolFacts| {
        let range = pool.range.as_ref().ok();
        range.is_some_and(|range| addresses.iter().any(|address| range.offset(*address).is_ok()))
    };
    touched.pools.extend(known.pools.iter().filter(|it| has(&it.facts)).map(Known::key));
}
