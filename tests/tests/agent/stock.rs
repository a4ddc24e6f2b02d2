//! Blocks come before they are needed, and go when nobody needs them.

use std::net::IpAddr;

use serde_json::json;

use tenure_tests::agent::{Cluster, Machine, assert_distinct};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_used_up_block_brings_the_next_an_exhausted_pool_refuses_and_what_is_freed_is_given_again() {
    let cluster = Cluster::shared();
    cluster.tenant("i2", 1, json!([{"ipv4": "10.82.0.0/30"}]));
    let machine = Machine::running(&cluster);
    let pods: Vec<_> = (0..5).map(|number| machine.pod_in("i2", &format!("pod{number}"))).collect();
    assert_eq!(machine.add(&pods[0]), [ip("10.82.0.0")]);
    let mut addresses: Vec<_> = pods[1..4].iter().flat_map(|pod| machine.add(pod)).collect();
    addresses.sort();
    assert_eq!(addresses, [ip("10.82.0.1"), ip("10.82.0.2"), ip("10.82.0.3")]);
    assert_eq!(machine.blocks(), ["i2-0", "i2-1"]);
    let refused = machine.call("ADD", &pods[4]);
    assert_eq!(refused.refused(), 11, "{refused:?}");
    assert!(refused.json["msg"].as_str().unwrap().contains("i2"), "{refused:?}");
    assert!(!pods[4].has_interface());
    machine.del(&pods[2]);
    // It cools, and gives way rather than refusing.
    let given = machine.add(&pods[4]);
    assert!(addresses.contains(&given[0]), "{given:?}");
    machine.assert_reached(&pods[4], &given);
}

#[test]
fn the_address_after_a_free_is_not_the_freed_one() {
    let cluster = Cluster::shared();
    cluster.tenant("i3", 4, json!([{"ipv4": "10.83.0.0/24"}]));
    let machine = Machine::running(&cluster);
    let pods: Vec<_> = (0..3).map(|number| machine.pod_in("i3", &format!("pod{number}"))).collect();
    assert_eq!([machine.add(&pods[0]), machine.add(&pods[1])].concat(), [ip("10.83.0.0"), ip("10.83.0.1")]);
    machine.del(&pods[0]);
    assert_eq!(machine.add(&pods[2]), [ip("10.83.0.2")]);
}

#[test]
fn a_hundred_adds_at_once_on_an_empty_node_all_succeed() {
    let cluster = Cluster::shared();
    cluster.tenant("crowd", 3, json!([{"ipv4": "10.84.0.0/20"}]));
    let machine = Machine::running(&cluster);
    let pods: Vec<_> = (0..100).map(|number| machine.pod_in("crowd", &format!("pod{number}"))).collect();
    let addresses: Vec<IpAddr> = std::thread::scope(|scope| {
        let calls: Vec<_> = pods.iter().map(|pod| scope.spawn(|| machine.add(pod))).collect();
        calls.into_iter().flat_map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(addresses.len(), 100);
    assert_distinct(&addresses);
    std::thread::scope(|scope| pods.iter().for_each(|pod| drop(scope.spawn(|| machine.del(pod)))));
    machine.until("all links to go", || (machine.pod_links() == 0).then_some(()));
    machine.until("requests to go", || cluster.requests_of(&machine.name).is_empty().then_some(()));
}

#[test]
fn empty_blocks_are_given_back_after_a_rest_and_the_last_one_stays() {
    let cluster = Cluster::shared();
    cluster.tenant("i5", 1, json!([{"ipv4": "10.85.0.0/24"}]));
    cluster.tenant("i5-other", 1, json!([{"ipv4": "10.86.0.0/24"}]));
    let mut machine = Machine::new(&cluster);
    machine.arguments = ["--rest", "500ms", "--cooling", "100ms"].map(str::to_owned).to_vec();
    machine.start();
    let pods: Vec<_> = (0..6).map(|number| machine.pod_in("i5", &format!("pod{number}"))).collect();
    for pod in &pods {
        machine.add(pod);
    }
    let other = machine.pod_in("i5-other", "other");
    machine.add(&other);
    machine.kill();
    // While it is down, all but one go.
    for pod in &pods[1..] {
        machine.del(pod);
    }
    machine.del(&other);
    machine.start();
    let left =
        |pool: &str| machine.blocks().iter().filter(|name| name.rsplit_once('-').unwrap().0 == pool).count();
    // One with the pod that is left, and one at most to spare.
    machine.until("empty blocks to go", || (left("i5") <= 2 && left("i5-other") == 1).then_some(()));
    machine.until("their routes to go", || (machine.table(119) == machine.networks()).then_some(()));
    let taken = machine.add(&machine.pod_in("i5", "late"));
    assert_ne!(taken, machine.call("ADD", &pods[0]).addresses());
}
