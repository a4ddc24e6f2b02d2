//! `NodeNetworkConfigurationEnactment`: one policy on one node.

#![allow(clippy::duplicated_attributes, reason = "two printer columns have the same type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::NodeCondition;
use super::{label, lenient, schema};

/// How a node was configured: the values of `applied.mode`, and of the annotation `tenure/mode` on generated policies.
pub mod mode {
    /// Directly, where nothing else manages the interfaces.
    pub const KERNEL: &str = "kernel";
    /// Through NetworkManager.
    pub const NETWORK_MANAGER: &str = "networkManager";
    /// By kubernetes-nmstate, through a policy that we generate.
    pub const KUBERNETES_NMSTATE: &str = "kubernetesNmstate";
}

/// Nothing: an enactment has only a status.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "nmstate.io",
    version = "v1beta1",
    kind = "NodeNetworkConfigurationEnactment",
    plural = "nodenetworkconfigurationenactments",
    singular = "nodenetworkconfigurationenactment",
    shortname = "nnce",
    no_spec,
    status = "EnactmentStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One policy on one node, named `<node>.<policy>`. The labels `nmstate.io/node` and `nmstate.io/policy` say whose it is, and \
           its owner is the Node.",
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.status==\"True\")].type"
    ),
    printcolumn(
        name = "Status Age",
        type_ = "date",
        json_path = ".status.conditions[?(@.status==\"True\")].lastTransitionTime"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.status==\"True\")].reason"
    )
)]
pub struct EnactmentSpec {}

/// What the node is to have, and what it has.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnactmentStatus {
    /// The addresses that the node has from each pool. This record decides; only the controller writes it. (The seed's.)
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub ippool: BTreeMap<String, PoolAddresses>,

    /// The values of captures. Those of pools are written by the controller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub captured_states: BTreeMap<String, CapturedState>,

    /// The generation of the policy that the node is to apply now; absent before its turn. The controller writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_generation: Option<i64>,

    /// `Available`, `Failing`, `Pending`, `Progressing` and `Aborted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::each")]
    pub conditions: Vec<NodeCondition>,

    /// The policy's desired state on this node, with all captures filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::state")]
    pub desired_state: Option<Value>,

    /// When the desired state was worked out, and by which version.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub desired_state_meta_info: Option<MetaInfo>,

    /// The features that the desired state uses. (We do not write it.)
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::each")]
    pub features: Vec<String>,

    /// How often the node has tried, by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "lenient::or_default")]
    pub retry_count: BTreeMap<String, i64>,

    /// What the node has found on its interfaces after the last change. Its agent writes it. (Tenure.)
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub applied: Option<Applied>,
}

/// Addresses of one pool.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAddresses {
    /// The addresses, without prefix lengths: one for each capture of the pool, in the order of the captures' names.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub allocated: Vec<String>,
}

/// The value of a capture.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapturedState {
    /// Of a pool: the address. (The seed's.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,

    /// Of a pool: the prefix length of its network. (The seed's.)
    #[serde(
        rename = "prefix-length",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::or_default"
    )]
    pub prefix_length: Option<i64>,

    /// Of an expression: the part of the node's state that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::state")]
    pub state: Option<Value>,

    /// When it was worked out, and by which version.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub meta_info: Option<MetaInfo>,
}

/// When something was worked out, and by which version.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetaInfo {
    /// Which version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub time: Option<Time>,
}

/// What the node has found on its interfaces.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The generation of the policy that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_generation: Option<i64>,

    /// `kernel` or `networkManager`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,

    /// Those addresses of the desired state that are on the interfaces.
    #[serde(default, deserialize_with = "lenient::each")]
    #[schemars(length(max = 256))]
    pub addresses: Vec<AppliedAddress>,

    /// The enactment is being deleted, and the node has seen that none of its addresses is on an interface: they can be freed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

/// An address on an interface.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AppliedAddress {
    /// The interface.
    #[schemars(length(max = 64))]
    pub interface: String,

    /// The address and its prefix length, such as `10.10.10.8/24`.
    #[schemars(length(max = 49))]
    pub address: String,
}

impl NodeNetworkConfigurationEnactment {
    /// Its policy, by its label.
    pub fn policy(&self) -> Option<&str> {
        self.labels().get(label::POLICY).map(String::as_str)
    }

    /// Its node: the owner, or what the label says.
    pub fn node(&self) -> Option<&str> {
        let owner = self.owner_references().iter().find(|owner| owner.kind == "Node");
        owner.map(|owner| owner.name.as_str()).or_else(|| self.labels().get(label::NODE).map(String::as_str))
    }

    /// The UID of its node.
    pub fn node_uid(&self) -> Option<&str> {
        self.owner_references().iter().find(|owner| owner.kind == "Node").map(|owner| owner.uid.as_str())
    }

    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
    }
}
