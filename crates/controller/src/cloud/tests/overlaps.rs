//! Overlapping pools: the later one assigns none of the shared addresses.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tenure_api::cloud::{IPLedger, IPLedgerSpec, condition};
use tenure_api::coil::AddressPool;
use tenure_api::nmstate::NodeIPPool;
use tenure_api::whereabouts::IPPool;

use super::rig::{POOL, Rig};

fn object<K: serde::de::DeserializeOwned>(name: &str, spec: &Value) -> K {
    let metadata = json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "5"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn of(rig: &Rig, node: &str) -> BTreeSet<String> {
    rig.status(node).aliases.into_keys().collect()
}

fn within(ranges: &BTreeSet<String>, start: &str) -> bool {
    ranges.iter().all(|range| range.starts_with(start))
}

/// Machine a uses the first pool, and machine b one that is created a minute later.
fn two(first: Value, later: Value) -> Rig {
    let mut rig = Rig::new(31);
    rig.pool(first);
    rig.machine("a");
    rig.machine("b");
    rig.clock.advance(Duration::from_mins(1));
    rig.pool_named("late", later);
    rig.say("b", |it| it.spec.pool = "late".to_owned());
    rig
}

#[test]
fn the_later_of_two_pools_gives_nothing_of_a_range_that_overlaps_until_the_other_is_gone() {
    let more = json!([{"cidr": "10.112.0.0/28", "secondaryRangeName": "more"}]);
    let mut rig = two(json!({"cooling": "0s"}), json!({"cidr": "10.111.0.128/25", "ranges": more}));
    rig.want("b", 20);
    rig.settle();
    rig.want("a", 3);
    rig.settle();
    assert_eq!((rig.status("a").attached, of(&rig, "b").len()), (3, 14));
    assert!(within(&of(&rig, "b"), "10.112.0."), "{:?}", of(&rig, "b"));
    let problem = rig.status("b").problem.unwrap();
    assert!(problem.contains("no address of IPPool \"late\" is free"), "{problem}");
    let (is, reason, message) = rig.condition("late", condition::OVERLAPPING);
    assert_eq!((is.as_str(), reason.as_str()), ("True", "OverlapsPool"));
    assert!(
        message.contains("10.111.0.128/25 has addresses of 10.111.0.0/24, which IPPool \"live\" has"),
        "{message}"
    );
    assert_eq!(rig.told("Overlapping").len(), 1);
    assert_eq!(rig.condition("late", condition::READY).0, "True", "its other range gives addresses");
    assert_eq!(rig.pools["late"].status.as_ref().unwrap().available, 0);
    assert_eq!(rig.condition(POOL, condition::OVERLAPPING).0, "False");
    rig.pool_gone(POOL);
    rig.settle();
    assert_eq!(rig.status("b").attached, 20);
    assert_eq!(rig.condition("late", condition::OVERLAPPING).0, "False");
}

#[test]
fn a_range_that_is_appended_gives_nothing_if_a_younger_pool_uses_its_addresses() {
    let mut rig = two(json!({"cidr": "10.111.0.0/29"}), json!({"cidr": "10.112.0.0/24"}));
    rig.want("b", 2);
    rig.settle();
    let more = json!([{"cidr": "10.112.0.0/25", "secondaryRangeName": "more"}]);
    rig.pool(json!({"cidr": "10.111.0.0/29", "ranges": more}));
    rig.want("a", 10);
    rig.want("b", 4);
    rig.settle();
    assert_eq!((rig.status("a").attached, rig.status("b").attached), (6, 4));
    assert!(within(&of(&rig, "a"), "10.111.0."));
    let (is, _, message) = rig.condition(POOL, condition::OVERLAPPING);
    assert_eq!(is, "True");
    assert!(
        message.contains("10.112.0.0/25 has addresses of 10.112.0.0/24, which IPPool \"late\""),
        "{message}"
    );
    assert_eq!(rig.condition("late", condition::OVERLAPPING).0, "False");
}

#[test]
fn what_two_pools_have_recorded_stays_and_neither_gives_it_again() {
    let mut rig = two(json!({"cidr": "10.111.0.0/28"}), json!({"cidr": "10.111.0.0/27"}));
    // As if an earlier version had assigned these.
    for (pool, node, first) in [(POOL, "a", 1), ("late", "b", 5)] {
        let record = |_| json!({"node": node, "grant": "g"});
        let records: serde_json::Map<String, Value> =
            (first..first + 4).map(|offset: i32| (offset.to_string(), record(offset))).collect();
        let cidr = rig.pools[pool].spec.cidr.clone();
        let spec = json!({"pool": pool, "index": 0, "cidr": cidr, "records": records});
        let spec: IPLedgerSpec = serde_json::from_value(spec).unwrap();
        rig.store(IPLedger::new(&format!("{pool}-0"), spec));
    }
    rig.want("a", 14);
    rig.want("b", 8);
    rig.settle();
    let both: Vec<String> = of(&rig, "a").into_iter().chain(of(&rig, "b")).collect();
    assert_eq!(both.len(), 14, "all of the first pool, and each once: {both:?}");
    assert_eq!((rig.status("a").attached, rig.status("b").attached), (10, 4));
    assert_eq!(rig.condition("late", condition::READY).1, "Overlapping");
}

#[test]
fn pools_of_routed_pods_and_of_nodes_come_first() {
    let mut rig = Rig::new(34);
    rig.pool(json!({}));
    rig.machine("a");
    let routed: AddressPool = object("routed", &json!({"subnets": [{"ipv4": "10.111.0.0/16"}]}));
    let nodes: NodeIPPool = object(
        "nodes",
        &json!({"range": {"cidr": "10.111.0.0/24", "start": "10.111.0.10", "end": "10.111.0.20"}}),
    );
    rig.world.observe(Event::Apply(routed.clone()));
    rig.want("a", 2);
    rig.settle();
    let problem = rig.status("a").problem.unwrap();
    assert!(
        problem.contains("10.111.0.0/24 has addresses of 10.111.0.0/16, which AddressPool \"routed\" has"),
        "{problem}"
    );
    let (is, reason, message) = rig.condition(POOL, condition::READY);
    assert_eq!((is.as_str(), reason.as_str()), ("False", "Overlapping"), "{message}");
    rig.world.observe(Event::Apply(nodes.clone()));
    rig.world.observe(Event::Delete(routed));
    rig.settle();
    let (is, _, message) = rig.condition(POOL, condition::OVERLAPPING);
    assert!(
        is == "True" && message.contains("10.111.0.10-10.111.0.20, which NodeIPPool \"nodes\" has"),
        "{message}"
    );
    assert_eq!(rig.records().len(), 0);
    rig.world.observe(Event::Delete(nodes));
    rig.settle();
    assert_eq!(rig.status("a").attached, 2);
    assert_eq!(rig.condition(POOL, condition::READY).0, "True");
}

#[test]
fn what_a_range_of_whereabouts_has_recorded_is_not_given_and_that_is_said() {
    let mut rig = Rig::new(35);
    rig.pool(json!({"cidr": "10.111.0.0/29"}));
    rig.machine("a");
    let record = json!({"id": "c", "podref": "ns/p", "ifname": "net1"});
    let range: IPPool = object(
        "10.111.0.0-28",
        &json!({"range": "10.111.0.0/28", "allocations": {"2": record, "4": record}}),
    );
    rig.world.observe(Event::Apply(range.clone()));
    rig.want("a", 6);
    rig.settle();
    let has = of(&rig, "a");
    assert_eq!(has.len(), 4);
    assert!(!has.contains("10.111.0.2/32") && !has.contains("10.111.0.4/32"), "{has:?}");
    let (is, reason, message) = rig.condition(POOL, condition::OVERLAPPING);
    assert_eq!((is.as_str(), reason.as_str()), ("True", "OverlapsRange"));
    assert!(
        message.starts_with("IPPool \"10.111.0.0-28\" of Whereabouts has addresses of 10.111.0.0/29"),
        "{message}"
    );
    rig.world.observe(Event::Delete(range));
    rig.settle();
    assert_eq!(rig.status("a").attached, 6);
    assert_eq!(rig.condition(POOL, condition::OVERLAPPING).0, "False");
}
