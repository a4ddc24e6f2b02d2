//! An embedded API server with faults before it, an agent without a kernel whose service is called as the plugin calls it, and the
//! controller's writes, one at a time.

mod agents;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Namespace, Node as KubeNode, Pod as KubePod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, annotation};
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_claims::status::RecordLocation;
use tenure_claims::{Slot, Slots, status};
use tenure_controller::{Controller, Settings as ControllerSettings};
use tenure_handles::{Clock as _, SeededEntropy};
use tenure_ipam::{Address, Cidr, Family};
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule};
use tenure_whereabouts::slices::{NETWORK, slice_pools};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) use super::kinds::*;
use crate::claims::Claims;
use crate::drive::Handle;
use crate::journal::Image;
use crate::node::Action;
use crate::serve::Service;
pub(super) use crate::testing::{a_moment, until};

const SYSTEM: &str = "kube-system";
/// One namespace for each kind of network, so that they can share a server.
pub(super) const NAMESPACES: [&str; 6] = ["shop", "shop-1", "shop-2", "shop-3", "shop-4", "shop-5"];

/// An API server, and a namespace of it.
pub(super) struct Bed {
    pub(super) server: LocalApi,
    /// Without faults.
    pub(super) client: Client,
    /// Between the agent and the server.
    pub(super) faults: Faults,
    directory: tempfile::TempDir,
    /// The namespace of pods and claims here.
    pub(super) namespace: &'static str,
    /// The network of claims here.
    pub(super) net: String,
}

/// A pod's interface: the pod's name and UID, the container, the interface.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) namespace: &'static str,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) interface: String,
}

/// The agent of node-1. It ends when this is dropped.
pub(super) struct Agent {
    pub(super) node: Handle,
    pub(super) claims: Claims,
    pub(super) service: Service<RuntimeClock>,
    pub(super) journal: Arc<Mutex<Image>>,
    /// What the kernel was asked for.
    pub(super) asked: Arc<Mutex<Vec<Action>>>,
    pub(super) tombstones: PathBuf,
    _life: DropGuard,
}

impl Bed {
    /// With all kinds.
    pub(super) async fn new() -> Self {
        let bed = Self::without_claims().await;
        bed.define_claims().await;
        bed
    }

    /// With all kinds, and a controller until the guard is dropped: node-1 has the first block of the pool `default`.
    pub(super) async fn controlled() -> (Self, DropGuard) {
        let bed = Self::new().await;
        bed.create::<KubeNode>(json!({"metadata": {"name": "node-1"}})).await;
        let subnets = json!([{"ipv4": "10.1.0.0/16", "ipv6": "fd01::/112"}]);
        let spec = json!({"blockSizeBits": 8, "subnets": subnets});
        bed.create::<AddressPool>(json!({"metadata": {"name": "default"}, "spec": spec})).await;
        let labels = json!({"coil.cybozu.com/pool": "default", "coil.cybozu.com/node": "node-1"});
        let metadata = json!({"name": "default-0", "labels": labels, "finalizers": ["coil.cybozu.com"]});
        let block = json!({"metadata": metadata, "index": 0, "ipv4": "10.1.0.0/24", "ipv6": "fd01::/120"});
        bed.create::<AddressBlock>(block).await;
        let stop = CancellationToken::new();
        let controller = Controller::new(bed.client.clone(), RuntimeClock, ControllerSettings::new("test"));
        tokio::spawn(controller.run(stop.clone()));
        (bed, stop.drop_guard())
    }

    async fn create<K>(&self, json: Value)
    where
        K: kube::Resource<DynamicType = ()>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(json).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap();
    }

    /// One that does not know the kind of claims.
    pub(super) async fn without_claims() -> Self {
        let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(17));
        let client = server.client();
        for name in NAMESPACES.into_iter().chain([SYSTEM, "other"]) {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let namespaces: Api<Namespace> = Api::all(client.clone());
            drop(namespaces.create(&PostParams::default(), &namespace).await);
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let groups = [tenure_api::whereabouts::GROUP, tenure_api::coil::GROUP];
        let ours = tenure_api::crds().into_iter().filter(|crd| groups.contains(&crd.spec.group.as_str()));
        for crd in ours.chain([network_attachments()]) {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        Self::of(server, NAMESPACES[0], "net")
    }

    /// A namespace of a server.
    pub(super) fn of(server: LocalApi, namespace: &'static str, net: &str) -> Self {
        let (client, directory) = (server.client(), tempfile::tempdir().unwrap());
        Self { server, client, faults: Faults::seeded(17), directory, namespace, net: net.to_owned() }
    }

    pub(super) async fn define_claims(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.create(&PostParams::default(), &tenure_api::claims::crd()).await.unwrap();
    }

    /// Makes a pod of node-1 with these annotations.
    pub(super) async fn pod(&self, name: &str, annotations: Value) -> At {
        self.pod_of(name, json!({"annotations": annotations})).await
    }

    /// Makes a pod of node-1 with this metadata; says its first interface that is not `eth0`.
    pub(super) async fn pod_of(&self, name: &str, mut metadata: Value) -> At {
        let namespace = self.namespace;
        metadata["name"] = json!(name);
        let spec = json!({"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        At {
            namespace,
            pod: name.to_owned(),
            uid: pod.uid().unwrap(),
            container: format!("c-{name}"),
            interface: "net1".into(),
        }
    }

    /// Makes a pod of node-1 whose `net1` refers to a claim.
    pub(super) async fn refers(&self, name: &str, claim: &str) -> At {
        let networks = json!([{"name": "any", "ipam-claim-reference": claim}]).to_string();
        self.pod(name, json!({annotation::NETWORKS: networks})).await
    }

    pub(super) async fn delete_pod(&self, at: &At) {
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), at.namespace);
        pods.delete(&at.pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    pub(super) async fn annotate(&self, at: &At, annotations: Value) {
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), at.namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        pods.patch(&at.pod, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) fn claims(&self, namespace: &str) -> Api<IPAMClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a claim of the network.
    pub(super) async fn claim(&self, name: &str) -> IPAMClaim {
        self.claim_with(self.namespace, json!({"name": name}), &self.net, "").await
    }

    pub(super) async fn claim_with(
        &self,
        namespace: &str,
        metadata: Value,
        network: &str,
        interface: &str,
    ) -> IPAMClaim {
        let spec = json!({"network": network, "interface": interface});
        let claim = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        self.claims(namespace).create(&PostParams::default(), &claim).await.unwrap()
    }

    /// What the controller writes: the record, and then the status.
    pub(super) async fn give(&self, claim: &IPAMClaim, ips: &[&str]) {
        let places = self.record(claim, ips).await;
        self.say(claim, ips, &places).await;
    }

    /// A status that says where the addresses are on record.
    pub(super) async fn say(&self, claim: &IPAMClaim, ips: &[&str], places: &[RecordLocation]) {
        let addresses: Vec<(Address, u8)> = ips.iter().map(|text| parsed(text)).collect();
        self.set_status(claim, json!(status::allocated(claim, &addresses, places, RuntimeClock.now()))).await;
    }

    /// The record of a claim, in objects of its own: a floating block for what is routed, and a ledger for each address that
    /// is not. Where they are.
    pub(super) async fn record(&self, claim: &IPAMClaim, ips: &[&str]) -> Vec<RecordLocation> {
        let uid = claim.uid().unwrap();
        let routed = |text: &&str| parsed(text).0.family().bits() == parsed(text).1;
        let (routed, others): (Vec<&str>, Vec<&str>) = ips.iter().copied().partition(routed);
        let mut places = Vec::new();
        if !routed.is_empty() {
            let of = |family: Family| routed.iter().find(|it| parsed(it).0.family() == family);
            let name = format!("proof-{uid}-0");
            let record = json!({"namespace": claim.namespace(), "name": claim.name_any(), "uid": uid});
            let block = json!({
                "metadata": {"name": name, "labels": {"tenure/floating": "true"}}, "index": 0,
                "ipv4": of(Family::V4), "ipv6": of(Family::V6), "claims": {"0": record},
            });
            self.create::<AddressBlock>(block).await;
            places.push(RecordLocation::Block(name));
        }
        for (number, ip) in others.into_iter().enumerate() {
            let name = format!("proof-{uid}-{number}");
            let (address, prefix) = parsed(ip);
            let first = Cidr::new(address, prefix).unwrap().first();
            let offset = address.distance_from(first).unwrap().to_string();
            let record = json!({"id": format!("claim/{uid}"), "podref": format!("{}/{}", self.namespace, claim.name_any())});
            let ledger = json!({
                "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
                "metadata": {"name": name}, "spec": {"range": ip, "allocations": {offset: record}},
            });
            let ledgers: Api<IPPool> = Api::namespaced(self.client.clone(), SYSTEM);
            ledgers.create(&PostParams::default(), &serde_json::from_value(ledger).unwrap()).await.unwrap();
            places.push(RecordLocation::Ledger(name));
        }
        places
    }

    /// The record of a claim names these pods.
    pub(super) async fn name(&self, claim: &IPAMClaim, pods: &[(&At, &str)]) {
        let uid = claim.uid().unwrap();
        let pods: Value =
            pods.iter().map(|(at, node)| json!({"name": at.pod, "uid": at.uid, "node": node})).collect();
        let patching = PatchParams::default();
        let blocks: Api<AddressBlock> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"claims": {"0": {"pods": pods}}}));
        drop(blocks.patch(&format!("proof-{uid}-0"), &patching, &patch).await);
        let ledgers: Api<IPPool> = Api::namespaced(self.client.clone(), SYSTEM);
        for number in 0..2 {
            let name = format!("proof-{uid}-{number}");
            let Ok(Some(ledger)) = ledgers.get_opt(&name).await else { continue };
            let keys = ledger.spec.allocations.into_keys();
            let named: serde_json::Map<_, _> = keys.map(|key| (key, json!({"pods": pods}))).collect();
            let patch = Patch::Merge(json!({"spec": {"allocations": named}}));
            ledgers.patch(&name, &patching, &patch).await.unwrap();
        }
    }

    pub(super) async fn set_status(&self, claim: &IPAMClaim, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let claims = self.claims(&claim.namespace().unwrap());
        claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// What the controller writes when pods may use a claim: the first is the active one. All are of node-1.
    pub(super) async fn let_in(&self, claim: &IPAMClaim, pods: &[&At]) {
        let slots: Vec<(&At, &str)> = pods.iter().map(|at| (*at, "node-1")).collect();
        self.let_in_on(claim, &slots).await;
    }

    pub(super) async fn let_in_on(&self, claim: &IPAMClaim, pods: &[(&At, &str)]) {
        self.name(claim, pods).await;
        self.hold(claim, pods).await;
    }

    /// The annotation that says who has a claim.
    pub(super) async fn hold(&self, claim: &IPAMClaim, pods: &[(&At, &str)]) {
        let slot = |(at, node): &(&At, &str)| Slot {
            pod: at.pod.clone(),
            uid: at.uid.clone(),
            node: (*node).to_owned(),
            stamp: None,
        };
        let mut slots = pods.iter().map(slot);
        let slots = Slots { active: slots.next(), incoming: slots.next(), number: 1, last: None };
        let patch = json!({"metadata": {"annotations": {annotation::HOLDERS: slots.to_annotation()}}});
        let claims = self.claims(&claim.namespace().unwrap());
        claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A claim of the network with these addresses, which a pod may use.
    pub(super) async fn claim_for(&self, name: &str, ips: &[&str], at: &At) -> IPAMClaim {
        let claim = self.claim(name).await;
        self.give(&claim, ips).await;
        self.let_in(&claim, &[at]).await;
        claim
    }

    /// What claims and ledgers say, to see that it stays.
    pub(super) async fn everything(&self) -> Vec<String> {
        let all: Api<IPAMClaim> = Api::all(self.client.clone());
        let pools: Api<IPPool> = Api::all(self.client.clone());
        let claims = all.list(&ListParams::default()).await.unwrap().items;
        let pools = pools.list(&ListParams::default()).await.unwrap().items;
        let claims = claims.iter().map(|claim| json!(claim).to_string());
        claims.chain(pools.iter().map(|pool| json!(pool.spec.allocations).to_string())).collect()
    }

    /// Makes a network that pods may name.
    pub(super) async fn network(&self, name: &str, config: &Value) {
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name}, "spec": {"config": config.to_string()},
        });
        let networks: Api<tenure_api::networks::NetworkAttachmentDefinition> =
            Api::namespaced(self.client.clone(), self.namespace);
        networks.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }

    /// Cuts a network's ranges: the first slice is node-1's.
    pub(super) async fn cut(&self, network: &Value) {
        let config = tenure_whereabouts::Config::load(
            network,
            None,
            &tenure_whereabouts::config::Arguments::default(),
        )
        .unwrap();
        let pools: Api<NodeSlicePool> = Api::namespaced(self.client.clone(), SYSTEM);
        for (name, cut) in slice_pools(&config).unwrap() {
            let slice = cut.iter().next().unwrap().to_string();
            let pool = json!({
                "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
                "metadata": {"name": name, "annotations": {NETWORK: config.network}},
                "spec": {"range": cut.whole().to_string(), "sliceSize": format!("/{}", cut.prefix())},
                "status": {"allocations": [{"nodeName": "node-1", "sliceRange": slice}]},
            });
            let pool = serde_json::from_value(pool).unwrap();
            pools.create(&PostParams::default(), &pool).await.unwrap();
        }
        crate::testing::tell(&self.client, SYSTEM, "node-1").await;
    }

    /// Nothing reaches the server any more, and open watches end.
    pub(super) fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    /// As [`Agent::holds`] says it.
    pub(super) fn claim_use(&self, container: &str, claim: &str, reached: bool) -> String {
        format!("{container} {}/{claim} {reached}", self.namespace)
    }

    /// How often the agent called for something.
    pub(super) fn calls(&self, calls: &Calls) -> u64 {
        self.faults.tally(calls).asked
    }
}

fn network_attachments() -> CustomResourceDefinition {
    let names = json!({
        "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
        "kind": "NetworkAttachmentDefinition", "listKind": "NetworkAttachmentDefinitionList",
    });
    let spec = json!({"type": "object", "properties": {"config": {"type": "string"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    serde_json::from_value(json!({
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    }))
    .unwrap()
}

pub(super) fn parsed(text: &str) -> (Address, u8) {
    let (address, prefix) = text.split_once('/').unwrap();
    (address.parse().unwrap(), prefix.parse().unwrap())
}
