//! Node addresses on a real cluster of three nodes with further interfaces: the seed's two pools and its policy by
//! kubectl, agents and controller as a user installs them, with their roles. Needs root; builds the image.

mod bed;
mod collisions;
mod leaving;
mod pools;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment as Enactment};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::wait::eventually;
use tenure_tests::installed::{install, three_nodes};
use tenure_tests::steps::Steps;

use bed::{addresses, available, connected, enactments, gone, interfaces};

/// The seed's example, with its typing errors corrected.
const POOLS: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: traffic-1}
spec:
  range:
    cidr: 10.10.10.0/24
    start: 10.10.10.1
    end: 10.10.10.10
    exclude: ["10.10.10.4", "10.10.10.7"]
---
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: traffic-2}
spec:
  range:
    cidr: 10.10.11.0/24
    start: 10.10.11.1
    end: 10.10.11.10
    exclude: ["10.10.11.4", "10.10.11.7"]
"#;

const POLICY: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: static-ip}
spec:
  nodeSelector: {traffic: "yes"}
  capture:
    address-from-traffic-1: ippool.traffic-1.allocate
    address-from-traffic-2: ippool.traffic-2.allocate
  desiredState:
    interfaces:
      - name: eth1
        type: ethernet
        state: up
        ipv4:
          address:
            - ip: "{{ capture.address-from-traffic-1.ip }}"
              prefix-length: "{{ capture.address-from-traffic-1.prefix-length }}"
          dhcp: false
          enabled: true
      - name: eth2
        type: ethernet
        state: up
        ipv4:
          address:
            - ip: "{{ capture.address-from-traffic-2.ip }}"
              prefix-length: "{{ capture.address-from-traffic-2.prefix-length }}"
          dhcp: false
          enabled: true
"#;

/// Asks for the same interface.
const SECOND: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: second}
spec:
  nodeSelector: {traffic: "yes"}
  capture: {a: ippool.traffic-1.allocate}
  desiredState:
    interfaces:
      - name: eth1
        ipv4:
          enabled: true
          address: [{ip: "{{ capture.a.ip }}", prefix-length: "{{ capture.a.prefix-length }}"}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_get_addresses_of_pools_keep_them_and_give_them_back() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    let outcome = live(&cluster, &steps).await;
    if outcome.is_err() {
        cluster.keep_logs();
    }
    outcome
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<()> {
    install(cluster).await?;
    steps.done("the nodes are ready by our network");
    let _wires = interfaces(cluster)?;
    let defined = "crd/nodenetworkconfigurationpolicies.nmstate.io";
    cluster.kubectl(&["wait", "--for=create", defined, "--timeout=300s"]).await?;
    cluster.kubectl(&["wait", "--for=condition=Established", defined, "--timeout=300s"]).await?;
    cluster.apply(POOLS).await?;
    // Two nodes at first.
    for node in cluster.nodes().take(2) {
        cluster.kubectl(&["label", "node", node.name(), "traffic=yes"]).await?;
    }
    cluster.apply(POLICY).await?;
    available(cluster, "static-ip", 2).await?;
    connected(cluster, 2)?;
    steps.done("two nodes have their addresses and reach each other");
    let before = addresses(cluster, "eth1")?;

    // A node comes to those that the policy selects.
    let third = cluster.node(2).name().to_owned();
    cluster.kubectl(&["label", "node", &third, "traffic=yes"]).await?;
    available(cluster, "static-ip", 3).await?;
    connected(cluster, 3)?;
    ensure!(addresses(cluster, "eth1")?.iter().filter(|(node, _)| **node != third).eq(before.iter()));
    steps.done("a third node has joined, and the others keep what they have");

    // Agents are replaced; nothing changes on the interfaces.
    let all = addresses(cluster, "eth1")?;
    cluster.kubectl(&["rollout", "restart", "daemonset/tenured", "-n", "kube-system"]).await?;
    cluster
        .kubectl(&["rollout", "status", "daemonset/tenured", "-n", "kube-system", "--timeout=300s"])
        .await?;
    available(cluster, "static-ip", 3).await?;
    ensure!(addresses(cluster, "eth1")? == all, "agents were replaced");
    steps.done("agents were replaced");

    // A second policy for the same interface waits, with words.
    cluster.apply(SECOND).await?;
    eventually("the second policy to be refused", async || {
        let said = enactments(cluster, "second").await?;
        let refused = |it: &Enactment| {
            let message = it.condition("Failing").filter(|it| it.is_true()).and_then(|it| it.message.clone());
            message.is_some_and(|it| it.contains("is configured by policy \"static-ip\""))
        };
        Ok((said.len() == 3 && said.iter().all(refused)).then_some(()))
    })
    .await?;
    ensure!(addresses(cluster, "eth1")? == all);
    cluster.kubectl(&["delete", "nncp", "second", "--timeout=300s"]).await?;
    gone(cluster, "second").await?;
    steps.done("a second policy for the interface was refused, and is gone");

    // A node gets another address.
    let first = cluster.node(0).name().to_owned();
    let reset = ["annotate", "nnce", &format!("{first}.static-ip"), "nmstate.io/reset-ippool=traffic-1"];
    cluster.kubectl(&reset).await?;
    eventually("another address", async || {
        let now = addresses(cluster, "eth1").unwrap_or_default();
        Ok((now.get(&first).is_some_and(|it| it != &all[&first])).then_some(()))
    })
    .await?;
    available(cluster, "static-ip", 3).await?;
    connected(cluster, 3)?;
    steps.done("an enactment was reset");

    // The policy is deleted and made again.
    cluster.kubectl(&["delete", "nncp", "static-ip", "--timeout=300s"]).await?;
    gone(cluster, "static-ip").await?;
    ensure!(addresses(cluster, "eth1")?.is_empty() && addresses(cluster, "eth2")?.is_empty());
    cluster.apply(POLICY).await?;
    available(cluster, "static-ip", 3).await?;
    connected(cluster, 3)?;
    steps.done("the policy was deleted and made again");

    pools::reset(cluster).await?;
    steps.done("a pool and a policy were reset");
    pools::made_again(cluster).await?;
    steps.done("a pool was made again, and everyone keeps its address");
    leaving::for_good(cluster, steps).await?;

    rights(cluster).await?;
    steps.done("an agent writes only its own node's enactments, and no pool");
    Ok(())
}

/// What an agent's role allows is narrow: no pool, no enactment of another node.
async fn rights(cluster: &Cluster) -> Result<()> {
    let agent = "--as=system:serviceaccount:kube-system:tenured";
    for (verb, what, allowed) in [
        ("get", "nodenetworkconfigurationpolicies.nmstate.io", true),
        ("patch", "nodenetworkconfigurationenactments.nmstate.io/status", true),
        ("patch", "nodenetworkconfigurationenactments.nmstate.io", false),
        ("delete", "nodenetworkconfigurationenactments.nmstate.io", false),
        ("patch", "nodeippools.nmstate.io", false),
        ("update", "nodeippools.nmstate.io/status", false),
    ] {
        let (what, subresource) = what.split_once('/').unwrap_or((what, ""));
        let subresource = format!("--subresource={subresource}");
        let said = cluster.kubectl(&["auth", "can-i", verb, what, &subresource, agent]).await;
        let can = said.as_deref().is_ok_and(|it| it.trim() == "yes");
        ensure!(can == allowed, "{verb} {what} {subresource}: {said:?}");
    }
    // Of its own node: without a token that names a node, admission refuses everything.
    let other = cluster.node(0).name().to_owned();
    let patch = r#"{"status":{"applied":{"addresses":[]}}}"#;
    let name = format!("{other}.static-ip");
    let refused = cluster
        .kubectl(&["patch", "nnce", &name, "--subresource=status", "--type=merge", "-p", patch, agent])
        .await;
    ensure!(refused.is_err(), "an agent without a node has written {name}: {refused:?}");
    let pools: Api<NodeIPPool> = Api::all(cluster.client()?);
    let names: Vec<String> =
        pools.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ["foreign", "small", "traffic-1", "traffic-2"], "{names:?}");
    Ok(())
}
