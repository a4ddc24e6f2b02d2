//! Grants: who gets what, when it is returned, and what happens when nothing is left.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tenure_api::cloud::condition;

use super::rig::{POOL, Rig};

#[test]
fn a_node_gets_what_it_wants_in_one_write_and_one_update_and_gives_it_back() {
    let mut rig = Rig::new(1);
    rig.pool(json!({}));
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 100);
    rig.want("b", 50);
    rig.settle();
    assert_eq!((rig.status("a").attached, rig.status("b").attached), (100, 50));
    assert_eq!(*rig.cloud.updates.lock().unwrap(), 2);
    assert_eq!(rig.ledgers.len(), 1);
    let before = rig.status("a");
    let range = before.aliases.keys().next().unwrap().clone();
    rig.say("a", |it| _ = it.spec.returned.insert(range.clone(), "another".to_owned()));
    rig.settle();
    assert_eq!(rig.status("a"), before, "another grant means nothing");
    rig.want("a", 99);
    rig.give_back("a", &range);
    rig.settle();
    assert!(!rig.status("a").aliases.contains_key(&range) && !rig.on_machine("a").contains(&range));
    assert!(rig.records().get(&range).is_some_and(|record| record.freed.is_some()), "it cools");
    rig.clock.advance(Duration::from_secs(30));
    rig.settle();
    assert!(!rig.records().contains_key(&range));
    assert_eq!(rig.pools[POOL].status.as_ref().unwrap().allocated, 149);
}

#[test]
fn a_pool_that_is_too_small_is_shared_by_turns_and_cooling_gives_way_oldest_first() {
    let mut rig = Rig::new(2);
    rig.pool(json!({"cidr": "10.111.0.0/28", "cooling": "1h"}));
    for node in ["a", "b"] {
        rig.machine(node);
        rig.want(node, 10);
    }
    rig.settle();
    assert_eq!((rig.status("a").attached, rig.status("b").attached), (7, 7), "14 can be used");
    let said = rig.status("a").problem.unwrap();
    assert!(said.starts_with("no address of IPPool \"live\" is free; add a range"), "{said}");
    let exhausted = |rig: &Rig| {
        let status = rig.pools[POOL].status.clone().unwrap();
        status.conditions.into_iter().find(|it| it.type_ == condition::EXHAUSTED).unwrap().status
    };
    assert_eq!(exhausted(&rig), "True");
    assert_eq!(rig.told("Exhausted").len(), 1);
    // Two are returned, one after the other; the first is assigned again first.
    rig.want("a", 5);
    rig.want("b", 7);
    let of_a: Vec<String> = rig.status("a").aliases.keys().cloned().collect();
    rig.give_back("a", &of_a[3]);
    rig.settle();
    rig.give_back("a", &of_a[1]);
    rig.settle();
    assert_eq!(exhausted(&rig), "False");
    rig.want("b", 8);
    rig.settle();
    assert!(rig.status("b").aliases[&of_a[3]].attached);
    assert!(rig.records()[&of_a[1]].freed.is_some());
    assert_eq!(rig.status("b").problem, None);
}

#[test]
fn an_interface_takes_150_and_the_next_one_is_refused_in_words() {
    let mut rig = Rig::new(3);
    rig.pool(json!({}));
    rig.machine("a");
    let others = tenure_cloud::AliasRange {
        cidr: tenure_ipam::Notation::Strict.cidr("10.8.0.0/24").unwrap(),
        range: "pods".to_owned(),
    };
    rig.cloud.machines.lock().unwrap().get_mut("a").unwrap().aliases.insert(others);
    rig.settle();
    rig.want("a", 150);
    rig.settle();
    let status = rig.status("a");
    assert_eq!((status.attached, rig.on_machine("a").len(), rig.records().len()), (149, 150, 149));
    let said = status.problem.unwrap();
    assert!(said.contains("150 alias ranges are wanted") && said.contains("leaves 149 for pods"), "{said}");
}

#[test]
fn blocks_are_aligned_and_count_as_one_range_each() {
    let mut rig = Rig::new(4);
    rig.pool(json!({"attach": "block", "blockSizeBits": 4, "cidr": "10.111.0.0/23"}));
    rig.machine("a");
    rig.want("a", 20);
    rig.settle();
    let status = rig.status("a");
    assert_eq!(status.attached, 20);
    assert!(status.aliases.keys().all(|range| range.ends_with("/28")), "{:?}", status.aliases.keys());
    assert!(status.aliases.contains_key("10.111.0.0/28") && rig.on_machine("a").len() == 20);
    assert_eq!(rig.ledgers.len(), 2);
}

#[test]
fn a_16_is_filled_to_the_last_address() {
    let mut rig = Rig::new(5);
    rig.pool(json!({"cidr": "10.112.0.0/16"}));
    let nodes: Vec<String> = (0..440).map(|number| format!("n{number}")).collect();
    for node in &nodes {
        rig.machine(node);
        rig.want(node, 149);
    }
    rig.deliver(usize::MAX);
    for _ in 0..4 {
        for write in rig.plan() {
            if write.verb().ends_with("alias_ledger") || write.verb() == "alias_pool_finalizers" {
                assert!(rig.perform(&write));
            }
        }
    }
    let records = rig.records();
    assert_eq!((records.len(), rig.ledgers.len()), (65_534, 256));
    assert!(!records.contains_key("10.112.0.0/32") && !records.contains_key("10.112.255.255/32"));
    let grants: BTreeSet<(&String, &String)> =
        records.iter().map(|(range, record)| (range, &record.grant)).collect();
    assert_eq!(grants.len(), 65_534);
}

#[test]
fn a_missing_nodes_ranges_go_after_a_rest_and_leave_the_machine() {
    let mut rig = Rig::new(6);
    rig.pool(json!({"cooling": "0s"}));
    rig.machine("a");
    rig.want("a", 3);
    rig.settle();
    rig.leave("a");
    rig.settle();
    assert_eq!(
        (rig.records().len(), rig.on_machine("a").len()),
        (3, 3),
        "a Node that is gone proves nothing yet"
    );
    rig.restart();
    rig.settle();
    rig.clock.advance(Duration::from_mins(2));
    rig.settle();
    assert_eq!((rig.records().len(), rig.on_machine("a").len()), (0, 0));
    assert_eq!(rig.told("AliasesReleased").len(), 1);
    // The machine of another node is gone as well.
    rig.machine("b");
    rig.want("b", 3);
    rig.settle();
    rig.cloud.machines.lock().unwrap().remove("b");
    rig.leave("b");
    rig.settle();
    rig.clock.advance(Duration::from_mins(2));
    rig.settle();
    assert_eq!(rig.records().len(), 0);
}

#[test]
fn what_the_prototype_allocated_is_kept_for_its_pod_while_that_lives() {
    let mut rig = Rig::new(7);
    rig.machine("a");
    let uid = rig.pod("old", "ns", "a", json!({}));
    let of =
        |pod: &str, uid: &str| json!({"podName": pod, "podNamespace": "ns", "podUID": uid, "nodeName": "a"});
    let allocations = json!({"10.111.0.1": of("old", &uid), "10.111.0.2": of("gone", "u"), "10.111.0.3": of("old", "other")});
    rig.pool(json!({"allocations": allocations, "cooling": "0s", "moveTimeout": "10s"}));
    rig.want("a", 1);
    rig.settle();
    let status = rig.status("a");
    let ranges: Vec<&String> = status.aliases.keys().collect();
    assert_eq!(ranges, ["10.111.0.1/32", "10.111.0.2/32"]);
    assert_eq!(status.aliases["10.111.0.1/32"].pod, Some(uid));
    // Nobody takes it over, because its pod is not marked.
    rig.pod("thief", "ns", "a", json!({"live.cast.ai/ip": "10.111.0.1"}));
    rig.settle();
    assert_eq!(rig.status("a"), status);
    assert!(
        rig.told("AddressRefused")[0].contains("pod \\\"old\\\" has it and is not marked"),
        "{:?}",
        rig.notes
    );
    rig.pod_gone("ns/thief");
    rig.pod_gone("ns/old");
    rig.settle();
    assert_eq!(rig.status("a").aliases["10.111.0.1/32"].pod, None, "it is like any other");
    rig.give_back("a", "10.111.0.1/32");
    rig.want("a", 1);
    rig.settle();
    assert!(!rig.records().contains_key("10.111.0.1/32"));
}
