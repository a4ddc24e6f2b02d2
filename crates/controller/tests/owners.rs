//! Claims for machines, played with KubeVirt's kinds and none of its programs, and for StatefulSets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::machines::{
    active_pods, all_claims, attachment, bind, claim, claimed, claims, crash, define_machines,
    define_webhooks, end_instance, in_the, install_ipam_extensions, instance, instances, interface_of, kill,
    launcher, machine, machines, network, pods, stateful_sets, unclaimed, webhooks,
};
use bed::ranges::{define_attachments, told};
use bed::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{IPAMClaim, KUBEVIRT_FINALIZER};
use tenure_claims::Slots;
use tenure_controller_testbed as bed;

/// Long enough for several rounds of the controller.
const A_WHILE: Duration = Duration::from_millis(200);

/// A server with KubeVirt's kinds and a network that opts in, and a controller on it.
async fn started(seed: u64) -> (Client, Running) {
    let client = server(seed).await.client();
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    let controller = start(client.clone(), "a");
    (client, controller)
}

async fn a_while() {
    tokio::time::sleep(A_WHILE).await;
}

fn owner(claim: &IPAMClaim) -> OwnerReference {
    let owners = claim.metadata.owner_references.clone().unwrap();
    assert_eq!(owners.len(), 1, "{owners:?}");
    owners[0].clone()
}

/// Changes what a machine's template says of its networks.
async fn replug(client: &Client, name: &str, of: &Value) {
    let patch = Patch::Merge(json!({"spec": {"template": {"spec": of}}}));
    machines(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_made_for_each_interface_on_a_network_that_opts_in_when_the_machine_is_created() {
    let (client, controller) = started(601).await;
    network(&client, "plain", "10.1.0.0/24", false).await;
    let vm = machine(&client, "vm", &[("data", "blue"), ("other", "plain"), ("default", "pod")]).await;
    let claim = claimed(&client, "vm.data").await;
    assert_eq!((claim.spec.network.as_str(), claim.spec.interface.clone()), ("blue", interface_of("data")));
    assert_eq!(claim.labels().get("kubevirt.io/vm").map(String::as_str), Some("vm"));
    assert_eq!(claim.finalizers(), [KUBEVIRT_FINALIZER]);
    let of = owner(&claim);
    assert_eq!((of.api_version.as_str(), of.kind.as_str()), ("kubevirt.io/v1", "VirtualMachine"));
    assert_eq!((of.name.as_str(), Some(of.uid)), ("vm", vm.uid()));
    assert_eq!((of.controller, of.block_owner_deletion), (Some(true), Some(true)));
    a_while().await;
    assert_eq!(all_claims(&client).await, ["vm.data"], "nothing for a network that does not opt in");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_interfaces_on_one_network_are_two_claims() {
    let (client, controller) = started(602).await;
    machine(&client, "vm", &[("one", "blue"), ("two", "blue")]).await;
    let (one, two) = (claimed(&client, "vm.one").await, claimed(&client, "vm.two").await);
    assert_eq!((one.spec.network.as_str(), two.spec.network.as_str()), ("blue", "blue"));
    assert_ne!(one.spec.interface, two.spec.interface);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hot_plug_makes_a_claim_and_hot_unplug_deletes_it() {
    let (client, controller) = started(603).await;
    let vm = machine(&client, "vm", &[("data", "blue")]).await;
    let vmi = instance(&client, "vm", Some(&vm), &[("data", "blue")]).await;
    let kept = claimed(&client, "vm.data").await.uid();
    let both = bed::machines::networks(&[("data", "blue"), ("more", "blue")]);
    replug(&client, "vm", &both).await;
    claimed(&client, "vm.more").await;
    let plugged = Patch::Merge(json!({"spec": both}));
    instances(&client).patch(&vmi.name_any(), &PatchParams::default(), &plugged).await.unwrap();
    // A person takes it out; KubeVirt does so in the instance a moment later.
    let mut absent = both.clone();
    absent["domain"]["devices"]["interfaces"][1]["state"] = json!("absent");
    replug(&client, "vm", &absent).await;
    a_while().await;
    claimed(&client, "vm.more").await;
    let unplugged = Patch::Merge(json!({"spec": absent}));
    instances(&client).patch(&vmi.name_any(), &PatchParams::default(), &unplugged).await.unwrap();
    unclaimed(&client, "vm.more").await;
    assert_eq!(claimed(&client, "vm.data").await.uid(), kept, "the other is none of its business");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_stopped_and_started_keeps_its_claim() {
    let (client, controller) = started(604).await;
    let of = [("data", "blue")];
    let vm = machine(&client, "vm", &of).await;
    instance(&client, "vm", Some(&vm), &of).await;
    let kept = claimed(&client, "vm.data").await.uid();
    end_instance(&client, "vm").await;
    a_while().await;
    assert_eq!(claimed(&client, "vm.data").await.uid(), kept);
    instance(&client, "vm", Some(&vm), &of).await;
    a_while().await;
    let claim = claimed(&client, "vm.data").await;
    assert_eq!((claim.uid(), claim.finalizers().len()), (kept, 1));
    controller.stop().await;
}

/// A machine with an instance or without goes, and its claim with it but not before its instance.
async fn goes(seed: u64, policy: PropagationPolicy, runs: bool) {
    let (client, controller) = started(seed).await;
    let of = [("data", "blue")];
    let vm = machine(&client, "vm", &of).await;
    if runs {
        instance(&client, "vm", Some(&vm), &of).await;
        active_pods(&client, "vm", &json!({"some-uid": "node1"})).await;
    }
    claimed(&client, "vm.data").await;
    machines(&client).delete("vm", &in_the(policy)).await.unwrap();
    if runs {
        a_while().await;
        claimed(&client, "vm.data").await;
        end_instance(&client, "vm").await;
    }
    unclaimed(&client, "vm.data").await;
    until("the machine to go", async || {
        machines(&client).get_opt("vm").await.unwrap().is_none().then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_that_is_deleted_in_the_background_frees_its_claim_after_its_instance_is_gone() {
    goes(605, PropagationPolicy::Background, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_that_is_deleted_in_the_foreground_frees_its_claim_after_its_instance_is_gone() {
    goes(606, PropagationPolicy::Foreground, true).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_machine_that_is_deleted_in_the_background_frees_its_claim() {
    goes(607, PropagationPolicy::Background, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_machine_that_is_deleted_in_the_foreground_frees_its_claim() {
    goes(608, PropagationPolicy::Foreground, false).await;
}

#[tokio::test(start_paused = true)]
async fn an_extra_finalizer_on_the_instance_keeps_the_claim_in_foreground_deletion() {
    let (client, controller) = started(609).await;
    let of = [("data", "blue")];
    let vm = machine(&client, "vm", &of).await;
    instance(&client, "vm", Some(&vm), &of).await;
    let extra = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/extra"]}}));
    instances(&client).patch("vm", &PatchParams::default(), &extra).await.unwrap();
    claimed(&client, "vm.data").await;
    machines(&client).delete("vm", &in_the(PropagationPolicy::Foreground)).await.unwrap();
    until("the claim to be on its way out", async || {
        claims(&client).get("vm.data").await.unwrap().metadata.deletion_timestamp
    })
    .await;
    a_while().await;
    assert_eq!(claimed(&client, "vm.data").await.finalizers(), [KUBEVIRT_FINALIZER]);
    end_instance(&client, "vm").await;
    unclaimed(&client, "vm.data").await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_a_machine_works_the_same() {
    let (client, controller) = started(610).await;
    let vmi = instance(&client, "bare", None, &[("data", "blue")]).await;
    active_pods(&client, "bare", &json!({"some-uid": "node1"})).await;
    let claim = claimed(&client, "bare.data").await;
    let of = owner(&claim);
    assert_eq!((of.kind.as_str(), Some(of.uid)), ("VirtualMachineInstance", vmi.uid()));
    instances(&client).delete("bare", &DeleteParams::default()).await.unwrap();
    a_while().await;
    assert_eq!(claimed(&client, "bare.data").await.finalizers(), [KUBEVIRT_FINALIZER], "its pod still runs");
    end_instance(&client, "bare").await;
    unclaimed(&client, "bare.data").await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_ipam_extensions_is_at_work_no_claim_is_made_or_touched() {
    let client = server(611).await.client();
    define_webhooks(&client).await;
    install_ipam_extensions(&client).await;
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    let controller = start(client.clone(), "a");
    until("it to lead", async || controller.leads().then_some(())).await;
    let vm = machine(&client, "vm", &[("data", "blue")]).await;
    a_while().await;
    assert!(all_claims(&client).await.is_empty());
    // Its own claim, of a machine that is gone: it takes its finalizer off by itself.
    let theirs = json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
        "metadata": {
            "name": "vm.data", "labels": {"kubevirt.io/vm": "vm"}, "finalizers": [KUBEVIRT_FINALIZER],
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": vm.uid().unwrap(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"network": "blue", "interface": ""},
    });
    claims(&client).create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    machines(&client).delete("vm", &DeleteParams::default()).await.unwrap();
    a_while().await;
    assert_eq!(claimed(&client, "vm.data").await.finalizers(), [KUBEVIRT_FINALIZER]);
    // It is uninstalled: what it left is looked after.
    webhooks(&client)
        .delete("kubevirt-ipam-controller-mutating-webhook-configuration", &DeleteParams::default())
        .await
        .unwrap();
    unclaimed(&client, "vm.data").await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn beside_ipam_extensions_machines_on_the_clusters_network_have_their_claims() {
    let client = server(630).await.client();
    define_webhooks(&client).await;
    install_ipam_extensions(&client).await;
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    pool(&client, "default", 5, "10.20.0.0/16").await;
    let settings =
        tenure_controller::Settings { cluster_network: Some("tenure".to_owned()), ..settings("a") };
    let controller = start_with(client.clone(), settings);
    machine(&client, "vm", &[("default", "pod"), ("data", "blue")]).await;
    let made = claimed(&client, "vm.default").await;
    assert_eq!((made.spec.network.as_str(), made.spec.interface.as_str()), ("tenure", "eth0"));
    a_while().await;
    assert_eq!(all_claims(&client).await.len(), 1, "the other one is not ours to make");
    machines(&client).delete("vm", &DeleteParams::default()).await.unwrap();
    unclaimed(&client, "vm.default").await;
    // A namespace whose pods' own network is another: the extensions make the claim.
    attachment(&client, "primary", r#"{"name": "udn", "role": "primary", "allowPersistentIPs": true}"#).await;
    machine(&client, "other", &[("default", "pod")]).await;
    a_while().await;
    assert!(all_claims(&client).await.is_empty());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_network_that_cannot_be_read_is_told_on_the_machine_and_its_claim_is_made_when_that_is_mended() {
    let (client, controller) = started(612).await;
    attachment(&client, "broken", "{\"name\": \"broken\",").await;
    machine(&client, "vm", &[("data", "broken"), ("missing", "nowhere")]).await;
    let event = told(&client, "default", "ClaimNotMade", "vm").await;
    assert_eq!(event.involved_object.kind.as_deref(), Some("VirtualMachine"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(all_claims(&client).await.is_empty());
    network(&client, "broken", "10.2.0.0/24", true).await;
    claimed(&client, "vm.data").await;
    network(&client, "nowhere", "10.3.0.0/24", true).await;
    claimed(&client, "vm.missing").await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_claims_name_is_taken_waits_says_so_and_gets_its_claim_as_soon_as_that_is_gone() {
    let (client, controller) = started(613).await;
    claim(&client, "vm.data", "blue", "net1").await;
    machine(&client, "vm", &[("data", "blue")]).await;
    let event = told(&client, "default", "ClaimNameTaken", "vm").await;
    assert!(event.message.unwrap().contains("belongs to nobody"));
    assert!(claimed(&client, "vm.data").await.owner_references().is_empty(), "a person's claim stays theirs");
    claims(&client).delete("vm.data", &DeleteParams::default()).await.unwrap();
    until("its own claim", async || {
        let claim = claims(&client).get_opt("vm.data").await.unwrap()?;
        (!claim.owner_references().is_empty()).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_made_again_under_its_name_gets_a_claim_of_its_own() {
    let (client, controller) = started(614).await;
    let of = [("data", "blue")];
    let vm = machine(&client, "vm", &of).await;
    instance(&client, "vm", Some(&vm), &of).await;
    active_pods(&client, "vm", &json!({"some-uid": "node1"})).await;
    let first = claimed(&client, "vm.data").await;
    machines(&client).delete("vm", &in_the(PropagationPolicy::Background)).await.unwrap();
    let again = machine(&client, "vm", &of).await;
    a_while().await;
    assert_eq!(claimed(&client, "vm.data").await.uid(), first.uid(), "its pod still runs");
    end_instance(&client, "vm").await;
    let second = until("the claim of the second", async || {
        claims(&client).get_opt("vm.data").await.unwrap().filter(|claim| claim.uid() != first.uid())
    })
    .await;
    assert_eq!(Some(owner(&second).uid), again.uid());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_no_controller_ran_is_found_at_its_start() {
    let (client, controller) = started(615).await;
    let of = [("data", "blue")];
    machine(&client, "goes", &of).await;
    let stays = machine(&client, "stays", &of).await;
    claimed(&client, "goes.data").await;
    claimed(&client, "stays.data").await;
    crash(&client, controller).await;
    machines(&client).delete("goes", &in_the(PropagationPolicy::Foreground)).await.unwrap();
    machine(&client, "new", &of).await;
    let both = bed::machines::networks(&[("more", "blue")]);
    replug(&client, "stays", &both).await;
    a_while().await;
    assert_eq!(all_claims(&client).await, ["goes.data", "stays.data"]);
    let controller = start(client.clone(), "b");
    unclaimed(&client, "goes.data").await;
    unclaimed(&client, "stays.data").await;
    claimed(&client, "new.data").await;
    assert_eq!(Some(owner(&claimed(&client, "stays.more").await).uid), stays.uid());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kubevirts_kinds_that_come_late_are_found() {
    let client = server(616).await.client();
    define_attachments(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    let controller = start(client.clone(), "a");
    until("it to lead", async || controller.leads().then_some(())).await;
    a_while().await;
    define_machines(&client).await;
    machine(&client, "vm", &[("data", "blue")]).await;
    claimed(&client, "vm.data").await;
    let ready = controller.pages.answer(&http::Method::GET, "/readyz", None).await;
    assert!(ready.status().is_success());
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_launcher_pod_finds_the_claim_of_its_machine_without_a_reference() {
    let (client, controller) = started(617).await;
    let of = [("one", "blue"), ("two", "blue")];
    let vm = machine(&client, "vm", &of).await;
    let vmi = instance(&client, "vm", Some(&vm), &of).await;
    let pod = launcher(&client, "virt-launcher-vm-a", &vmi, &of).await;
    bind(&client, "virt-launcher-vm-a", "node1").await;
    for name in ["vm.one", "vm.two"] {
        until(&format!("{name} to be the pod's"), async || {
            let claim = claims(&client).get_opt(name).await.unwrap()?;
            let slots = Slots::from_annotation(claim.annotations().get("tenure/holders")?).unwrap();
            (slots.active?.uid == pod.uid()?).then_some(())
        })
        .await;
    }
    controller.stop().await;
}

/// A StatefulSet that opts in.
async fn stateful(client: &Client, name: &str, replicas: i32, policy: Option<Value>) {
    let set = json!({
        "metadata": {"name": name},
        "spec": {
            "serviceName": name, "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "persistentVolumeClaimRetentionPolicy": policy,
            "template": {
                "metadata": {
                    "labels": {"app": name},
                    "annotations": {"tenure/keep-addresses": "true", "k8s.v1.cni.cncf.io/networks": "blue@net1"},
                },
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    let set = serde_json::from_value(set).unwrap();
    stateful_sets(client).create(&PostParams::default(), &set).await.unwrap();
}

/// A pod of a StatefulSet, as its controller makes it.
async fn replica(client: &Client, set: &str, ordinal: i32) -> String {
    let owner = stateful_sets(client).get(set).await.unwrap();
    let name = format!("{set}-{ordinal}");
    let pod = json!({
        "metadata": {
            "name": name, "labels": {"app": set},
            "annotations": {"tenure/keep-addresses": "true", "k8s.v1.cni.cncf.io/networks": "blue@net1"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": owner.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    pods(client).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    bind(client, &name, "node1").await;
    name
}

async fn scale(client: &Client, set: &str, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    stateful_sets(client).patch(set, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_pod_of_a_stateful_set_that_opts_in_has_a_claim_that_scaling_down_keeps_by_default() {
    let (client, controller) = started(618).await;
    stateful(&client, "db", 2, None).await;
    let claim = claimed(&client, "db-1.blue.net1").await;
    assert_eq!((claim.spec.network.as_str(), claim.spec.interface.as_str()), ("blue", "net1"));
    assert_eq!(claim.labels().get("tenure/statefulset").map(String::as_str), Some("db"));
    assert!(claim.owner_references().is_empty() && claim.finalizers().is_empty());
    scale(&client, "db", 1).await;
    a_while().await;
    assert_eq!(all_claims(&client).await, ["db-0.blue.net1", "db-1.blue.net1"]);
    stateful_sets(&client).delete("db", &DeleteParams::default()).await.unwrap();
    a_while().await;
    assert_eq!(all_claims(&client).await.len(), 2, "they stay for a set of that name that comes back");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_down_frees_a_claim_where_the_policy_deletes_volumes_and_not_while_its_pod_is_there() {
    let (client, controller) = started(619).await;
    stateful(&client, "db", 2, Some(json!({"whenScaled": "Delete", "whenDeleted": "Delete"}))).await;
    assert_eq!(owner(&claimed(&client, "db-0.blue.net1").await).kind, "StatefulSet");
    claimed(&client, "db-1.blue.net1").await;
    let pod = replica(&client, "db", 1).await;
    until("the claim to be the pod's", async || {
        let claim = claims(&client).get("db-1.blue.net1").await.unwrap();
        claim.annotations().get("tenure/holders")?.contains(&pod).then_some(())
    })
    .await;
    scale(&client, "db", 1).await;
    a_while().await;
    claimed(&client, "db-1.blue.net1").await;
    kill(&client, &pod).await;
    unclaimed(&client, "db-1.blue.net1").await;
    claimed(&client, "db-0.blue.net1").await;
    stateful_sets(&client).delete("db", &DeleteParams::default()).await.unwrap();
    unclaimed(&client, "db-0.blue.net1").await;
    controller.stop().await;
}
