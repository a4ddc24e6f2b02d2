//! `NodeIPPool`: addresses for interfaces of nodes, and which of them are taken.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::coil::PoolUsage;
use crate::coil::rules::exclusions_are_addresses;

/// What the pool consists of.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "nmstate.io",
    version = "v1",
    kind = "NodeIPPool",
    plural = "nodeippools",
    singular = "nodeippool",
    shortname = "nip",
    status = "NodeIPPoolStatus",
    derive = "PartialEq",
    doc = "Addresses for interfaces of nodes. A NodeNetworkConfigurationPolicy takes one for each node that it selects, by the \
           capture `ippool.NAME.allocate`.",
    validation = rules::pool_name_fits_a_capture(),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.range.cidr"),
    printcolumn(name = "Allocated", type_ = "string", json_path = ".status.addresses.allocated", description = "Addresses that nodes have"),
    printcolumn(name = "Free", type_ = "string", json_path = ".status.addresses.free", description = "Addresses that nodes can get"),
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].status", description = "Whether nodes get addresses"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].reason", description = "Why, in one word"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct NodeIPPoolSpec {
    /// The addresses.
    pub range: NodeIPRange,
}

/// Addresses of one network.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = rules::start_is_inside(),
    validation = rules::end_is_inside(),
    validation = rules::start_is_not_above_end(),
    validation = rules::exclusions_are_inside(),
    validation = rules::start_is_immutable(),
    validation = rules::end_only_grows(),
    validation = rules::exclusions_are_only_added()
)]
pub struct NodeIPRange {
    /// The network, such as `10.10.10.0/24`: interfaces get its prefix length. Host bits are allowed and ignored. Its first address
    /// and, in IPv4, its last are never allocated. Cannot be changed.
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::cidr_is_a_network(), validation = rules::cidr_is_immutable())]
    pub cidr: String,

    /// The first address, which has offset 0; the first that a host can have if absent. At most 1048576 addresses from here on are
    /// allocated. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = rules::is_an_address())]
    pub start: Option<String>,

    /// The last address; the last that a host can have if absent. Can only be changed to a later one. (The growing is Tenure's.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    #[x_kube(validation = rules::is_an_address())]
    pub end: Option<String>,

    /// Addresses of the network that are never allocated, up to 256 entries, each an address (`10.10.10.4`), a CIDR
    /// (`10.10.10.16/28`) or a range with both ends (`10.10.10.40-10.10.10.49`). Entries can be added, not removed. A node that has an
    /// address which is excluded later keeps it until it is freed, and the condition `ExclusionsInEffect` names it. (Ranges and adding
    /// are Tenure's.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 91)))]
    #[x_kube(validation = exclusions_are_addresses())]
    pub exclude: Vec<String>,
}

/// Which addresses are taken. Written by the controller alone; it rebuilds a record that was emptied or lost from the enactments.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeIPPoolStatus {
    /// The taken addresses of a pool with at most 1024 addresses: their distances from `start`, excluded addresses counted.
    #[serde(rename = "allocated-offsets", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536), inner(range(min = 0)))]
    pub allocated_offsets: Option<Vec<i64>>,

    /// The taken addresses of a larger pool, as the base64 of a number, highest byte first: bit n stands for offset n. (Tenure.)
    #[serde(rename = "allocated-bitmap", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub allocated_bitmap: Option<String>,

    /// Offsets that are taken for enactments which do not say so yet. (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub promised: Vec<PromisedOffset>,

    /// Offsets that stay taken for the next enactment of a name: the one before gave them back because its address of another pool
    /// is replaced. (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub kept: Vec<KeptOffset>,

    /// Offsets that were freed and rest before they are given to other nodes. (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub cooling: Vec<CoolingOffsets>,

    /// How many addresses there are without the excluded ones, how many are taken, and how many nodes can get. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<PoolUsage>,

    /// The `metadata.generation` that this status describes. (Tenure.)
    #[serde(rename = "observedGeneration", default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Available`: nodes get addresses. The reason says why not: `ReconcilingPool`, `ExhaustedIPPool`, `UnsyncronizedIPPool`,
    /// `OverlappingIPPool` or `IPCollision`. `ExclusionsInEffect` is there, and `False`, while nodes have excluded addresses. (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// An offset and the enactment that it is for.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedOffset {
    /// The offset.
    #[schemars(range(min = 0))]
    pub offset: i64,

    /// The name of the enactment.
    #[schemars(length(max = 253))]
    pub enactment: String,

    /// The UID of the enactment: one of the same name that was made later is another.
    #[schemars(length(max = 128))]
    pub uid: String,
}

/// An offset and the name of the enactment that gets it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOffset {
    /// The offset.
    #[schemars(range(min = 0))]
    pub offset: i64,

    /// The name of the enactment.
    #[schemars(length(max = 253))]
    pub enactment: String,
}

/// Offsets that rest for the same time.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoolingOffsets {
    /// Until then no other node gets them, unless nothing else is free.
    pub until: Time,

    /// The offsets, in the order in which they were freed.
    #[schemars(length(max = 8192), inner(range(min = 0)))]
    pub offsets: Vec<i64>,
}

impl NodeIPPoolStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}
