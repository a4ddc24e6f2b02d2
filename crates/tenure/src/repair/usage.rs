//! What shows that an address is in use, from everything that was read. Whoever could not be asked may know of a use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::ResourceExt;
use tenure_ipam::{Address, Cidr};

use crate::snapshot::Snapshot;

/// What shows that somebody uses an address of these networks, or why that is not known. Holds and pods of the node `except` do not
/// count: it is to get the networks.
pub(crate) fn signs(snapshot: &Snapshot, networks: &[Cidr], except: Option<&str>) -> Vec<String> {
    let within = |ip: &IpAddr| networks.iter().any(|network| network.contains(Address::from(*ip)));
    let mut signs = Vec::new();
    let asked: BTreeSet<&String> = snapshot.nodes.iter().chain(snapshot.agents.keys()).collect();
    for node in asked {
        match snapshot.agents.get(node) {
            Some(Ok(told)) if !told.ready => {
                signs.push(format!("the agent of node {node} has not read all holds yet"));
            }
            Some(Ok(told)) => {
                if except == Some(node.as_str()) {
                    continue;
                }
                for hold in &told.holds {
                    signs.extend(
                        hold.addresses
                            .iter()
                            .filter(|ip| within(ip))
                            .map(|ip| format!("node {node} holds {ip} for {}", hold.holder)),
                    );
                }
                for cooling in &told.cooling {
                    signs.extend(
                        cooling
                            .addresses
                            .iter()
                            .filter(|ip| within(ip))
                            .map(|ip| format!("{ip} cools on node {node}")),
                    );
                }
            }
            Some(Err(problem)) => signs.push(format!("node {node} could not be asked: {problem}")),
            None => signs.push(format!("node {node} could not be asked: it has no agent")),
        }
    }
    for pod in snapshot.pods.iter().flatten().filter(|pod| !pod.over && except != Some(pod.node.as_str())) {
        let own = pod.addresses.iter().chain(&pod.networks);
        signs.extend(
            own.filter(|ip| within(ip)).map(|ip| format!("the status of pod {} has {ip}", pod.label())),
        );
    }
    signs.extend(on_record(snapshot, networks));
    signs
}

/// Records in objects that have an address of these networks.
fn on_record(snapshot: &Snapshot, networks: &[Cidr]) -> Vec<String> {
    let mut signs = Vec::new();
    for block in snapshot.blocks.iter().filter(|block| !block.spec.claims.is_empty()) {
        if crate::snapshot::networks(block).any(|own| networks.iter().any(|network| network.overlaps(&own))) {
            signs.push(format!("AddressBlock {} has records of claims", block.name_any()));
        }
    }
    for it in snapshot.ranges.records().filter(|it| it.network.is_empty()) {
        if networks.iter().any(|network| network.contains(it.address)) {
            signs.push(format!(
                "IPPool {} has {} for {}",
                it.ledger.name_any(),
                it.address,
                it.record.podref
            ));
        }
    }
    for it in snapshot.aliases.records() {
        if networks.iter().any(|network| network.overlaps(&it.range)) {
            signs.push(format!(
                "IPLedger {} has {} for node {}",
                it.ledger.name_any(),
                it.range,
                it.record.node
            ));
        }
    }
    signs
}
