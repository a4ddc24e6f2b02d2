use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;

use super::*;

fn pods(uids: &[&str]) -> serde_json::Value {
    uids.iter().map(|uid| json!({"name": uid, "uid": uid, "node": "n"})).collect()
}

fn parsed(all: &[(&str, u8)]) -> Vec<(Address, u8)> {
    all.iter().map(|(text, prefix)| (text.parse().unwrap(), *prefix)).collect()
}

#[test]
fn only_a_floating_block_proves_anything_and_only_for_the_uid_that_it_names() {
    let block = |floating: bool| -> AddressBlock {
        let labels = floating.then(|| json!({"tenure/floating": "true"}));
        let record = |uid: &str| json!({"namespace": "ns", "name": "c", "uid": uid, "pods": pods(&["p"])});
        let mut freed = record("old");
        freed["freed"] = json!("2026-01-01T00:00:00.000000Z");
        serde_json::from_value(json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock",
            "metadata": {"name": "default-0", "labels": labels}, "index": 0,
            "ipv4": "10.0.0.0/30", "ipv6": "fd00::/126", "claims": {"1": record("u"), "2": freed, "x": record("y")},
        }))
        .unwrap()
    };
    let proof = OnRecord::in_block(&block(true), "u");
    assert!(proof.covers(&parsed(&[("fd00::1", 128), ("10.0.0.1", 32)])));
    assert_eq!(proof.pods, ["p"]);
    for uid in ["old", "y", "", "another"] {
        assert_eq!(OnRecord::in_block(&block(true), uid), OnRecord::default(), "{uid}");
    }
    assert_eq!(OnRecord::in_block(&block(false), "u"), OnRecord::default());
    assert!(!OnRecord::default().covers(&[]), "nothing proves nothing");
    assert!(!proof.covers(&parsed(&[("10.0.0.1", 32), ("10.0.0.2", 32)])), "more than that");
    assert!(!proof.covers(&parsed(&[("10.0.0.1", 24), ("fd00::1", 128)])), "another prefix length");
}

#[test]
fn a_pod_was_given_the_addresses_if_every_record_names_it() {
    let ledger = |range: &str, key: &str, names: &[&str]| -> IPPool {
        let record = json!({"id": "claim/u", "podref": "ns/c", "ifname": "net1", "pods": pods(names)});
        let plain = json!({"id": "u", "podref": "ns/p"});
        serde_json::from_value(json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "l"},
            "spec": {"range": range, "allocations": {key: record, "9": plain}},
        }))
        .unwrap()
    };
    let one = OnRecord::in_ledger(&ledger("10.0.0.0/24", "5", &["p", "q"]), "u");
    let other = OnRecord::in_ledger(&ledger("fd00::/120", "7", &["q"]), "u");
    let both = one.and(other);
    assert!(both.covers(&parsed(&[("10.0.0.5", 24), ("fd00::7", 120)])));
    assert!(both.covers(&parsed(&[("10.0.0.5", 16)])), "it may be a slice");
    assert!(!both.covers(&parsed(&[("10.0.0.5", 32)])), "it is on a segment");
    assert_eq!(both.pods, ["q"]);
}

#[test]
fn a_pod_that_is_gone_with_its_node_has_ended_only_after_a_second_look_two_minutes_later() {
    let at = |seconds: u64| Timestamp::from_millis(1_794_000_000_000 + seconds * 1000);
    let trace = |pod: &PodRecord, alive, node, now| trace(pod, alive, node, Duration::from_mins(2), now);
    let mut pod = PodRecord::default();
    assert_eq!(trace(&pod, true, false, at(0)), Trace::Alive);
    assert_eq!(trace(&pod, false, true, at(0)), Trace::Ended);
    assert_eq!(trace(&pod, false, false, at(1_000)), Trace::Lost, "nobody has written down the first look");
    pod.missing = Some(MicroTime(at(10).to_jiff()));
    assert_eq!(trace(&pod, false, false, at(129)), Trace::Lost);
    assert_eq!(trace(&pod, false, false, at(0)), Trace::Lost, "the clock went back");
    assert_eq!(trace(&pod, false, false, at(130)), Trace::Ended);
    assert_eq!(trace(&pod, true, false, at(130)), Trace::Alive);
}
