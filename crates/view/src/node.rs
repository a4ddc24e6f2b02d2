//! A whole node: its agent's state, its holds, and known problems.

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Block, Cooling, Hold, Holder, Pool, Waiting};

/// A node, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub node: String,
    /// The version of its agent.
    #[serde(default)]
    pub version: String,
    /// When this was read.
    pub time: Timestamp,
    /// When the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Whether all holds were replayed, so that addresses are assigned.
    #[serde(default)]
    pub ready: bool,
    /// Why a pod could not get an address now, if so: the answer to CNI's STATUS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The agent's view of the API server.
    #[serde(default)]
    pub api: Api,
    /// Its journal.
    #[serde(default)]
    pub journal: Journal,
    /// The pools, by name.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Blocks that it owns, and former ones that still have holds, by name.
    #[serde(default)]
    pub blocks: Vec<Block>,
    /// The holds, by network, container and interface.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// Addresses that were freed and cool.
    #[serde(default)]
    pub cooling: Vec<Cooling>,
    /// Holders that wait for an address.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// How egress is done; `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// What policies have given the node's own interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_addresses: Vec<NodePolicy>,
    /// How many calls of the CNI plugin the agent has answered since it started.
    #[serde(default)]
    pub calls: Calls,
    /// The slowest ADDs of the last five minutes, at most 16, the slowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest_adds: Vec<SlowAdd>,
    /// The kernel compared with the holds; `None` if it was not observed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
}

/// Calls of the CNI plugin that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Calls {
    /// All ADDs.
    pub adds: u64,
    /// ADDs that were answered with an error.
    pub failed_adds: u64,
    /// All DELs.
    pub dels: u64,
    /// DELs that were answered with an error.
    pub failed_dels: u64,
}

/// An ADD, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowAdd {
    /// For whom it was.
    #[serde(flatten)]
    pub holder: Holder,
    /// How long it took inside the agent.
    pub microseconds: u64,
    /// When it was answered.
    pub at: Timestamp,
    /// The CNI error code of the answer; 0 for success.
    #[serde(default)]
    pub code: u32,
}

/// A policy on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePolicy {
    /// Its name.
    pub policy: String,
    /// What it has given the interfaces.
    #[serde(default)]
    pub addresses: Vec<NodeAddress>,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An address of one of the node's own interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddress {
    /// The interface.
    pub interface: String,
    /// The address with the length of its network's prefix.
    pub address: IpNet,
}

/// An agent's view of the API server. The agent works without the server as long as its blocks last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    /// When it last answered anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// The watches.
    #[serde(default)]
    pub watches: Vec<Watch>,
}

/// A watch of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The watched kind.
    pub kind: String,
    /// The problem, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The node's record of its holds across restarts of its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Why it cannot be written, if so. Nothing new is assigned then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How a node does egress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// `kernel` (Foo-over-UDP of the kernel) or `bpf`; empty if the node can do neither.
    #[serde(default)]
    pub datapath: String,
    /// Why it is this one, or why there is none.
    #[serde(default)]
    pub reason: String,
    /// Pods whose egress is in place.
    #[serde(default)]
    pub clients: usize,
    /// Gateways on this node.
    #[serde(default)]
    pub gateways: usize,
    /// Pods whose egress could not be put in place.
    #[serde(default)]
    pub failing: usize,
}

/// The result of comparing the kernel with the holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    /// When it was observed.
    pub looked: Timestamp,
    /// What is not as it should be.
    #[serde(default)]
    pub differences: Vec<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What it is about: an address, a network, an interface, a pod.
    pub subject: String,
    /// What is wrong with it.
    pub problem: String,
}
