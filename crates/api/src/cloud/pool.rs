//! `IPPool`: ranges of a cloud's subnet, and how their addresses are attached to machines.

#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::coil::conversion::rest;
use crate::coil::rules::{cooling_is_a_duration, exclusions_are_addresses};

/// How long a freed address rests if its pool does not say.
const COOLING: Duration = Duration::from_secs(30);
/// How long an address of a move waits for a pod if its pool does not say.
const MOVE_TIMEOUT: Duration = Duration::from_mins(5);
/// A block has two to this power addresses if its pool does not say.
const BLOCK_BITS: i32 = 5;

/// Where the addresses come from, and how they are attached.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ipam.gcp-cni.cast.ai",
    version = "v1alpha1",
    kind = "IPPool",
    root = "AliasPool",
    plural = "ippools",
    singular = "ippool",
    shortname = "ipp",
    status = "AliasPoolStatus",
    derive = "PartialEq",
    doc = "Addresses of a cloud's subnet that pods get as alias addresses of their machine, and keep when they move to another one. \
           Which machine has which address is in the IPLedgers of the pool.",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Capacity", type_ = "integer", json_path = ".status.capacity"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocated"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.available"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether addresses can be attached"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::pool_is_append_only(),
    validation = rules::ranges_are_distinct(),
    validation = rules::a_block_fits_into_every_range()
)]
pub struct AliasPoolSpec {
    /// The first range, such as `10.111.0.0/16`: an IPv4 network from a /8 to a /30. Its first and last addresses are not used. Cannot be
    /// changed, because clouds do not let a range grow; `ranges` takes more of them.
    #[schemars(length(max = 18))]
    #[x_kube(validation = rules::cidr_is_a_network(), validation = rules::is_immutable())]
    pub cidr: String,

    /// The subnet, as `projects/PROJECT/regions/REGION/subnetworks/NAME`, with or without the API's address before it. Cannot be changed.
    #[schemars(length(max = 512))]
    #[x_kube(validation = rules::subnet_is_a_path(), validation = rules::is_immutable())]
    pub subnet: String,

    /// The name of the subnet's secondary range that `cidr` is. Empty: `cidr` is a part of the subnet's primary range. Cannot be changed.
    #[serde(default = "secondary_range")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::range_name_is_valid(), validation = rules::is_immutable())]
    pub secondary_range_name: String,

    /// What the prototype allocated, by address: read once, to take it over. Empty it afterwards. The records are in IPLedgers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 65536))]
    pub allocations: BTreeMap<String, Allocation>,

    /// More ranges of the same subnet, up to 64. Ledgers are numbered through `cidr` and this list, so it can only be appended to.
    /// (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ranges: Vec<AliasRange>,

    /// How many addresses are attached to each machine before pods ask for them, from 0 to 128. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub warm: Option<i32>,

    /// What is attached: single addresses, which can move, or whole blocks for pods that never do. A machine takes 150 alias ranges of
    /// whatever size. (Tenure.)
    #[serde(default, skip_serializing_if = "Attach::is_default")]
    #[x_kube(validation = rules::is_immutable())]
    pub attach: Attach,

    /// With `attach: block`, a block has 2^blockSizeBits addresses, from 1 to 8; 5 if absent. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub block_size_bits: Option<i32>,

    /// Addresses that no pod gets, up to 256 entries, each an address (`10.111.0.4`), a CIDR (`10.111.0.16/28`) or a range with both ends
    /// (`10.111.0.40-10.111.0.49`). What is attached when its address becomes excluded stays until its pod ends. (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 91)))]
    #[x_kube(validation = exclusions_are_addresses())]
    pub exclude: Vec<String>,

    /// How long a freed address rests before another pod gets it, such as `30s`, from `0s` to `24h`. Cooling gives way rather than let
    /// a pod wait when nothing else is free. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = cooling_is_a_duration())]
    pub cooling: Option<String>,

    /// How long an address waits whose pod was marked as moving out and has ended, before it counts as free, such as `5m` (the default),
    /// from `0s` to `24h`. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = cooling_is_a_duration())]
    pub move_timeout: Option<String>,
}

impl Default for AliasPoolSpec {
    fn default() -> Self {
        Self {
            cidr: String::new(),
            subnet: String::new(),
            secondary_range_name: secondary_range(),
            allocations: BTreeMap::new(),
            ranges: Vec::new(),
            warm: None,
            attach: Attach::default(),
            block_size_bits: None,
            exclude: Vec::new(),
            cooling: None,
            move_timeout: None,
        }
    }
}

impl AliasPoolSpec {
    /// How long a freed address rests. One that cannot be read counts as none given; the schema refuses it.
    pub fn cools_for(&self) -> Duration {
        duration(self.cooling.as_deref(), COOLING)
    }

    /// How long an address of a move waits for a pod.
    pub fn waits_for_a_pod(&self) -> Duration {
        duration(self.move_timeout.as_deref(), MOVE_TIMEOUT)
    }

    /// The length of the prefix of what is attached: one address, or a block.
    pub fn prefix(&self) -> u8 {
        match self.attach {
            Attach::Address => 32,
            Attach::Block => {
                32 - u8::try_from(self.block_size_bits.unwrap_or(BLOCK_BITS).clamp(1, 8)).unwrap_or(5)
            }
        }
    }
}

fn duration(text: Option<&str>, otherwise: Duration) -> Duration {
    rest(text).ok().flatten().unwrap_or(otherwise)
}

fn secondary_range() -> String {
    super::SECONDARY_RANGE.to_owned()
}

/// One more range of a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AliasRange {
    /// The range, such as `10.112.0.0/16`: an IPv4 network from a /8 to a /30. Its first and last addresses are not used.
    #[schemars(length(max = 18))]
    #[x_kube(validation = rules::cidr_is_a_network())]
    pub cidr: String,

    /// The name of the subnet's secondary range that it is. Empty: a part of the subnet's primary range.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::range_name_is_valid())]
    pub secondary_range_name: String,
}

/// What is attached to a machine.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// Single addresses: each can move.
    #[default]
    Address,
    /// Blocks: one alias range serves many pods, and none of them can move.
    Block,
}

impl Attach {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_default(&self) -> bool {
        *self == Self::Address
    }
}

/// What the prototype wrote about an address.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// The name of the pod that has the address.
    #[serde(rename = "podName")]
    #[schemars(length(max = 253))]
    pub pod_name: String,

    /// The namespace of the pod.
    #[serde(rename = "podNamespace")]
    #[schemars(length(max = 253))]
    pub pod_namespace: String,

    /// The UID of the pod.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,

    /// The node of the pod when it was created. The prototype does not change it when the pod moves.
    #[serde(rename = "nodeName")]
    #[schemars(length(max = 253))]
    pub node_name: String,

    /// When the address was allocated.
    #[serde(rename = "allocatedAt", default, skip_serializing_if = "Option::is_none")]
    pub allocated_at: Option<Time>,
}

/// How many addresses there are.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AliasPoolStatus {
    /// How many addresses pods can have in all.
    #[serde(default)]
    pub capacity: i64,

    /// How many are in a ledger: attached, or about to be.
    #[serde(default)]
    pub allocated: i64,

    /// How many are free.
    #[serde(default)]
    pub available: i64,

    /// When the prototype last wrote this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,

    /// The `metadata.generation` that this status describes. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (addresses can be attached), `Exhausted` (none is free) and `Overlapping` (another pool has some of them). (Tenure.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

impl AliasPoolStatus {
    /// Puts a condition in. Its transition time stays what it was while its status does.
    pub fn set_condition(&mut self, condition: Condition) {
        crate::coil::set_condition(&mut self.conditions, condition);
    }
}
