//! Kubernetes `Status` answers: code, reason, message and details as kube-apiserver writes them.
//!
//! Owns every refusal that leaves this crate; promises that each is a well-formed `v1.Status`.

use http::StatusCode;
use serde_json::{Value, json};

/// A refusal, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    /// HTTP status code.
    pub(crate) code: StatusCode,
    /// Machine-readable reason, a word of Kubernetes.
    pub(crate) reason: &'static str,
    /// Sentence for people.
    pub(crate) message: String,
    /// `details`, or null.
    pub(crate) details: Value,
}

impl Status {
    /// The `v1.Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut object = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        if !self.details.is_null() {
            object["details"] = self.details.clone();
        }
        object
    }
}
