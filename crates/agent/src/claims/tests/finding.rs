//! Which claim an interface has.

use serde_json::json;
use tenure_api::claims::{annotation, label};
use tenure_claims::names;
use tenure_testbed::faults::Calls;

use super::bed::*;

const IPS: [&str; 2] = ["10.1.200.5/32", "fd01::c805/128"];
const MORE: [&str; 2] = ["10.1.200.6/32", "fd01::c806/128"];

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_namespace_is_never_used() {
    let bed = Bed::new().await;
    let pod = bed.refers("db-0", "db").await;
    let other = bed.claim_with("other", json!({"name": "db"}), "net", "").await;
    bed.give(&other, &IPS).await;
    bed.let_in(&other, &[&pod]).await;
    let agent = bed.hasty_agent().await;
    let failure = agent.add(&routed(), &pod).await.unwrap_err();
    let said = failure.to_string();
    assert_eq!(failure.code, 11, "{said}");
    for part in
        ["IPAMClaim shop/db", r#"namespace "shop""#, "interface net1 of pod shop/db-0", "other namespaces"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    // Nor that of the network's own namespace.
    let networks = json!([{"name": "net", "namespace": "other", "ipam-claim-reference": "db"}]).to_string();
    let pod = bed.pod("db-1", json!({annotation::NETWORKS: networks})).await;
    bed.let_in(&other, &[&pod]).await;
    assert_eq!(agent.add(&routed(), &pod).await.unwrap_err().code, 11);
    assert_eq!(agent.holds().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_selection_is_found_by_its_interface_else_by_its_place_and_two_on_one_network_are_two_claims() {
    let bed = Bed::new().await;
    let networks = json!([
        {"name": "net", "ipam-claim-reference": "first"},
        {"name": "net", "interface": "blue0", "ipam-claim-reference": "second"},
        {"name": "net"},
    ]);
    let pod = bed.pod("db-0", json!({annotation::NETWORKS: networks.to_string()})).await;
    bed.claim_for("first", &IPS, &pod).await;
    bed.claim_for("second", &MORE, &pod).await;
    let agent = bed.agent().await;
    let at = |interface: &str| At { interface: interface.into(), ..pod.clone() };
    assert_eq!(agent.add(&routed(), &at("net1")).await.unwrap(), IPS);
    assert_eq!(agent.add(&routed(), &at("blue0")).await.unwrap(), MORE);
    let ordinary = agent.add(&routed(), &at("net3")).await.unwrap();
    assert_eq!(ordinary, ["10.1.0.0/32", "fd01::/128"], "it refers to none");
    assert_eq!(
        agent.holds().await,
        ["c-db-0 shop/second true", "c-db-0 shop/first true", "c-db-0 10.1.0.0 and fd01::"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_default_network_has_the_claim_of_either_annotation() {
    let bed = Bed::new().await;
    let multus = json!({"name": "net", "ipam-claim-reference": "second"}).to_string();
    let eth0 = |at: At| At { interface: "eth0".into(), ..at };
    let ours = eth0(bed.pod("one", json!({annotation::CLAIM: "first"})).await);
    let theirs = eth0(bed.pod("two", json!({annotation::DEFAULT_NETWORK: multus})).await);
    let both = eth0(
        bed.pod("three", json!({annotation::CLAIM: "first", annotation::DEFAULT_NETWORK: multus})).await,
    );
    bed.claim_for("first", &IPS, &ours).await;
    bed.claim_for("second", &MORE, &theirs).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&routed(), &ours).await.unwrap(), IPS);
    assert_eq!(agent.add(&routed(), &theirs).await.unwrap(), MORE);
    let failure = agent.add(&routed(), &both).await.unwrap_err();
    assert!(
        failure.code == 7 && failure.message.contains("first") && failure.message.contains("second"),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_launcher_without_a_reference_has_the_claim_of_its_machine_for_the_interface() {
    let bed = Bed::new().await;
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "7", "controller": true}]);
    let interfaces = ["red", "blue"].map(names::machine_interface);
    // The short form has no place for a claim.
    let networks = interfaces.iter().map(|name| format!("net@{name}")).collect::<Vec<_>>().join(",");
    let metadata = json!({"annotations": {annotation::NETWORKS: networks}, "ownerReferences": owner});
    let pod = bed.pod_of("virt-launcher-vm-x", metadata).await;
    for (network, interface, ips) in [("red", &interfaces[0], IPS), ("blue", &interfaces[1], MORE)] {
        let metadata =
            json!({"name": names::machine_claim("vm", network), "labels": {label::VIRTUAL_MACHINE: "vm"}});
        let claim = bed.claim_with(bed.namespace, metadata, "net", interface).await;
        bed.give(&claim, &ips).await;
        bed.let_in(&claim, &[&pod]).await;
    }
    let stranger = json!({"name": "x.red", "labels": {label::VIRTUAL_MACHINE: "x"}});
    bed.claim_with(bed.namespace, stranger, "net", &interfaces[0]).await;
    let agent = bed.hasty_agent().await;
    let at = |interface: &str| At { interface: interface.into(), ..pod.clone() };
    assert_eq!(agent.add(&routed(), &at(&interfaces[1])).await.unwrap(), MORE);
    assert_eq!(agent.add(&routed(), &at(&interfaces[0])).await.unwrap(), IPS);
    let failure = agent.add(&routed(), &at("eth0")).await.unwrap_err();
    let said = failure.to_string();
    assert!(failure.code == 11 && said.contains(r#"virtual machine "vm""#), "no claim for this one: {said}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_stateful_set_that_opts_in_has_the_claim_of_its_name() {
    let bed = Bed::new().await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "7", "controller": true}]);
    let annotations = json!({annotation::KEEP_ADDRESSES: "true", annotation::NETWORKS: "net"});
    let pod = bed.pod_of("db-0", json!({"annotations": annotations, "ownerReferences": owner})).await;
    bed.claim_for(&names::pod_claim("db-0", "net", "net1"), &IPS, &pod).await;
    let plain = json!({"annotations": {annotation::NETWORKS: "net"}, "ownerReferences": owner});
    let plain = bed.pod_of("db-1", plain).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&routed(), &pod).await.unwrap(), IPS);
    assert_eq!(agent.add(&routed(), &plain).await.unwrap(), ["10.1.0.0/32", "fd01::/128"]);
}

#[tokio::test(start_paused = true)]
async fn an_interface_that_is_plugged_in_later_is_not_missed_because_the_watch_is_behind() {
    let bed = Bed::new().await;
    let pod = bed.refers("vm", "first").await;
    bed.claim_for("first", &IPS, &pod).await;
    bed.claim_for("second", &MORE, &pod).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&routed(), &pod).await.unwrap(), IPS);
    until("the watch of pods", async || {
        let before = bed.calls(&Calls::of(tenure_testbed::faults::Verb::Get).to("pods"));
        agent.del(&routed(), &pod).await.unwrap();
        agent.add(&routed(), &pod).await.unwrap();
        (bed.calls(&Calls::of(tenure_testbed::faults::Verb::Get).to("pods")) == before).then_some(())
    })
    .await;
    let held = bed.faults.hold_watches(Calls::all().to("pods"));
    let networks = json!([
        {"name": "net", "ipam-claim-reference": "first"},
        {"name": "net", "interface": "hot0", "ipam-claim-reference": "second"},
    ]);
    bed.annotate(&pod, json!({annotation::NETWORKS: networks.to_string()})).await;
    let hot = At { interface: "hot0".into(), ..pod };
    assert_eq!(agent.add(&routed(), &hot).await.unwrap(), MORE);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_again_under_its_name_is_not_taken_for_the_one_before() {
    let bed = Bed::new().await;
    let old = bed.refers("db-0", "old").await;
    bed.claim_for("old", &IPS, &old).await;
    let agent = bed.agent().await;
    assert_eq!(agent.add(&routed(), &old).await.unwrap(), IPS);
    // Whatever the watch says by now.
    let held = bed.faults.hold_watches(Calls::all().to("pods"));
    bed.delete_pod(&old).await;
    let new = At { container: "c-new".into(), ..bed.refers("db-0", "new").await };
    bed.claim_for("new", &MORE, &new).await;
    assert_eq!(agent.add(&routed(), &new).await.unwrap(), MORE);
    let failure = agent.add(&routed(), &At { container: "c-late".into(), ..old.clone() }).await.unwrap_err();
    assert!(failure.code == 11 && failure.message.contains(&old.uid), "it is gone: {failure}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_kubelet_has_from_a_file_is_known_by_what_is_shown_of_it() {
    let bed = Bed::new().await;
    let shown = json!({annotation::CLAIM: "db", "kubernetes.io/config.mirror": "of-the-file"});
    let shown = bed.pod("static-node-1", shown).await;
    bed.claim_for("db", &IPS, &shown).await;
    let agent = bed.agent().await;
    let at = At { uid: "of-the-file".into(), interface: "eth0".into(), ..shown };
    assert_eq!(agent.add(&routed(), &at).await.unwrap(), IPS);
    let hidden = At { pod: "hidden-node-1".into(), container: "c-hidden".into(), ..at };
    assert_eq!(
        agent.add(&routed(), &hidden).await.unwrap(),
        ["10.1.0.0/32", "fd01::/128"],
        "it cannot refer to anything"
    );
}
