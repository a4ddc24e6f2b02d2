//! Node addresses on the real kube-apiserver, with `deploy/` as it is applied: the controller allocates and frees with its own rights
//! and no more, and the test plays the nodes' agents through the API. Needs etcd and kube-apiserver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::eventually;
use tenure_tests::definitions::deploy_with_controller;
use tokio_util::sync::CancellationToken;

/// The seed's pools and policy, with the typing errors corrected.
const SEED: &str = r#"
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata:
  name: traffic-1
spec:
  range:
    cidr: 10.10.10.0/24
    start: 10.10.10.1
    end: 10.10.10.10
    exclude: ["10.10.10.4", "10.10.10.7"]
---
apiVersion: nmstate.io/v1
kind: NodeIPPool
metadata:
  name: traffic-2
spec:
  range:
    cidr: 10.10.11.0/24
    start: 10.10.11.1
    end: 10.10.11.10
    exclude: ["10.10.11.4", "10.10.11.7"]
---
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata:
  name: static-ip
spec:
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
"#;

type Enactment = NodeNetworkConfigurationEnactment;
type Policy = NodeNetworkConfigurationPolicy;

/// A control plane with everything of `deploy/`, and a controller that has the rights of its account.
struct Bed {
    plane: ControlPlane,
    admin: Client,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), tenure_controller::RunError>>,
    agents: tokio::task::JoinHandle<()>,
}

impl Bed {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
        let admin = plane.client()?;
        let stop = CancellationToken::new();
        let running = deploy_with_controller(&plane, stop.clone()).await?;
        let agents = tokio::spawn(play_agents(admin.clone()));
        let bed = Self { plane, admin, stop, running, agents };
        // The controller defines the two kinds that it shares with others.
        eventually("policies to be served", async || {
            Ok(bed.api::<Policy>().list(&ListParams::default()).await.ok())
        })
        .await?;
        Ok(bed)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.admin.clone())
    }

    async fn node(&self, name: &str, labels: Value) -> Result<()> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.api::<Node>().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        Ok(())
    }

    async fn apply(&self, text: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
        let path: &Path = file.path();
        self.plane.kubectl(&["apply", "-f", path.to_str().context("a path")?]).await?;
        Ok(())
    }

    /// Waits until the addresses of a pool by node are what the check says.
    async fn held(
        &self,
        what: &str,
        pool: &str,
        is: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Result<BTreeMap<String, String>> {
        eventually(what, async || {
            let all = self.api::<Enactment>().list(&ListParams::default()).await?.items;
            let mut held = BTreeMap::new();
            for enactment in all.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
                let of = enactment.status.as_ref().and_then(|it| it.ippool.get(pool));
                let node = enactment.node().unwrap_or_default().to_owned();
                held.extend(of.map(|it| (node, it.allocated.join(","))));
            }
            let distinct: BTreeSet<&String> = held.values().collect();
            ensure!(distinct.len() == held.len(), "an address twice: {held:?}");
            Ok(is(&held).then_some(held))
        })
        .await
    }

    /// Waits until a pool's condition has this reason, and returns the pool.
    async fn pool(&self, name: &str, reason: &str) -> Result<NodeIPPool> {
        eventually(&format!("{name} to say {reason}"), async || {
            let pool = self.api::<NodeIPPool>().get(name).await?;
            let status = pool.status.clone().unwrap_or_default();
            let says = status.condition("Available").is_some_and(|it| it.reason == reason);
            Ok((says && status.promised.is_empty()).then_some(pool))
        })
        .await
    }

    /// Waits until this condition of a policy is so, and returns its message.
    async fn policy(&self, name: &str, type_: &str) -> Result<String> {
        eventually(&format!("{name} to be {type_}"), async || {
            let status = self.api::<Policy>().get(name).await?.status.unwrap_or_default();
            let so = status.condition(type_).filter(|it| it.is_true());
            Ok(so.map(|it| it.message.clone().unwrap_or_default()))
        })
        .await
    }

    async fn end(self) -> Result<()> {
        self.agents.abort();
        self.stop.cancel();
        Ok(self.running.await??)
    }
}

/// Does what agents do, for every node whose name does not begin with `dead`.
async fn play_agents(admin: Client) {
    let api: Api<Enactment> = Api::all(admin);
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Ok(all) = api.list(&ListParams::default()).await else { continue };
        for enactment in all {
            let status = enactment.status.clone().unwrap_or_default();
            let applied = status.applied.clone().unwrap_or_default();
            let report = if enactment.metadata.deletion_timestamp.is_some() {
                json!({"applied": {"addresses": [], "released": true}})
            } else {
                let addresses = status.ippool.values().flat_map(|it| &it.allocated);
                let found: Vec<Value> =
                    addresses.map(|it| json!({"interface": "eth1", "address": format!("{it}/24")})).collect();
                json!({
                    "applied": {"policyGeneration": status.policy_generation, "mode": "kernel", "addresses": found},
                    "conditions": [{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured"}],
                })
            };
            let idle =
                status.policy_generation.is_none() || applied.policy_generation == status.policy_generation;
            let done = if enactment.metadata.deletion_timestamp.is_some() { applied.released } else { idle };
            if done || enactment.node().is_some_and(|node| node.starts_with("dead")) {
                continue;
            }
            let patch =
                json!({"metadata": {"resourceVersion": enactment.resource_version()}, "status": report});
            // Whoever was faster: the next round sees what came of it.
            _ = api.patch_status(&enactment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }
}

#[tokio::test]
async fn the_pools_and_the_policy_of_the_seed_give_every_node_its_addresses() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    for node in 1..=6 {
        bed.node(&format!("node0{node}"), json!({})).await?;
    }
    bed.apply(SEED).await?;
    bed.held("six addresses", "traffic-2", |held| held.len() == 6).await?;
    ensure!(bed.policy("static-ip", "Available").await? == "6/6 nodes successfully configured");
    let pool = bed.pool("traffic-1", "ReconciledPool").await?;
    ensure!(
        pool.status.and_then(|it| it.allocated_offsets) == Some(vec![0, 1, 2, 4, 5, 7]),
        "as in the seed"
    );
    let shown = bed.plane.kubectl(&["get", "nodeippools,nncp,nnce"]).await?;
    ensure!(shown.contains("traffic-1") && shown.contains("SuccessfullyConfigured"), "{shown}");
    // Both versions of both kinds are served.
    for version in ["v1", "v1beta1"] {
        for kind in ["nodenetworkconfigurationpolicies", "nodenetworkconfigurationenactments"] {
            bed.plane.kubectl(&["get", "--raw", &format!("/apis/nmstate.io/{version}/{kind}")]).await?;
        }
    }
    // Two more fit; the ninth waits, and gets its address when the pool grows.
    for node in 7..=9 {
        bed.node(&format!("node0{node}"), json!({})).await?;
    }
    let full = bed.pool("traffic-1", "ExhaustedIPPool").await?;
    let message = full.status.and_then(|it| it.condition("Available").map(|it| it.message.clone()));
    let message = message.context("a message")?;
    ensure!(message.contains("has no free address for node \"node0"), "{message}");
    let said = bed.policy("static-ip", "Degraded").await?;
    ensure!(said.starts_with("1/9 nodes failed to configure: node \"node0"), "{said}");
    for pool in ["traffic-1", "traffic-2"] {
        let third = if pool == "traffic-1" { 10 } else { 11 };
        let end = json!({"spec": {"range": {"end": format!("10.10.{third}.20")}}}).to_string();
        bed.plane.kubectl(&["patch", "nodeippool", pool, "--type=merge", "-p", &end]).await?;
    }
    bed.held("nine addresses", "traffic-1", |held| held.len() == 9).await?;
    ensure!(bed.policy("static-ip", "Available").await? == "9/9 nodes successfully configured");
    exclude_what_is_held(&bed).await?;
    bed.end().await
}

/// An address that a node has is excluded: the API server takes it, the node keeps the address, and people are told who has it.
async fn exclude_what_is_held(bed: &Bed) -> Result<()> {
    let exclude =
        json!({"spec": {"range": {"exclude": ["10.10.10.4", "10.10.10.7", "10.10.10.1"]}}}).to_string();
    bed.plane.kubectl(&["patch", "nodeippool", "traffic-1", "--type=merge", "-p", &exclude]).await?;
    let message = eventually("the exclusion to be named", async || {
        let status = bed.api::<NodeIPPool>().get("traffic-1").await?.status.unwrap_or_default();
        Ok(status.condition("ExclusionsInEffect").map(|it| it.message.clone()))
    })
    .await?;
    let held = bed.held("nine addresses", "traffic-1", |held| held.len() == 9).await?;
    let (node, _) =
        held.iter().find(|(_, address)| *address == "10.10.10.1").context("a node that has it")?;
    let named = format!("10.10.10.1 on node \"{node}\" (interface eth1)");
    ensure!(message.contains("NodeIPPool \"traffic-1\"") && message.contains(&named), "{message}");
    let events: Api<Event> = Api::all(bed.admin.clone());
    eventually("an event", async || {
        let all = events.list(&ListParams::default()).await?;
        Ok(all.iter().any(|it| it.reason.as_deref() == Some("ExcludedAddressHeld")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn addresses_come_back_when_nodes_and_policies_go_and_resets_give_others() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    for node in ["a", "b", "dead-c"] {
        bed.node(node, json!({"role": "storage"})).await?;
    }
    bed.apply(&SEED.replace(
        "spec:\n  capture:",
        "spec:\n  nodeSelector:\n    role: storage\n  maxUnavailable: 100%\n  capture:",
    ))
    .await?;
    let first = bed.held("three addresses", "traffic-1", |held| held.len() == 3).await?;
    // Not selected any more: the node takes the address off, then the offset is free.
    bed.plane.kubectl(&["label", "node", "a", "role-", "--overwrite"]).await?;
    bed.held("two addresses", "traffic-1", |held| held.len() == 2).await?;
    eventually("the enactment to go", async || {
        Ok(bed.api::<Enactment>().get_opt("a.static-ip").await?.is_none().then_some(()))
    })
    .await?;
    // Gone for good, without a word: freed after two observations.
    bed.api::<Node>().delete("dead-c", &DeleteParams::default()).await?;
    eventually("the enactment of the node that is gone to go", async || {
        Ok(bed.api::<Enactment>().get_opt("dead-c.static-ip").await?.is_none().then_some(()))
    })
    .await?;
    let left = eventually("one offset", async || {
        let status = bed.api::<NodeIPPool>().get("traffic-1").await?.status.unwrap_or_default();
        Ok(status.allocated_offsets.filter(|it| it.len() == 1))
    })
    .await?;
    // A record that somebody empties is rebuilt.
    let empty = Patch::Merge(json!({"status": {"allocated-offsets": []}}));
    bed.api::<NodeIPPool>().patch_status("traffic-1", &PatchParams::default(), &empty).await?;
    eventually("the record to be rebuilt", async || {
        let status = bed.api::<NodeIPPool>().get("traffic-1").await?.status.unwrap_or_default();
        Ok((status.allocated_offsets.as_ref() == Some(&left)).then_some(()))
    })
    .await?;
    // Each reset annotation, as people write them.
    bed.plane.kubectl(&["annotate", "nodeippool", "traffic-1", "nmstate.io/reset-ippool="]).await?;
    eventually("the reset of the pool", async || {
        let pool = bed.api::<NodeIPPool>().get("traffic-1").await?;
        Ok(pool.annotations().get("nmstate.io/reset-ippool").is_none().then_some(()))
    })
    .await?;
    bed.pool("traffic-1", "ReconciledPool").await?;
    let before = bed.held("one address", "traffic-1", |held| held.len() == 1).await?;
    ensure!(before["b"] == first["b"], "a reset of the pool keeps what is held");
    for what in ["nnce/b.static-ip", "nncp/static-ip"] {
        let was = bed.held("an address", "traffic-1", |held| held.len() == 1).await?;
        bed.plane.kubectl(&["annotate", what, "nmstate.io/reset-ippool=traffic-1"]).await?;
        bed.held("another address", "traffic-1", |held| held.len() == 1 && held["b"] != was["b"]).await?;
    }
    bed.api::<Policy>().delete("static-ip", &DeleteParams::default()).await?;
    eventually("no offset and no enactment", async || {
        let status = bed.api::<NodeIPPool>().get("traffic-1").await?.status.unwrap_or_default();
        let none = bed.api::<Enactment>().list(&ListParams::default()).await?.items.is_empty();
        Ok((none && status.allocated_offsets == Some(Vec::new())).then_some(()))
    })
    .await?;
    bed.end().await
}
