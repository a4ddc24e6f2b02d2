//! The pods that were given a claim's addresses, as the record remembers them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod that was given a claim's addresses. It is written before the pod can have them, so that the record alone says who
/// may still use an address, whatever the annotations of pods and claims say.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    /// The name of the pod, in the namespace of the IPAMClaim.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The UID of the pod: one of the same name that was made later is another.
    #[schemars(length(max = 128))]
    pub uid: String,

    /// The node that the pod was bound to.
    #[schemars(length(max = 253))]
    pub node: String,

    /// Since when the pod is gone and its node has no Node object: the first of two observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MicroTime>,
}
