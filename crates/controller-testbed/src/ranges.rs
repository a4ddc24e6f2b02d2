//! Whereabouts' objects for tests of the controller: attachment definitions, ledgers, reservations, pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_api::whereabouts::{
    Allocation, IPPool, IPPoolSpec, NodeSlicePool, OverlappingRangeIPReservation,
    OverlappingRangeIPReservationSpec,
};

use crate::until;

pub const NAMESPACE: &str = "kube-system";
pub const STATE: &str = "whereabouts.cni.cncf.io/state";

/// The definition of other people's kind, as `deploy/optional` has it.
pub fn attachment_crd() -> CustomResourceDefinition {
    let text = include_str!("../../../deploy/optional/network-attachment-definitions.yaml");
    serde_saphyr::from_str(text).unwrap()
}

/// The kind, and a namespace for definitions that are not where the ledgers are.
pub async fn define_attachments(client: &Client) {
    let apps: Namespace = serde_json::from_value(json!({"metadata": {"name": "apps"}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &apps).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &attachment_crd()).await.unwrap();
}

pub fn slice_pools(client: &Client) -> Api<NodeSlicePool> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub fn ledgers(client: &Client) -> Api<IPPool> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub fn reservations(client: &Client) -> Api<OverlappingRangeIPReservation> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub fn attachments(client: &Client, namespace: &str) -> Api<NetworkAttachmentDefinition> {
    Api::namespaced(client.clone(), namespace)
}

/// A network attachment definition, made or changed.
pub async fn attach(client: &Client, namespace: &str, name: &str, ipam: &Value) {
    let mut config =
        json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "ipam": ipam});
    config["ipam"]["type"] = json!("whereabouts");
    let api = attachments(client, namespace);
    if api.get_opt(name).await.unwrap().is_some() {
        let patch = Patch::Merge(json!({"spec": {"config": config.to_string()}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
        return;
    }
    let spec = NetworkAttachmentDefinitionSpec { config: config.to_string() };
    api.create(&PostParams::default(), &NetworkAttachmentDefinition::new(name, spec)).await.unwrap();
}

pub async fn detach(client: &Client, namespace: &str, name: &str) {
    attachments(client, namespace).delete(name, &DeleteParams::default()).await.unwrap();
}

/// The slices of a pool that have a node: node and slice.
pub fn given(pool: &NodeSlicePool) -> Vec<(String, String)> {
    let slices = pool.status.iter().flat_map(|status| &status.allocations);
    let given = slices.filter(|slice| !slice.node_name.is_empty());
    given.map(|slice| (slice.node_name.clone(), slice.slice_range.clone())).collect()
}

/// Waits until a pool's slices are these nodes'.
pub async fn slices(client: &Client, pool: &str, nodes: &[&str]) -> NodeSlicePool {
    until(&format!("slices of {pool} for {nodes:?}"), async || {
        let pool = slice_pools(client).get_opt(pool).await.ok()??;
        let mut have: Vec<String> = given(&pool).into_iter().map(|(node, _)| node).collect();
        have.sort();
        (have == nodes).then_some(pool)
    })
    .await
}

/// What a condition says: status, reason, message.
pub fn condition(pool: &NodeSlicePool, type_: &str) -> (String, String, String) {
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|condition| condition.type_ == type_).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

pub fn record(podref: &str, ifname: &str) -> Allocation {
    let id = format!("c-{}", podref.replace('/', "-"));
    Allocation { id, podref: podref.to_owned(), ifname: Some(ifname.to_owned()), ..Allocation::default() }
}

/// A ledger as a node's agent or Whereabouts leaves it. What the controller has told the node in it stays.
pub async fn ledger(
    client: &Client,
    name: &str,
    range: &str,
    node: Option<&str>,
    state: Option<&str>,
    records: &[(&str, &str)],
) -> IPPool {
    let allocations =
        records.iter().map(|(key, podref)| ((*key).to_owned(), record(podref, "net1"))).collect();
    let mut pool = IPPool::new(name, IPPoolSpec { range: range.to_owned(), allocations });
    let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    pool.metadata.labels = node.map(|node| pair("whereabouts.cni.cncf.io/node", node));
    pool.metadata.annotations = state.map(|state| pair(STATE, state));
    let (plain, api) = (PostParams::default(), ledgers(client));
    loop {
        let written = match api.get_opt(name).await.unwrap() {
            None => api.create(&plain, &pool).await,
            Some(mut known) => {
                known.labels_mut().extend(pool.labels().clone());
                known.annotations_mut().extend(pool.annotations().clone());
                known.spec.allocations.clone_from(&pool.spec.allocations);
                api.replace(name, &plain, &known).await
            }
        };
        match written {
            // The controller was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            written => return written.unwrap(),
        }
    }
}

/// The records of a ledger: key and pod.
pub async fn records(client: &Client, name: &str) -> Vec<(String, String)> {
    let pool = ledgers(client).get(name).await.unwrap();
    pool.spec.allocations.into_iter().map(|(key, record)| (key, record.podref)).collect()
}

pub async fn reserve(client: &Client, name: &str, podref: &str) {
    let spec = OverlappingRangeIPReservationSpec {
        podref: podref.to_owned(),
        ifname: Some("net1".to_owned()),
        containerid: None,
    };
    let reservation = OverlappingRangeIPReservation::new(name, spec);
    reservations(client).create(&PostParams::default(), &reservation).await.unwrap();
}

/// A pod that runs, with the addresses that its network status has, or none.
pub async fn pod(client: &Client, name: &str, addresses: Option<&[&str]>) {
    let status = addresses.map(|ips| json!([{"name": "default/net", "interface": "net1", "ips": ips}]));
    let annotations = status.map(|status| json!({"k8s.v1.cni.cncf.io/network-status": status.to_string()}));
    let pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
    });
    pods(client).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    phase(client, name, "Running").await;
}

pub async fn phase(client: &Client, name: &str, phase: &str) {
    let status = Patch::Merge(json!({"status": {"phase": phase}}));
    pods(client).patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

pub fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

pub async fn delete_pod(client: &Client, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    pods(client).delete(name, &now).await.unwrap();
}

/// Waits for an event of that reason about that object.
pub async fn told(client: &Client, namespace: &str, reason: &str, about: &str) -> Event {
    until(&format!("an event {reason} about {about}"), async || {
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find(|event| {
            event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(about)
        })
    })
    .await
}

/// The state that a ledger's annotation says.
pub fn state(pool: &IPPool) -> Option<String> {
    pool.annotations().get(STATE).cloned()
}
