//! KubeVirt's kinds for tests of the controller, with KubeVirt's controllers played by hand: machines, their instances,
//! launcher pods with the labels, annotations and owners that KubeVirt gives them, and claims.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, IPAMClaimSpec};
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};

use crate::ranges::attachments;
use crate::{Running, until};

/// Ends a controller as a crash does, and lets no time pass until its lease has run out.
pub async fn crash(client: &Client, controller: Running) {
    controller.kill().await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    leases.delete("coil-ipam-leader", &DeleteParams::default()).await.unwrap();
}

/// Where machines, their pods and claims are.
pub const NS: &str = "default";

/// A definition of other people's kind: its real names, and a schema that keeps whatever it is given.
fn definition(group: &str, version: &str, kind: &str, plural: &str, scope: &str) -> CustomResourceDefinition {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Asked for where a group is Kubernetes' own.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// Makes KubeVirt's kinds known.
pub async fn define_machines(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (kind, plural) in
        [("VirtualMachine", "virtualmachines"), ("VirtualMachineInstance", "virtualmachineinstances")]
    {
        let definition = definition("kubevirt.io", "v1", kind, plural, "Namespaced");
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
}

/// Makes the kind known by which KubeVirt's ipam-extensions says that it is at work.
pub async fn define_webhooks(client: &Client) {
    let (group, kind) = ("admissionregistration.k8s.io", "MutatingWebhookConfiguration");
    let definition = definition(group, "v1", kind, "mutatingwebhookconfigurations", "Cluster");
    Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

pub fn machines(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NS, &kind("kubevirt.io", "VirtualMachine"))
}

pub fn instances(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NS, &kind("kubevirt.io", "VirtualMachineInstance"))
}

pub fn webhooks(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"))
}

pub fn claims(client: &Client) -> Api<IPAMClaim> {
    Api::namespaced(client.clone(), NS)
}

pub fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NS)
}

pub fn stateful_sets(client: &Client) -> Api<StatefulSet> {
    Api::namespaced(client.clone(), NS)
}

/// The webhook of KubeVirt's ipam-extensions, as its manifest has it.
pub async fn install_ipam_extensions(client: &Client) {
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kubevirt-ipam-controller-mutating-webhook-configuration"},
        "webhooks": [{"name": "ipam-claims.k8s.cni.cncf.io", "failurePolicy": "Fail"}],
    });
    let webhook = serde_json::from_value(webhook).unwrap();
    webhooks(client).create(&PostParams::default(), &webhook).await.unwrap();
}

/// A network of a range that opts in, or does not; by its attachment definition's name.
pub async fn network(client: &Client, name: &str, range: &str, persistent: bool) {
    let config = json!({
        "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "allowPersistentIPs": persistent,
        "ipam": {"type": "whereabouts", "range": range},
    });
    attachment(client, name, &config.to_string()).await;
}

/// An attachment definition with this configuration, made or changed.
pub async fn attachment(client: &Client, name: &str, config: &str) {
    let api = attachments(client, NS);
    if api.get_opt(name).await.unwrap().is_some() {
        let patch = Patch::Merge(json!({"spec": {"config": config}}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
        return;
    }
    let spec = NetworkAttachmentDefinitionSpec { config: config.to_owned() };
    api.create(&PostParams::default(), &NetworkAttachmentDefinition::new(name, spec)).await.unwrap();
}

/// What a machine's template or an instance says of its networks: logical name and attachment definition.
pub fn networks(networks: &[(&str, &str)]) -> Value {
    let interfaces: Vec<Value> =
        networks.iter().map(|(name, _)| json!({"name": name, "bridge": {}})).collect();
    let networks: Vec<Value> = networks
        .iter()
        .map(|(name, attachment)| match *attachment {
            "pod" => json!({"name": name, "pod": {}}),
            attachment => json!({"name": name, "multus": {"networkName": attachment}}),
        })
        .collect();
    json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks})
}

/// A machine, as a person makes it.
pub async fn machine(client: &Client, name: &str, of: &[(&str, &str)]) -> DynamicObject {
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": networks(of)}},
    });
    machines(client).create(&PostParams::default(), &serde_json::from_value(machine).unwrap()).await.unwrap()
}

/// An instance: what KubeVirt makes when the machine starts, or a person without a machine.
pub async fn instance(
    client: &Client,
    name: &str,
    owner: Option<&DynamicObject>,
    of: &[(&str, &str)],
) -> DynamicObject {
    let owners: Vec<Value> = owner
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": owner.name_any(), "uid": owner.uid(),
                "controller": true, "blockOwnerDeletion": true,
            })
        })
        .collect();
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        // KubeVirt's own finalizers keep an instance until its pods are gone.
        "metadata": {"name": name, "ownerReferences": owners, "finalizers": ["foregroundDeleteVirtualMachine"]},
        "spec": networks(of),
    });
    instances(client)
        .create(&PostParams::default(), &serde_json::from_value(instance).unwrap())
        .await
        .unwrap()
}

/// What the instance says of its pods: UID and node.
pub async fn active_pods(client: &Client, name: &str, pods: &Value) {
    let status = Patch::Merge(json!({"status": {"activePods": pods}}));
    instances(client).patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// KubeVirt is done with an instance that is being deleted, or deletes it because the machine was stopped.
pub async fn end_instance(client: &Client, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    instances(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
    let deleted = instances(client).delete(name, &DeleteParams::default()).await;
    assert!(
        deleted.is_ok() || matches!(&deleted, Err(kube::Error::Api(status)) if status.code == 404),
        "{deleted:?}"
    );
    until(&format!("instance {name} to go"), async || {
        instances(client).get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

pub fn in_the(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

/// The interface in the pod that KubeVirt makes for a logical network.
pub fn interface_of(network: &str) -> String {
    tenure_claims::names::machine_interface(network)
}

/// A launcher pod, as KubeVirt makes it: not scheduled yet.
pub async fn launcher(client: &Client, name: &str, of: &DynamicObject, networks: &[(&str, &str)]) -> Pod {
    let vmi = of.name_any();
    let selections: Vec<Value> = networks
        .iter()
        .map(|(network, attachment)| {
            json!({"name": attachment, "namespace": NS, "interface": interface_of(network)})
        })
        .collect();
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": of.uid(), "vm.kubevirt.io/name": vmi},
            "annotations": {"kubevirt.io/domain": vmi, "k8s.v1.cni.cncf.io/networks": json!(selections).to_string()},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vmi, "uid": of.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"containers": [{"name": "compute", "image": "launcher"}]},
    });
    pods(client).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

/// A pod that names its claims: network and claim.
pub async fn user_pod(client: &Client, name: &str, networks: &[(&str, &str)]) -> Pod {
    let selections: Vec<Value> = networks
        .iter()
        .map(
            |(attachment, claim)| json!({"name": attachment, "namespace": NS, "ipam-claim-reference": claim}),
        )
        .collect();
    let pod = json!({
        "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": json!(selections).to_string()}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    pods(client).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

/// The scheduler gives the pod a node.
pub async fn bind(client: &Client, pod: &str, node: &str) {
    super::have_node(client, node).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "namespace": NS},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = http::Request::post(format!("/api/v1/namespaces/{NS}/pods/{pod}/binding"))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&binding).unwrap())
        .unwrap();
    let _: Value = client.request(request).await.unwrap();
}

/// KubeVirt says that the machine runs in this pod now: its node in a label, and since when in an annotation.
pub async fn runs_in(client: &Client, pod: &str, node: &str, since: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {
        "labels": {"kubevirt.io/nodeName": node},
        "annotations": {"kubevirt.io/migration-target-ready-timestamp": since},
    }}));
    pods(client).patch(pod, &PatchParams::default(), &patch).await.unwrap();
}

/// Puts an annotation on a pod.
pub async fn annotate(client: &Client, pod: &str, key: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    pods(client).patch(pod, &PatchParams::default(), &patch).await.unwrap();
}

/// The pod's phase changes.
pub async fn phase(client: &Client, pod: &str, phase: &str) {
    let status = Patch::Merge(json!({"status": {"phase": phase}}));
    pods(client).patch_status(pod, &PatchParams::default(), &status).await.unwrap();
}

/// The pod is gone at once.
pub async fn kill(client: &Client, pod: &str) {
    pods(client).delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
}

/// A claim that a person makes.
pub async fn claim(client: &Client, name: &str, network: &str, interface: &str) -> IPAMClaim {
    let spec = IPAMClaimSpec { network: network.to_owned(), interface: interface.to_owned() };
    claims(client).create(&PostParams::default(), &IPAMClaim::new(name, spec)).await.unwrap()
}

/// Waits for a claim of that name.
pub async fn claimed(client: &Client, name: &str) -> IPAMClaim {
    until(&format!("claim {name}"), async || claims(client).get_opt(name).await.unwrap()).await
}

/// Waits until there is no claim of that name.
pub async fn unclaimed(client: &Client, name: &str) {
    until(&format!("claim {name} to go"), async || {
        claims(client).get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// The names of all claims.
pub async fn all_claims(client: &Client) -> Vec<String> {
    let all = claims(client).list(&ListParams::default()).await.unwrap();
    all.iter().map(ResourceExt::name_any).collect()
}
