//! Calls to the API server: one error type, and one way to repeat calls.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::read::{Read, Unreadable};
use tokio::time::{sleep, timeout};

use crate::connection::Connection;

/// The wait if the API server is busy and does not say how long.
const BUSY: Duration = Duration::from_secs(1);
/// The longest wait that the API server may ask for.
const LONGEST_BUSY: Duration = Duration::from_mins(1);
/// An answer may take this many times the patience. A write that we give up early may still happen, and no call to a server that
/// always needs longer would ever succeed.
const ANSWER_TAKES: u32 = 6;

/// Why a call failed: what was tried, on which object, and what happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{act}: {problem}")]
pub struct CallError {
    act: String,
    #[source]
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("the API server refuses ({code}): {message}")]
    Refused { code: u16, message: String, wait: Duration },
    #[error("the API server cannot be asked: {0}")]
    Away(String),
}

/// Whether to retry after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later. Wait at least this long.
    Retry(Duration),
    /// The same call would fail again.
    Final,
}

impl CallError {
    /// `act` says what was tried, for example "deleting AddressBlock x".
    pub fn of(act: impl Into<String>, error: &kube::Error) -> Self {
        let problem = match error {
            kube::Error::Api(status) => {
                Problem::Refused { code: status.code, message: status.message.clone(), wait: wait_of(error) }
            }
            error => Problem::Away(error.to_string()),
        };
        Self { act: act.into(), problem }
    }

    /// The API server did not answer in time.
    pub fn unanswered(act: impl Into<String>, patience: Duration) -> Self {
        let problem = Problem::Away(format!("no answer within {} s", patience.as_secs_f32()));
        Self { act: act.into(), problem }
    }

    /// We refuse it ourselves, for this reason.
    pub fn refused(act: impl Into<String>, reason: impl Into<String>) -> Self {
        let problem = Problem::Refused { code: 400, message: reason.into(), wait: Duration::ZERO };
        Self { act: act.into(), problem }
    }

    /// The status code, if the API server answered.
    pub fn code(&self) -> Option<u16> {
        match &self.problem {
            Problem::Refused { code, .. } => Some(*code),
            Problem::Away(_) => None,
        }
    }

    /// Whether to retry.
    pub fn kind(&self) -> ErrorKind {
        match &self.problem {
            // Too slow, expired, or too many requests.
            Problem::Refused { code: 408 | 410 | 429, wait, .. } => ErrorKind::Retry(*wait),
            Problem::Refused { code: 400..500, .. } => ErrorKind::Final,
            Problem::Refused { wait, .. } => ErrorKind::Retry(*wait),
            Problem::Away(_) => ErrorKind::Retry(Duration::ZERO),
        }
    }

    /// Whether the object does not exist.
    pub fn is_missing(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object exists already or has changed. A failed test of a JSON patch is a 422.
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(409 | 422))
    }

    /// Whether the object is gone or has changed.
    pub fn is_stale(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }
}

/// How long the API server asks to wait.
pub(crate) fn wait_of(error: &kube::Error) -> Duration {
    match error {
        kube::Error::Api(status) if matches!(status.code, 429 | 503) => {
            let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(asked.into()).clamp(BUSY, LONGEST_BUSY)
        }
        _ => Duration::ZERO,
    }
}

impl Connection {
    /// Makes one call. For the health, a refusal is an answer, too.
    pub async fn once<T>(
        &self,
        patience: Duration,
        act: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        let error = match timeout(patience, call).await {
            Ok(Ok(answer)) => {
                self.health().answered();
                return Ok(answer);
            }
            Ok(Err(error)) => CallError::of(act(), &error),
            Err(_) => CallError::unanswered(act(), patience),
        };
        if error.code().is_some_and(|code| code < 500) {
            self.health().answered();
        }
        Err(error)
    }

    /// Repeats a call while it fails with [`ErrorKind::Retry`], until the patience is over. One call may take [`ANSWER_TAKES`] times
    /// the patience.
    pub async fn insist<T, F>(
        &self,
        patience: Duration,
        act: impl Fn() -> String,
        call: impl Fn() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let over = sleep(patience);
        tokio::pin!(over);
        let mut backoff = self.backoff();
        loop {
            let error = match self.once(patience * ANSWER_TAKES, &act, call()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let ErrorKind::Retry(least) = error.kind() else { return Err(error) };
            tokio::select! {
                biased;
                () = &mut over => return Err(error),
                () = sleep(backoff.fail().max(least)) => {}
            }
        }
    }
}

/// Parameters to delete exactly the object with this UID and, if given, this version.
pub fn exactly(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid, resource_version })
}

/// Applies a JSON patch. Its operations test what they depend on.
pub async fn json_patch<K>(api: &Api<K>, name: &str, operations: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

/// The result of a list.
#[derive(Debug)]
pub struct Every<K> {
    /// Objects that can be parsed.
    pub objects: Vec<K>,
    /// Objects that exist and cannot be parsed.
    pub unreadable: Vec<Unreadable>,
}

impl<K> Every<K> {
    /// All objects, for a decision that depends on each; an error if one cannot be parsed.
    pub fn all(self) -> Result<Vec<K>, kube::Error> {
        match self.unreadable.first() {
            Some(it) => Err(unread(it)),
            None => Ok(self.objects),
        }
    }
}

/// The error for a decision that waits for an object that cannot be parsed.
pub fn unread(it: &Unreadable) -> kube::Error {
    kube::Error::Service(format!("{it}; nothing that depends on it is decided until it is corrected").into())
}

/// All objects with these labels at one moment, `at_once` per call.
pub async fn every<K>(api: &Api<Read<K>>, labels: &str, at_once: u32) -> Result<Every<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams::default().labels(labels).limit(at_once);
    let mut found = Every { objects: Vec::new(), unreadable: Vec::new() };
    loop {
        let page = api.list(&params).await?;
        for read in page.items {
            match read {
                Read::Is(object) => found.objects.push(object),
                Read::Unreadable(it) => found.unreadable.push(*it),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
