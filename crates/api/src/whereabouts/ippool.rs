//! `IPPool`: the ledger of one range, one entry per held address.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::claims::PodRecord;

/// A range and who holds what of it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "whereabouts.cni.cncf.io",
    version = "v1alpha1",
    kind = "IPPool",
    plural = "ippools",
    namespaced,
    derive = "PartialEq",
    doc = "The ledger of one range: which of its addresses are held, and by whom. \
           Named `[network-][node-]range` with `:` and `/` written as `-`."
)]
pub struct IPPoolSpec {
    /// The range, as a network address and a prefix length: `192.168.2.0/24`. Host bits are allowed and
    /// ignored. Cannot be changed, because every allocation would move.
    #[schemars(length(max = 49))]
    #[x_kube(validation = rules::range_is_a_cidr(), validation = rules::range_is_immutable())]
    pub range: String,

    /// The held addresses, up to 65536: the key is the decimal offset of the address from the range's
    /// network address.
    #[schemars(extend("maxProperties" = 65536))]
    #[x_kube(validation = rules::added_offsets_are_decimal())]
    pub allocations: BTreeMap<String, Allocation>,
}

/// Who holds an address.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The container that holds the address.
    pub id: String,

    /// The pod that holds the address, as `namespace/name`.
    pub podref: String,

    /// The interface in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,

    /// The UID of the pod, where the runtime has told it. A pod of the same name and another UID is another pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poduid: Option<String>,

    /// In a ledger that all nodes share, the node whose agent has made the record. Another node's agent may not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,

    /// Where a claim has the address (`id: claim/<UID>`): the pods that were given it. It is not freed while one of them is
    /// alive. (Tenure; Whereabouts has no such field.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 64))]
    pub pods: Vec<PodRecord>,
}
