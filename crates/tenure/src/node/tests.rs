//! What `tenure node` says, letter by letter.

use tenure_view::{Difference, Egress, NodeAddress, NodePolicy, Traffic, Waiting};

use super::*;
use crate::snapshot::example::{NOW, cool, holder, moment, system, told};

#[test]
fn a_node_is_shown_whole() {
    let mut snapshot = system();
    cool(&mut snapshot, "10.64.0.5");
    let node = told(&mut snapshot, "node1");
    node.holds[0].traffic =
        Some(Traffic { received_bytes: 1_500, received_packets: 2, sent_bytes: 20_480, sent_packets: 3 });
    node.holds[1].block = None;
    node.pools[0].waiting = 1;
    node.pools[0].asked = 1;
    node.waiting.push(Waiting {
        holder: holder("late-0"),
        pool: "default".into(),
        since: moment("2026-11-15T11:59:57Z"),
    });
    node.node_addresses.push(NodePolicy {
        policy: "static-ip".into(),
        addresses: vec![NodeAddress { interface: "eth1".into(), address: "10.10.10.8/24".parse().unwrap() }],
        problem: None,
    });
    node.api.watches[0].problem = Some("connection refused".into());
    node.egress = Some(Egress {
        datapath: "bpf".into(),
        reason: "the kernel has no Foo-over-UDP (module fou)".into(),
        clients: 2,
        gateways: 1,
        failing: 0,
    });
    let kernel = node.kernel.as_mut().unwrap();
    kernel
        .differences
        .push(Difference { subject: "10.64.0.1".into(), problem: "no route leads to it".into() });
    let expected = "\
node:         node1
agent:        0.1.0, started 60m ago
state:        assigns addresses
journal:      works
API server:   answered 5s ago; AddressPools: connection refused
egress:       bpf (the kernel has no Foo-over-UDP (module fou)); 2 clients, 1 gateways, 0 failing

POOLS
POOL      BLOCKS   USED   COOLING   FREE   WAITING   ASKED   PROBLEM
default   1        2      0         14     1         1       -

BLOCKS
BLOCK       POOL      NETWORKS       USED   COOLING   FREE   STATE
default-0   default   10.64.0.0/28   2      1         13     ok

HOLDS
HOLDER     ADDRESSES   BLOCK               SINCE   INTERFACE   RECEIVED   SENT
ns/web-0   10.64.0.0   default-0           30m     tnr-web-0   1500 B     20 KiB
ns/web-1   10.64.0.1   none of this node   30m     tnr-web-1   -          -

NODE ADDRESSES
POLICY      ADDRESSES            PROBLEM
static-ip   eth1 10.10.10.8/24   -

COOLING
ADDRESSES   BLOCK       FOR   LAST HOLDER
10.64.0.5   default-0   20s   ns/old-0

WAITING
WHO         POOL      SINCE
ns/late-0   default   3s

KERNEL
SUBJECT     PROBLEM
10.64.0.1   no route leads to it
";
    assert_eq!(text(node, &[], moment(NOW)), expected);
}

#[test]
fn a_node_that_starts_says_so() {
    let mut snapshot = system();
    let node = told(&mut snapshot, "node1");
    node.ready = false;
    (node.pools, node.blocks, node.holds) = (Vec::new(), Vec::new(), Vec::new());
    assert!(
        text(node, &[], moment(NOW))
            .contains("state:        reads the existing holds; nothing is assigned yet\n")
    );
}

#[test]
fn slices_of_the_node_are_shown_with_what_is_held_in_them() {
    let snapshot = crate::snapshot::example::with_ranges();
    let slices = super::slices(&snapshot.ranges, "node1");
    let node = snapshot.agents["node1"].as_ref().unwrap();
    let shown = super::text(node, &slices, crate::snapshot::example::moment(crate::snapshot::example::NOW));
    let expected = "\nSLICES\n\
POOL   SLICE         USED   FREE   IPPOOL
net    10.8.0.0/26   1      63     node1-10.8.0.0-26
";
    assert!(shown.contains(expected), "{shown}");
    assert_eq!(super::slices(&snapshot.ranges, "node2")[0].ledger, None);
}
