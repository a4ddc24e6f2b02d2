//! The shape of the JSON, as others rely on it.

use serde_json::json;

use super::*;

fn moment(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

fn holder() -> Holder {
    let pod = Pod { namespace: "default".into(), name: "web-0".into(), uid: "u1".into() };
    Holder { network: "k8s".into(), container: "c1".into(), interface: "eth0".into(), pod: Some(pod) }
}

#[test]
fn the_shape_is_what_others_rely_on() {
    let counts = Counts { capacity: 32, held: 1, cooling: 1, reserved: 0, free: 30 };
    let node = Node {
        node: "node1".into(),
        version: "0.1.0".into(),
        time: moment("2026-11-15T12:00:00Z"),
        started: Some(moment("2026-11-15T11:00:00Z")),
        ready: true,
        problem: None,
        api: Api {
            answered: Some(moment("2026-11-15T11:59:00Z")),
            watches: vec![Watch { kind: "AddressBlock".into(), problem: Some("connection refused".into()) }],
        },
        journal: Journal::default(),
        pools: vec![Pool {
            name: "default".into(),
            blocks: 1,
            addresses: counts,
            waiting: 1,
            asked: 1,
            problem: None,
        }],
        blocks: vec![Block {
            name: "default-0".into(),
            uid: "b0".into(),
            pool: "default".into(),
            networks: vec!["10.0.0.0/27".parse().unwrap(), "fd00::/123".parse().unwrap()],
            addresses: counts,
            usable: true,
            fenced: None,
        }],
        holds: vec![Hold {
            holder: holder(),
            pool: "default".into(),
            block: Some("default-0".into()),
            addresses: vec!["10.0.0.0".parse().unwrap(), "fd00::".parse().unwrap()],
            since: Some(moment("2026-11-15T11:30:00Z")),
            host_interface: Some("tn1".into()),
            traffic: Some(Traffic { received_bytes: 1, received_packets: 2, sent_bytes: 3, sent_packets: 4 }),
            claim: Some(Claim { name: "shop/vm-a".into(), uid: "k1".into(), reached: true }),
        }],
        cooling: vec![Cooling {
            block: "default-0".into(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            until: moment("2026-11-15T12:00:10Z"),
            last: Some(holder()),
        }],
        waiting: vec![Waiting {
            holder: Holder { pod: None, ..holder() },
            pool: "default".into(),
            since: moment("2026-11-15T11:59:59Z"),
        }],
        egress: Some(Egress {
            datapath: "bpf".into(),
            reason: "no module".into(),
            clients: 2,
            gateways: 1,
            failing: 0,
        }),
        node_addresses: vec![NodePolicy {
            policy: "static-ip".into(),
            addresses: vec![NodeAddress {
                interface: "eth1".into(),
                address: "10.10.10.8/24".parse().unwrap(),
            }],
            problem: None,
        }],
        calls: Calls { adds: 7, failed_adds: 1, dels: 3, failed_dels: 0 },
        slowest_adds: Vec::new(),
        kernel: Some(Kernel {
            looked: moment("2026-11-15T11:59:30Z"),
            differences: vec![Difference { subject: "10.0.0.9".into(), problem: "has no route".into() }],
        }),
    };
    let pod = json!({"namespace": "default", "name": "web-0", "uid": "u1"});
    let counts = json!({"capacity": 32, "held": 1, "cooling": 1, "reserved": 0, "free": 30});
    let text = json!({
        "node": "node1",
        "version": "0.1.0",
        "time": "2026-11-15T12:00:00Z",
        "started": "2026-11-15T11:00:00Z",
        "ready": true,
        "api": {
            "answered": "2026-11-15T11:59:00Z",
            "watches": [{"kind": "AddressBlock", "problem": "connection refused"}],
        },
        "journal": {},
        "pools": [{"name": "default", "blocks": 1, "addresses": counts, "waiting": 1, "asked": 1}],
        "blocks": [{
            "name": "default-0", "uid": "b0", "pool": "default", "networks": ["10.0.0.0/27", "fd00::/123"],
            "addresses": counts, "usable": true,
        }],
        "holds": [{
            "network": "k8s", "container": "c1", "interface": "eth0", "pod": pod, "pool": "default", "block": "default-0",
            "addresses": ["10.0.0.0", "fd00::"], "since": "2026-11-15T11:30:00Z", "hostInterface": "tn1",
            "traffic": {"receivedBytes": 1, "receivedPackets": 2, "sentBytes": 3, "sentPackets": 4},
            "claim": {"name": "shop/vm-a", "uid": "k1", "reached": true},
        }],
        "cooling": [{
            "block": "default-0", "addresses": ["10.0.0.1"], "until": "2026-11-15T12:00:10Z",
            "last": {"network": "k8s", "container": "c1", "interface": "eth0", "pod": pod},
        }],
        "waiting": [{
            "network": "k8s", "container": "c1", "interface": "eth0", "pool": "default", "since": "2026-11-15T11:59:59Z",
        }],
        "egress": {"datapath": "bpf", "reason": "no module", "clients": 2, "gateways": 1, "failing": 0},
        "nodeAddresses": [
            {"policy": "static-ip", "addresses": [{"interface": "eth1", "address": "10.10.10.8/24"}]},
        ],
        "calls": {"adds": 7, "failedAdds": 1, "dels": 3, "failedDels": 0},
        "kernel": {
            "looked": "2026-11-15T11:59:30Z",
            "differences": [{"subject": "10.0.0.9", "problem": "has no route"}],
        },
    });
    assert_eq!(serde_json::to_value(&node).unwrap(), text);
    assert_eq!(serde_json::from_value::<Node>(text).unwrap(), node);
}

#[test]
fn an_agent_of_another_version_is_understood() {
    let older: Node =
        serde_json::from_value(json!({"node": "node1", "time": "2026-11-15T12:00:00Z"})).unwrap();
    assert_eq!((older.ready, older.holds.len(), older.kernel), (false, 0, None));
    let newer = json!({"node": "node1", "time": "2026-11-15T12:00:00Z", "mood": "good", "pools": [{"name": "p", "moves": 3}]});
    let newer: Node = serde_json::from_value(newer).unwrap();
    assert_eq!(newer.pools[0].name, "p");
}
