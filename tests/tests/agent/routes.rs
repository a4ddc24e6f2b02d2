//! Packets arrive, and what is exported is what is owned.

use std::sync::Arc;

use serde_json::json;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::PATIENCE;

use tenure_tests::agent::{A_MOMENT, Cluster, Machine};

#[test]
fn pods_and_their_host_reach_each_other_over_both_families() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let (left, right) = (machine.pod("left"), machine.pod("right"));
    let (to_left, to_right) = (machine.add(&left), machine.add(&right));
    machine.assert_reached(&left, &to_left);
    machine.assert_reached(&right, &to_right);
    for address in to_right {
        left.network.ping(address, PATIENCE).unwrap();
    }
    machine.del(&right);
    for address in to_left {
        assert!(
            right.network.ping(address, A_MOMENT).is_err(),
            "a pod without an interface reached {address}"
        );
    }
}

#[test]
fn the_export_table_has_exactly_the_nodes_blocks_after_each_change() {
    let cluster = Cluster::shared();
    cluster.tenant("i4", 0, json!([{"ipv4": "10.87.0.0/24", "ipv6": "fd87::/120"}]));
    let machine = Machine::running(&cluster);
    let exported = || {
        machine.until("the export table", || {
            let (table, networks) = (machine.table(119), machine.networks());
            (table == networks).then_some(table)
        })
    };
    assert_eq!(exported(), Vec::<String>::new());
    for number in 0..3 {
        machine.add(&machine.pod_in("i4", &format!("pod{number}")));
        assert!(exported().len() > 2 * number, "what is used must be exported");
    }
    // Somebody else's hands: the table is the agent's alone.
    let blocks = machine.blocks();
    cluster.destroy_block(&blocks[0]);
    machine.until("the route to go", || (machine.table(119) == machine.networks()).then_some(()));
}

#[test]
fn pods_on_different_hosts_of_one_ethernet_reach_each_other_without_a_routing_daemon() {
    let cluster = Cluster::shared();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = [1, 2].map(|number| Machine::on(&cluster, &wire, number));
    for machine in &mut machines {
        machine.arguments = vec!["--route-blocks".to_owned()];
        machine.start();
    }
    let [left, right] = machines;
    let (one, other) = (left.pod("one"), right.pod("other"));
    let (to_one, to_other) = (left.add(&one), right.add(&other));
    assert_eq!((to_one.len(), to_other.len()), (2, 2));
    for address in &to_other {
        one.network.ping(*address, PATIENCE).unwrap();
    }
    for address in &to_one {
        other.network.ping(*address, PATIENCE).unwrap();
    }
    // Blocks that come later are reached, too.
    cluster.tenant("e3", 0, json!([{"ipv4": "10.101.0.0/24"}]));
    let late = right.pod_in("e3", "late");
    let to_late = right.add(&late);
    one.network.ping(to_late[0], PATIENCE).unwrap();
}
