//! Pools and blocks, as far as a node uses them.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A pool, as far as a node uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How many blocks the node assigns from.
    #[serde(default)]
    pub blocks: u64,
    /// The addresses of those.
    #[serde(default)]
    pub addresses: Counts,
    /// How many pods wait for an address of it.
    #[serde(default)]
    pub waiting: u64,
    /// How many blocks the node has asked for and not got yet.
    #[serde(default)]
    pub asked: u64,
    /// Why there are no more blocks, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A block that a node owns, or owned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// Its name.
    pub name: String,
    /// The UID of its object.
    #[serde(default)]
    pub uid: String,
    /// The pool that it was carved from.
    #[serde(default)]
    pub pool: String,
    /// Its networks, IPv4 before IPv6.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// Its addresses.
    #[serde(default)]
    pub addresses: Counts,
    /// Whether addresses are assigned from it.
    #[serde(default)]
    pub usable: bool,
    /// Why nothing is assigned from it any more, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<String>,
}

/// Addresses by what they are used for; an IPv4 and IPv6 pair counts once. Their sum is the capacity. A number that does
/// not fit into 64 bits is told as the largest one that does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// All that may be assigned: excluded ones are not among them.
    pub capacity: u64,
    /// Those that somebody has.
    pub held: u64,
    /// Those that rest before they are assigned again.
    pub cooling: u64,
    /// Those that are kept back.
    pub reserved: u64,
    /// The others.
    pub free: u64,
}
