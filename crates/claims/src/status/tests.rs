use serde_json::json;

use super::*;

fn claim(status: Option<IPAMClaimStatus>) -> IPAMClaim {
    let mut claim = IPAMClaim { status, ..IPAMClaim::default() };
    claim.metadata.uid = Some("u1".into());
    claim.metadata.generation = Some(4);
    claim
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn address() -> [(Address, u8); 1] {
    [("10.128.20.8".parse().unwrap(), 24)]
}

#[test]
fn a_claim_that_has_its_addresses_says_so_as_ovn_kubernetes_does_and_with_our_proof() {
    let status = allocated(&claim(None), &address(), &[], at(60));
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({
            "ips": ["10.128.20.8/24"],
            "conditions": [
                {
                    "type": "IPsAllocated", "status": "True", "reason": "SuccessfulAllocation",
                    "message": "IP addresses successfully allocated",
                    "observedGeneration": 4, "lastTransitionTime": "1970-01-01T00:01:00Z",
                },
                {
                    "type": "Held", "status": "True", "reason": "Recorded",
                    "message": "the addresses are on record for the claim with UID u1",
                    "observedGeneration": 4, "lastTransitionTime": "1970-01-01T00:01:00Z",
                },
            ],
        })
    );
    assert!(is_held(&claim(Some(status))));
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let first = allocated(&claim(None), &address(), &[], at(60));
    assert_eq!(allocated(&claim(Some(first.clone())), &address(), &[], at(90)), first);
    let failed_once = failed(&claim(None), Reason::SubnetExhausted, "full", at(60));
    assert_eq!(
        failed(&claim(Some(failed_once.clone())), Reason::SubnetExhausted, "full", at(90)),
        failed_once
    );
}

#[test]
fn a_transition_time_is_of_the_transition() {
    let full = failed(&claim(None), Reason::SubnetExhausted, "full", at(60));
    let other_words = failed(&claim(Some(full.clone())), Reason::InternalError, "broken", at(70));
    assert_eq!(other_words.conditions[0].last_transition_time, full.conditions[0].last_transition_time);
    let given = allocated(&claim(Some(full)), &address(), &[], at(90));
    assert_eq!(given.conditions[0].last_transition_time, Time(at(90).to_jiff()));
}

#[test]
fn a_claim_that_failed_has_no_proof_and_keeps_what_it_wished() {
    let imported = IPAMClaimStatus { ips: vec!["10.0.0.5/24".into()], ..IPAMClaimStatus::default() };
    let status =
        failed(&claim(Some(imported)), Reason::IpAddressConflict, "10.0.0.5 belongs to claim a/b", at(60));
    assert_eq!(status.ips, ["10.0.0.5/24"]);
    assert_eq!(status.conditions[0].reason, "IPAddressConflict");
    let had = set_owner(allocated(&claim(None), &address(), &[], at(60)), Some("pod"));
    let lost = failed(&claim(Some(had)), Reason::NetworkNotFound, "gone", at(70));
    assert_eq!((lost.ips.len(), lost.conditions.len(), &lost.owner_pod), (0, 1, &None));
}

#[test]
fn conditions_of_others_stay() {
    let others: Condition = serde_json::from_value(json!({"type": "Audited", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-11-16T05:31:00Z"})).unwrap();
    let before = IPAMClaimStatus { conditions: vec![others.clone()], ..IPAMClaimStatus::default() };
    for status in [
        allocated(&claim(Some(before.clone())), &address(), &[], at(1)),
        failed(&claim(Some(before.clone())), Reason::Invalid, "", at(1)),
    ] {
        assert_eq!(status.condition("Audited"), Some(&others));
    }
}

#[test]
fn every_reason_is_one_that_the_definition_takes() {
    let all = [
        Reason::SubnetExhausted,
        Reason::IpAddressConflict,
        Reason::MacAddressConflict,
        Reason::PersistentIpsNotAllowed,
        Reason::NetworkNotFound,
        Reason::Invalid,
        Reason::InternalError,
    ];
    for reason in all.map(Reason::as_str) {
        assert!(
            reason.chars().all(|c| c.is_ascii_alphabetic()) && reason.starts_with(char::is_uppercase),
            "{reason}"
        );
    }
    let long = failed(&claim(None), Reason::Invalid, &"x".repeat(40_000), at(1));
    assert_eq!(long.conditions[0].message.len(), 32768);
}

#[test]
fn the_owner_is_the_pod_that_has_it_now() {
    let status = set_owner(IPAMClaimStatus::default(), Some("a"));
    assert_eq!(serde_json::to_value(&status).unwrap(), json!({"ips": [], "ownerPod": {"name": "a"}}));
    assert_eq!(set_owner(status, None).owner_pod, None);
}

#[test]
fn a_status_says_where_the_record_is_and_anything_else_says_nothing() {
    let places = [RecordLocation::Block("default-3".into()), RecordLocation::Ledger("10.0.0.0-24".into())];
    let status = allocated(&claim(None), &address(), &places, at(60));
    let said = status.condition(condition::HELD).unwrap().message.clone();
    assert_eq!(
        said,
        "the addresses are on record for the claim with UID u1 in AddressBlock default-3 and IPPool 10.0.0.0-24"
    );
    assert_eq!(places_of(&claim(Some(status.clone()))).unwrap(), places);
    let with = |message: &str| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|it| it.message = message.to_owned());
        places_of(&claim(Some(status)))
    };
    assert_eq!(with(&held_message("u1", &[])), Some(Vec::new()), "as earlier versions wrote it");
    for other in
        [held_message("u12", &[]), said.replace("default-3", "../secrets"), said.replace("IPPool", "Secret")]
    {
        assert_eq!(with(&other), None, "{other}");
    }
}
