//! `NodeNetworkConfigurationPolicy`: what the network of selected nodes is to look like.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::NodeCondition;
use super::{lenient, names, rules, schema};
use crate::coil::egress::rules::{
    is_a_number_or_a_percentage, keys_are_qualified_names, values_are_label_values,
};

/// Which nodes, and what is to be so on them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "nmstate.io",
    version = "v1",
    kind = "NodeNetworkConfigurationPolicy",
    plural = "nodenetworkconfigurationpolicies",
    singular = "nodenetworkconfigurationpolicy",
    shortname = "nncp",
    status = "NodeNetworkConfigurationPolicyStatus",
    derive = "PartialEq",
    doc = "What the network of all nodes is to look like that the selector selects. Each has a NodeNetworkConfigurationEnactment \
           that says how far it is.",
    validation = rules::policy_name_fits_a_label(),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.status==\"True\")].type"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.status==\"True\")].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::captures_are_immutable())]
pub struct NodeNetworkConfigurationPolicySpec {
    /// Labels that a node must have, up to 64; all nodes if there are none. The key `tenure/node-addresses` selects nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::selector")]
    #[x_kube(validation = keys_are_qualified_names("label"), validation = values_are_label_values())]
    pub node_selector: BTreeMap<String, String>,

    /// Named values for the desired state, up to 64: an address of a pool (`ippool.NAME.allocate`), or an expression about the
    /// node's present state (`interfaces.name == "eth1"`). Cannot be changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::captures")]
    #[x_kube(validation = rules::captures_name_pools())]
    pub capture: BTreeMap<String, String>,

    /// The desired state, as nmstate has it. `{{ capture.NAME.ip }}` stands for an address of a pool and
    /// `{{ capture.NAME.prefix-length }}` for the length of its network's prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::state")]
    pub desired_state: Option<Value>,

    /// How many nodes may be changed at once: a number, or a percentage of the selected nodes; `50%` if absent, and at least one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::number_or_text")]
    #[schemars(schema_with = "schema::number_or_percentage")]
    #[x_kube(validation = is_a_number_or_a_percentage())]
    pub max_unavailable: Option<IntOrString>,
}

/// How far the nodes are.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationPolicyStatus {
    /// `Available` (all nodes have it), `Degraded` (some could not apply it), `Progressing` and `Ignored` (no node is selected).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::each")]
    pub conditions: Vec<NodeCondition>,

    /// How many nodes are being changed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub unavailable_node_count: Option<i32>,

    /// The same by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "lenient::or_default")]
    pub unavailable_node_count_map: BTreeMap<String, i32>,

    /// When that was last written.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub last_unavailable_node_count_update: Option<Time>,
}

impl NodeNetworkConfigurationPolicyStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl NodeNetworkConfigurationPolicySpec {
    /// The captures that take an address of a pool: capture and pool, in the order of the captures.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.capture.iter().filter_map(|(name, text)| Some((name.as_str(), names::pool_of_capture(text)?)))
    }
}
