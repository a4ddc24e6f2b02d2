//! Packets arrive, and what is exported is what is owned.

use serde_json::json;

use crate::bed::{A_MOMENT, Cluster, Machine};

#[test]
fn n2_pods_and_their_host_reach_each_other_over_both_families() {
    let cluster = Cluster::shared();
    let machine = Machine::running(&cluster);
    let (left, right) = (machine.pod("left"), machine.pod("right"));
    let (to_left, to_right) = (machine.add(&left), machine.add(&right));
    machine.assert_reached(&left, &to_left);
    machine.assert_reached(&right, &to_right);
    for address in to_right {
        left.network.ping(address, crate::bed::SOON).unwrap();
    }
    machine.del(&right);
    for address in to_left {
        assert!(right.network.ping(address, A_MOMENT).is_err(), "a pod without an interface reached {address}");
    }
}

#[test]
fn e5_i4_the_export_table_has_exactly_the_nodes_blocks_after_each_change() {
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
