//! Next to kubernetes-nmstate: its CRDs, and a handler that behaves like its handlers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{NodeIPPool, definitions};

use super::super::known::Mode;
use super::super::tests::rig::{Enactment, Policy, Rig};

/// The CRDs without our fields, like kubernetes-nmstate's.
fn theirs() -> Vec<CustomResourceDefinition> {
    definitions()
        .into_iter()
        .map(|mut definition| {
            for version in &mut definition.spec.versions {
                let schema = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
                let status = schema.and_then(|it| it.properties.as_mut()?.get_mut("status"));
                if let Some(properties) = status.and_then(|it| it.properties.as_mut()) {
                    properties.remove("ippool");
                    properties.remove("applied");
                }
            }
            definition
        })
        .collect()
}

/// What a handler has applied, by node and policy, and at which generation.
#[derive(Default)]
struct Handlers {
    seen: BTreeMap<(String, String), i64>,
    interfaces: BTreeMap<String, BTreeSet<String>>,
}

impl Handlers {
    /// Every handler applies what selects its node. Returns whether one did something.
    async fn work(&mut self, rig: &Rig) -> bool {
        let mut did = false;
        let nodes = rig.api::<Node>().list(&ListParams::default()).await.unwrap();
        for policy in rig.api::<Policy>().list(&ListParams::default()).await.unwrap() {
            for node in &nodes {
                let selected = policy
                    .spec
                    .node_selector
                    .iter()
                    .all(|(key, value)| node.labels().get(key) == Some(value));
                let key = (node.name_any(), policy.name_any());
                let generation = policy.metadata.generation.unwrap();
                if !selected || self.seen.get(&key) == Some(&generation) {
                    continue;
                }
                did = true;
                self.apply(&node.name_any(), &policy);
                self.seen.insert(key, generation);
                report(rig, node, &policy).await;
            }
        }
        did
    }

    /// Like nmstate: an interface has exactly the addresses of a state that mentions it.
    fn apply(&mut self, node: &str, policy: &Policy) {
        let desired = policy.spec.desired_state.clone().unwrap_or_default();
        for interface in desired["interfaces"].as_array().into_iter().flatten() {
            let name = interface["name"].as_str().unwrap();
            let on = self.interfaces.entry(format!("{node}/{name}")).or_default();
            let addresses = interface["ipv4"]["address"].as_array();
            let addresses = addresses.into_iter().flatten().map(|it| it["ip"].as_str().unwrap().to_owned());
            *on = addresses.collect();
        }
    }

    fn check(&self) {
        let mut seen = BTreeMap::new();
        for (interface, addresses) in &self.interfaces {
            for address in addresses {
                assert_eq!(seen.insert(address, interface), None, "{address} twice");
            }
        }
    }

    fn on(&self, interface: &str) -> Vec<&str> {
        self.interfaces.get(interface).into_iter().flatten().map(String::as_str).collect()
    }
}

async fn report(rig: &Rig, node: &Node, policy: &Policy) {
    let name = format!("{}.{}", node.name_any(), policy.name_any());
    let object = json!({
        "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": name, "labels": {"nmstate.io/policy": policy.name_any(), "nmstate.io/node": node.name_any()}},
    });
    let api = rig.api::<Enactment>();
    _ = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
    let status = json!({"status": {
        "policyGeneration": policy.metadata.generation,
        "conditions": [{"type": "Available", "status": "True", "reason": "SuccessfullyConfigured"}],
    }});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn settle(rig: &mut Rig, handlers: &mut Handlers) {
    for _ in 0..200 {
        let planned = !rig.step().await.is_empty();
        let did = handlers.work(rig).await;
        handlers.check();
        if !planned && !did {
            return;
        }
    }
    panic!("still planned: {:#?}", rig.plan(0));
}

fn spec(selector: &Value) -> Value {
    json!({"nodeSelector": selector, "desiredState": {"interfaces": [{
        "name": "eth1", "type": "ethernet", "state": "up",
        "ipv4": {"enabled": true, "dhcp": false, "address": [
            {"ip": "{{ capture.from-p.ip }}", "prefix-length": "{{ capture.from-p.prefix-length }}"}]},
    }]}})
}

#[tokio::test]
async fn policies_with_literal_addresses_are_generated_and_addresses_leave_interfaces_before_they_are_free() {
    let mut rig = Rig::with(theirs()).await;
    assert_eq!(rig.leaders[0].world.node_addresses().mode(), Some(Mode::Companion));
    let mut handlers = Handlers::default();
    for node in ["a", "b"] {
        rig.node(node, json!({"role": "storage", "kubernetes.io/hostname": node})).await;
    }
    rig.pool("p", json!({"cidr": "10.0.0.0/24"})).await;
    let selector = json!({"role": "storage", "tenure/node-addresses": "true"});
    rig.policy("s", &["p"], spec(&selector)).await;
    // A policy without our mark belongs to kubernetes-nmstate alone.
    rig.policy("theirs", &["p"], json!({"nodeSelector": {"role": "none"}})).await;
    settle(&mut rig, &mut handlers).await;
    assert_eq!((handlers.on("a/eth1"), handlers.on("b/eth1")), (vec!["10.0.0.1"], vec!["10.0.0.2"]));
    assert_eq!(rig.offsets("p").await, [0, 1]);
    let generated: Policy = rig.get("a.s").await.unwrap();
    assert_eq!(generated.spec.node_selector, [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into());
    assert!(generated.spec.capture.is_empty());
    assert_eq!(generated.annotations()["tenure/mode"], "kubernetesNmstate");

    // Another desired state reaches every node, with the same addresses.
    rig.patch::<Policy>("s", json!({"spec": {"desiredState": {"routes": {"config": []}}}})).await;
    settle(&mut rig, &mut handlers).await;
    let generated: Policy = rig.get("b.s").await.unwrap();
    assert!(generated.spec.desired_state.unwrap()["routes"].is_object());
    assert_eq!(handlers.on("b/eth1"), ["10.0.0.2"]);

    // Not selected any more: off the interface, then free, then the policy is deleted.
    rig.patch::<Node>("a", json!({"metadata": {"labels": {"role": null}}})).await;
    for _ in 0..3 {
        rig.step().await;
    }
    assert_eq!(
        (rig.offsets("p").await, handlers.on("a/eth1")),
        (vec![0, 1], vec!["10.0.0.1"]),
        "nobody removed it yet"
    );
    settle(&mut rig, &mut handlers).await;
    assert_eq!((rig.offsets("p").await, handlers.on("a/eth1").len()), (vec![1], 0));
    assert!(rig.get::<Policy>("a.s").await.is_none());

    // The policy is deleted, and everything with it.
    rig.delete::<Policy>("s").await;
    settle(&mut rig, &mut handlers).await;
    assert_eq!((rig.offsets("p").await, handlers.on("b/eth1").len()), (vec![], 0));
    let left: Vec<String> = Api::<Policy>::all(rig.client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(left, ["theirs"]);
    assert!(rig.get::<NodeIPPool>("p").await.is_some());
}

async fn two_nodes() -> (Rig, Handlers) {
    let mut rig = Rig::with(theirs()).await;
    let mut handlers = Handlers::default();
    for node in ["a", "b"] {
        rig.node(node, json!({"role": "storage", "kubernetes.io/hostname": node})).await;
    }
    rig.pool("p", json!({"cidr": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.2"})).await;
    rig.policy("s", &["p"], spec(&json!({"role": "storage", "tenure/node-addresses": "true"}))).await;
    settle(&mut rig, &mut handlers).await;
    assert_eq!((handlers.on("a/eth1"), handlers.on("b/eth1")), (vec!["10.0.0.1"], vec!["10.0.0.2"]));
    (rig, handlers)
}

fn moved(interface: &str) -> Value {
    let mut spec = spec(&json!({}));
    spec["desiredState"]["interfaces"][0]["name"] = json!(interface);
    json!({"spec": {"desiredState": spec["desiredState"]}})
}

#[tokio::test]
async fn an_address_leaves_the_interface_of_an_earlier_desired_state() {
    let (mut rig, mut handlers) = two_nodes().await;
    rig.patch::<Policy>("s", moved("eth2")).await;
    settle(&mut rig, &mut handlers).await;
    assert_eq!((handlers.on("a/eth1").len(), handlers.on("a/eth2")), (0, vec!["10.0.0.1"]));
    // Two more changes; no handler sees the first, so the address is still on eth2.
    for interface in ["eth3", "eth4"] {
        rig.patch::<Policy>("s", moved(interface)).await;
        for _ in 0..4 {
            rig.step().await;
        }
    }
    // One node is not selected any more, so that another gets its address: there is no other.
    rig.patch::<Node>("a", json!({"metadata": {"labels": {"role": null}}})).await;
    rig.node("c", json!({"role": "storage", "kubernetes.io/hostname": "c"})).await;
    settle(&mut rig, &mut handlers).await;
    for interface in ["a/eth1", "a/eth2", "a/eth3", "a/eth4"] {
        assert_eq!(handlers.on(interface).len(), 0, "{interface}");
    }
    assert_eq!((handlers.on("c/eth4"), handlers.on("b/eth4")), (vec!["10.0.0.1"], vec!["10.0.0.2"]));
}

#[tokio::test]
async fn a_generated_policy_that_somebody_deletes_is_withdrawn_and_generated_again() {
    let (mut rig, mut handlers) = two_nodes().await;
    let before: Policy = rig.get("a.s").await.unwrap();
    rig.delete::<Policy>("a.s").await;
    settle(&mut rig, &mut handlers).await;
    let after: Policy = rig.get("a.s").await.unwrap();
    assert_ne!(before.uid(), after.uid());
    assert_eq!(handlers.on("a/eth1"), ["10.0.0.1"]);
    // The node is re-created, and what it owned is deleted.
    rig.delete::<Node>("a").await;
    rig.node("a", json!({"role": "storage", "kubernetes.io/hostname": "a"})).await;
    rig.delete::<Policy>("a.s").await;
    settle(&mut rig, &mut handlers).await;
    let last: Policy = rig.get("a.s").await.unwrap();
    let node: Node = rig.get("a").await.unwrap();
    assert_eq!(Some(&last.owner_references()[0].uid), node.uid().as_ref());
    assert_eq!((handlers.on("a/eth1"), rig.offsets("p").await), (vec!["10.0.0.1"], vec![0, 1]));
}
