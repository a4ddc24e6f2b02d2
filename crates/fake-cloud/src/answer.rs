//! Answers and errors in the forms of Google's APIs.

use serde_json::{Value, json};

/// An answer: its status and content.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// A refusal.
pub(super) type Refused = Answer;

impl Answer {
    pub(super) fn ok(body: Value) -> Self {
        Self { status: 200, body }
    }

    pub(super) fn refused(status: u16, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let domain = if reason == "rateLimitExceeded" { "usageLimits" } else { "global" };
        let body = json!({"error": {
            "code": status,
            "message": message,
            "errors": [{"message": message, "domain": domain, "reason": reason}],
        }});
        Self { status, body }
    }

    /// A value that is not accepted.
    pub(super) fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::refused(400, "invalid", format!("Invalid value for field '{field}': '{value}'. {why}"))
    }

    pub(super) fn not_found(path: &str) -> Self {
        Self::refused(404, "notFound", format!("The resource '{path}' was not found"))
    }

    pub(super) fn too_many_requests() -> Self {
        Self::refused(
            403,
            "rateLimitExceeded",
            "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per region'.",
        )
    }

    pub(super) fn too_many_operations() -> Self {
        let mut answer = Self::refused(403, "rateLimitExceeded", "Quota exceeded for concurrent operations.");
        answer.body["error"]["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
            "domain": "compute.googleapis.com",
        }]);
        answer
    }
}
