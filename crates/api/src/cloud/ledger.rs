//! `IPLedger`: which machine has which of 256 addresses of a pool.

#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::coil::rules::{block_index_is_immutable, block_name_ends_in_its_index};

/// The records of a part of a pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "ipam.gcp-cni.cast.ai",
    version = "v1alpha1",
    kind = "IPLedger",
    plural = "ipledgers",
    no_spec,
    derive = "PartialEq",
    doc = "The record of up to 256 addresses of an IPPool: which machine has which alias range. \
           Named `<pool>-<index>`, its controlling owner is the IPPool. Written by the controller alone.",
    selectable = ".pool",
    validation = block_name_ends_in_its_index(),
    printcolumn(name = "Pool", type_ = "string", json_path = ".pool"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".cidr")
)]
pub struct IPLedgerSpec {
    /// The name of the IPPool. Cannot be changed.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::is_immutable())]
    pub pool: String,

    /// The number of this ledger in its pool, counted from 0 through the pool's ranges. Cannot be changed.
    #[schemars(range(min = 0))]
    #[x_kube(validation = block_index_is_immutable())]
    pub index: i64,

    /// Its addresses, such as `10.111.3.0/24`. Cannot be changed.
    #[schemars(length(max = 18))]
    #[x_kube(validation = rules::cidr_is_a_network(), validation = rules::is_immutable())]
    pub cidr: String,

    /// The alias ranges: the key is the decimal offset of the first address from that of `cidr`. Addresses without a record are free.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    #[x_kube(validation = rules::offsets_are_decimal())]
    pub records: BTreeMap<String, AliasRecord>,
}

/// An alias range and the node whose machine has it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliasRecord {
    /// The node whose machine has the range, or is about to. Packets arrive there.
    #[schemars(length(max = 253))]
    pub node: String,

    /// By what the node has it: another value each time the range changes hands.
    #[schemars(length(min = 1, max = 64))]
    pub grant: String,

    /// Who moves with the address, if somebody does.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub moving: Option<AliasMove>,

    /// The length of the range's prefix; 32, one address, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 24, max = 32))]
    pub prefix: Option<i32>,

    /// Since when the range cools: no pod uses it and it was removed from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed: Option<MicroTime>,
}

/// The pods that an address moves between.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliasMove {
    /// The namespace of both pods.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// Which pods have the address, in the format of a claim's annotation `tenure/holders`.
    #[schemars(length(max = 2048))]
    pub holders: String,

    /// Whether the pod that has it, or had it last, was marked as moving out: then the address waits for another one when it ends. Absent:
    /// it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<bool>,

    /// Since when no pod has it: a marked pod has ended, and none has followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacant: Option<MicroTime>,
}
