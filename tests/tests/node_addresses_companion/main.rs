//! Next to kubernetes-nmstate on the real kube-apiserver: its kinds as published, with what its admission refuses; its handlers are
//! played; the controller runs with its own rights and no more. Needs etcd and kube-apiserver.

mod handler;
mod kinds;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationPolicy as Policy};
use tenure_controller::RunError;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::eventually;
use tenure_tests::definitions::deploy_with_controller;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use handler::Handlers;

const OBJECTS: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata: {name: traffic}
spec: {range: {cidr: 10.10.10.0/24, start: 10.10.10.1, end: 10.10.10.3}}
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: static-ip}
spec:
  nodeSelector: {tenure/node-addresses: "true", role: storage}
  maxUnavailable: 100%
  capture:
    address: ippool.traffic.allocate
    nic: interfaces.name == "eth1"
  desiredState:
    interfaces:
      - name: "{{ capture.nic.interfaces.0.name }}"
        type: ethernet
        state: up
        ipv4:
          enabled: true
          dhcp: false
          address: [{ip: "{{ capture.address.ip }}", prefix-length: "{{ capture.address.prefix-length }}"}]
---
# Not marked as ours.
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: theirs}
spec:
  nodeSelector: {role: none}
  capture: {address: ippool.traffic.allocate}
"#;

struct Bed {
    plane: ControlPlane,
    admin: Client,
    handlers: Handlers,
    stop: CancellationToken,
    controller: JoinHandle<Result<(), RunError>>,
    handling: JoinHandle<()>,
}

impl Bed {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
        let admin = plane.client()?;
        for manifests in [kinds::DEFINITIONS, kinds::ADMISSION] {
            plane.kubectl_with_input(&["apply", "-f", "-"], manifests).await?;
        }
        let stop = CancellationToken::new();
        let controller = deploy_with_controller(&plane, stop.clone()).await?;
        let handlers = Handlers::new(admin.clone());
        let handling = tokio::spawn(handlers.clone().run());
        Ok(Self { plane, admin, handlers, stop, controller, handling })
    }

    fn policies(&self) -> Api<Policy> {
        Api::all(self.admin.clone())
    }

    async fn node(&self, name: &str) -> Result<()> {
        let labels = json!({"role": "storage", "kubernetes.io/hostname": name});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let nodes: Api<Node> = Api::all(self.admin.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        Ok(())
    }

    async fn offsets(&self) -> Result<Vec<i64>> {
        let pools: Api<NodeIPPool> = Api::all(self.admin.clone());
        let status = pools.get("traffic").await?.status.unwrap_or_default();
        Ok(status.allocated_offsets.unwrap_or_default())
    }

    /// Waits until the interfaces of nodes have so many addresses, all of them different.
    async fn addresses(&self, nodes: &[&str], count: usize) -> Result<Vec<String>> {
        eventually(&format!("{count} addresses on {nodes:?}"), async || {
            self.handlers.check()?;
            let all: Vec<String> = nodes.iter().flat_map(|node| self.handlers.on(node, "eth1")).collect();
            let distinct: BTreeSet<&String> = all.iter().collect();
            Ok((all.len() == count && distinct.len() == count).then_some(all))
        })
        .await
    }

    async fn pool_says(&self, reason: &str) -> Result<String> {
        let pools: Api<NodeIPPool> = Api::all(self.admin.clone());
        eventually(&format!("the pool to say {reason}"), async || {
            let status = pools.get("traffic").await?.status.unwrap_or_default();
            let said = status.condition("Available").filter(|it| it.reason == reason);
            Ok(said.map(|it| it.message.clone()))
        })
        .await
    }

    async fn end(self) -> Result<()> {
        self.handling.abort();
        self.handlers.check()?;
        self.stop.cancel();
        Ok(self.controller.await??)
    }
}

#[tokio::test]
async fn kubernetes_nmstate_applies_addresses_of_pools_and_takes_them_off_before_they_are_free() -> Result<()>
{
    let bed = Box::pin(Bed::start()).await?;
    for node in ["a", "b"] {
        bed.node(node).await?;
    }
    bed.plane.kubectl_with_input(&["apply", "-f", "-"], OBJECTS).await?;
    let first = bed.addresses(&["a", "b"], 2).await?;
    ensure!(bed.offsets().await? == [0, 1]);
    let generated = bed.policies().get("a.static-ip").await?;
    let capture: Vec<&String> = generated.spec.capture.keys().collect();
    ensure!(capture == ["nic"], "captures of pools are not for others: {capture:?}");
    let desired = generated.spec.desired_state.context("a state")?;
    let address = &desired["interfaces"][0]["ipv4"]["address"][0];
    ensure!(*address == json!({"ip": "10.10.10.1", "prefix-length": 24}), "{address}");

    // Another state reaches every node by and by, with the same addresses, although nobody may change a policy in progress.
    for mtu in [1400, 1300] {
        let patch = json!([{"op": "add", "path": "/spec/desiredState/interfaces/0/mtu", "value": mtu}]);
        bed.plane.kubectl(&["patch", "nncp", "static-ip", "--type=json", "-p", &patch.to_string()]).await?;
    }
    eventually("the last state everywhere", async || {
        let all = bed.policies().list(&ListParams::default().labels("tenure/policy=static-ip")).await?;
        let mtu = |it: &Policy| it.spec.desired_state.as_ref().map(|it| it["interfaces"][0]["mtu"].clone());
        Ok((all.items.len() == 2 && all.iter().all(|it| mtu(it) == Some(json!(1300)))).then_some(()))
    })
    .await?;
    ensure!(bed.addresses(&["a", "b"], 2).await? == first);

    // A handler that fails keeps its node's address, and recovers.
    bed.handlers.set_broken("c", true);
    bed.node("c").await?;
    eventually("the third address to be given", async || Ok((bed.offsets().await?.len() == 3).then_some(())))
        .await?;
    bed.node("d").await?;
    let message = bed.pool_says("ExhaustedIPPool").await?;
    ensure!(message.contains("node \"d\""), "{message}");
    bed.handlers.set_broken("c", false);
    bed.addresses(&["a", "b", "c"], 3).await?;

    // Not selected any more: off the interface first. Then the node that waits gets the address.
    bed.handlers.set_asleep("a", true);
    bed.plane.kubectl(&["label", "node", "a", "role-"]).await?;
    eventually("a state without the address", async || {
        let policy = bed.policies().get("a.static-ip").await?;
        let four = policy.spec.desired_state.map(|it| it["interfaces"][0]["ipv4"].clone());
        Ok((four == Some(json!({"enabled": false}))).then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensure!(bed.offsets().await? == [0, 1, 2], "it is still on the interface");
    bed.handlers.set_asleep("a", false);
    bed.addresses(&["b", "c", "d"], 3).await?;
    ensure!(bed.handlers.on("a", "eth1").is_empty());
    bed.pool_says("ReconciledPool").await?;

    // The policy goes, and everything with it; what is kubernetes-nmstate's stays.
    bed.policies().delete("static-ip", &DeleteParams::default()).await?;
    bed.addresses(&["a", "b", "c", "d"], 0).await?;
    eventually("no offset and no generated policy", async || {
        let left = bed.policies().list(&ListParams::default()).await?;
        let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        Ok((left == ["theirs"] && bed.offsets().await?.is_empty()).then_some(()))
    })
    .await?;
    let kinds: Api<CustomResourceDefinition> = Api::all(bed.admin.clone());
    let kind = kinds.get("nodenetworkconfigurationenactments.nmstate.io").await?;
    ensure!(kind.spec.versions.len() == 1, "their definition is as they left it");
    bed.end().await
}
