//! Kubernetes `Status` answers: code, reason, message and details as kube-apiserver writes them.
//!
//! Every refusal of this crate is made here; each one is a well-formed `v1.Status`.

use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::schema::{Cause, summary};

/// A refusal, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    /// HTTP status code.
    pub(crate) code: StatusCode,
    /// Machine-readable reason of Kubernetes; empty if there is none.
    pub(crate) reason: &'static str,
    /// Sentence for people.
    pub(crate) message: String,
    /// `details`, if any.
    pub(crate) details: Option<Map<String, Value>>,
    /// For an expired list: the token to continue without consistency.
    pub(crate) continue_token: Option<Box<str>>,
    /// Warnings to send along.
    pub(crate) warnings: Vec<String>,
}

/// A resource or a kind with its group, as messages name it: `leases.coordination.k8s.io`, `Lease.coordination.k8s.io`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped<'a> {
    /// The API group; empty for the core group.
    pub(crate) group: &'a str,
    /// The resource or the kind.
    pub(crate) name: &'a str,
}

impl fmt::Display for Grouped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(self.name) } else { write!(f, "{}.{}", self.name, self.group) }
    }
}

/// The message for an update from an older state.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Status {
    /// 404: there is no such object.
    pub(crate) fn not_found(resource: Grouped<'_>, name: &str) -> Self {
        Self::about(
            StatusCode::NOT_FOUND,
            "NotFound",
            resource,
            name,
            format!("{resource} {} not found", quote(name)),
        )
    }

    /// 409: it already exists.
    pub(crate) fn already_exists(resource: Grouped<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::about(StatusCode::CONFLICT, "AlreadyExists", resource, name, message)
    }

    /// 409: every generated name was taken.
    pub(crate) fn no_name_free(resource: Grouped<'_>, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let mut status = Self::about(StatusCode::CONFLICT, "AlreadyExists", resource, name, message);
        status.detail("retryAfterSeconds", json!(1));
        status
    }

    /// 409: the object is not in the expected state.
    pub(crate) fn conflict(resource: Grouped<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::about(StatusCode::CONFLICT, "Conflict", resource, name, message)
    }

    /// 403: not allowed for anybody.
    pub(crate) fn forbidden(resource: Grouped<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::about(StatusCode::FORBIDDEN, "Forbidden", resource, name, message)
    }

    /// 422: fields are wrong.
    pub(crate) fn invalid(kind: Grouped<'_>, name: &str, causes: &[Cause]) -> Self {
        let message = format!("{kind} {} is invalid: {}", quote(name), summary(causes));
        let mut status = Self::about(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", kind, name, message);
        status.detail("causes", causes.iter().map(cause).collect());
        status
    }

    /// 400: the request is invalid.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 405: a resource that exists does not have this verb.
    pub(crate) fn verb_not_supported(resource: Grouped<'_>, verb: &str) -> Self {
        let message =
            format!("{verb} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::about(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", resource, "", message)
    }

    /// 405: an existing path does not support this method.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::plain(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        status.details = Some(Map::new());
        status
    }

    /// 404: a path of a built-in group that names nothing.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        let mut status = Self::plain(StatusCode::NOT_FOUND, "NotFound", message);
        status.details = Some(Map::new());
        status
    }

    /// 406: no format that the client accepts can be written.
    pub(crate) fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::plain(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 406 as built-in groups word it.
    pub(crate) fn no_representation(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        let mut status = Self::plain(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        status.details = Some(Map::new());
        status
    }

    /// 415: the body has a format that cannot be read.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 413: the body is too long.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 410: the resource version is no longer known.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::GONE, "Expired", message)
    }

    /// 504: the resource version is not known yet.
    pub(crate) fn too_new(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut status = Self::plain(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        status.detail("retryAfterSeconds", json!(1));
        status.detail(
            "causes",
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
        );
        status
    }

    /// 422 without its own reason: a patch that does not fit.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        let mut status = Self::plain(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        status.details = Some(Map::new());
        status
    }

    /// 500: the server failed.
    pub(crate) fn internal(why: &str) -> Self {
        let message = format!("Internal error occurred: {why}");
        let mut status = Self::plain(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
        status.detail("causes", json!([{"message": why}]));
        status
    }

    /// An answer with only a code, a reason and a message.
    pub(crate) fn plain(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            warnings: Vec::new(),
        }
    }

    fn about(
        code: StatusCode,
        reason: &'static str,
        subject: Grouped<'_>,
        name: &str,
        message: String,
    ) -> Self {
        let mut status = Self::plain(code, reason, message);
        status.details = Some(Map::new());
        for (key, value) in [("name", name), ("group", subject.group), ("kind", subject.name)] {
            if !value.is_empty() {
                status.detail(key, json!(value));
            }
        }
        status
    }

    /// The same with these warnings before its own.
    pub(crate) fn with_warnings(mut self, mut warnings: Vec<String>) -> Self {
        warnings.append(&mut self.warnings);
        self.warnings = warnings;
        self
    }

    /// Adds or replaces one detail.
    pub(crate) fn detail(&mut self, key: &str, value: Value) {
        self.details.get_or_insert_default().insert(key.to_owned(), value);
    }

    /// The `v1.Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut object = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.continue_token {
            object["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            object["details"] = Value::Object(details.clone());
        }
        object
    }
}

fn cause(cause: &Cause) -> Value {
    json!({"reason": cause.reason, "message": cause.message, "field": cause.field})
}

/// A text in quotes, as messages show it.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_kube_apiserver_writes_them() {
        let leases = Grouped { group: "coordination.k8s.io", name: "leases" };
        let status = Status::not_found(leases, "a");
        assert_eq!(status.message, "leases.coordination.k8s.io \"a\" not found");
        assert_eq!(
            status.to_value(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "leases.coordination.k8s.io \"a\" not found",
                "details": {"name": "a", "group": "coordination.k8s.io", "kind": "leases"},
            })
        );
        let maps = Grouped { group: "", name: "configmaps" };
        assert_eq!(
            Status::conflict(maps, "a", MODIFIED).message,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
        );
        assert!(Status::bad_request("x").to_value().get("details").is_none());
    }
}
