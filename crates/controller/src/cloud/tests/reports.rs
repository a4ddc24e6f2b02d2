//! Evidence of use: what pods have without a record.

use std::time::Duration;

use serde_json::json;

use super::rig::Rig;

const RANGE: &str = "10.111.0.1/32";
const ADDRESS: &str = "10.111.0.1";

#[test]
fn an_address_that_the_prototype_moved_stays_with_its_pod_though_the_entry_names_another() {
    let mut rig = Rig::new(21);
    rig.machine("a");
    rig.machine("b");
    // The prototype moved it from s to d, s has ended, and the entry was not rewritten.
    rig.attach("b", RANGE);
    let entry = json!({"podName": "s", "podNamespace": "ns", "podUID": "u", "nodeName": "a"});
    let target = rig.pod("d", "ns", "b", json!({"live.cast.ai/ip": ADDRESS}));
    rig.report("ns/d", ADDRESS);
    rig.pool(json!({"cidr": "10.111.0.0/30", "allocations": {ADDRESS: entry}, "cooling": "0s"}));
    rig.want("a", 2);
    rig.want("b", 0);
    rig.settle();
    assert_eq!(rig.records()[RANGE].node, "b");
    assert_eq!(rig.status("b").aliases[RANGE].pod, Some(target));
    assert_eq!(rig.on_machine("b"), [RANGE.to_owned()].into());
    assert!(!rig.status("a").aliases.contains_key(RANGE), "two pods would have it");
    assert_eq!(*rig.cloud.updates.lock().unwrap(), 1, "only what a wants is added");
    // When its pod has ended, it is like any other.
    rig.pod_gone("ns/d");
    rig.settle();
    assert_eq!(rig.status("b").aliases[RANGE].pod, None);
    assert_eq!(rig.told("MoveAbandoned"), Vec::<String>::new());
}

#[test]
fn of_two_pods_that_report_an_address_that_one_keeps_it_whose_machine_has_it() {
    let mut rig = Rig::new(22);
    rig.machine("a");
    rig.machine("b");
    rig.attach("b", RANGE);
    let source = rig.pod("s", "ns", "a", json!({"live.cast.ai/move-out-ip": "true"}));
    let entry = json!({"podName": "s", "podNamespace": "ns", "podUID": source, "nodeName": "a"});
    rig.pod("d", "ns", "b", json!({}));
    rig.report("ns/s", ADDRESS);
    rig.report("ns/d", ADDRESS);
    rig.pool(json!({"allocations": {ADDRESS: entry}}));
    rig.want("a", 0);
    rig.want("b", 0);
    rig.settle();
    assert_eq!(rig.records()[RANGE].node, "b");
    assert!(rig.on_machine("a").is_empty());
    assert_eq!(*rig.cloud.updates.lock().unwrap(), 0, "it never left the machine");
}

#[test]
fn grants_that_a_backup_does_not_have_are_written_down_again_and_nobody_else_gets_them() {
    for attach in [json!({}), json!({"attach": "block", "blockSizeBits": 1})] {
        let mut rig = Rig::new(23);
        let mut spec = json!({"cidr": "10.111.0.0/29", "cooling": "0s"});
        spec.as_object_mut().unwrap().extend(attach.as_object().unwrap().clone());
        rig.pool(spec);
        rig.machine("a");
        rig.machine("b");
        rig.want("a", 2);
        rig.want("b", 0);
        rig.settle();
        let had = rig.on_machine("a");
        rig.pod("one", "ns", "a", json!({}));
        rig.report("ns/one", ADDRESS);
        rig.settle();
        // The ledgers and what the nodes know are older.
        rig.ledgers.clear();
        for aliases in rig.aliases.values_mut() {
            aliases.spec.wanted = 0;
        }
        rig.restart();
        let updates = *rig.cloud.updates.lock().unwrap();
        rig.settle();
        let kept = rig.records();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(kept.values().all(|record| record.node == "a"));
        assert!(kept.keys().all(|range| had.contains(range)), "{kept:?}");
        assert_eq!(rig.on_machine("a"), kept.keys().cloned().collect());
        assert_eq!(*rig.cloud.updates.lock().unwrap() - updates, 1, "what no pod reports is removed");
        rig.want("b", 10);
        rig.settle();
        let of_b = rig.status("b").aliases;
        assert!(!of_b.is_empty() && kept.keys().all(|range| !of_b.contains_key(range)));
    }
}

#[test]
fn a_freed_address_is_not_given_again_while_a_pod_reports_it() {
    let mut rig = Rig::new(24);
    rig.pool(json!({"cidr": "10.111.0.0/30", "cooling": "1s"}));
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 2);
    rig.settle();
    rig.pod("one", "ns", "a", json!({}));
    rig.report("ns/one", ADDRESS);
    rig.give_back("a", RANGE);
    rig.want("a", 1);
    rig.want("b", 1);
    rig.settle();
    rig.clock.advance(Duration::from_mins(10));
    rig.settle();
    assert!(rig.status("b").aliases.is_empty(), "cooling gives way, evidence does not");
    rig.pod_gone("ns/one");
    rig.settle();
    assert!(rig.status("b").aliases[RANGE].attached);
}

#[test]
fn the_host_s_address_is_no_evidence_nor_is_one_that_a_record_has() {
    let mut rig = Rig::new(25);
    rig.pool(json!({}));
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 1);
    rig.want("b", 0);
    rig.settle();
    let before = rig.records();
    rig.pod("liar", "ns", "b", json!({}));
    rig.report("ns/liar", ADDRESS);
    rig.pod("host", "ns", "b", json!({}));
    let mut host = rig.pods["ns/host"].clone();
    host["spec"]["hostNetwork"] = json!(true);
    rig.say_pod("ns/host", host);
    rig.report("ns/host", "10.111.0.9");
    rig.settle();
    assert_eq!(rig.records(), before);
    assert!(rig.on_machine("b").is_empty());
}
