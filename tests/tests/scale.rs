//! Two hundred nodes in one process against one kube-apiserver, as `cargo xtask scale` runs them: what each agent receives does not
//! grow with the cluster, and a pod costs few writes. Counts only. Needs root, etcd and kube-apiserver.

use tenure_bench::scale::{Figures, Kind, Plan, Run};

/// Nodes that are there from the start.
const FEW: usize = 50;
/// Nodes in the end.
const ALL: usize = 200;
/// Connections of people, who make nodes and pods, and of the controller.
const OTHERS: usize = 150;
/// Nodes that share ranges, before and after their number doubles. More of them would try in vain to write at the same time, and show
/// nothing else.
const SHARING: usize = 10;

fn plan(kind: Kind, nodes: usize) -> Plan {
    Plan { kind, nodes, networks: 2, pods: 2, workers: 0, durable: false }
}

#[test]
fn an_agent_receives_what_concerns_it_however_many_others_there_are() {
    let mut run = Run::start(plan(Kind::Blocks, FEW)).unwrap();
    let few = run.cold(false).unwrap();
    let before = run.flows().unwrap();
    let more = run.grow(ALL - FEW).unwrap();
    let after = run.flows().unwrap();
    let adds = (few.value("adds"), more.value("adds"));
    assert_eq!(adds, (Some(200.0), Some(600.0)), "{few:?}\n{more:?}");
    assert_eq!(after.len(), ALL);

    // An agent has one connection for all its calls and watches.
    let connections = run.connections().unwrap().unwrap();
    assert!((ALL..=ALL + OTHERS).contains(&connections), "{connections} connections");

    // Pools have fewer blocks left, and everybody may know. Of 300 blocks, requests and pods of others nobody hears; a node may
    // still delete its own two requests, and hear of that.
    for (node, before) in &before {
        let since = after[node].since(before);
        let others = since.total_of(|kind| kind != "Watch addresspools");
        assert!(others.events <= 4 && since.writes() <= 2, "node {node}: {since:?}");
    }

    // A pod of a node that has blocks costs no write, and few where its node gets its first blocks.
    let writes = |figures: &Figures| figures.value("writes_add").unwrap();
    assert!(writes(&few) < 6.0 && writes(&more) < 6.0, "{few:?}\n{more:?}");
}

#[test]
fn nodes_that_share_ranges_hear_of_no_others() {
    let mut run = Run::start(plan(Kind::Unsliced, SHARING)).unwrap();
    run.cold(false).unwrap();
    let before = run.flows().unwrap();
    let more = run.grow(SHARING).unwrap();
    let after = run.flows().unwrap();
    assert_eq!(more.value("adds"), Some(40.0), "{more:?}");
    for (node, before) in &before {
        let since = after[node].since(before);
        assert_eq!(since.total().events, 0, "node {node}: {since:?}");
    }
}
