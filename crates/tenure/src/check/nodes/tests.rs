//! Next to kubernetes-nmstate, and what agents see.

use serde_json::{Value, json};
use tenure_api::nmstate::NodeNetworkConfigurationPolicy;
use tenure_view::{NodeAddress, NodePolicy};

use super::*;
use crate::snapshot::example::{NOW, agent, moment};

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn with_pool(offsets: &[i64]) -> Snapshot {
    let mut snapshot = Snapshot::empty(moment(NOW));
    snapshot.node_pools.pools.push(read(json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeIPPool", "metadata": {"name": "p"},
        "spec": {"range": {"cidr": "10.0.0.0/24"}}, "status": {"allocated-offsets": offsets},
    })));
    snapshot
}

fn generated(leaving: bool) -> NodeNetworkConfigurationPolicy {
    let mut policy: NodeNetworkConfigurationPolicy = read(json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {
            "name": "a.s", "generation": 3, "labels": {"tenure/policy": "s"},
            "annotations": {"tenure/ippool": "{\"p\": [\"10.0.0.1\"]}"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u"}],
        },
        "spec": {"desiredState": {"interfaces": [{"name": "eth1", "ipv4": {"address": [{"ip": "10.0.0.1", "prefix-length": 24}]}}]}},
    }));
    if leaving {
        policy.annotations_mut().insert("tenure/leaving".to_owned(), "true".to_owned());
    }
    policy
}

fn theirs(generation: i64) -> NodeNetworkConfigurationEnactment {
    read(json!({
        "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": "a.a.s", "labels": {"nmstate.io/policy": "a.s", "nmstate.io/node": "a"}},
        "status": {"policyGeneration": generation, "conditions": [{"type": "Available", "status": "True"}]},
    }))
}

fn kinds(snapshot: &Snapshot) -> Vec<&'static str> {
    let mut findings = Findings::default();
    compare(snapshot, &mut findings);
    findings.differences.iter().map(|it| it.kind).collect()
}

#[test]
fn a_generated_policy_has_its_addresses() {
    let mut snapshot = with_pool(&[0]);
    assert_eq!(kinds(&snapshot), ["node-address-stale"]);
    snapshot.node_pools.generated.push(generated(false));
    assert_eq!(kinds(&snapshot), [""; 0]);
    let held: Vec<_> = snapshot.node_pools.held().collect();
    assert_eq!((held[0].node, held[0].policy, held[0].interface), ("a", "s", None), "nobody has applied it");
    snapshot.node_pools.enactments.push(theirs(3));
    assert_eq!(snapshot.node_pools.held().next().unwrap().interface, Some("eth1"));
    snapshot.node_pools.pools = with_pool(&[]).node_pools.pools;
    assert_eq!(kinds(&snapshot), ["node-address-unrecorded"]);
    // It is off the interface: the controller has freed it, and drops the policy next.
    snapshot.node_pools.generated = vec![generated(true)];
    assert_eq!(kinds(&snapshot), [""; 0]);
}

#[test]
fn what_enactments_say_is_what_agents_see() {
    let mut snapshot = with_pool(&[0]);
    let mut enactment = theirs(1);
    enactment.metadata =
        read(json!({"name": "a.s", "labels": {"nmstate.io/policy": "s", "nmstate.io/node": "a"}}));
    enactment.status = Some(read(json!({
        "ippool": {"p": {"allocated": ["10.0.0.1"]}}, "policyGeneration": 1,
        "applied": {"policyGeneration": 1, "addresses": [{"interface": "eth1", "address": "10.0.0.1/24"}]},
    })));
    snapshot.node_pools.enactments.push(enactment);
    let mut see = |on: &str, problem: Option<&str>| {
        let mut node = agent("a", "b", "10.64.0.0/28", Vec::new());
        let address = NodeAddress { interface: on.to_owned(), address: "10.0.0.1/24".parse().unwrap() };
        let addresses = if on.is_empty() { Vec::new() } else { vec![address] };
        let problem = problem.map(str::to_owned);
        node.node_addresses = vec![NodePolicy { policy: "s".to_owned(), addresses, problem }];
        snapshot.agents.insert("a".to_owned(), Ok(node));
        kinds(&snapshot)
    };
    assert_eq!(see("eth1", None), [""; 0]);
    assert_eq!(see("eth2", None), ["node-address-unreported", "node-address-not-there"]);
    assert_eq!(see("", Some("no carrier")), ["node-address-problem", "node-address-not-there"]);
    snapshot.node_pools.enactments.clear();
    snapshot.node_pools.pools = with_pool(&[]).node_pools.pools;
    let mut node = agent("a", "b", "10.64.0.0/28", Vec::new());
    let address = NodeAddress { interface: "eth1".to_owned(), address: "10.0.0.1/24".parse().unwrap() };
    node.node_addresses =
        vec![NodePolicy { policy: "s".to_owned(), addresses: vec![address], problem: None }];
    snapshot.agents.insert("a".to_owned(), Ok(node));
    assert_eq!(kinds(&snapshot), ["node-address-unreported"], "its enactment is gone");
}
