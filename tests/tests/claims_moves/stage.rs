//! Three hosts on one Ethernet with an agent each, a controller, and pods that have a claim.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::moves::{self, NAMESPACE, Network};
use tenure_tests::programs;

/// The name of the cluster's default network.
pub const NETWORK: &str = "k8s";

/// An API server and a controller, with a network that lets addresses outlive pods.
pub struct Stage(moves::Stage);

impl Deref for Stage {
    type Target = moves::Stage;

    fn deref(&self) -> &moves::Stage {
        &self.0
    }
}

impl Stage {
    pub fn new() -> Self {
        let config =
            json!({"cniVersion": "1.1.0", "name": NETWORK, "type": "tenure", "allowPersistentIPs": true});
        let mut stage = moves::Stage::new(Network { plugin: programs::plugin(), config });
        stage.cluster.runtime.block_on(define_attachments(&stage.cluster));
        stage.control(&["--cluster-network".to_owned(), NETWORK.to_owned()]);
        stage.cluster.pool("default", 3, json!([{"ipv4": "10.64.0.0/22", "ipv6": "fd64::/118"}]));
        Self(stage)
    }

    /// Three hosts on one Ethernet, which find each other's addresses without a routing daemon.
    pub fn machines(&self, wire: &Arc<Segment>) -> [Machine<'_>; 3] {
        [1, 2, 3].map(|number| {
            let mut machine = Machine::on(&self.cluster, wire, number);
            machine.arguments = vec!["--route-blocks".to_owned()];
            machine.start();
            machine
        })
    }

    pub fn delete_claim(&self, name: &str) {
        self.cluster.runtime.block_on(self.claims().delete(name, &DeleteParams::default())).unwrap();
    }

    /// What the claim's annotation says of who has it.
    pub fn holders(&self, claim: &str) -> Value {
        let claim = self.cluster.runtime.block_on(self.claims().get(claim)).unwrap();
        let holders = claim.annotations().get("tenure/holders").cloned().unwrap_or_default();
        serde_json::from_str(&holders).unwrap_or_default()
    }

    /// Makes the attachment definition of a network.
    pub fn attachment(&self, name: &str, config: &Value) {
        let api: Api<NetworkAttachmentDefinition> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let spec = NetworkAttachmentDefinitionSpec { config: config.to_string() };
        let definition = NetworkAttachmentDefinition::new(name, spec);
        self.cluster.runtime.block_on(api.create(&PostParams::default(), &definition)).unwrap();
    }
}

/// All routes of a host that lead to an address, in all tables, as text.
pub fn routes_to(machine: &Machine<'_>, address: IpAddr) -> Vec<String> {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    let shown = machine.host.namespace().ip_json(&[family, "route", "show", "table", "all"]).unwrap();
    let to = address.to_string();
    let ours = shown.as_array().unwrap().iter().filter(|route| route["dst"] == to.as_str());
    ours.map(|route| format!("{}: {route}", machine.name)).collect()
}

/// Whether a host sends packets for an address to `target`, or to a pod of its own if it is that host.
pub fn sends_to(machine: &Machine<'_>, address: IpAddr, target: &Machine<'_>) -> bool {
    let Ok(shown) = machine.host.namespace().ip_json(&["route", "get", &address.to_string()]) else {
        return false;
    };
    let gateway = shown[0]["gateway"].as_str().and_then(|it| it.parse::<IpAddr>().ok());
    if machine.name == target.name {
        gateway.is_none()
    } else {
        gateway.is_some_and(|gateway| target.addresses.contains(&gateway))
    }
}

/// Other people's kind of networks.
async fn define_attachments(cluster: &Cluster) {
    let definition = include_str!("../../../deploy/optional/network-attachment-definitions.yaml");
    let definition: CustomResourceDefinition = serde_saphyr::from_str(definition).unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    api.create(&PostParams::default(), &definition).await.unwrap();
    let name = definition.name_any();
    let established = await_condition(api, &name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
}
