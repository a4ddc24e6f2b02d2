//! Errors of a cluster.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tenure_image::ImageError;

use super::NodePart;
use crate::binaries::BinariesError;
use crate::control_plane::ControlPlaneError;
use crate::hosts::HostError;

/// An error of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The programs are not available.
    #[error("the programs of a cluster are missing: {0}")]
    Binaries(#[from] BinariesError),
    /// The control plane.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A node's namespaces, interfaces or commands.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A file or directory.
    #[error("{act} {path}: {source}", path = path.display())]
    File {
        /// The operation.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// More nodes than a cluster has addresses for.
    #[error("a cluster of {nodes} nodes: from 1 to {most} are possible")]
    Nodes {
        /// The requested number.
        nodes: usize,
        /// The largest number.
        most: usize,
    },
    /// All address ranges that clusters use are in use.
    #[error(
        "no free addresses for a cluster: every network from {first} to {last} is in use on this machine"
    )]
    NoAddresses {
        /// The first one that was tried.
        first: String,
        /// The last one.
        last: String,
    },
    /// A part of a node ended while it was expected to become ready.
    #[error("{part} of {node} ended ({how}); its log {log} ends with: {end}", log = log.display())]
    Ended {
        /// The part.
        part: NodePart,
        /// The node.
        node: String,
        /// Its exit status.
        how: String,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        end: String,
    },
    /// Something did not become ready.
    #[error("{what} within {limit:?}: {last}")]
    NotReady {
        /// What was waited for.
        what: String,
        /// The limit.
        limit: Duration,
        /// The last state.
        last: String,
    },
    /// A thread of the cluster panicked.
    #[error("a task of the cluster's start did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}
