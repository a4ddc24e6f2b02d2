//! Routing with a daemon: BIRD on two hosts runs exactly what `docs/routing.md` shows beside `tenured`, and pods of both
//! hosts reach each other over the routes that it learned. Needs root, iproute2 and bird2 (which is installed if it is not
//! there).

#![allow(dead_code, reason = "the bed of the agent's tests does more than these need")]

mod document;
mod hosts;

use document::Variant;
use hosts::Pair;
use serde_json::json;
use tenure_tests::agent::Cluster;

#[test]
fn pods_of_two_hosts_reach_each_other_over_routes_that_bird_learned_by_ospf() {
    reach_each_other(Variant::Ospf);
}

#[test]
fn pods_of_two_hosts_reach_each_other_over_routes_that_bird_learned_by_bgp() {
    reach_each_other(Variant::Bgp);
}

fn reach_each_other(variant: Variant) {
    let cluster = Cluster::embedded();
    cluster.control("bird");
    cluster.pool("default", 5, json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]));
    let mut pair = Pair::new(&cluster);
    // With pods on both hosts already, so that a BIRD which took the pods' gateway for its own number would show.
    pair.start_bird(variant);
    pair.assert_reached();
    assert_eq!(pair.left.way_to(pair.right.addresses[0]), "via 198.51.100.2");
    for address in pair.left.neighbours() {
        // Nobody has it: refused here, and not sent round in circles.
        assert_eq!(pair.left.way_to(address), "unreachable", "{address}\n{}", pair.left.state());
    }
    assert_eq!(pair.left.learned().into_iter().collect::<Vec<_>>(), pair.right.machine.networks());

    for block in pair.right.machine.blocks() {
        cluster.destroy_block(&block);
    }
    let left = &pair.left;
    left.machine.until("the routes to be withdrawn", || left.learned().is_empty().then_some(()));
}
