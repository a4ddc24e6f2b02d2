//! A system in which everything is right: one pool, two nodes with a block each, pods on both.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_view::{Api, Block, Cooling, Counts, Hold, Holder, Journal, Kernel, Node, Pod, Pool, Watch};

use super::{PodFacts, Snapshot};

pub(crate) const NOW: &str = "2026-11-15T12:00:00Z";

pub(crate) fn moment(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn pool(name: &str, ipv4: &str, allocated: u32) -> AddressPool {
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": NOW});
    read(json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool",
        "metadata": {"name": name, "uid": name, "finalizers": ["coil.cybozu.com"], "creationTimestamp": "2026-11-15T00:00:00Z"},
        "spec": {"blockSizeBits": 4, "subnets": [{"ipv4": ipv4}]},
        "status": {
            "blocks": {"capacity": "16", "allocated": allocated.to_string(), "free": "14"},
            "conditions": [condition("Ready", "True", "BlocksFree"), condition("Exhausted", "False", "BlocksFree")],
        },
    }))
}

pub(crate) fn block(pool: &str, index: u32, node: &str, ipv4: &str) -> AddressBlock {
    read(json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock",
        "metadata": {
            "name": format!("{pool}-{index}"), "uid": format!("{pool}-{index}-uid"), "finalizers": ["coil.cybozu.com"],
            "labels": {"coil.cybozu.com/pool": pool, "coil.cybozu.com/node": node},
        },
        "index": index, "ipv4": ipv4,
    }))
}

/// A block for claims: one has an address, and another had one.
pub(crate) fn floating() -> AddressBlock {
    let record = |name: &str, freed: Option<&str>| json!({"namespace": "ns", "name": name, "uid": name, "freed": freed});
    let mut block = block("default", 5, "", "10.64.0.80/28");
    let labels = block.metadata.labels.get_or_insert_default();
    labels.remove("coil.cybozu.com/node");
    labels.insert("tenure/floating".to_owned(), "true".to_owned());
    let records =
        json!({"1": record("vm.net", None), "2": record("old.net", Some("2026-11-15T11:59:50.000000Z"))});
    block.spec.claims = read(records);
    block
}

pub(crate) fn request(name: &str, node: &str, created: &str, status: &Value) -> BlockRequest {
    read(json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "BlockRequest",
        "metadata": {"name": name, "uid": name, "creationTimestamp": created},
        "spec": {"nodeName": node, "poolName": "default"},
        "status": status,
    }))
}

pub(crate) fn holder(pod: &str) -> Holder {
    Holder {
        network: "k8s".into(),
        container: format!("c-{pod}"),
        interface: "eth0".into(),
        pod: Some(Pod { namespace: "ns".into(), name: pod.into(), uid: format!("{pod}-uid") }),
    }
}

pub(crate) fn hold(pod: &str, block: &str, address: &str) -> Hold {
    Hold {
        holder: holder(pod),
        pool: "default".into(),
        block: Some(block.into()),
        addresses: vec![ip(address)],
        since: Some(moment("2026-11-15T11:30:00Z")),
        host_interface: Some(format!("tnr-{pod}")),
        traffic: None,
        claim: None,
    }
}

pub(crate) fn pod(name: &str, node: &str, address: &str) -> PodFacts {
    PodFacts {
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("{name}-uid"),
        node: node.into(),
        addresses: vec![ip(address)],
        networks: Vec::new(),
        macs: Vec::new(),
        host_network: false,
        over: false,
    }
}

/// An agent with one block of sixteen addresses.
pub(crate) fn agent(node: &str, block: &str, network: &str, holds: Vec<Hold>) -> Node {
    let held = holds.len() as u64;
    let addresses = Counts { capacity: 16, held, cooling: 0, reserved: 0, free: 16 - held };
    Node {
        node: node.into(),
        version: "0.1.0".into(),
        time: moment(NOW),
        started: Some(moment("2026-11-15T11:00:00Z")),
        ready: true,
        problem: None,
        api: Api {
            answered: Some(moment("2026-11-15T11:59:55Z")),
            watches: vec![Watch { kind: "AddressPools".into(), problem: None }],
        },
        journal: Journal::default(),
        egress: None,
        node_addresses: Vec::new(),
        calls: tenure_view::Calls::default(),
        slowest_adds: Vec::new(),
        pools: vec![Pool {
            name: "default".into(),
            blocks: 1,
            addresses,
            waiting: 0,
            asked: 0,
            problem: None,
        }],
        blocks: vec![Block {
            name: block.into(),
            uid: format!("{block}-uid"),
            pool: "default".into(),
            networks: vec![network.parse().unwrap()],
            addresses,
            usable: true,
            fenced: None,
        }],
        holds,
        cooling: Vec::new(),
        waiting: Vec::new(),
        kernel: Some(Kernel { looked: moment(NOW), differences: Vec::new() }),
    }
}

/// A system in which everything is right.
pub(crate) fn system() -> Snapshot {
    let one = agent(
        "node1",
        "default-0",
        "10.64.0.0/28",
        vec![hold("web-0", "default-0", "10.64.0.0"), hold("web-1", "default-0", "10.64.0.1")],
    );
    let two = agent("node2", "default-1", "10.64.0.16/28", vec![hold("db-0", "default-1", "10.64.0.16")]);
    let mut snapshot = Snapshot::empty(moment(NOW));
    snapshot.pools = vec![pool("default", "10.64.0.0/24", 2)];
    snapshot.blocks =
        vec![block("default", 0, "node1", "10.64.0.0/28"), block("default", 1, "node2", "10.64.0.16/28")];
    snapshot.nodes = ["node1".to_owned(), "node2".to_owned()].into();
    snapshot.agents = [("node1".to_owned(), Ok(one)), ("node2".to_owned(), Ok(two))].into();
    snapshot.pods = Some(vec![
        pod("web-0", "node1", "10.64.0.0"),
        pod("web-1", "node1", "10.64.0.1"),
        pod("db-0", "node2", "10.64.0.16"),
        PodFacts { host_network: true, ..pod("proxy", "node1", "192.0.2.1") },
    ]);
    snapshot
}

/// Makes an address of node1 cool.
pub(crate) fn cool(snapshot: &mut Snapshot, address: &str) {
    let node = told(snapshot, "node1");
    node.blocks[0].addresses.cooling += 1;
    node.blocks[0].addresses.free -= 1;
    node.cooling.push(Cooling {
        block: "default-0".into(),
        addresses: vec![ip(address)],
        until: moment("2026-11-15T12:00:20Z"),
        last: Some(holder("old-0")),
    });
}

/// The answer of a node's agent, for changes.
pub(crate) fn told<'a>(snapshot: &'a mut Snapshot, node: &str) -> &'a mut Node {
    snapshot.agents.get_mut(node).unwrap().as_mut().unwrap()
}

/// A ledger with records of pods: key and pod.
pub(crate) fn ledger(name: &str, range: &str, node: &str, state: &str, records: &[(&str, &str)]) -> IPPool {
    let record = |(key, pod): &(&str, &str)| {
        (
            (*key).to_owned(),
            json!({"id": format!("c-{pod}"), "podref": format!("ns/{pod}"), "ifname": "net1"}),
        )
    };
    let records: serde_json::Map<String, Value> = records.iter().map(record).collect();
    let mut labels = serde_json::Map::new();
    if !node.is_empty() {
        labels.insert("whereabouts.cni.cncf.io/node".into(), json!(node));
    }
    read(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
        "metadata": {
            "name": name, "uid": name, "labels": labels, "annotations": {"whereabouts.cni.cncf.io/state": state},
        },
        "spec": {"range": range, "allocations": records},
    }))
}

/// A range with slices and their nodes.
pub(crate) fn slices(name: &str, range: &str, size: &str, slices: &[(&str, &str)]) -> NodeSlicePool {
    let slice = |(node, slice): &(&str, &str)| json!({"nodeName": node, "sliceRange": slice});
    let slices: Vec<Value> = slices.iter().map(slice).collect();
    let ready = json!({"type": "Ready", "status": "True", "reason": "Sliced", "message": "m", "lastTransitionTime": NOW});
    read(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
        "metadata": {"name": name, "uid": name, "annotations": {"whereabouts.cni.cncf.io/network": ""}},
        "spec": {"range": range, "sliceSize": size},
        "status": {"allocations": slices, "conditions": [ready]},
    }))
}

pub(crate) fn reservation(name: &str, pod: &str) -> OverlappingRangeIPReservation {
    read(json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": name, "uid": name}, "spec": {"podref": format!("ns/{pod}"), "ifname": "net1"},
    }))
}

/// The system with Whereabouts' ranges: a shared one and two nodes' slices, everything right.
pub(crate) fn with_ranges() -> Snapshot {
    let mut snapshot = system();
    snapshot.ranges.ledgers = vec![
        ledger("10.9.0.0-24", "10.9.0.0/24", "", "unique", &[("1", "web-0"), ("2", "db-0")]),
        ledger("10.8.0.0-24", "10.8.0.0/24", "", "sliced", &[]),
        ledger("node1-10.8.0.0-26", "10.8.0.0/26", "node1", "owned", &[("1", "web-1")]),
    ];
    let given =
        [("node1", "10.8.0.0/26"), ("node2", "10.8.0.64/26"), ("", "10.8.0.128/26"), ("", "10.8.0.192/26")];
    snapshot.ranges.slices = vec![slices("net", "10.8.0.0/24", "/26", &given)];
    for (pod, address) in [(0, "10.9.0.1"), (1, "10.8.0.1"), (2, "10.9.0.2")] {
        snapshot.pods.as_mut().unwrap()[pod].networks = vec![ip(address)];
    }
    snapshot
}

/// Alias addresses of a cloud: node1 has .1 for any pod and .2 for one that moves to node2, .3 cools, and .4 waits.
pub(crate) fn aliases() -> crate::aliases::Aliases {
    let slot = |pod: &str, node: &str| json!({"pod": pod, "uid": format!("{pod}-uid"), "node": node});
    let moves = json!({"active": slot("web-0", "node1"), "incoming": slot("web-9", "node2"), "number": 1})
        .to_string();
    let records = json!({
        "1": {"node": "node1", "grant": "g1"},
        "2": {"node": "node1", "grant": "g2", "move": {"namespace": "ns", "holders": moves}},
        "3": {"node": "node1", "grant": "g3", "freed": "2026-11-15T11:59:50.000000Z"},
        "4": {"node": "node2", "grant": "g4", "move": {"namespace": "ns", "holders": "{}", "vacant": "2026-11-15T11:59:50.000000Z"}},
    });
    let spec = json!({"cidr": "10.111.0.0/24", "subnet": "projects/p/regions/r/subnetworks/s", "exclude": ["10.111.0.200/32"]});
    let pool = json!({"apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "IPPool", "metadata": {"name": "live"}, "spec": spec});
    let ledger = json!({
        "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "IPLedger", "metadata": {"name": "live-0"},
        "pool": "live", "index": 0, "cidr": "10.111.0.0/24", "records": records,
    });
    let node = json!({
        "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "NodeAliases", "metadata": {"name": "node1"},
        "spec": {"pool": "live", "wanted": 1},
        "status": {"aliases": {"10.111.0.1/32": {"grant": "g1", "attached": true}}, "attached": 1},
    });
    crate::aliases::Aliases { pools: vec![read(pool)], ledgers: vec![read(ledger)], nodes: vec![read(node)] }
}
