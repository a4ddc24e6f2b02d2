//! Calls to the API server: one error, and one way to repeat them.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::read::{Read, Unreadable};
use tokio::time::{sleep, timeout};

use crate::connection::Connection;

/// How long to wait at least when the API server has too much to do and does not say how long.
const BUSY: Duration = Duration::from_secs(1);
/// How long to wait at most because somebody asks for it.
const LONGEST_BUSY: Duration = Duration::from_mins(1);
/// A server that is slow is let finish: an answer may take this many times as long as failures are put up with. A write that is
/// given up early may have been made all the same, and a server that always needs longer would never be asked with success.
const ANSWER_TAKES: u32 = 6;

/// Why a call came to nothing.
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

/// What to do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may work later, and not before this long is over.
    Retry(Duration),
    /// The same call would meet the same answer.
    Final,
}

impl CallError {
    /// What was tried, as "deleting AddressBlock x", and what came of it.
    pub fn of(act: impl Into<String>, error: &kube::Error) -> Self {
        let problem = match error {
            kube::Error::Api(status) => {
                Problem::Refused { code: status.code, message: status.message.clone(), wait: wait_of(error) }
            }
            error => Problem::Away(error.to_string()),
        };
        Self { act: act.into(), problem }
    }

    /// What was tried, and nobody answered.
    pub fn unanswered(act: impl Into<String>, patience: Duration) -> Self {
        let problem = Problem::Away(format!("no answer within {} s", patience.as_secs_f32()));
        Self { act: act.into(), problem }
    }

    /// What was tried, and is refused for a reason that only we know.
    pub fn refused(act: impl Into<String>, reason: impl Into<String>) -> Self {
        let problem = Problem::Refused { code: 400, message: reason.into(), wait: Duration::ZERO };
        Self { act: act.into(), problem }
    }

    /// The status, where there is an answer.
    pub fn code(&self) -> Option<u16> {
        match &self.problem {
            Problem::Refused { code, .. } => Some(*code),
            Problem::Away(_) => None,
        }
    }

    /// Whether to try again.
    pub fn kind(&self) -> ErrorKind {
        match &self.problem {
            // Too slow, too old to go on with, or too much at once.
            Problem::Refused { code: 408 | 410 | 429, wait, .. } => ErrorKind::Retry(*wait),
            Problem::Refused { code: 400..500, .. } => ErrorKind::Final,
            Problem::Refused { wait, .. } => ErrorKind::Retry(*wait),
            Problem::Away(_) => ErrorKind::Retry(Duration::ZERO),
        }
    }

    /// Whether there is no such object.
    pub fn is_missing(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether an object of this name is there, or is not what it was. A failed test of a JSON patch is a 422.
    pub fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(409 | 422))
    }

    /// Whether the object is gone, or is not what it was.
    pub fn is_stale(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }
}

/// How long whoever refused asks to wait.
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
    /// Makes one call. What the API server answers, also a refusal, is an answer.
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

    /// Makes a call, again and again while it fails for a reason that may pass, until the patience is over. A call that is under
    /// way then has [`ANSWER_TAKES`] times as long.
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

/// For the deletion of the object of this UID, and this version if one is given, and no other.
pub fn exactly(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid, resource_version })
}

/// Performs the operations of a JSON patch, which test what they depend on.
pub async fn json_patch<K>(api: &Api<K>, name: &str, operations: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

/// Objects as they are now.
#[derive(Debug)]
pub struct Every<K> {
    /// Those that can be read.
    pub objects: Vec<K>,
    /// Those that are there and cannot be read.
    pub unreadable: Vec<Unreadable>,
}

impl<K> Every<K> {
    /// All of them, where a decision needs to know what each says.
    pub fn all(self) -> Result<Vec<K>, kube::Error> {
        match self.unreadable.first() {
            Some(it) => Err(unread(it)),
            None => Ok(self.objects),
        }
    }
}

/// Why a decision waits for an object that cannot be read.
pub fn unread(it: &Unreadable) -> kube::Error {
    kube::Error::Service(format!("{it}; nothing that depends on it is decided until it is corrected").into())
}

/// All objects with these labels as of one moment, so many in a call that none takes long.
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
