//! Searching by address, pod, node, claim, MAC address, pool or egress.

use std::net::IpAddr;

use kube::ResourceExt;
use serde::Serialize;

use super::state::State;

/// So many are shown.
const MOST: usize = 50;
/// What is longer is the name of nothing.
const LONGEST: usize = 256;

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Found {
    /// `address`, `pod`, `node`, `claim`, `mac`, `pool` or `egress`.
    kind: &'static str,
    /// Its name.
    name: String,
    /// More about it.
    detail: String,
    /// An address of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
}

/// Everything whose name has these words in it. A whole address comes first.
pub(super) fn search(state: &State, words: &str) -> Vec<Found> {
    let wanted = words.trim().to_lowercase();
    if wanted.is_empty() || wanted.len() > LONGEST {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Ok(address) = wanted.parse::<IpAddr>() {
        found.push(Found {
            kind: "address",
            name: address.to_string(),
            detail: String::new(),
            address: Some(address),
        });
    }
    let snapshot = &state.snapshot;
    let is = |name: &str| name.to_lowercase().contains(&wanted);
    let nodes =
        snapshot.nodes.iter().chain(snapshot.agents.keys().filter(|it| !snapshot.nodes.contains(*it)));
    found.extend(nodes.filter(|node| is(node)).take(MOST).map(|node| Found {
        kind: "node",
        name: node.clone(),
        detail: String::new(),
        address: None,
    }));
    let pools = crate::pools::rows(snapshot).into_iter().filter(|pool| is(&pool.name));
    found.extend(pools.take(MOST).map(|pool| Found {
        kind: "pool",
        detail: format!("{} {}", pool.kind, pool.subnets.join(", ")),
        name: pool.name,
        address: None,
    }));
    let claims = state.claims.iter().map(|claim| crate::claims::row(claim).0);
    let claims = claims.filter(|claim| is(&format!("{}/{}", claim.namespace, claim.name)));
    found.extend(claims.take(MOST).map(|claim| Found {
        kind: "claim",
        name: format!("{}/{}", claim.namespace, claim.name),
        detail: claim.addresses.join(", "),
        address: claim.addresses.first().and_then(|it| it.split('/').next()?.parse().ok()),
    }));
    let egresses =
        state.egresses.iter().map(|it| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()));
    found.extend(egresses.filter(|name| is(name)).take(MOST).map(|name| Found {
        kind: "egress",
        name,
        detail: String::new(),
        address: None,
    }));
    found.extend(holders(state, &is));
    found.extend(pods(state, &wanted, &is));
    found.truncate(MOST);
    found
}

/// What agents say of pods, and of containers where there are no pods.
fn holders(state: &State, is: &impl Fn(&str) -> bool) -> Vec<Found> {
    let told = state.snapshot.agents.values().filter_map(|told| told.as_ref().ok());
    let holds = told.flat_map(|node| node.holds.iter().map(move |hold| (node, hold)));
    let holds = holds.filter(|(_, hold)| match &hold.holder.pod {
        Some(pod) => state.snapshot.pods.is_none() && is(&pod.to_string()),
        None => is(&hold.holder.container),
    });
    let found = holds.take(MOST).map(|(node, hold)| Found {
        kind: "pod",
        name: hold.holder.to_string(),
        detail: format!("on {}, {}", node.node, hold.holder.network),
        address: hold.addresses.first().copied(),
    });
    found.collect()
}

fn pods(state: &State, wanted: &str, is: &impl Fn(&str) -> bool) -> Vec<Found> {
    let mut found = Vec::new();
    for pod in state.snapshot.pods.iter().flatten().filter(|pod| !pod.over) {
        let address = pod.addresses.first().or(pod.networks.first()).copied();
        let mac = pod.macs.iter().find(|mac| mac.contains(wanted));
        if let Some(mac) = mac {
            let detail = format!("pod {} on {}", pod.label(), pod.node);
            found.push(Found { kind: "mac", name: mac.clone(), detail, address });
        } else if is(&pod.label()) {
            found.push(Found { kind: "pod", name: pod.label(), detail: format!("on {}", pod.node), address });
        }
        if found.len() >= MOST {
            break;
        }
    }
    found
}
