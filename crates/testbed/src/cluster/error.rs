//! What can go wrong with a cluster.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tenure_image::ImageError;

use super::NodePart;
use crate::binaries::BinariesError;
use crate::control_plane::ControlPlaneError;
use crate::hosts::HostError;

/// What can go wrong with a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The programs could not be had.
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
        /// What was tried.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// More nodes than the addresses of a cluster are made for.
    #[error("a cluster of {nodes} nodes: from 1 to {most} are possible")]
    Nodes {
        /// How many were asked for.
        nodes: usize,
        /// How many there can be.
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
    /// Something did not become what was waited for.
    #[error("{what} within {limit:?}: {last}")]
    NotReady {
        /// What was waited for, and was not so.
        what: String,
        /// How long was waited.
        limit: Duration,
        /// How it was last.
        last: String,
    },
    /// A thread of the cluster panicked.
    #[error("a task of the cluster's start did not end: {0}")]
    Task(#[from] tokio::task::JoinError),
}
