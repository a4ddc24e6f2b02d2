use serde_json::json;
use tenure_api::claims::IPAMClaim;

use super::*;
use crate::held_message;

fn claim(status: &serde_json::Value, holders: &str) -> IPAMClaim {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "ns", "name": "vm.blue", "uid": "u1", "creationTimestamp": "2026-11-16T05:31:00Z",
            "labels": {"kubevirt.io/vm": "vm"}, "annotations": {"tenure/holders": holders},
        },
        "spec": {"network": "blue", "interface": "pod1"},
        "status": status,
    }))
    .unwrap()
}

fn held(uid: &str) -> serde_json::Value {
    json!({"type": "Held", "status": "True", "reason": "Recorded", "message": held_message(uid, &[]), "lastTransitionTime": "2026-11-16T05:31:00Z"})
}

#[test]
fn addresses_count_with_the_proof_for_this_very_claim() {
    for (conditions, expected) in [
        (json!([held("u1")]), true),
        (json!([held("u0")]), false),
        (json!([]), false),
        (
            json!([{"type": "Held", "status": "False", "reason": "Recorded", "message": held_message("u1", &[]), "lastTransitionTime": "2026-11-16T05:31:00Z"}]),
            false,
        ),
        (
            json!([{"type": "Held", "status": "True", "reason": "Copied", "message": held_message("u1", &[]), "lastTransitionTime": "2026-11-16T05:31:00Z"}]),
            false,
        ),
    ] {
        let facts = ClaimFacts::of(&claim(
            &json!({"ips": ["10.0.0.7/24", "fd00::7/64", "junk", "10.0.0.9"], "conditions": conditions}),
            "",
        ));
        assert_eq!(facts.held, expected, "{conditions}");
        let shown: Vec<_> =
            facts.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
        assert_eq!(shown, ["10.0.0.7/24", "fd00::7/64", "10.0.0.9/32"]);
        assert_eq!((facts.vm.as_deref(), facts.problem), (Some("vm"), None));
    }
    let mut without_uid = claim(&json!({"ips": [], "conditions": [held("")]}), "");
    without_uid.metadata.uid = None;
    assert!(!ClaimFacts::of(&without_uid).held);
}

#[test]
fn a_claim_that_failed_says_why() {
    let failed = json!({"type": "IPsAllocated", "status": "False", "reason": "SubnetExhausted", "message": "no address is free", "lastTransitionTime": "2026-11-16T05:31:00Z"});
    let facts = ClaimFacts::of(&claim(&json!({"ips": [], "conditions": [failed]}), ""));
    assert_eq!(facts.problem.as_deref(), Some("SubnetExhausted: no address is free"));
}

#[test]
fn holders_that_cannot_be_read_are_nobody() {
    assert_eq!(ClaimFacts::of(&claim(&json!({"ips": []}), "{")).slots, Slots::default());
    let slots = Slots { number: 3, ..Slots::default() };
    assert_eq!(ClaimFacts::of(&claim(&json!({"ips": []}), &slots.to_annotation())).slots, slots);
}
