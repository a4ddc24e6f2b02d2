//! What can go wrong with a control plane.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Part;
use crate::binaries::BinariesError;
use crate::process::ProcessError;

/// What can go wrong with a control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The programs could not be had.
    #[error("the programs of a control plane are missing: {0}")]
    Binaries(#[from] BinariesError),
    /// A process could not be started, signalled or ended.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file or directory could not be made.
    #[error("{act} {path} for a control plane failed", path = path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
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
        /// How long was waited.
        limit: Duration,
        /// What it answered last.
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
    /// The range of Services is no range.
    #[error("the Services' range {range:?} is not ADDRESS/LENGTH, or two of them with a comma between")]
    ServiceRange {
        /// What was given.
        range: String,
    },
    /// The address of a server is no URL.
    #[error("{url:?} is not a URL")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// A user in more groups than a certificate can say.
    #[error("a client certificate takes two groups, and {user} is to be in {groups}")]
    TooManyGroups {
        /// The user.
        user: String,
        /// The groups.
        groups: String,
    },
    /// A certificate could not be made.
    #[error("making a certificate failed: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A client could not be made, or its request failed.
    #[error("talking to the API server failed: {0}")]
    Client(#[from] kube::Error),
    /// A client's configuration could not be made.
    #[error("making a client configuration failed: {0}")]
    Config(#[from] serde_json::Error),
    /// kubectl said no.
    #[error("kubectl {arguments} failed ({status}): {said}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// Its exit status.
        status: String,
        /// What it said.
        said: String,
    },
    /// A line of the API server's metrics that cannot be read.
    #[error("the metric {line:?} has no number at its end")]
    Metric {
        /// The line.
        line: String,
    },
    /// Work that blocks was cut off, because the runtime ended or the work panicked.
    #[error("work for a control plane was cut off: {0}")]
    CutOff(#[from] tokio::task::JoinError),
}
