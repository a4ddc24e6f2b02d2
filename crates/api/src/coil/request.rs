//! `BlockRequest`: a node's wish for one more block of a pool, and its answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{condition, rules};

/// Who wants a block of which pool. Cannot be changed: another wish is another request.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coil.cybozu.com",
    version = "v2",
    kind = "BlockRequest",
    plural = "blockrequests",
    status = "BlockRequestStatus",
    derive = "PartialEq",
    doc = "A node's request for one more block of a pool. Owned by the Node that asks; deleted by it after the answer.",
    selectable = ".spec.nodeName",
    selectable = ".spec.poolName"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::request_is_immutable())]
pub struct BlockRequestSpec {
    /// The node that asks. At most 63 characters, because it becomes the value of a label of the block.
    #[schemars(length(min = 1, max = 63))]
    pub node_name: String,

    /// The AddressPool to carve from. At most 63 characters, because it becomes the value of a label of the block.
    #[schemars(length(min = 1, max = 63))]
    pub pool_name: String,
}

/// The answer to a request.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockRequestStatus {
    /// The AddressBlock that was carved for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_block_name: Option<String>,

    /// `Complete` once the request was dealt with, and `Failed` with a reason when there is no block for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<BlockRequestCondition>,
}

/// One aspect of the answer.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockRequestCondition {
    /// `Complete` or `Failed`.
    #[serde(rename = "type")]
    pub type_: String,

    /// `True`, `False` or `Unknown`.
    pub status: String,

    /// When the condition was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,

    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// One word that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// One sentence that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome<'a> {
    /// Nobody has answered yet.
    Pending,
    /// This AddressBlock was carved.
    Block(&'a str),
    /// There is no block for it.
    Failed {
        /// One word that says why.
        reason: &'a str,
        /// One sentence that says why.
        message: &'a str,
    },
}

impl BlockRequest {
    /// What became of the request: a failure counts before a completion, because both are set when a pool is exhausted.
    pub fn outcome(&self) -> RequestOutcome<'_> {
        let Some(status) = &self.status else { return RequestOutcome::Pending };
        if let Some(failed) = status.holds(condition::FAILED) {
            return RequestOutcome::Failed {
                reason: failed.reason.as_deref().unwrap_or_default(),
                message: failed.message.as_deref().unwrap_or_default(),
            };
        }
        match (status.holds(condition::COMPLETE), &status.address_block_name) {
            (Some(_), Some(name)) => RequestOutcome::Block(name),
            _ => RequestOutcome::Pending,
        }
    }
}

impl BlockRequestStatus {
    /// The condition of that type, if its status is `True`.
    fn holds(&self, type_: &str) -> Option<&BlockRequestCondition> {
        self.conditions.iter().find(|c| c.type_ == type_ && c.status == "True")
    }
}
