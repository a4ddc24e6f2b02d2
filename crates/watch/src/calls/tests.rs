//! What is repeated, and what is said of what came to nothing.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::json;
use tenure_handles::{ManualClock, SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;

use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

fn connection() -> Connection {
    let client = LocalApi::temporary(SystemClock, SeededEntropy::new(1)).client();
    Connection::new(client, Arc::new(ManualClock::default()), Arc::new(SeededEntropy::new(2)))
}

/// A refusal that asks for so much time.
pub(crate) fn refused(code: u16, retry_after_seconds: u32) -> kube::Error {
    let status = json!({"status": "Failure", "message": "no", "reason": "Reason", "code": code,
                        "details": {"retryAfterSeconds": retry_after_seconds}});
    kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
}

fn away() -> kube::Error {
    kube::Error::Service("connection refused".into())
}

/// Makes a call that fails so many times; answers what came of it, how often it was made, and how long that took.
#[expect(clippy::disallowed_methods, reason = "tokio's paused clock, which only waits move")]
async fn insist(
    times: u32,
    error: fn() -> kube::Error,
) -> (Result<&'static str, CallError>, u32, Duration, Connection) {
    let (connection, made) = (connection(), Cell::new(0));
    let call = || {
        made.set(made.get() + 1);
        std::future::ready(if made.get() > times { Ok("answer") } else { Err(error()) })
    };
    let began = tokio::time::Instant::now();
    let answer = connection.insist(PATIENCE, || "deleting Thing \"x\"".to_owned(), call).await;
    (answer, made.get(), began.elapsed(), connection)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_while_the_api_server_is_away_and_given_up_when_the_patience_is_over() {
    let (answer, made, _, connection) = insist(3, away).await;
    assert_eq!((answer.unwrap(), made), ("answer", 4));
    assert!(connection.health().look().last_answer.is_some());
    let (answer, made, took, connection) = insist(u32::MAX, away).await;
    let error = answer.unwrap_err();
    assert_eq!((error.code(), error.kind()), (None, ErrorKind::Retry(Duration::ZERO)));
    let words = error.to_string();
    assert!(words.starts_with("deleting Thing \"x\": the API server cannot be asked: "), "{words}");
    assert!((6..=9).contains(&made) && took == PATIENCE, "{made} {took:?}");
    assert!(connection.health().look().last_answer.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_not_repeated() {
    for code in [400, 401, 403, 404, 409, 422] {
        let call = move || refused(code, 0);
        let connection = connection();
        let answer: Result<(), _> =
            connection.insist(PATIENCE, || "making y".to_owned(), || std::future::ready(Err(call()))).await;
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.kind()), (Some(code), ErrorKind::Final));
        assert_eq!(error.to_string(), format!("making y: the API server refuses ({code}): no"));
        assert!(connection.health().look().last_answer.is_some(), "a refusal is an answer");
    }
    assert_eq!(insist(u32::MAX, || refused(403, 0)).await.1, 1);
    for code in [408, 410, 429, 500, 503, 504] {
        assert!(matches!(CallError::of("a", &refused(code, 0)).kind(), ErrorKind::Retry(_)), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_wait_waits_so_long() {
    let (answer, made, took, _) = insist(1, || refused(429, 3)).await;
    assert_eq!((answer.unwrap(), made, took), ("answer", 2, Duration::from_secs(3)));
    let (_, _, took, _) = insist(1, || refused(503, 0)).await;
    assert_eq!(took, Duration::from_secs(1), "who does not say how long means a while");
    let kind = CallError::of("a", &refused(429, 100_000)).kind();
    assert_eq!(kind, ErrorKind::Retry(Duration::from_mins(1)), "and nobody waits for ever");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_counts_and_none_at_all_is_said() {
    let connection = connection();
    let slow = || async {
        sleep(PATIENCE * 2).await;
        Ok::<_, kube::Error>(())
    };
    connection.insist(PATIENCE, || "asking".to_owned(), slow).await.unwrap();
    let never = std::future::pending::<Result<(), kube::Error>>();
    let error = connection.once(PATIENCE, || "asking z".to_owned(), never).await.unwrap_err();
    assert_eq!(error.to_string(), "asking z: the API server cannot be asked: no answer within 5 s");
}
