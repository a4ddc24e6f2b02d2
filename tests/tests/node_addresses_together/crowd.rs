//! Two hundred nodes at once on one pool; the test plays their agents.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::nmstate::{
    NodeIPPool, NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    label,
};
use tenure_testbed::wait::eventually;

use super::bed::cluster;

const NODES: usize = 200;
/// Calls at once.
const WIDE: usize = 16;

#[test]
fn two_hundred_nodes_get_their_addresses_by_at_most_five_writes_of_the_pool() {
    let cluster = cluster();
    cluster.runtime.block_on(crowd(&cluster.client)).unwrap();
}

async fn crowd(client: &kube::Client) -> anyhow::Result<()> {
    let plain = PostParams::default();
    let pools: Api<NodeIPPool> = Api::all(client.clone());
    let spec = serde_json::from_value(
        json!({"range": {"cidr": "10.77.0.0/16", "start": "10.77.1.1", "end": "10.77.4.250"}}),
    )?;
    let pool = pools.create(&plain, &NodeIPPool::new("crowd", spec)).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let made = stream::iter(0..NODES).map(|number| {
        let (nodes, plain) = (nodes.clone(), plain.clone());
        async move {
            let node = json!({"metadata": {"name": format!("crowd-{number}"), "labels": {"crowd": "yes"}}});
            nodes.create(&plain, &serde_json::from_value(node).unwrap()).await
        }
    });
    let made: Vec<_> = made.buffer_unordered(WIDE).collect().await;
    made.into_iter().collect::<Result<Vec<_>, _>>()?;
    eventually("the pool to be looked at", async || {
        let pool = pools.get("crowd").await?;
        Ok(pool.status.is_some_and(|it| !it.conditions.is_empty()).then_some(()))
    })
    .await?;
    let from = pools.get("crowd").await?.resource_version().unwrap_or_default();
    let spec = json!({
        "nodeSelector": {"crowd": "yes"}, "maxUnavailable": "100%",
        "capture": {"address": "ippool.crowd.allocate"},
        "desiredState": {"interfaces": [{"name": "eth1"}]},
    });
    let policies: Api<Policy> = Api::all(client.clone());
    policies.create(&plain, &Policy::new("crowd", serde_json::from_value(spec)?)).await?;
    let enactments: Api<Enactment> = Api::all(client.clone());
    let of = ListParams::default().labels(&format!("{}=crowd", label::POLICY));
    let addresses = eventually("all nodes to have addresses", async || {
        let all = enactments.list(&of).await?.items;
        let address = |it: &Enactment| it.status.as_ref()?.ippool.get("crowd")?.allocated.first().cloned();
        let addresses: Vec<String> = all.iter().filter_map(address).collect();
        // Agents that succeed at once.
        let turns = all.iter().filter(|it| {
            let status = it.status.clone().unwrap_or_default();
            status.policy_generation.is_some() && status.applied.is_none()
        });
        let applied: Vec<_> = stream::iter(turns)
            .map(|it| {
                let generation = it.status.as_ref().and_then(|it| it.policy_generation);
                let patch = Patch::Merge(json!({"status": {
                    "applied": {"policyGeneration": generation, "mode": "kernel", "addresses": []},
                    "conditions": [{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured"}],
                }}));
                let (enactments, name) = (enactments.clone(), it.name_any());
                async move { enactments.patch_status(&name, &PatchParams::default(), &patch).await }
            })
            .buffer_unordered(WIDE)
            .collect()
            .await;
        applied.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok((addresses.len() == NODES).then_some(addresses))
    })
    .await?;
    let distinct: BTreeSet<&String> = addresses.iter().collect();
    assert_eq!(distinct.len(), NODES, "an address was given twice");
    // What happened to the pool since the policy was made.
    let after = pools.get("crowd").await?;
    let mut events = pools.watch(&WatchParams::default().fields("metadata.name=crowd"), &from).await?.boxed();
    let mut writes = 0;
    while let Some(event) = events.next().await {
        if let WatchEvent::Modified(seen) = event? {
            writes += 1;
            if seen.resource_version() == after.resource_version() {
                break;
            }
        }
    }
    assert!(writes <= 5, "{NODES} nodes took {writes} writes of the pool");
    assert_eq!(pool.uid(), after.uid());
    Ok(())
}
