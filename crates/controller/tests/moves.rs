//! Two pods, one claim: moves, played with launcher pods as KubeVirt makes and marks them, and with pods of other movers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::time::Duration;

use bed::machines::{
    annotate, attachment, bind, claim, claims, crash, define_machines, instance, kill, launcher, machine,
    network, phase, pods, runs_in, user_pod,
};
use bed::ranges::{define_attachments, told};
use bed::*;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::claims::IPAMClaim;
use tenure_claims::Slots;
use tenure_controller_testbed as bed;
use tenure_testbed::faults::{Answer, Calls, Faults, Rule, Verb};

const A_WHILE: Duration = Duration::from_millis(200);
const OF: [(&str, &str); 1] = [("data", "blue")];

/// A server with KubeVirt's kinds and a network that opts in.
async fn prepared(seed: u64) -> Client {
    let client = server(seed).await.client();
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    client
}

/// Machine "vm" that runs in pod "a" on node1, and a controller.
async fn running(seed: u64) -> (Client, Running) {
    let client = prepared(seed).await;
    let controller = start(client.clone(), "one");
    let vm = machine(&client, "vm", &OF).await;
    let vmi = instance(&client, "vm", Some(&vm), &OF).await;
    launcher(&client, "a", &vmi, &OF).await;
    bind(&client, "a", "node1").await;
    runs_in(&client, "a", "node1", None).await;
    has(&client, "vm.data", "a", None).await;
    (client, controller)
}

/// The same, and pod "b" on node2 is coming in.
async fn moving(seed: u64) -> (Client, Running) {
    let (client, controller) = running(seed).await;
    target(&client, "b", "node2").await;
    has(&client, "vm.data", "a", Some("b")).await;
    (client, controller)
}

/// Another launcher pod of machine "vm".
async fn target(client: &Client, pod: &str, node: &str) {
    let vmi = bed::machines::instances(client).get("vm").await.unwrap();
    launcher(client, pod, &vmi, &OF).await;
    bind(client, pod, node).await;
}

async fn slots(client: &Client, claim: &str) -> Option<Slots> {
    let claim = claims(client).get_opt(claim).await.unwrap()?;
    Some(Slots::from_annotation(claim.annotations().get("tenure/holders")?).unwrap())
}

/// Waits until these pods have the claim, the first is its owner by its status, and both are on the nodes of their pods.
async fn has(client: &Client, name: &str, active: &str, incoming: Option<&str>) -> Slots {
    until(&format!("{name} to be active in {active} and incoming in {incoming:?}"), async || {
        let slots = slots(client, name).await?;
        let names = [&slots.active, &slots.incoming].map(|slot| slot.as_ref().map(|slot| slot.pod.as_str()));
        let owner = claims(client).get(name).await.unwrap().status?.owner_pod?.name?;
        (names == [Some(active), incoming] && owner == active).then_some(slots.clone())
    })
    .await
}

async fn reasons(client: &Client) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    events
        .iter()
        .map(|event| (event.reason.clone().unwrap(), event.involved_object.name.clone().unwrap()))
        .collect()
}

async fn a_while() {
    tokio::time::sleep(A_WHILE).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_the_claim_as_soon_as_it_is_scheduled_and_the_status_names_it() {
    let client = prepared(701).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "blue", "net1").await;
    let pod = user_pod(&client, "a", &[("blue", "c")]).await;
    a_while().await;
    assert_eq!(slots(&client, "c").await, None, "it has no node yet");
    bind(&client, "a", "node1").await;
    let slots = has(&client, "c", "a", None).await;
    let active = slots.active.unwrap();
    assert_eq!((Some(active.uid), active.node.as_str()), (pod.uid(), "node1"));
    kill(&client, "a").await;
    until("nobody to have it", async || {
        let claim = claims(&client).get("c").await.unwrap();
        let slots = Slots::from_annotation(claim.annotations().get("tenure/holders")?).unwrap();
        (slots.active.is_none() && claim.status?.owner_pod.is_none()).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_names_a_claim_on_the_clusters_default_network_by_an_annotation() {
    let client = prepared(718).await;
    pool(&client, "default", 5, "10.20.0.0/16").await;
    let settings =
        tenure_controller::Settings { cluster_network: Some("tenure".to_owned()), ..settings("one") };
    let controller = start_with(client.clone(), settings);
    claim(&client, "c", "tenure", "eth0").await;
    for (pod, node) in [("a", "node1"), ("b", "node2")] {
        user_pod(&client, pod, &[]).await;
        annotate(&client, pod, "tenure/claim", "c").await;
        bind(&client, pod, node).await;
        until(&format!("{pod} to be in"), async || {
            slots(&client, "c").await?.both().any(|slot| slot.pod == pod).then_some(())
        })
        .await;
    }
    annotate(&client, "b", "tenure/active", "2026-11-16T06:00:00Z").await;
    has(&client, "c", "b", Some("a")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_begins_with_the_second_pod_and_everybody_is_told() {
    let (client, controller) = moving(702).await;
    for about in ["vm.data", "a", "b"] {
        told(&client, "default", "MoveBegun", about).await;
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_commits_by_kubevirts_time_and_not_by_its_label() {
    let (client, controller) = moving(703).await;
    runs_in(&client, "b", "node2", None).await;
    a_while().await;
    has(&client, "vm.data", "a", Some("b")).await;
    // As virt-controller writes it, and before the label.
    runs_in(&client, "b", "node1", Some("2026-11-16 14:04:44 +0000 UTC")).await;
    let slots = has(&client, "vm.data", "b", Some("a")).await;
    assert_eq!(slots.number, 2);
    runs_in(&client, "b", "node2", Some("2026-11-16 14:04:44 +0000 UTC")).await;
    for about in ["vm.data", "a", "b"] {
        told(&client, "default", "MoveCommitted", about).await;
    }
    kill(&client, "a").await;
    has(&client, "vm.data", "b", None).await;
    told(&client, "default", "MoveEnded", "vm.data").await;
    assert!(!reasons(&client).await.iter().any(|(reason, _)| reason == "MoveAborted"));
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_cannot_be_read_moves_nothing_and_is_told_once_on_pod_and_claim() {
    let (client, controller) = moving(704).await;
    runs_in(&client, "b", "node2", Some("half past three")).await;
    for about in ["b", "vm.data"] {
        let message = told(&client, "default", "MoveSignalUnreadable", about).await.message.unwrap();
        for part in
            ["\"vm.data\"", "\"b\"", "migration-target-ready-timestamp", "half past three", "accepted is"]
        {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
    // Whatever is planned meanwhile.
    for round in 0..3 {
        annotate(&client, "a", "example.com/round", &round.to_string()).await;
        a_while().await;
    }
    has(&client, "vm.data", "a", Some("b")).await;
    let told = reasons(&client).await;
    assert_eq!(told.iter().filter(|(reason, _)| reason == "MoveSignalUnreadable").count(), 2, "{told:?}");
    runs_in(&client, "b", "node2", Some("2026-11-16 14:04:44 +0000 UTC")).await;
    has(&client, "vm.data", "b", Some("a")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_other_addresses_than_the_claims_never_has_it() {
    let client = prepared(719).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "blue", "net1").await;
    user_pod(&client, "a", &[("blue", "c")]).await;
    bind(&client, "a", "node1").await;
    has(&client, "c", "a", None).await;
    let networks = |ips: &str| json!([{"name": "blue", "namespace": "default", "ipam-claim-reference": "c", "ips": [ips]}]);
    for (pod, ips) in [("wrong", "10.0.0.99"), ("right", "10.0.0.1")] {
        user_pod(&client, pod, &[]).await;
        annotate(&client, pod, "k8s.v1.cni.cncf.io/networks", &networks(ips).to_string()).await;
        bind(&client, pod, "node2").await;
    }
    has(&client, "c", "a", Some("right")).await;
    kill(&client, "right").await;
    has(&client, "c", "a", None).await;
    kill(&client, "a").await;
    until("nobody to have it", async || slots(&client, "c").await?.active.is_none().then_some(())).await;
    a_while().await;
    assert_eq!(slots(&client, "c").await.unwrap().active, None, "also where nobody else would have it");
    let told = reasons(&client).await;
    assert!(told.iter().all(|(reason, _)| reason != "MoveCommitted"), "{told:?}");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_commits_when_the_active_pod_finishes() {
    let (client, controller) = moving(705).await;
    phase(&client, "a", "Succeeded").await;
    has(&client, "vm.data", "b", None).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_commits_when_the_active_pod_is_being_deleted() {
    let (client, controller) = moving(706).await;
    pods(&client).delete("a", &DeleteParams::default().grace_period(60)).await.unwrap();
    has(&client, "vm.data", "b", Some("a")).await;
    kill(&client, "a").await;
    has(&client, "vm.data", "b", None).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_commits_by_the_annotation_of_any_other_mover() {
    let client = prepared(707).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "blue", "net1").await;
    user_pod(&client, "a", &[("blue", "c")]).await;
    bind(&client, "a", "node1").await;
    has(&client, "c", "a", None).await;
    user_pod(&client, "b", &[("blue", "c")]).await;
    bind(&client, "b", "node2").await;
    has(&client, "c", "a", Some("b")).await;
    annotate(&client, "b", "tenure/active", "1").await;
    has(&client, "c", "b", Some("a")).await;
    annotate(&client, "a", "tenure/active", "2").await;
    has(&client, "c", "a", Some("b")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_aborts_when_the_target_goes_away() {
    let (client, controller) = moving(708).await;
    kill(&client, "b").await;
    let slots = has(&client, "vm.data", "a", None).await;
    assert_eq!(slots.number, 1, "nothing has moved");
    told(&client, "default", "MoveAborted", "vm.data").await;
    target(&client, "b2", "node3").await;
    has(&client, "vm.data", "a", Some("b2")).await;
    phase(&client, "b2", "Failed").await;
    has(&client, "vm.data", "a", None).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn signals_that_flap_do_not_flap_the_claim() {
    let (client, controller) = moving(709).await;
    runs_in(&client, "b", "node2", Some("2026-11-16T06:00:00Z")).await;
    has(&client, "vm.data", "b", Some("a")).await;
    for _ in 0..5 {
        // Times come and go that are not newer.
        runs_in(&client, "a", "node1", Some("2026-11-16T06:00:00Z")).await;
        runs_in(&client, "b", "node2", None).await;
        runs_in(&client, "b", "node2", Some("2026-11-16T05:59:59Z")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    a_while().await;
    assert_eq!(has(&client, "vm.data", "b", Some("a")).await.number, 2);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_third_pod_waits_is_told_why_and_comes_in_when_one_of_the_two_is_gone() {
    let (client, controller) = moving(710).await;
    target(&client, "c", "node3").await;
    let event = told(&client, "default", "MoveRefused", "c").await;
    let message = event.message.unwrap();
    assert!(message.contains("\"a\" on node1") && message.contains("\"b\" on node2"), "{message}");
    told(&client, "default", "MoveRefused", "vm.data").await;
    has(&client, "vm.data", "a", Some("b")).await;
    kill(&client, "b").await;
    has(&client, "vm.data", "a", Some("c")).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_on_a_network_that_does_not_opt_in_is_told_on_pod_and_claim_once() {
    let client = prepared(711).await;
    network(&client, "plain", "10.9.0.0/24", false).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "plain", "net1").await;
    user_pod(&client, "a", &[("plain", "c")]).await;
    bind(&client, "a", "node1").await;
    for about in ["a", "c"] {
        let event = told(&client, "default", "PersistentIPsNotAllowed", about).await;
        let message = event.message.unwrap();
        // The claim is told twice: by its status, and because of its pod.
        assert!(message.contains("allowPersistentIPs"), "{message}");
    }
    a_while().await;
    let told = reasons(&client).await;
    let count = |name: &str| told.iter().filter(|(_, about)| about == name).count();
    assert_eq!(count("a"), 1, "{told:?}");
    assert_eq!(slots(&client, "c").await, None);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_neither_true_nor_false_is_an_invalid_configuration_and_nobody_has_an_ordinary_address()
 {
    let client = prepared(720).await;
    let ipam = json!({"type": "whereabouts", "range": "10.9.0.0/24"});
    let config = json!({"cniVersion": "1.0.0", "name": "odd", "type": "macvlan", "allowPersistentIPs": "yes", "ipam": ipam});
    attachment(&client, "odd", &config.to_string()).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "odd", "net1").await;
    user_pod(&client, "a", &[("odd", "c")]).await;
    bind(&client, "a", "node1").await;
    let words = ["default/odd", "allowPersistentIPs is \"yes\"", "accepted are true and false"];
    for about in ["a", "c"] {
        let message = told(&client, "default", "InvalidConfiguration", about).await.message.unwrap();
        assert!(
            words.iter().all(|part| message.contains(part)) && !message.contains("ordinary"),
            "{message}"
        );
    }
    let condition = until("the claim to say so", async || {
        claims(&client).get("c").await.unwrap().status?.condition("IPsAllocated").cloned()
    })
    .await;
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "InvalidConfiguration"));
    assert!(words.iter().all(|part| condition.message.contains(part)), "{}", condition.message);
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_namespace_never_has_the_claim() {
    let client = prepared(712).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "blue", "net1").await;
    let networks = json!([{"name": "blue", "namespace": "default", "ipam-claim-reference": "c"}]);
    let pod = json!({
        "metadata": {"name": "thief", "annotations": {"k8s.v1.cni.cncf.io/networks": networks.to_string()}},
        "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
    });
    let elsewhere: Api<Pod> = Api::namespaced(client.clone(), "apps");
    elsewhere.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    user_pod(&client, "a", &[("blue", "c")]).await;
    bind(&client, "a", "node1").await;
    has(&client, "c", "a", None).await;
    a_while().await;
    has(&client, "c", "a", None).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_the_claim_while_it_lives_whatever_becomes_of_the_networks_definition() {
    let client = prepared(713).await;
    let controller = start(client.clone(), "one");
    claim(&client, "c", "blue", "net1").await;
    user_pod(&client, "a", &[("blue", "c")]).await;
    bind(&client, "a", "node1").await;
    has(&client, "c", "a", None).await;
    attachment(&client, "blue", "no JSON at all").await;
    a_while().await;
    assert_eq!(slots(&client, "c").await.unwrap().active.unwrap().pod, "a");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_goes_on_where_it_was_when_the_controller_ends_between_any_two_steps() {
    let client = prepared(714).await;
    let mut number = 0;
    let mut begin = || {
        number += 1;
        start(client.clone(), &format!("replica{number}"))
    };
    let controller = begin();
    let vm = machine(&client, "vm", &OF).await;
    let vmi = instance(&client, "vm", Some(&vm), &OF).await;
    bed::machines::claimed(&client, "vm.data").await;
    crash(&client, controller).await;
    launcher(&client, "a", &vmi, &OF).await;
    bind(&client, "a", "node1").await;
    let controller = begin();
    has(&client, "vm.data", "a", None).await;
    crash(&client, controller).await;
    target(&client, "b", "node2").await;
    let controller = begin();
    has(&client, "vm.data", "a", Some("b")).await;
    crash(&client, controller).await;
    runs_in(&client, "b", "node2", Some("2026-11-16T06:00:00Z")).await;
    let controller = begin();
    has(&client, "vm.data", "b", Some("a")).await;
    crash(&client, controller).await;
    kill(&client, "a").await;
    let controller = begin();
    has(&client, "vm.data", "b", None).await;
    crash(&client, controller).await;
    target(&client, "c", "node3").await;
    let controller = begin();
    has(&client, "vm.data", "b", Some("c")).await;
    crash(&client, controller).await;
    kill(&client, "c").await;
    let controller = begin();
    assert_eq!(has(&client, "vm.data", "b", None).await.number, 2, "the address has moved once");
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_arrives_twice_or_whose_answer_is_lost_happens_once() {
    let api = server(716).await;
    let faults = Faults::seeded(716);
    let client = api.client();
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    let controller = start(faults.client(api, "default"), "one");
    claim(&client, "c", "blue", "net1").await;
    for (pod, node) in [("a", "node1"), ("b", "node2")] {
        user_pod(&client, pod, &[("blue", "c")]).await;
        bind(&client, pod, node).await;
        until(&format!("{pod} to be in"), async || {
            slots(&client, "c").await?.both().any(|slot| slot.pod == pod).then_some(())
        })
        .await;
    }
    let patches = || Calls::of(Verb::Patch).to("ipamclaims");
    let rules =
        [Rule::lose_answer().on(patches()).times(1), Rule::duplicate(Answer::Second).on(patches()).times(2)];
    for rule in rules {
        faults.add(rule);
    }
    let mut expected = 1;
    for (pod, other) in [("b", "a"), ("a", "b"), ("b", "a")] {
        expected += 1;
        annotate(&client, pod, "tenure/active", &expected.to_string()).await;
        assert_eq!(has(&client, "c", pod, Some(other)).await.number, expected);
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_came_after_its_claim_went_comes_into_the_next_claim_of_the_name_however_late_the_watch_is()
 {
    let api = server(720).await;
    let faults = Faults::seeded(720);
    let client = api.client();
    define_attachments(&client).await;
    define_machines(&client).await;
    network(&client, "blue", "10.0.0.0/24", true).await;
    let slices = json!({"type": "whereabouts", "range": "10.1.0.0/24", "node_slice_size": "/28"});
    let config = json!({"name": "cut", "type": "macvlan", "allowPersistentIPs": true, "ipam": slices});
    attachment(&client, "cut", &config.to_string()).await;
    pool(&client, "default", 5, "10.20.0.0/16").await;
    let settings =
        tenure_controller::Settings { cluster_network: Some("tenure".to_owned()), ..settings("one") };
    let controller = start_with(faults.client(api, "default"), settings);
    // A record of a ledger that all share, of a slice, and of a floating block.
    let networks = [("blue", "net1"), ("cut", "net1"), ("tenure", "eth0")];
    for (network, interface) in networks {
        claim(&client, network, network, interface).await;
        until("addresses", async || {
            let claim = claims(&client).get(network).await.unwrap();
            claim.status.filter(|status| !status.ips.is_empty()).map(drop)
        })
        .await;
    }
    let late = faults.hold_watches(Calls::of(Verb::Watch).to("ipamclaims"));
    for (name, _) in networks {
        claims(&client).delete(name, &DeleteParams::default()).await.unwrap();
        let annotations = match name {
            "tenure" => json!({"tenure/claim": name}),
            _ => json!({"k8s.v1.cni.cncf.io/networks":
                json!([{"name": name, "namespace": "default", "ipam-claim-reference": name}]).to_string()}),
        };
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        pods(&client).create(&PostParams::default(), &pod).await.unwrap();
    }
    a_while().await;
    drop(late);
    for (network, interface) in networks {
        claim(&client, network, network, interface).await;
        has(&client, network, network, None).await;
    }
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn twenty_signals_in_a_row_are_twenty_swaps_each_by_one_write() {
    let (client, controller) = moving(717).await;
    let events = claims(&client);
    let version = events.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut heard = Box::pin(events.watch(&WatchParams::default(), &version).await.unwrap());
    let mut before = None;
    for (second, (pod, node)) in [("b", "node2"), ("a", "node1")].into_iter().cycle().take(20).enumerate() {
        runs_in(&client, pod, node, Some(&format!("2026-11-16T06:01:{second:02}Z"))).await;
        loop {
            let event = futures::StreamExt::next(&mut heard).await.unwrap().unwrap();
            let WatchEvent::Modified(claim) = event else { continue };
            // Nothing is in between: it is the one before, or this one.
            let now = active(&claim);
            if now.as_deref() == Some(pod) {
                before = now;
                break;
            }
            assert!(before.is_none() || now == before, "{now:?} after {before:?} and before {pod}");
        }
        // Its status follows, and then all is quiet.
        has(&client, "vm.data", pod, Some(if pod == "a" { "b" } else { "a" })).await;
    }
    controller.stop().await;
}

fn active(claim: &IPAMClaim) -> Option<String> {
    let slots = Slots::from_annotation(claim.annotations().get("tenure/holders")?).ok()?;
    slots.active.map(|slot| slot.pod)
}
