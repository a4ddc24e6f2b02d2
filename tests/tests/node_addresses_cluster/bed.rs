//! What can be asked of a cluster whose nodes have further interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::ListParams;
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeIPPoolStatus, NodeNetworkConfigurationEnactment as Enactment, label,
};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::hosts::{Port, Segment};
use tenure_testbed::wait::{PATIENCE, eventually};

/// Further interfaces for each node, on a segment each.
pub fn interfaces(cluster: &Cluster) -> Result<Vec<(Segment, Vec<Port>)>> {
    let mut made = Vec::new();
    for number in 1..=4 {
        let (interface, wire) = (&format!("eth{number}"), &format!("traffic{number}"));
        let segment = Segment::new(wire)?;
        let ports = cluster.nodes().map(|node| segment.connect(node.host(), interface, &[]));
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        made.push((segment, ports));
    }
    Ok(made)
}

pub async fn enactments(cluster: &Cluster, policy: &str) -> Result<Vec<Enactment>> {
    let api: Api<Enactment> = Api::all(cluster.client()?);
    Ok(api.list(&ListParams::default().labels(&format!("{}={policy}", label::POLICY))).await?.items)
}

/// Waits until the policy is available on so many nodes.
pub async fn available(cluster: &Cluster, policy: &str, count: usize) -> Result<()> {
    eventually(&format!("{policy} on {count} nodes"), async || {
        let all = enactments(cluster, policy).await?;
        let well = |it: &Enactment| {
            it.metadata.deletion_timestamp.is_none()
                && it.condition("Available").is_some_and(NodeCondition::is_true)
        };
        Ok((all.len() == count && all.iter().all(well)).then_some(()))
    })
    .await
}

pub async fn gone(cluster: &Cluster, policy: &str) -> Result<()> {
    eventually(&format!("no enactment of {policy}"), async || {
        Ok(enactments(cluster, policy).await?.is_empty().then_some(()))
    })
    .await
}

/// The IPv4 addresses of an interface, by node.
pub fn addresses(cluster: &Cluster, interface: &str) -> Result<BTreeMap<String, IpAddr>> {
    let mut found = BTreeMap::new();
    for node in cluster.nodes() {
        let shown = node.host().namespace().ip_json(&["-4", "address", "show", "dev", interface])?;
        let all = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        ensure!(all.len() <= 1, "{} has {all:?} on {interface}", node.name());
        if let Some(address) = all.first() {
            let text = address["local"].as_str().context("an address has a text")?;
            found.insert(node.name().to_owned(), text.parse()?);
        }
    }
    Ok(found)
}

/// That so many nodes have different addresses on both interfaces, and reach each other.
pub fn connected(cluster: &Cluster, count: usize) -> Result<()> {
    for interface in ["eth1", "eth2"] {
        let all = addresses(cluster, interface)?;
        let distinct: BTreeSet<&IpAddr> = all.values().collect();
        ensure!(all.len() == count && distinct.len() == count, "{interface}: {all:?}");
        for node in cluster.nodes().filter(|node| all.contains_key(node.name())) {
            for address in all.values() {
                node.host().ping(*address, PATIENCE)?;
            }
        }
    }
    Ok(())
}

/// What a pool says.
pub async fn pool(cluster: &Cluster, name: &str) -> Result<NodeIPPoolStatus> {
    let pools: Api<NodeIPPool> = Api::all(cluster.client()?);
    Ok(pools.get(name).await?.status.unwrap_or_default())
}

/// Waits until the condition of a pool has this reason; its message.
pub async fn pool_says(cluster: &Cluster, name: &str, reason: &str) -> Result<String> {
    eventually(&format!("{name} to say {reason}"), async || {
        let status = pool(cluster, name).await?;
        Ok(status.condition("Available").filter(|it| it.reason == reason).map(|it| it.message.clone()))
    })
    .await
}

/// Waits until the node's enactment of a policy fails with these words.
pub async fn failing(cluster: &Cluster, node: &str, policy: &str, words: &str) -> Result<()> {
    let api: Api<Enactment> = Api::all(cluster.client()?);
    eventually(&format!("{policy} on {node} to fail with {words:?}"), async || {
        let it = api.get(&format!("{node}.{policy}")).await?;
        let message = it.condition("Failing").filter(|it| it.is_true()).and_then(|it| it.message.clone());
        Ok(message.is_some_and(|it| it.contains(words)).then_some(()))
    })
    .await
}

/// Waits until a node has this address, or another one, on an interface.
pub async fn has(cluster: &Cluster, node: &str, interface: &str) -> Result<IpAddr> {
    eventually(&format!("an address on {interface} of {node}"), async || {
        Ok(addresses(cluster, interface)?.get(node).copied())
    })
    .await
}
