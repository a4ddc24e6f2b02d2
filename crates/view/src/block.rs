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
    /// The states of their addresses.
    #[serde(default)]
    pub addresses: Counts,
    /// How many pods wait for an address of it.
    #[serde(default)]
    pub waiting: u64,
    /// How many blocks the node has requested and not received yet.
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
    /// The states of its addresses.
    #[serde(default)]
    pub addresses: Counts,
    /// Whether addresses are assigned from it.
    #[serde(default)]
    pub usable: bool,
    /// Why nothing is assigned from it any more, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<String>,
}

/// Addresses by state; an IPv4 and IPv6 pair counts once. Their sum is the capacity. A number that does not
/// fit into 64 bits is capped at the largest one that does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// All assignable addresses, without excluded ones.
    pub capacity: u64,
    /// Addresses with a holder.
    pub held: u64,
    /// Addresses that cool before they are assigned again.
    pub cooling: u64,
    /// Reserved addresses.
    pub reserved: u64,
    /// The others.
    pub free: u64,
}
