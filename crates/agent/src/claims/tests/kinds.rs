//! Networks of every kind, and the addresses of a claim there.

use serde_json::{Value, json};

use super::bed::{Bed, NAMESPACES};

/// A network of ours whose interfaces we make.
pub(super) fn routed() -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "tenure", "allowPersistentIPs": true})
}

/// A range that all nodes share.
pub(super) fn shared() -> Value {
    let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/24", "allowPersistentIPs": true});
    json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "ipam": ipam})
}

/// The same range in slices.
pub(super) fn sliced() -> Value {
    let mut network = shared();
    network["ipam"]["node_slice_size"] = json!("/28");
    network
}

/// The same with an IPv6 range beside it.
pub(super) fn dual(mut network: Value) -> Value {
    network["ipam"]["ipRanges"] = json!([{"range": "fd00::/120"}]);
    network
}

/// A network of each kind in a namespace of its own, and the addresses of a claim there.
pub(super) async fn every_kind() -> Vec<(Bed, Value, Vec<&'static str>)> {
    let server = Bed::new().await.server;
    let mut only_six = shared();
    only_six["ipam"]["range"] = json!("fd00::/120");
    let networks = [
        (routed(), vec!["10.1.200.5/32", "fd01::c805/128"]),
        (shared(), vec!["10.0.0.200/24"]),
        (sliced(), vec!["10.0.0.200/24"]),
        (only_six, vec!["fd00::c8/120"]),
        (dual(shared()), vec!["10.0.0.200/24", "fd00::c8/120"]),
        (dual(sliced()), vec!["10.0.0.200/24", "fd00::c8/120"]),
    ];
    let mut kinds = Vec::new();
    for (namespace, (mut network, ips)) in NAMESPACES.into_iter().zip(networks) {
        let bed = Bed::of(server.clone(), namespace, &format!("net-of-{namespace}"));
        network["name"] = json!(bed.net);
        if let Some(ipam) = network.get_mut("ipam") {
            ipam["network_name"] = json!(namespace);
            if ipam.get("node_slice_size").is_some() {
                bed.cut(&network).await;
            }
        }
        kinds.push((bed, network, ips));
    }
    kinds
}
