//! Tables as a whole: routes to pods after a restart, what is exported, the way to other nodes.

use super::bed::{Machine, NODE_V4, Pod, Result, ip};
use tenure_testbed::wait::PATIENCE;

#[test]
fn routes_that_were_deleted_or_changed_while_the_agent_was_down_are_repaired() -> Result {
    let machine = Machine::new("node")?;
    let (a, b) = (Pod::new("a", &["10.2.0.1", "fd01::1"])?, Pod::new("b", &["10.2.0.2", "fd01::2"])?);
    let (link_a, link_b) = {
        let mut node = machine.start();
        (node.wire(&a).host_name, node.wire(&b).host_name)
    };
    machine.bed.ip(&format!(
        "route delete 10.2.0.1 table 116\n\
         route replace 10.2.0.2 dev {link_a} table 116 proto 30\n\
         route add 10.2.0.3 dev {link_b} table 116 proto 30\n\
         route add 10.2.0.4 dev {link_b} table 116 proto static\n\
         route delete fd01::2 table 116\n\
         route add fd01::3 dev {link_a} table 116 proto 30"
    ))?;
    let mut node = machine.start();
    let keys: Vec<_> = node.found.iter().map(|found| found.key.clone()).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&a.key) && keys.contains(&b.key), "{keys:?}");
    node.repair(&[&a, &b]);
    assert_eq!(machine.table(116), ["10.2.0.1", "10.2.0.2", "10.2.0.4", "fd01::1", "fd01::2"]);
    for pod in [&a, &b] {
        assert_eq!(node.inspect(pod), Vec::<String>::new());
    }
    b.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    b.bed.ping(ip("fd01::1"), PATIENCE)?;
    Ok(())
}

#[test]
fn a_rule_that_somebody_deleted_comes_back() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let pod = Pod::new("pod", &["10.2.0.1"])?;
    node.wire(&pod);
    machine.bed.ip("rule delete priority 2000")?;
    assert!(machine.bed.ping(ip("10.2.0.1"), std::time::Duration::from_millis(300)).is_err());
    node.settle();
    machine.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    Ok(())
}

/// Scenarios that Coil tests, too.
#[test]
fn the_export_table_is_the_nodes_blocks_after_each_change_and_empty_when_told_so() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    machine.bed.ip("route add 10.9.0.0/24 via 192.0.2.7 table 119 proto static")?;
    let steps: [&[&str]; 4] = [
        &["10.2.0.0/27", "fd01::/123"],
        &["10.2.0.0/27", "10.2.0.32/27", "fd01::/123", "fd01::20/123"],
        &["10.2.0.32/27", "fd01::20/123"],
        &[],
    ];
    for step in steps {
        node.export(step);
        assert_eq!(machine.table(119), step);
    }
    // What others do to it does not last.
    node.export(&["10.2.0.0/27"]);
    machine.bed.ip("route flush table 119\nroute add 10.9.0.0/24 via 192.0.2.7 table 119")?;
    node.settle();
    assert_eq!(machine.table(119), ["10.2.0.0/27"]);
    Ok(())
}

#[test]
fn other_nodes_blocks_are_routed_through_their_nodes_and_foreign_routes_stay() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    machine.bed.ip("route add 10.5.0.0/27 via 192.0.2.9 proto static\n\
         route add fd05::/123 via 2001:db8::9 proto static\n\
         route add 10.6.0.0/27 via 192.0.2.9 proto 31 metric 131")?;
    node.settle();
    assert_eq!(machine.routes(&["proto", "31"]).len(), 1, "nobody said anything about them");
    let foreign = machine.routes(&["proto", "static"]);
    assert_eq!(foreign.len(), 2);
    let shown = || {
        let routes = machine.routes(&["proto", "31"]);
        let mut shown: Vec<String> = routes
            .iter()
            .map(|it| format!("{} via {}", it["dst"].as_str().unwrap(), it["gateway"].as_str().unwrap()))
            .collect();
        shown.sort();
        shown
    };
    node.remote(&[
        ("192.0.2.2", &["10.2.0.0/27", "10.2.0.32/27", "fd01::/123"]),
        ("2001:db8::2", &["10.2.0.0/27", "10.2.0.32/27", "fd01::/123"]),
        ("192.0.2.3", &["10.2.0.64/27", "10.5.0.0/27"]),
    ]);
    let first = [
        "10.2.0.0/27 via 192.0.2.2",
        "10.2.0.32/27 via 192.0.2.2",
        "10.2.0.64/27 via 192.0.2.3",
        "10.5.0.0/27 via 192.0.2.3",
        "fd01::/123 via 2001:db8::2",
    ];
    assert_eq!(shown(), first);
    // They are verified now and then.
    machine.bed.ip("route delete 10.2.0.0/27 proto 31\nroute add 10.7.0.0/27 via 192.0.2.9 proto 31")?;
    node.settle();
    assert_eq!(shown(), first);
    // A block that moved to another node.
    node.remote(&[("192.0.2.3", &["10.2.0.0/27"])]);
    assert_eq!(shown(), ["10.2.0.0/27 via 192.0.2.3"]);
    node.remote(&[]);
    assert_eq!(shown(), Vec::<String>::new());
    assert_eq!(machine.routes(&["proto", "static"]), foreign);
    Ok(())
}

#[test]
fn pods_of_two_nodes_on_one_ethernet_reach_each_other_without_a_routing_daemon() -> Result {
    let wire = tenure_testbed::hosts::Segment::new("wire")?;
    let machines = [Machine::new("left")?, Machine::new("right")?];
    let mut ports = Vec::new();
    for (machine, n) in machines.iter().zip(1..) {
        let addresses = [format!("198.51.100.{n}/24"), format!("2001:db8:1::{n}/64")];
        ports.push(wire.connect(&machine.bed, "ethernet", &[&addresses[0], &addresses[1]])?);
    }
    let pods = [Pod::new("left", &["10.2.0.1", "fd01::1"])?, Pod::new("right", &["10.2.0.33", "fd01::21"])?];
    let mut nodes = [machines[0].start(), machines[1].start()];
    let blocks: [&[&str]; 2] = [&["10.2.0.0/27", "fd01::/123"], &["10.2.0.32/27", "fd01::20/123"]];
    for here in 0..2 {
        let there = 1 - here;
        nodes[here].wire(&pods[here]);
        let via = [format!("198.51.100.{}", there + 1), format!("2001:db8:1::{}", there + 1)];
        nodes[here].remote(&[(&via[0], blocks[there]), (&via[1], blocks[there])]);
    }
    for target in ["10.2.0.33", "fd01::21"] {
        pods[0].bed.ping(ip(target), PATIENCE)?;
    }
    for target in ["10.2.0.1", "fd01::1", NODE_V4] {
        pods[1].bed.ping(ip(target), PATIENCE)?;
    }
    Ok(())
}
