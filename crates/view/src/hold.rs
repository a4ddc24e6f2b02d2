//! Holders, last holders, and holders that wait.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A hold: one address, or an IPv4 and IPv6 pair, and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The holder.
    #[serde(flatten)]
    pub holder: Holder,
    /// Its pool; empty if unknown.
    #[serde(default)]
    pub pool: String,
    /// Its block; `None` if it is in no block of the node, so that only the kernel knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// The addresses, IPv4 before IPv6.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The host's end of its interface, if the agent created one and knows its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_interface: Option<String>,
    /// The traffic of its interface, if the agent created one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The claim that owns these addresses, if any: they are in no block of the node, and stay the claim's
    /// when the interface is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// A claim, and whether it is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Its namespace and name, with a slash between them.
    pub name: String,
    /// The UID of its object.
    #[serde(default)]
    pub uid: String,
    /// Whether packets for its addresses arrive at this holder. They arrive at only one of a claim's holders.
    #[serde(default)]
    pub reached: bool,
}

/// A holder: an interface of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The network's name.
    #[serde(default)]
    pub network: String,
    /// The container's ID.
    #[serde(default)]
    pub container: String,
    /// The interface's name inside the container.
    #[serde(default)]
    pub interface: String,
    /// The pod; `None` outside Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The traffic of an interface since its creation, as the pod sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Traffic {
    /// Bytes that the pod received.
    pub received_bytes: u64,
    /// Packets that the pod received.
    pub received_packets: u64,
    /// Bytes that the pod sent.
    pub sent_bytes: u64,
    /// Packets that the pod sent.
    pub sent_packets: u64,
}

/// An address, or a pair, that was freed and cools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cooling {
    /// Its block.
    pub block: String,
    /// The addresses, IPv4 before IPv6.
    pub addresses: Vec<IpAddr>,
    /// Until when it cools, unless nothing else is left.
    pub until: Timestamp,
    /// Its last holder, if still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Holder>,
}

/// A holder that waits for an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The holder.
    #[serde(flatten)]
    pub holder: Holder,
    /// The pool.
    pub pool: String,
    /// Since when.
    pub since: Timestamp,
}

impl std::fmt::Display for Pod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl std::fmt::Display for Holder {
    /// The pod, or container and interface without a pod.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pod {
            Some(pod) => write!(f, "{pod}"),
            None => write!(f, "container {} {}", self.container, self.interface),
        }
    }
}
