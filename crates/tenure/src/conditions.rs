//! A condition of an object, as all verbs show it with `-o json`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use serde::Serialize;

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl From<&v1::Condition> for Condition {
    fn from(it: &v1::Condition) -> Self {
        let v1::Condition { type_, status, reason, message, .. } = it.clone();
        Self { type_, status, reason, message }
    }
}
