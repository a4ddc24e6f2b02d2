//! `NodeSlicePool`: a range cut into equal slices, one for each node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// What is cut, and into slices of what size.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "whereabouts.cni.cncf.io",
    version = "v1alpha1",
    kind = "NodeSlicePool",
    plural = "nodeslicepools",
    namespaced,
    status = "NodeSlicePoolStatus",
    derive = "PartialEq",
    doc = "A range cut into equal slices, one for each node. Named for the network, or for the CNI configuration \
           when the network has no name. The status is part of the object; there is no status subresource."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::slices_fit_into_the_range())]
pub struct NodeSlicePoolSpec {
    /// The range that is cut, such as `10.0.0.0/8`. A network address, without host bits.
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::sliced_range_is_a_network())]
    pub range: String,

    /// The prefix length of a slice, such as `/20` or `20`: not shorter than the range's own.
    #[schemars(length(max = 4))]
    #[x_kube(validation = rules::slice_size_is_a_prefix_length())]
    pub slice_size: String,
}

/// Which slices there are and whose they are.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSlicePoolStatus {
    /// Every slice, in the order of their addresses.
    pub allocations: Vec<NodeSliceAllocation>,

    /// Ours, and not Whereabouts': `Ready` (nodes get slices), `Conflict` (attachment definitions of the network say
    /// different things) and `NodesWithoutSlice` (there are more nodes than slices).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// One slice.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSliceAllocation {
    /// The node that has the slice; empty when it is free.
    pub node_name: String,

    /// The slice, such as `10.0.16.0/20`.
    pub slice_range: String,
}

impl NodeSlicePool {
    /// The slice of a node.
    pub fn slice_of(&self, node: &str) -> Option<&str> {
        let slices = &self.status.as_ref()?.allocations;
        slices.iter().find(|s| s.node_name == node).map(|s| s.slice_range.as_str())
    }
}
