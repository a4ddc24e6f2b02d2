//! Errors of a control plane.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Part;
use crate::binaries::BinariesError;
use crate::process::ProcessError;

/// An error of a control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The programs are not available.
    #[error("the programs of a control plane are missing: {0}")]
    Binaries(#[from] BinariesError),
    /// A process could not be started, signalled or ended.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file or directory could not be created.
    #[error("{act} {path} for a control plane failed", path = path.display())]
    File {
        /// The operation.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A part ended while it was expected to become ready.
    #[error("{part} ended ({how}) before it was ready; its log {log} ends with: {end}", log = log.display())]
    Ended {
        /// The part.
        part: Part,
        /// Its exit status.
        how: String,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        end: String,
    },
    /// A part did not become ready.
    #[error("{part} was not ready after {limit:?} ({last}); its log {log} ends with: {end}", log = log.display())]
    NotReady {
        /// The part.
        part: Part,
        /// The limit.
        limit: Duration,
        /// Its last answer.
        last: String,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        end: String,
    },
    /// A part that does not run cannot be paused.
    #[error("{part} is not running")]
    NotRunning {
        /// The part.
        part: Part,
    },
    /// The range of Services is invalid.
    #[error("the Services' range {range:?} is not ADDRESS/LENGTH, or two of them with a comma between")]
    ServiceRange {
        /// The given range.
        range: String,
    },
    /// The address of a server is not a URL.
    #[error("{url:?} is not a URL")]
    Url {
        /// The given address.
        url: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// A user in more groups than a certificate can name.
    #[error("a client certificate takes two groups, and {user} is to be in {groups}")]
    TooManyGroups {
        /// The user.
        user: String,
        /// The groups.
        groups: String,
    },
    /// A certificate could not be created.
    #[error("making a certificate failed: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A client could not be created, or its request failed.
    #[error("talking to the API server failed: {0}")]
    Client(#[from] kube::Error),
    /// A client's configuration could not be created.
    #[error("making a client configuration failed: {0}")]
    Config(#[from] serde_json::Error),
    /// kubectl failed.
    #[error("kubectl {arguments} failed ({status}): {said}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// Its exit status.
        status: String,
        /// Its message.
        said: String,
    },
    /// A line of the API server's metrics that cannot be read.
    #[error("the metric {line:?} has no number at its end")]
    Metric {
        /// The line.
        line: String,
    },
    /// Blocking work was interrupted, because the runtime ended or the work panicked.
    #[error("work for a control plane was cut off: {0}")]
    CutOff(#[from] tokio::task::JoinError),
}
