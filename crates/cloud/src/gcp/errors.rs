//! What Google's errors mean. The texts that were seen are in the tests.

use std::time::Duration;

use serde::Deserialize;
use tenure_ipam::{Cidr, Notation};

use super::wire::OperationErrorEntry;
use crate::error::{CloudError, ErrorKind};

/// A limit on operations at once ends when one of them does.
const OPERATIONS_END: Duration = Duration::from_secs(5);
/// An error that is no JSON is cut after this many characters.
const WORDS: usize = 300;

#[derive(Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Content,
}

#[derive(Default, Deserialize)]
struct Content {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Entry>,
    #[serde(default)]
    details: Vec<Entry>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    reason: String,
}

/// The error of a request that was not accepted.
pub(super) fn of_answer(act: &str, status: u16, retry_after: Option<Duration>, body: &[u8]) -> CloudError {
    let read: Option<Content> = serde_json::from_slice::<Body>(body).ok().map(|body| body.error);
    let content = read.unwrap_or_default();
    let says =
        |reason: &str| content.errors.iter().chain(&content.details).any(|entry| entry.reason == reason);
    let kind = match status {
        409 | 412 => ErrorKind::Conflict,
        403 | 429 if says("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED") => {
            ErrorKind::Throttled(Some(OPERATIONS_END))
        }
        403 if says("quotaExceeded") || says("limitExceeded") => ErrorKind::Capacity,
        403 if says("rateLimitExceeded") || says("userRateLimitExceeded") => {
            ErrorKind::Throttled(retry_after)
        }
        429 => ErrorKind::Throttled(retry_after),
        401 | 403 => ErrorKind::Denied,
        404 => ErrorKind::NotFound,
        400 if says("resourceNotReady") => ErrorKind::NotReady,
        400 if says("limitExceeded") || says("quotaExceeded") => ErrorKind::Capacity,
        408 | 500.. => ErrorKind::Transient,
        _ => ErrorKind::Invalid(range_in(&content.message)),
    };
    let words = if content.message.is_empty() {
        String::from_utf8_lossy(body).chars().take(WORDS).collect()
    } else {
        content.message
    };
    CloudError::new(kind, format!("{act}: {status} {words}"))
}

/// The error of an operation that was accepted and failed: the first entry decides, all are said.
pub(super) fn of_operation(act: &str, errors: &[OperationErrorEntry], status: Option<u16>) -> CloudError {
    let first = errors.first();
    let range = first.and_then(|error| range_in(&error.message));
    let kind = match first.map(|error| error.code.as_str()).unwrap_or_default() {
        "IP_IN_USE_BY_ANOTHER_RESOURCE" => ErrorKind::InUse(range),
        "QUOTA_EXCEEDED" | "LIMIT_EXCEEDED" => ErrorKind::Capacity,
        "CONDITION_NOT_MET" => ErrorKind::Conflict,
        "RESOURCE_NOT_READY" => ErrorKind::NotReady,
        "RESOURCE_NOT_FOUND" => ErrorKind::NotFound,
        "RATE_LIMIT_EXCEEDED" | "RESOURCE_OPERATION_RATE_EXCEEDED" => ErrorKind::Throttled(None),
        "INTERNAL_ERROR" => ErrorKind::Transient,
        _ if status.is_some_and(|status| status >= 500) => ErrorKind::Transient,
        _ => ErrorKind::Invalid(range),
    };
    let words: Vec<String> = errors.iter().map(|error| format!("{} {}", error.code, error.message)).collect();
    CloudError::new(kind, format!("{act}: {}", words.join("; ")))
}

/// The first range between quotes.
fn range_in(message: &str) -> Option<Cidr> {
    message.split(['\'', '"']).find_map(|part| Notation::Strict.cidr_or_address(part).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, reason: &str, message: &str) -> CloudError {
        let body = serde_json::json!({"error": {"code": status, "message": message, "errors": [{"reason": reason, "domain": "global"}]}});
        of_answer("acting", status, None, body.to_string().as_bytes())
    }

    fn operation(code: &str, message: &str) -> CloudError {
        of_operation(
            "acting",
            &[OperationErrorEntry { code: code.to_owned(), message: message.to_owned() }],
            Some(400),
        )
    }

    #[test]
    fn answers_mean_what_the_catalogue_says() {
        let range = |text| Notation::Strict.cidr(text).unwrap();
        for (error, kind) in [
            (answer(412, "conditionNotMet", "Invalid fingerprint."), ErrorKind::Conflict),
            (answer(403, "rateLimitExceeded", "Rate Limit Exceeded"), ErrorKind::Throttled(None)),
            (answer(403, "forbidden", "Required 'compute.instances.get' permission"), ErrorKind::Denied),
            (
                answer(403, "quotaExceeded", "Quota 'ALIASES_PER_NETWORK_GLOBAL' exceeded."),
                ErrorKind::Capacity,
            ),
            (answer(401, "authError", "Invalid Credentials"), ErrorKind::Denied),
            (answer(404, "notFound", "The resource was not found"), ErrorKind::NotFound),
            (answer(400, "resourceNotReady", "The resource 'x' is not ready"), ErrorKind::NotReady),
            (answer(400, "limitExceeded", "too many alias IP ranges"), ErrorKind::Capacity),
            (
                answer(400, "invalid", "Invalid value: '10.9.0.1/32'"),
                ErrorKind::Invalid(Some(range("10.9.0.1/32"))),
            ),
            (answer(400, "invalid", "no"), ErrorKind::Invalid(None)),
            (answer(503, "backendError", "try again"), ErrorKind::Transient),
            (of_answer("acting", 502, None, b"<html>"), ErrorKind::Transient),
            (
                of_answer("acting", 429, Some(Duration::from_secs(7)), b""),
                ErrorKind::Throttled(Some(Duration::from_secs(7))),
            ),
            (
                operation(
                    "IP_IN_USE_BY_ANOTHER_RESOURCE",
                    "IP '10.0.2.248/29' is already being used by another resource.",
                ),
                ErrorKind::InUse(Some(range("10.0.2.248/29"))),
            ),
            (
                operation("QUOTA_EXCEEDED", "Quota 'ALIASES_PER_NETWORK_GLOBAL' exceeded."),
                ErrorKind::Capacity,
            ),
            (operation("INTERNAL_ERROR", ""), ErrorKind::Transient),
            (operation("SOMETHING_NEW", ""), ErrorKind::Invalid(None)),
        ] {
            assert_eq!(error.kind, kind, "{error}");
        }
    }

    #[test]
    fn the_limit_of_operations_at_once_is_over_soon() {
        let body = serde_json::json!({"error": {
            "code": 403, "message": "too many", "errors": [{"reason": "rateLimitExceeded"}],
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"}],
        }});
        let error = of_answer("acting", 403, None, body.to_string().as_bytes());
        assert_eq!(error.kind, ErrorKind::Throttled(Some(OPERATIONS_END)));
        assert_eq!(error.to_string(), "acting: 403 too many");
    }
}
