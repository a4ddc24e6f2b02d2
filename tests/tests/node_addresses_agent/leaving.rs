//! Addresses go back, and only after they are off the interface.

use std::time::Duration;

use serde_json::json;
use tenure_tests::node_addresses::{Bed, cluster, interface, texts};

const ONE: (&str, &str, &str) = ("one", "ippool.traffic-1.allocate", "10.10.10.8/24");

#[test]
fn a_deleted_enactment_is_released_after_its_addresses_and_routes_are_gone() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let mut desired = json!({"interfaces": [interface("eth1", "one")]});
    desired["routes"] = json!({"config": [
        {"destination": "198.51.100.0/24", "next-hop-address": "10.10.10.200", "next-hop-interface": "eth1"}
    ]});
    let policy = bed.policy("back", &[ONE], &desired);
    bed.until_available(&policy);
    bed.delete(&policy);
    bed.until_released(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&[]), "it is said only after they are gone");
    let routes = bed.machine.host.namespace().ip_json(&["route", "show", "198.51.100.0/24"]).unwrap();
    assert_eq!(routes.as_array().unwrap().len(), 0);
    // It is not applied again, whatever its status says.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(bed.addresses("eth1"), texts(&[]));
    bed.end(&policy);
    // The same policy again, with another address, is another enactment.
    bed.enact(&policy, &[("one", ONE.1, "10.10.10.9/24")], Some(1));
    bed.until_available(&policy);
    assert_eq!(bed.addresses("eth1"), texts(&["10.10.10.9/24"]));
}

#[test]
fn an_enactment_that_never_had_its_turn_is_released_after_a_look() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let policy = bed.named("never");
    bed.enact(&policy, &[ONE], None);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(bed.addresses("eth1"), texts(&[]), "it is not its turn");
    bed.delete(&policy);
    bed.until_released(&policy);
}

#[test]
fn an_address_that_somebody_else_has_put_on_another_interface_is_not_given_back() {
    let cluster = cluster();
    let bed = Bed::running(&cluster);
    let policy = bed.policy("stuck", &[ONE], &json!({"interfaces": [interface("eth1", "one")]}));
    bed.until_available(&policy);
    bed.machine.host.ip("address add 10.10.10.8/24 dev eth2").unwrap();
    bed.delete(&policy);
    bed.until_failing(&policy, "10.10.10.8 is still on interface \"eth2\"");
    bed.machine.host.ip("address del 10.10.10.8/24 dev eth2").unwrap();
    bed.until_released(&policy);
}
