//! Whereabouts' kinds and claims.

use serde_json::{Value, json};

use super::super::super::recorder::Call;
use super::super::super::{Outcome, Recorder};
use super::{attempt, install};

fn whereabouts(namespace: &str, plural: &str) -> String {
    format!("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/{namespace}/{plural}")
}

fn ledger(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) async fn ledgers_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let namespace = r.namespace().await?;
    let all = whereabouts(&namespace, "ippools");
    let held = json!({"id": "c", "podref": "ns/pod"});
    for spec in [
        json!({"range": "192.168.2.0/24", "allocations": {}}),
        json!({"range": "192.168.2.7/24", "allocations": {"1": held, "17": {"id": "c", "podref": "ns/pod", "ifname": "net1"}}}),
        json!({"range": "2001:db8::/64", "allocations": {"18446744073709551615": held, "340282366920938463463374607431768211455": held}}),
        json!({"range": "192.168.2.0", "allocations": {}}),
        json!({"range": "", "allocations": {}}),
        json!({"range": "192.168.2.0/24"}),
        json!({"allocations": {}}),
        json!({"range": "192.168.2.0/24", "allocations": {"x": held}}),
        json!({"range": "192.168.2.0/24", "allocations": {"-1": held}}),
        json!({"range": "192.168.2.0/24", "allocations": {"01": held}}),
        json!({"range": "192.168.2.0/24", "allocations": {"1x": held}}),
        json!({"range": "192.168.2.0/24", "allocations": {"": held}}),
        json!({"range": "192.168.2.0/24", "allocations": {"1": {"id": "c"}}}),
        json!({"range": "192.168.2.0/24", "allocations": {"1": {}}}),
        json!({"range": "192.168.2.0/24", "allocations": {"1": null}}),
        json!({"range": "192.168.2.0/24", "allocations": {"1": {"id": 5, "podref": "p"}}}),
    ] {
        attempt(r, &all, &ledger("IPPool", "192.168.2.0-24", &spec)).await?;
    }
    let one = format!("{all}/a");
    r.post(&all, &ledger("IPPool", "a", &json!({"range": "192.168.2.0/24", "allocations": {"1": held}})))
        .await?;
    r.merge(&one, &json!({"spec": {"allocations": {"2": held}}})).await?;
    r.merge(&one, &json!({"spec": {"allocations": {"1": null}}})).await?;
    r.merge(&one, &json!({"spec": {"range": "192.168.3.0/24"}})).await?;
    r.get(&format!("{one}/status")).await?;
    // What Whereabouts itself writes: a JSON patch that tests the version.
    let current = r.get(&one).await?;
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": current.version()?},
        {"op": "add", "path": "/spec/allocations/9", "value": held},
    ]);
    let call = |patch: &Value| {
        Call::new("PATCH", &one).json(patch).header("content-type", "application/json-patch+json")
    };
    r.send(call(&patch)).await?;
    r.send(call(&patch)).await?;
    Ok(())
}

pub(super) async fn slice_pools_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let namespace = r.namespace().await?;
    let all = whereabouts(&namespace, "nodeslicepools");
    for spec in [
        json!({"range": "10.0.0.0/8", "sliceSize": "/20"}),
        json!({"range": "10.0.0.0/8", "sliceSize": "20"}),
        json!({"range": "fd00::/64", "sliceSize": "/72"}),
        json!({"range": "10.0.0.1/8", "sliceSize": "/20"}),
        json!({"range": "10.0.0.0", "sliceSize": "/20"}),
        json!({"range": "10.0.0.0/8", "sliceSize": "/7"}),
        json!({"range": "10.0.0.0/8", "sliceSize": "/33"}),
        json!({"range": "10.0.0.0/8", "sliceSize": "/24"}),
        json!({"range": "10.0.0.0/30", "sliceSize": "/32"}),
        json!({"range": "10.0.0.0/8", "sliceSize": "x"}),
        json!({"range": "10.0.0.0/8", "sliceSize": ""}),
        json!({"range": "10.0.0.0/8"}),
        json!({"sliceSize": "/20"}),
        json!({"range": "x", "sliceSize": "y"}),
    ] {
        attempt(r, &all, &ledger("NodeSlicePool", "net", &spec)).await?;
    }
    let one = format!("{all}/net");
    let mut object = ledger("NodeSlicePool", "net", &json!({"range": "10.0.0.0/8", "sliceSize": "/20"}));
    object["status"] = json!({"allocations": [{"nodeName": "n1", "sliceRange": "10.0.0.0/20"}]});
    r.post(&all, &object).await?;
    r.merge(&one, &json!({"status": {"allocations": [{"nodeName": "", "sliceRange": "10.0.0.0/20"}]}}))
        .await?;
    r.merge(&one, &json!({"status": {"allocations": [{"nodeName": "n1"}]}})).await?;
    r.merge(&one, &json!({"status": {}})).await?;
    r.get(&format!("{one}/status")).await?;
    Ok(())
}

pub(super) async fn reservations_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let namespace = r.namespace().await?;
    let all = whereabouts(&namespace, "overlappingrangeipreservations");
    for (name, spec) in [
        ("192.168.2.1", json!({"podref": "ns/pod"})),
        ("192.168.2.1", json!({"podref": "ns/pod", "containerid": "c", "ifname": "net1"})),
        ("2001-db8--1", json!({"podref": "ns/pod"})),
        ("--1", json!({"podref": "ns/pod"})),
        ("192.168.2.1", json!({})),
        ("192.168.2.1", json!({"podref": 5})),
    ] {
        attempt(r, &all, &ledger("OverlappingRangeIPReservation", name, &spec)).await?;
    }
    r.post(&all, &ledger("OverlappingRangeIPReservation", "192.168.2.1", &json!({"podref": "ns/pod"})))
        .await?;
    r.post(&all, &ledger("OverlappingRangeIPReservation", "192.168.2.1", &json!({"podref": "ns/other"})))
        .await?;
    Ok(())
}

fn claims(namespace: &str) -> String {
    format!("/apis/k8s.cni.cncf.io/v1alpha1/namespaces/{namespace}/ipamclaims")
}

fn claim(name: &str, fields: &Value) -> Value {
    let mut claim =
        json!({"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": name}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        claim[key] = value.clone();
    }
    claim
}

pub(super) async fn claims_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let namespace = r.namespace().await?;
    let all = claims(&namespace);
    for (name, fields) in [
        ("vm.blue", json!({"spec": {"network": "blue", "interface": "net1"}})),
        ("vm.blue", json!({"spec": {"network": "", "interface": ""}})),
        ("vm.blue", json!({})),
        ("vm.blue", json!({"spec": {"network": "blue"}})),
        ("vm.blue", json!({"spec": {"network": "blue", "interface": 1}})),
        ("vm.blue", json!({"spec": {"network": "blue", "interface": "net1", "more": 1}})),
        ("vm_blue", json!({"spec": {"network": "blue", "interface": "net1"}})),
    ] {
        attempt(r, &all, &claim(name, &fields)).await?;
    }
    Ok(())
}

pub(super) async fn the_status_of_a_claim_is_its_own(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let namespace = r.namespace().await?;
    let all = claims(&namespace);
    let spec = json!({"network": "blue", "interface": "net1"});
    r.post(&all, &claim("vm.blue", &json!({"spec": spec, "status": {"ips": ["10.0.0.7/24"]}}))).await?;
    let one = format!("{all}/vm.blue");
    r.merge(&one, &json!({"spec": {"network": "green"}, "status": {"ips": ["10.0.0.8/24"]}})).await?;
    let condition = |status: &str, reason: &str| json!({"type": "IPsAllocated", "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2021-01-01T00:00:00Z", "observedGeneration": 1});
    for status in [
        json!({"ownerPod": {"name": "pod"}}),
        json!({"ips": ["10.0.0.7/24"], "ownerPod": {"name": "pod"}, "conditions": [condition("True", "SuccessfulAllocation")]}),
        json!({"conditions": [condition("True", "ips were set")]}),
        json!({"conditions": [condition("Yes", "SuccessfulAllocation")]}),
        json!({"conditions": [{"type": "IPsAllocated", "status": "True"}]}),
        json!({"ips": null}),
        json!({"ips": [], "ownerPod": {}, "conditions": [condition("False", "SubnetExhausted")]}),
    ] {
        r.merge(&format!("{one}/status"), &json!({"status": status})).await?;
    }
    Ok(())
}
