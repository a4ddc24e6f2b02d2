//! Policies reach interfaces, or say why not.

use std::time::Duration;

use serde_json::json;
use tenure_tests::node_addresses::{Bed, cluster, interface, texts};

const ONE: (&str, &str, &str) = ("one", "ippool.traffic-1.allocate", "10.10.10.8/24");
const TWO: (&str, &str, &str) = ("two", "ippool.traffic-2.allocate", "10.10.11.9/24");

#[test]
fn two_interfaces_get_addresses_of_two_pools_and_the_enactment_says_so() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let desired = json!({"interfaces": [interface("eth1", "one"), interface("eth2", "two")]});
    let policy = bed.policy("static-ip", &[ONE, TWO], &desired);
    let status = bed.until_available(&policy).status.unwrap();
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]));
    assert_eq!(bed.addresses("eth2"), texts(&["10.10.11.9/24"]));
    bed.ping("10.10.10.200");
    let applied = status.applied.unwrap();
    assert_eq!((applied.mode.as_deref(), applied.released), (Some("kernel"), false));
    let found: Vec<String> =
        applied.addresses.iter().map(|it| format!("{} {}", it.interface, it.address)).collect();
    assert_eq!(found, ["eth1 10.10.10.8/24", "eth2 10.10.11.9/24"]);
    let address = &status.desired_state.unwrap()["interfaces"][0]["ipv4"]["address"][0];
    assert_eq!(*address, json!({"ip": "10.10.10.8", "prefix-length": 24}), "filled in, with types");
    assert_eq!(status.ippool["traffic-1"].allocated, ["10.10.10.8"], "what the controller wrote stays");
}

#[test]
fn both_families_routes_mtu_and_a_captured_interface_are_applied_and_a_change_follows() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let mut desired = json!({"interfaces": [interface("{{ capture.nic.interfaces.0.name }}", "one")]});
    desired["interfaces"][0]["mtu"] = json!(1400);
    desired["interfaces"][0]["ipv6"] = json!({"enabled": true, "autoconf": false, "address": [
        {"ip": "{{ capture.six.ip }}", "prefix-length": "{{ capture.six.prefix-length }}"}
    ]});
    desired["routes"] = json!({"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": "10.10.10.200", "next-hop-interface": "eth1"}
    ]});
    let six = ("six", "ippool.traffic-6.allocate", "fd10::8/64");
    let nic = ("nic", "interfaces.name == \"eth1\"", "");
    let policy = bed.policy("both", &[ONE, six, nic], &desired);
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24", "fd10::8/64"]));
    bed.ping("fd10::200");
    let routes = || bed.machine.host.namespace().ip_json(&["route", "show", "198.51.100.0/24"]).unwrap();
    assert_eq!(routes()[0]["gateway"], "10.10.10.200");
    // Another generation: the other interface, without the route.
    bed.change(&policy, &json!({"interfaces": [interface("eth2", "one")]}));
    bed.until_addresses("eth2", &["10.10.10.8/24"]);
    bed.until_addresses("eth1", &[]);
    bed.until_available(&policy);
    assert_eq!(routes().as_array().unwrap().len(), 0);
}

#[test]
fn what_is_not_understood_is_refused_with_its_path_and_changes_nothing() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let mut desired = json!({"interfaces": [interface("eth1", "one")]});
    desired["interfaces"][0]["ipv4"]["auto-dns"] = json!(false);
    let policy = bed.policy("odd", &[ONE], &desired);
    let failing = bed.until_failing(&policy, "desiredState.interfaces[0].ipv4.auto-dns");
    assert_eq!(failing.condition("Failing").unwrap().reason.as_deref(), Some("FailedToConfigure"));
    assert_eq!(bed.addresses("eth1"), texts(&[]));
    bed.change(&policy, &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]));
}

#[test]
fn the_agent_waits_for_an_interface_that_is_not_there_yet() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let policy = bed.policy("late", &[ONE], &json!({"interfaces": [interface("eth3", "one")]}));
    bed.until_failing(&policy, "\"eth3\" does not exist");
    bed.plug("eth3");
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth3"), texts(&["10.10.10.8/24"]));
    // One that is made again gets its address again.
    bed.machine.host.ip("link del eth3").unwrap();
    bed.until_failing(&policy, "eth3");
    bed.plug("eth3");
    bed.until_addresses("eth3", &["10.10.10.8/24"]);
    bed.until_available(&policy);
}

#[test]
fn addresses_of_others_stay_and_ours_come_back_if_somebody_removes_them() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    bed.machine.host.ip("address add 10.10.10.70/24 dev eth1").unwrap();
    let policy = bed.policy("beside", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.70/24", "10.10.10.8/24"]));
    bed.machine.host.ip("address del 10.10.10.8/24 dev eth1").unwrap();
    bed.until_addresses("eth1", &["10.10.10.70/24", "10.10.10.8/24"]);
    bed.delete(&policy);
    bed.until_released(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.70/24"]));
}

#[test]
fn of_two_policies_for_one_interface_the_first_keeps_it_and_the_other_follows() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let desired = json!({"interfaces": [interface("eth1", "one")]});
    let first = bed.policy("first", &[ONE], &desired);
    bed.until_available(&first);
    let other = ("one", "ippool.traffic-1.allocate", "10.10.10.9/24");
    let second = bed.policy("second", &[other], &desired);
    bed.until_failing(&second, &format!("is configured by policy \"{first}\""));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.8/24"]));
    bed.delete(&first);
    bed.until_released(&first);
    bed.until_available(&second);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.9/24"]));
}

#[test]
fn an_address_that_another_host_or_interface_has_is_not_taken() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    bed.machine.host.ip("address add 10.10.10.8/24 dev eth2").unwrap();
    let policy = bed.policy("elsewhere", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_failing(&policy, "10.10.10.8 is on interface \"eth2\" of this node already");
    assert_eq!(bed.addresses("eth1"), texts(&[]));
    bed.machine.host.ip("address del 10.10.10.8/24 dev eth2").unwrap();
    bed.until_available(&policy);
    // A neighbour has the IPv6 address.
    bed.detect_duplicates();
    let six = ("six", "ippool.traffic-6.allocate", "fd10::200/64");
    let desired = json!({"interfaces": [{"name": "eth2", "ipv6": {"enabled": true, "address": [
        {"ip": "{{ capture.six.ip }}", "prefix-length": "{{ capture.six.prefix-length }}"}
    ]}}]});
    let policy = bed.policy("collision", &[six], &desired);
    bed.until_failing(&policy, "in use by another host of the segment");
    assert_eq!(bed.addresses("eth2"), texts(&[]));
}

#[test]
fn an_ipv4_address_that_a_neighbour_answers_for_is_reported_with_its_ethernet_address_and_not_taken() {
    let cluster = cluster();
    let mut bed = Bed::running(&cluster);
    let shown = bed.neighbour.namespace().ip_json(&["link", "show", "dev", "eth1"]).unwrap();
    let said = format!(
        "interface eth1: address 10.10.10.200 is in use by another host of the segment, which answers from {}",
        shown[0]["address"].as_str().unwrap()
    );
    // An interface has to be up to be asked on, and is down again afterwards.
    bed.machine.host.ip("link set eth1 down").unwrap();
    let theirs = ("one", "ippool.traffic-1.allocate", "10.10.10.200/24");
    let policy = bed.policy("theirs", &[theirs], &json!({"interfaces": [interface("eth1", "one")]}));
    let failing = bed.until_failing(&policy, &said);
    assert!(failing.status.unwrap().applied.unwrap().addresses.is_empty());
    assert_eq!(bed.addresses("eth1"), texts(&[]));
    let up = |bed: &Bed<'_>| {
        let shown = bed.machine.host.namespace().ip_json(&["link", "show", "dev", "eth1"]).unwrap();
        shown[0]["flags"].as_array().unwrap().contains(&json!("UP"))
    };
    bed.machine.until("eth1 to be down as before", || (!up(&bed)).then_some(()));
    bed.neighbour.ip("address del 10.10.10.200/24 dev eth1").unwrap();
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.200/24"]));
    // The same when an agent puts back what its file says, and somebody has taken it meanwhile.
    bed.machine.kill();
    bed.machine.host.ip("address del 10.10.10.200/24 dev eth1").unwrap();
    bed.neighbour.ip("address add 10.10.10.200/24 dev eth1").unwrap();
    bed.machine.start();
    bed.until_failing(&policy, &said);
    assert_eq!(bed.addresses("eth1"), texts(&[]));
}

#[test]
fn a_change_after_which_the_api_server_is_out_of_reach_is_taken_back() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    bed.machine.host.ip("address add fd10::70/64 dev eth1 nodad").unwrap();
    let policy = bed.slow_policy("cut");
    // The way to the API server ends with the change, while it is verified.
    bed.until_addresses("eth1", &["fd10::70/64", "fd10::8/64"]);
    bed.machine.gate.freeze();
    bed.until_addresses("eth1", &["fd10::70/64"]);
    bed.machine.gate.thaw();
    bed.until_failing(&policy, "out of reach for 2 s, so it was taken back");
    // Now it stays within reach.
    let status = bed.until_available(&policy).status.unwrap();
    assert_eq!(bed.addresses("eth1"), texts(&["fd10::70/64", "fd10::8/64"]));
    assert!(status.retry_count.values().all(|count| *count >= 1), "{:?}", status.retry_count);
}
