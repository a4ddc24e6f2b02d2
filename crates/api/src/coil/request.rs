//! `BlockRequest`: a node's wish for one more block of a pool, and its answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{self, reason};
use super::{annotation, rules};

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
    /// The same, for a node that takes the block itself as the answer.
    #[must_use]
    pub fn answered_by_block(mut self) -> Self {
        self.annotations_mut().insert(annotation::ANSWERED_BY.to_owned(), annotation::BLOCK.to_owned());
        self
    }

    /// Whether the node takes the block itself as the answer. Then nobody writes into the status that there is one.
    pub fn is_answered_by_block(&self) -> bool {
        self.annotations().get(annotation::ANSWERED_BY).is_some_and(|by| by == annotation::BLOCK)
    }

    /// What the status says became of the request: a failure counts before a completion, because both are set when a pool is exhausted.
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
    /// The answer that a block was carved.
    pub fn carved(block: &str, now: &Time) -> Self {
        let sentence = format!("AddressBlock \"{block}\" was carved");
        Self {
            address_block_name: Some(block.to_owned()),
            conditions: vec![BlockRequestCondition::is_true(
                condition::COMPLETE,
                reason::CARVED,
                &sentence,
                now,
            )],
        }
    }

    /// The answer that there is no block: complete and failed, as Coil writes it.
    pub fn failed(reason: &str, message: &str, now: &Time) -> Self {
        let conditions = [condition::COMPLETE, condition::FAILED]
            .map(|type_| BlockRequestCondition::is_true(type_, reason, message, now));
        Self { address_block_name: None, conditions: conditions.into() }
    }

    /// The condition of that type, if its status is `True`.
    fn holds(&self, type_: &str) -> Option<&BlockRequestCondition> {
        self.conditions.iter().find(|c| c.type_ == type_ && c.status == "True")
    }
}

impl BlockRequestCondition {
    fn is_true(type_: &str, reason: &str, message: &str, now: &Time) -> Self {
        Self {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            last_probe_time: Some(now.clone()),
            last_transition_time: Some(now.clone()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_given() {
        let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let mut request = BlockRequest::new("req-pool1-node1", BlockRequestSpec::default());
        request.status = Some(BlockRequestStatus::carved("pool1-3", &now));
        assert_eq!(request.outcome(), RequestOutcome::Block("pool1-3"));
        request.status = Some(BlockRequestStatus::failed(reason::OUT_OF_BLOCKS, "pool1 is full", &now));
        let failed = RequestOutcome::Failed { reason: "OutOfBlocks", message: "pool1 is full" };
        assert_eq!(request.outcome(), failed);
    }

    #[test]
    fn a_request_says_whether_the_block_is_its_answer() {
        let mut request = BlockRequest::new("req-pool1-node1", BlockRequestSpec::default());
        assert!(!request.is_answered_by_block());
        request.annotations_mut().insert("tenure/answered-by".to_owned(), "status".to_owned());
        assert!(!request.is_answered_by_block(), "another value means nothing");
        let request = request.answered_by_block();
        assert!(request.is_answered_by_block());
        assert_eq!(request.annotations()["tenure/answered-by"], "block");
        assert_eq!(request.outcome(), RequestOutcome::Pending);
    }
}
