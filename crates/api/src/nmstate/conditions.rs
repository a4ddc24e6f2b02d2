//! Conditions of policies and enactments, with kubernetes-nmstate's fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient;

/// One aspect of the state of a policy or an enactment.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// The aspect, such as Available.
    #[serde(rename = "type")]
    pub type_: String,

    /// True, False or Unknown.
    pub status: String,

    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// When this was last looked at. (We do not write it.)
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub last_heartbeat_time: Option<Time>,

    /// Since when the status is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::or_default")]
    pub last_transition_time: Option<Time>,
}

impl NodeCondition {
    /// A condition that has just come about.
    pub fn new(type_: &str, status: &str, reason: &str, message: &str, now: Time) -> Self {
        Self {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: None,
            last_transition_time: Some(now),
        }
    }

    /// Whether it is so.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Puts a condition among others, with the transition time of the one before while the status stays.
pub fn set_condition(conditions: &mut Vec<NodeCondition>, mut condition: NodeCondition) {
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) => {
            if known.status == condition.status && known.last_transition_time.is_some() {
                condition.last_transition_time.clone_from(&known.last_transition_time);
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
