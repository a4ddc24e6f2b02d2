//! `NodeAliases`: what one node wants of alias pools, and what it has.

#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the node asks for. Written by its agent alone.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "ipam.gcp-cni.cast.ai",
    version = "v1alpha1",
    kind = "NodeAliases",
    plural = "nodealiases",
    singular = "nodealiases",
    status = "NodeAliasesStatus",
    derive = "PartialEq",
    doc = "The alias ranges of one node, whose name this object has: its agent writes into the spec how many it wants and which it \
           gives back, the controller into the status which it has. The record is in the IPLedgers.",
    printcolumn(name = "Attached", type_ = "integer", json_path = ".status.attached"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.wanted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Problem",
        type_ = "string",
        json_path = ".status.problem",
        description = "Why it has less than it wants"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeAliasesSpec {
    /// The IPPool that the alias ranges come from.
    #[schemars(length(min = 1, max = 253))]
    pub pool: String,

    /// How many alias ranges the node wants for whichever of its pods asks, those that it has included. Ranges that are kept for one
    /// pod (`pod` in the status, or `leaving`) do not count.
    #[schemars(range(min = 0, max = 1024))]
    pub wanted: i32,

    /// What the node gives back, by range (`10.111.0.5/32`): the grant that it had it by. It does not use these any more, whatever
    /// the status says. An entry stays until the status no longer has the grant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1024))]
    pub returned: BTreeMap<String, String>,

    /// Pods of this node that are marked as moving out, by their address. The address stays theirs when they end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1024))]
    pub leaving: BTreeMap<String, LeavingPod>,
}

/// A pod that has an address and is about to leave with it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingPod {
    /// The namespace of the pod: a pod that takes the address over is of the same.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// The name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,

    /// The UID of the pod.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// What the node has. Written by the controller alone.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAliasesStatus {
    /// The alias ranges of the node, by range (`10.111.0.5/32`). The node uses one that is attached and that its machine's metadata
    /// has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 1024))]
    pub aliases: BTreeMap<String, NodeAlias>,

    /// How many of them are attached.
    #[serde(default)]
    pub attached: i32,

    /// The machine of the node, as `gce://PROJECT/ZONE/INSTANCE`: where its alias ranges are when the node itself is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub machine: Option<String>,

    /// Why the node has less than it wants, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub problem: Option<String>,
}

/// An alias range of a node.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAlias {
    /// By what the node has it. Another grant of the same range is another ownership.
    #[schemars(length(min = 1, max = 64))]
    pub grant: String,

    /// Whether the cloud has attached it to the node's machine.
    #[serde(default)]
    pub attached: bool,

    /// The UID of the only pod that may have it: one that moves in, or out. Absent: any pod of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub pod: Option<String>,

    /// The IPAMClaim that has it, as `namespace/name`: only pods that refer to the claim get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub claim: Option<String>,

    /// Why it is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub problem: Option<String>,
}
