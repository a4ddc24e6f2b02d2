//! Addresses of claims are at the node of the pod that uses the claim.

use kube::runtime::watcher::Event;
use serde_json::json;
use tenure_api::cloud::condition;
use tenure_api::coil::AddressPool;

use super::rig::{POOL, Rig};

const ADDRESS: &str = "10.111.0.200";
const RANGE: &str = "10.111.0.200/32";

/// Machines a and b, and a pool that leaves some addresses to claims.
fn rig() -> Rig {
    let mut rig = Rig::new(41);
    rig.pool(json!({"exclude": ["10.111.0.192/26"]}));
    for node in ["a", "b"] {
        rig.machine(node);
        rig.want(node, 0);
    }
    rig.settle();
    rig
}

fn updates(rig: &Rig) -> usize {
    *rig.cloud.updates.lock().unwrap()
}

#[test]
fn the_address_of_a_claim_is_where_its_pod_is_and_moves_by_two_updates() {
    let mut rig = rig();
    rig.claim("c", ADDRESS, &[("p", "a")]);
    rig.settle();
    let there = rig.status("a").aliases[RANGE].clone();
    assert!(there.attached && there.pod.is_none());
    assert_eq!(there.claim.as_deref(), Some("ns/c"));
    assert!(rig.on_machine("a").contains(RANGE) && updates(&rig) == 1);
    assert!(rig.records().is_empty(), "the record is in the claim's block");
    // The record names both pods before the slots change.
    rig.claim("c", ADDRESS, &[("p", "a"), ("q", "b")]);
    rig.settle();
    assert_eq!(updates(&rig), 1);
    rig.claim("c", ADDRESS, &[("q", "b"), ("p", "a")]);
    rig.settle();
    assert!(rig.status("a").aliases.is_empty() && rig.on_machine("a").is_empty());
    assert!(rig.status("b").aliases[RANGE].attached && updates(&rig) == 3);
    rig.restart();
    rig.settle();
    assert!(rig.on_machine("b").contains(RANGE) && updates(&rig) == 3);
}

#[test]
fn an_address_of_a_claim_that_no_pod_has_is_nowhere_and_comes_back() {
    let mut rig = rig();
    rig.claim("c", ADDRESS, &[("p", "a")]);
    rig.settle();
    rig.claim("c", ADDRESS, &[]);
    rig.settle();
    assert!(rig.on_machine("a").is_empty());
    rig.claim("c", ADDRESS, &[("p2", "a")]);
    rig.settle();
    assert!(rig.on_machine("a").contains(RANGE));
}

#[test]
fn who_writes_the_slots_moves_nothing_that_the_record_does_not_say() {
    let mut rig = rig();
    rig.claim("c", ADDRESS, &[("p", "a")]);
    rig.settle();
    // Somebody who may edit the claim says that their own pod on b uses it.
    rig.claim_of("c", ADDRESS, &[("p", "a")], Some(("thief", "b")));
    rig.settle();
    assert!(rig.on_machine("b").is_empty() && rig.status("b").aliases.is_empty());
    rig.claim_of("c", ADDRESS, &[("p", "a")], Some(("p", "b")));
    rig.settle();
    assert!(rig.on_machine("a").contains(RANGE), "the record says where the pod is");
}

#[test]
fn an_address_that_a_pod_has_from_the_pool_is_not_attached_for_a_claim() {
    let mut rig = rig();
    rig.want("a", 1);
    rig.settle();
    let (range, _) = rig.records().pop_first().unwrap();
    let address = range.strip_suffix("/32").unwrap().to_owned();
    rig.claim("c", &address, &[("p", "b")]);
    rig.settle();
    assert!(rig.on_machine("a").contains(&range) && rig.on_machine("b").is_empty());
}

#[test]
fn addresses_of_claims_count_against_what_an_interface_takes() {
    let mut rig = rig();
    rig.claim("c", ADDRESS, &[("p", "a")]);
    rig.want("a", 150);
    rig.settle();
    assert_eq!(rig.status("a").attached, 150);
    assert!(rig.status("a").problem.is_some_and(|it| it.contains("takes 150 at most")));
}

#[test]
fn what_a_pool_excludes_another_pool_may_have() {
    let mut rig = rig();
    let pool = |version: &str, subnet: &str| -> AddressPool {
        let metadata = json!({"name": "claims", "uid": "claims", "resourceVersion": version});
        let spec = json!({"blockSizeBits": 2, "subnets": [{"ipv4": subnet}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    rig.world.observe(Event::Apply(pool("5", "10.111.0.192/26")));
    rig.settle();
    assert_eq!(rig.condition(POOL, condition::OVERLAPPING).0, "False");
    rig.world.observe(Event::Apply(pool("6", "10.111.0.128/25")));
    rig.settle();
    assert_eq!(rig.condition(POOL, condition::OVERLAPPING).0, "True");
}

#[test]
fn the_address_of_a_claim_is_not_given_away_in_a_block_nor_attached_beside_one() {
    let mut rig = Rig::new(44);
    let spec =
        json!({"cidr": "10.111.0.0/27", "attach": "block", "blockSizeBits": 3, "exclude": ["10.111.0.4/30"]});
    rig.pool(spec);
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 1);
    rig.want("b", 0);
    rig.settle();
    assert_eq!(rig.on_machine("a"), ["10.111.0.0/29".to_owned()].into());
    // Its block is on a: on b the cloud would refuse it.
    rig.claim("c", "10.111.0.5", &[("p", "b")]);
    rig.settle();
    assert!(rig.on_machine("b").is_empty() && rig.status("b").aliases.is_empty());
    // The node returns the block: now the claim gets its address, and no node gets a block around it.
    rig.give_back("a", "10.111.0.0/29");
    rig.say("a", |it| it.spec.wanted = 0);
    rig.settle();
    rig.clock.advance(std::time::Duration::from_hours(1));
    rig.settle();
    assert_eq!(rig.on_machine("b"), ["10.111.0.5/32".to_owned()].into());
    rig.want("a", 10);
    rig.settle();
    let of_a = rig.on_machine("a");
    assert!(of_a.len() == 3 && !of_a.contains("10.111.0.0/29"), "{of_a:?}");
}
