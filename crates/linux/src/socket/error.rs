//! Why an exchange with the kernel failed, and whether trying again can help.

use nix::errno::Errno;

use super::Refusal;

/// An exchange with the kernel that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no socket.
    #[error("open a route netlink socket")]
    Open(#[source] std::io::Error),
    /// The request did not leave.
    #[error("ask the kernel to {act}")]
    Send {
        /// The first thing that was asked for.
        act: String,
        /// Why.
        source: std::io::Error,
    },
    /// No answer could be read.
    #[error("read the kernel's answer: {0}")]
    Receive(Errno),
    /// The answer is not understood.
    #[error("decode the kernel's answer: {0}")]
    Decode(netlink_packet_core::DecodeError),
    /// The kernel said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel did not say anything.
    #[error("the kernel did not answer the request to {act}")]
    Unanswered {
        /// What was asked for.
        act: String,
    },
    /// Answers were lost because they were not read in time.
    #[error("the kernel's answers overran the socket's receive buffer")]
    Overrun,
    /// No attempt at a dump saw the kernel at rest.
    #[error("{act}: interrupted by changes in {attempts} attempts")]
    Interrupted {
        /// What was to be listed.
        act: String,
        /// How many attempts were made.
        attempts: usize,
    },
}

/// What a failure means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The object does not exist.
    Gone,
    /// Something is in its place already.
    Exists,
    /// The same request may succeed later.
    Retry,
    /// The kernel does not let us (missing rights, or a feature that is switched off).
    Denied,
    /// The same request will fail again.
    Invalid,
}

impl Error {
    /// What this failure means.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Receive(errno) => kind_of(*errno),
            Self::Open(source) | Self::Send { source, .. } => {
                kind_of(source.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))
            }
            Self::Unanswered { .. } | Self::Overrun | Self::Interrupted { .. } => Kind::Retry,
            Self::Decode(_) => Kind::Invalid,
        }
    }

    /// The kernel's refusal, if that is what happened.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// What an error number means in answers of the route netlink family.
pub(super) fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::ENXIO | Errno::EADDRNOTAVAIL => Kind::Gone,
        Errno::EEXIST => Kind::Exists,
        Errno::EAGAIN
        | Errno::EBUSY
        | Errno::EINTR
        | Errno::ENOBUFS
        | Errno::ENOMEM
        | Errno::EMFILE
        | Errno::ENFILE => Kind::Retry,
        Errno::EPERM | Errno::EACCES => Kind::Denied,
        _ => Kind::Invalid,
    }
}
