//! The kinds of addresses that nodes give out, and what people write to have them.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The namespace of pods, claims and networks.
pub(super) const NAMESPACE: &str = "default";
/// Each network has a /14 of its own, of 10.0.0.0/8.
const MOST: usize = 60;

/// Where addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Blocks of pools
    Blocks,
    /// Whereabouts' ranges, with a slice for each node
    Sliced,
    /// Whereabouts' ranges, shared by all nodes
    Unsliced,
    /// Blocks of pools, and each pod keeps its addresses by claims
    Claims,
}

impl Kind {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Sliced => "sliced",
            Self::Unsliced => "unsliced",
            Self::Claims => "claims",
        }
    }

    /// The name that the plugin is called by.
    pub(super) fn plugin(self) -> &'static str {
        match self {
            Self::Blocks | Self::Claims => "tenure",
            Self::Sliced | Self::Unsliced => "whereabouts",
        }
    }

    /// Whether networks have pools.
    pub(super) fn has_pools(self) -> bool {
        matches!(self, Self::Blocks | Self::Claims)
    }

    /// The configurations of so many networks, for so many nodes.
    pub(super) fn networks(self, count: usize, nodes: usize) -> Result<Vec<Value>> {
        ensure!((1..=MOST).contains(&count), "--networks is {count}; accepted is 1 to {MOST}");
        Ok((0..count).map(|number| self.network(number, nodes)).collect())
    }

    fn network(self, number: usize, nodes: usize) -> Value {
        let name = network(number);
        match self {
            Self::Blocks => json!({"cniVersion": "1.0.0", "name": name, "type": "tenure", "pool": name}),
            Self::Claims => json!({
                "cniVersion": "1.0.0", "name": name, "type": "tenure", "pool": name, "allowPersistentIPs": true,
            }),
            Self::Sliced | Self::Unsliced => {
                let mut ipam = json!({"type": "whereabouts", "range": range(number), "network_name": name});
                if self == Self::Sliced {
                    ipam["range"] = json!(sliced_range(number, nodes));
                    ipam["node_slice_size"] = json!("/27");
                }
                json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "ipam": ipam})
            }
        }
    }
}

/// The name of a network, and of its pool.
pub(super) fn network(number: usize) -> String {
    format!("net{number}")
}

/// Its addresses.
pub(super) fn range(number: usize) -> String {
    format!("10.{}.0.0/14", number * 4)
}

/// A part of them that has a slice for each node, and a quarter more.
fn sliced_range(number: usize, nodes: usize) -> String {
    let slices = (nodes + nodes.div_ceil(4)).next_power_of_two().clamp(1, 1 << 13);
    format!("10.{}.0.0/{}", number * 4, 27 - slices.ilog2())
}

/// The interface that pods have on it.
pub(super) fn interface(number: usize) -> String {
    format!("net{}", number + 1)
}

/// The name of a node.
pub(super) fn node(number: usize) -> String {
    format!("node-{number:05}")
}

/// The name of a pod of a node.
pub(super) fn pod(node: usize, number: usize) -> String {
    format!("pod-{node:05}-{number}")
}

/// The name of a pod's claim on a network.
pub(super) fn claim(pod: &str, network: usize) -> String {
    format!("{pod}-{}", self::network(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_addresses_of_their_own() {
        let of = |kind: Kind| kind.networks(10, 5_000).unwrap();
        assert_eq!(of(Kind::Unsliced)[9]["ipam"]["range"], "10.36.0.0/14");
        assert_eq!(of(Kind::Sliced)[0]["ipam"]["node_slice_size"], "/27");
        assert_eq!(of(Kind::Sliced)[0]["ipam"]["range"], "10.0.0.0/14");
        assert_eq!(sliced_range(1, 50), "10.4.0.0/21");
        assert!(of(Kind::Unsliced)[0]["ipam"]["node_slice_size"].is_null());
        assert_eq!(of(Kind::Claims)[1]["allowPersistentIPs"], true);
        assert!(Kind::Blocks.networks(61, 1).unwrap_err().to_string().contains("1 to 60"));
    }
}
