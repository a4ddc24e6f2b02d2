//! A pool that is too small, a node that is switched off, and one that is gone for good.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use tenure_testbed::cluster::Cluster;
use tenure_testbed::wait::{PATIENCE, eventually};
use tenure_tests::steps::Steps;

use super::bed::{addresses, available, enactments, failing, has, pool, pool_says};
use super::collisions;

/// Two addresses for three nodes.
const SMALL: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: small}
spec: {range: {cidr: 10.10.13.0/24, start: 10.10.13.1, end: 10.10.13.2}}
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: few}
spec:
  nodeSelector: {few: "yes"}
  maxUnavailable: 100%
  capture: {one: ippool.small.allocate}
  desiredState:
    interfaces:
      - name: eth3
        ipv4:
          enabled: true
          address: [{ip: "{{ capture.one.ip }}", prefix-length: "{{ capture.one.prefix-length }}"}]
"#;

pub async fn for_good(cluster: &Cluster, steps: &Steps) -> Result<()> {
    // By default a node is gone for good after two minutes, and addresses cool for half a minute.
    let argument =
        |value: &str| json!({"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": value});
    let short = json!([argument("--missing-node-rest=5s"), argument("--cooling=10m")]).to_string();
    let deployment = ["deployment/tenure-controller", "-n", "kube-system"];
    cluster.kubectl(&[&["patch"], &deployment[..], &["--type=json", "-p", &short]].concat()).await?;
    cluster.kubectl(&[&["rollout", "status"], &deployment[..], &["--timeout=300s"]].concat()).await?;
    let last = cluster.node(2).name();
    cluster.apply(SMALL).await?;
    let select = async |node: &str| cluster.kubectl(&["label", "node", node, "few=yes"]).await;
    select(last).await?;
    let address = has(cluster, last, "eth3").await?;
    for node in cluster.nodes().take(2) {
        select(node.name()).await?;
    }
    let message = pool_says(cluster, "small", "ExhaustedIPPool").await?;
    let all =
        eventually(
            "two addresses",
            async || Ok(Some(addresses(cluster, "eth3")?).filter(|it| it.len() == 2)),
        )
        .await?;
    let waits = cluster
        .nodes()
        .map(tenure_testbed::cluster::Node::name)
        .find(|it| !all.contains_key(*it))
        .unwrap_or_default();
    ensure!(
        message.contains("small") && message.contains("no free address") && message.contains(waits),
        "{message}"
    );
    failing(cluster, waits, "few", "no free address").await?;
    steps.done("an exhausted pool says which node waits");

    // The node loses its power, and its interfaces with it. It keeps its addresses while it may come back.
    cluster.node(2).power_off()?;
    for number in 1..=4 {
        cluster
            .node(2)
            .host()
            .ip(&format!("address flush dev eth{number}\nlink set dev eth{number} down"))?;
    }
    collisions::by_hand(cluster).await?;
    steps.done("a foreign address was told, and an agent was killed in mid-apply");
    let nodes: Api<Node> = Api::all(cluster.client()?);
    eventually("the node not to be ready", async || {
        let status = nodes.get(last).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
        Ok(ready.is_some_and(|it| it.status != "True").then_some(()))
    })
    .await?;
    ensure!(
        enactments(cluster, "few").await?.len() == 3 && enactments(cluster, "static-ip").await?.len() == 3
    );
    ensure!(!addresses(cluster, "eth3")?.contains_key(waits));
    steps.done("a node that is switched off keeps its addresses");

    // It is gone for good: its address is freed, and the node that waits gets it.
    nodes.delete(last, &DeleteParams::default()).await?;
    let on_node = format!("spec.nodeName={last}");
    let pods = ["delete", "pods", "-A", "--field-selector", &on_node, "--force", "--grace-period=0"];
    cluster.kubectl(&pods).await?;
    ensure!(has(cluster, waits, "eth3").await? == address, "the freed address is used again");
    pool_says(cluster, "small", "ReconciledPool").await?;
    available(cluster, "static-ip", 2).await?;
    eventually("its offset to be free and to cool", async || {
        let pool = pool(cluster, "traffic-1").await?;
        let freed = pool.allocated_offsets.is_some_and(|it| it.len() == 2);
        Ok((freed && !pool.cooling.is_empty()).then_some(()))
    })
    .await?;
    steps.done("a node that is gone for good gives its addresses back");

    // It comes back after all, as a new node, and the pool grows.
    cluster.node(2).power_on()?;
    cluster.ready(PATIENCE).await?;
    select(last).await?;
    cluster.kubectl(&["label", "node", last, "traffic=yes"]).await?;
    pool_says(cluster, "small", "ExhaustedIPPool").await?;
    let end = r#"{"spec":{"range":{"end":"10.10.13.3"}}}"#;
    cluster.kubectl(&["patch", "nodeippool", "small", "--type=merge", "-p", end]).await?;
    available(cluster, "few", 3).await?;
    available(cluster, "static-ip", 3).await?;
    ensure!(addresses(cluster, "eth3")?.len() == 3);
    pool_says(cluster, "small", "ReconciledPool").await?;
    steps.done("a pool grew, and the node that came back has an address");
    Ok(())
}
