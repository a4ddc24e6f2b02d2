//! Compares pools of node addresses, enactments, what nodes say there is on their interfaces, and what their agents see there now.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use kube::ResourceExt;
use tenure_api::nmstate::{NodeCondition, NodeNetworkConfigurationEnactment};

use super::Findings;
use crate::node_pools::NodePools;
use crate::snapshot::Snapshot;

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    let known = &snapshot.node_pools;
    for ((pool, address), all) in known.holders().into_iter().filter(|(_, all)| all.len() > 1) {
        let who: Vec<String> =
            all.iter().map(|it| format!("node {} (policy {})", it.node, it.policy)).collect();
        findings.differ(
            "node-address-twice",
            format!("NodeIPPool {pool}"),
            format!("{address} is held by {}", who.join(" and by ")),
            format!(
                "annotate the NodeNetworkConfigurationEnactment of one with nmstate.io/reset-ippool: {pool}"
            ),
        );
    }
    for (pool, range) in known.ranges() {
        let (name, subject) = (pool.name_any(), format!("NodeIPPool {}", pool.name_any()));
        let status = pool.status.clone().unwrap_or_default();
        let record = range.decode(&status);
        for error in &record.refused {
            findings.differ(
                "node-pool-record",
                &subject,
                format!("its record cannot be read: {error}"),
                "annotate it with nmstate.io/reset-ippool: the controller rebuilds the record",
            );
        }
        let held = known.held().filter(|it| it.pool == name);
        let held: BTreeSet<u128> = held.filter_map(|it| range.offset(it.address).ok()).collect();
        let promised =
            status.promised.iter().map(|it| it.offset).chain(status.kept.iter().map(|it| it.offset));
        let promised = promised.filter_map(|it| u128::try_from(it).ok());
        let promised: BTreeSet<u128> = promised.collect();
        for offset in record.offsets.iter().filter(|it| !held.contains(it) && !promised.contains(it)) {
            let address = range.address(*offset).map(|it| it.to_string()).unwrap_or_default();
            findings.differ(
                "node-address-stale",
                &subject,
                format!("offset {offset} ({address}) is taken, and no enactment has it"),
                "the controller frees it at its second look; if it does not, see whether it leads",
            );
        }
    }
    for held in known.held().filter(|held| !held.released) {
        let pool = known.ranges().find(|(pool, _)| pool.name_any() == held.pool);
        let subject = format!("{} {}", held.kind, held.enactment);
        let Some((pool, range)) = pool else {
            findings.differ(
                "node-pool-missing",
                subject,
                format!("{} is of NodeIPPool {}, which does not exist", held.address, held.pool),
                "make the pool again: the node keeps its address if it fits",
            );
            continue;
        };
        let taken = range.decode(&pool.status.clone().unwrap_or_default()).offsets;
        if !range.offset(held.address).is_ok_and(|offset| taken.contains(&offset)) {
            findings.differ(
                "node-address-unrecorded",
                subject,
                format!(
                    "{} is not taken in NodeIPPool {}: another node could get it",
                    held.address, held.pool
                ),
                "the controller takes it again; if it does not, see whether it leads",
            );
        }
    }
    applied(known, findings);
    live(snapshot, findings);
}

/// Compares what enactments say with what agents see on interfaces.
fn live(snapshot: &Snapshot, findings: &mut Findings) {
    let known = &snapshot.node_pools;
    let told = snapshot.agents.iter().filter_map(|(name, told)| Some((name, told.as_ref().ok()?)));
    for (name, policy) in told.flat_map(|(name, node)| node.node_addresses.iter().map(move |it| (name, it))) {
        let subject = format!("node {name}: policy {}", policy.policy);
        if let Some(problem) = &policy.problem {
            let remedy = "see docs/node-addresses.md; the agent tries again by itself where that can help";
            findings.differ("node-address-problem", &subject, problem, remedy);
        }
        let of = |it: &&NodeNetworkConfigurationEnactment| {
            it.node() == Some(name.as_str()) && it.policy() == Some(policy.policy.as_str())
        };
        let enactment = known.enactments.iter().find(of);
        let said = enactment.and_then(|it| it.status.as_ref()?.applied.as_ref());
        let said: BTreeSet<(&str, &str)> = said
            .iter()
            .flat_map(|it| &it.addresses)
            .map(|it| (it.interface.as_str(), it.address.as_str()))
            .collect();
        let seen: Vec<(&str, String)> =
            policy.addresses.iter().map(|it| (it.interface.as_str(), it.address.to_string())).collect();
        let seen: BTreeSet<(&str, &str)> = seen.iter().map(|(on, it)| (*on, it.as_str())).collect();
        let words = |all: &[&(&str, &str)]| {
            let all: Vec<String> = all.iter().map(|(on, it)| format!("{it} on {on}")).collect();
            all.join(", ")
        };
        let unsaid: Vec<_> = seen.difference(&said).collect();
        if !unsaid.is_empty() {
            let problem = format!("the agent sees {}, and no enactment says so", words(&unsaid));
            let remedy =
                "the agent reports it, or takes it off if the enactment is gone; see its log if it stays";
            findings.differ("node-address-unreported", &subject, problem, remedy);
        }
        let unseen: Vec<_> = said.difference(&seen).collect();
        if !unseen.is_empty() {
            let problem = format!("the enactment says {}, and the agent does not see that", words(&unseen));
            let remedy = "the agent puts it back, or says why not; see its log if it stays";
            findings.differ("node-address-not-there", &subject, problem, remedy);
        }
    }
}

/// Compares the addresses that enactments name with those that nodes have found.
fn applied(known: &NodePools, findings: &mut Findings) {
    for enactment in &known.enactments {
        let Some(status) = &enactment.status else { continue };
        let Some(applied) = status.applied.as_ref().filter(|it| {
            !it.released && it.policy_generation.is_some() && it.policy_generation == status.policy_generation
        }) else {
            continue;
        };
        let available = enactment.condition("Available").is_some_and(NodeCondition::is_true);
        let own = status.ippool.values().flat_map(|it| &it.allocated);
        let missing: Vec<&String> = own
            .filter(|own| !applied.addresses.iter().any(|it| it.address.split('/').next() == Some(own)))
            .collect();
        if available && !missing.is_empty() {
            findings.differ(
                "node-address-not-applied",
                format!("NodeNetworkConfigurationEnactment {}", enactment.name_any()),
                format!("the node has not found {missing:?} on its interfaces"),
                "see the log of the node's agent, and whether the desired state uses each capture",
            );
        }
    }
}
