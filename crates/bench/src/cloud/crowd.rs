//! Pods that start together on one machine, and then move together to another, by Tenure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_api::cloud::{NodeAliases, annotation};

use super::COLD;
use super::bed::{Bed, Cost, Side};
use super::node::Node;
use crate::host::machine::SOON;

/// What so many pods cost, and their moves. The machines are new, so nothing is left there from before.
pub(super) async fn measure(bed: &Bed, pods: usize) -> Result<[Cost; 2]> {
    let source = Node::start(bed, &format!("source-{pods}"), Some(COLD)).await?;
    let target = Node::start(bed, &format!("target-{pods}"), Some(COLD)).await?;
    let names: Vec<String> = (0..pods).map(|number| format!("pod-{pods}-{number}")).collect();
    let start = start(bed, &source, names.iter().map(|name| (name.clone(), json!({}))));
    let (started, addresses) = bed.cost(Side::Tenure, start).await?;
    let each: BTreeSet<&String> = addresses.iter().collect();
    ensure!(each.len() == pods, "{pods} pods have {} addresses", each.len());

    mark(bed, &source, &names).await?;
    let moving = names.iter().zip(&addresses).map(|(name, address)| {
        let annotations = json!({annotation::ADDRESS: address, annotation::ORIGINAL_INSTANCE: source.name});
        (format!("{name}-moved"), annotations)
    });
    let (moved, arrived) = bed.cost(Side::Tenure, self::start(bed, &target, moving)).await?;
    ensure!(arrived == addresses, "{arrived:?} arrived, and not {addresses:?}");
    Ok([started, moved])
}

/// Makes pods on a machine and calls the plugin for each, all at once: their addresses.
pub(super) async fn start(
    bed: &Bed,
    node: &Node,
    pods: impl Iterator<Item = (String, Value)>,
) -> Result<Vec<String>> {
    let started = pods.map(|(name, annotations)| async move {
        bed.pod(&name, &node.name, &annotations).await?;
        node.add(&name).await
    });
    try_join_all(started).await
}

/// Marks pods as moving out, and waits until the controller has noted all of them.
async fn mark(bed: &Bed, node: &Node, pods: &[String]) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::MOVE_OUT: "true"}}}));
    let all = bed.pods();
    let params = PatchParams::default();
    try_join_all(pods.iter().map(|pod| all.patch(pod, &params, &patch))).await?;
    let objects: Api<NodeAliases> = Api::all(bed.client.clone());
    let noted = async {
        loop {
            let status = objects.get_status(&node.name).await?.status.unwrap_or_default();
            if status.aliases.values().filter(|alias| alias.pod.is_some()).count() == pods.len() {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, noted).await.context("the controller did not note who moves")?
}
