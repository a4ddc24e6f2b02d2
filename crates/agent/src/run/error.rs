//! Why an agent cannot start, or ended without being told to.

use std::io;
use std::path::PathBuf;

use tenure_linux::host::HostError;
use tenure_linux::netns;
use tokio::task::JoinError;

use crate::journal::OpenError;
use crate::serve::ListenError;
use crate::wire;

/// Identifies this boot of the kernel.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal cannot be used.
    #[error("cannot open the journal")]
    Journal(#[from] OpenError),
    /// The boot is unknown, and so is which journal belongs to it.
    #[error("cannot read {BOOT_ID}")]
    Boot(#[source] io::Error),
    /// The directory's permissions cannot be restricted.
    #[error("cannot restrict {} to root", .directory.display())]
    Restrict {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The host's namespace cannot be opened.
    #[error("cannot open the host's network namespace")]
    Namespace(#[from] netns::Error),
    /// The host's network cannot be used.
    #[error("cannot use the host's network")]
    Host(#[from] HostError),
    /// The kernel's thread cannot start.
    #[error("cannot start the kernel's thread")]
    Kernel(#[from] wire::StartError),
    /// The thread for egress cannot start.
    #[error("cannot start the thread for egress")]
    Egress(#[source] io::Error),
    /// A part cannot start.
    #[error("cannot start a part of the agent")]
    Part(#[source] io::Error),
    /// The thread for calls cannot start.
    #[error("cannot start the thread that answers calls")]
    Thread(#[source] io::Error),
    /// A task ended unexpectedly.
    #[error("a task of the start ended early")]
    Task(#[from] JoinError),
}

/// Why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket cannot be opened.
    #[error("cannot open the plugin's socket")]
    Listen(#[from] ListenError),
    /// The socket cannot be served.
    #[error("cannot serve the plugin's socket")]
    Serve(#[source] io::Error),
    /// A task ended unexpectedly.
    #[error("a task ended early")]
    Task(#[from] JoinError),
    /// The node's loop ended.
    #[error("the node's loop ended early")]
    Driver,
}
