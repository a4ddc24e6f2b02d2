//! Agents that are killed, nodes that reboot, and a state file.

use serde_json::json;
use tenure_tests::node_addresses::{Bed, cluster, interface, texts};

const ONE: (&str, &str, &str) = ("one", "ippool.traffic-1.allocate", "10.10.10.8/24");

#[test]
fn an_agent_that_is_killed_leaves_the_addresses_and_its_successor_finds_them() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let policy = bed.policy("kept", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    let before = bed.until_available(&policy);
    bed.machine.kill();
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]));
    bed.machine.start();
    // Its successor works: a change is applied.
    bed.change(&policy, &json!({"interfaces": [interface("eth2", "one")]}));
    bed.until_addresses("eth2", &["10.10.10.8/24"]);
    bed.until_addresses("eth1", &[]);
    let after = bed.until_available(&policy);
    assert_ne!(before.metadata.resource_version, after.metadata.resource_version);
}

#[test]
fn after_a_reboot_the_addresses_are_there_before_the_api_server_is() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let mut desired = json!({"interfaces": [interface("eth1", "one")]});
    desired["routes"] = json!({"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": "10.10.10.200", "next-hop-interface": "eth1"}
    ]});
    let policy = bed.policy("static", &[ONE], &desired);
    bed.until_available(&policy);
    bed.machine.gate.shut();
    bed.machine.reboot();
    bed.machine.host.ip("link del eth1").unwrap();
    bed.machine.launch();
    // The interface comes late, too.
    bed.plug("eth1");
    bed.until_addresses("eth1", &["10.10.10.8/24"]);
    bed.ping("10.10.10.200");
    let routes = bed.machine.host.namespace().ip_json(&["route", "show", "198.51.100.0/24"]).unwrap();
    assert_eq!(routes.as_array().unwrap().len(), 1);
    bed.machine.gate.reopen();
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]));
}

#[test]
fn a_change_that_nobody_confirmed_is_taken_back_by_the_next_agent() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let policy = bed.slow_policy("half");
    bed.until_addresses("eth1", &["fd10::8/64"]);
    bed.machine.kill();
    bed.machine.gate.shut();
    assert_eq!(bed.addresses("eth1"), texts(&["fd10::8/64"]));
    bed.machine.launch();
    // Whether the node reaches the API server with it is not known, so it goes.
    bed.until_addresses("eth1", &[]);
    bed.machine.gate.reopen();
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["fd10::8/64"]));
}

#[test]
fn what_is_gone_or_to_go_when_the_agent_comes_back_goes() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let gone = bed.policy("gone", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    let two = ("two", "ippool.traffic-2.allocate", "10.10.11.9/24");
    let leaving = bed.policy("leaving", &[two], &json!({"interfaces": [interface("eth2", "two")]}));
    bed.until_available(&gone);
    bed.until_available(&leaving);
    bed.machine.kill();
    // The controller has taken the node for gone, and given the first address to somebody else.
    bed.delete(&gone);
    bed.end(&gone);
    bed.delete(&leaving);
    bed.machine.start();
    bed.until_addresses("eth1", &[]);
    bed.until_released(&leaving);
    assert_eq!(bed.addresses("eth2"), texts(&[]));
}
