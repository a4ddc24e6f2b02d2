//! Why an exchange with the kernel failed, and whether a retry can help.

use nix::errno::Errno;

use super::Refusal;

/// A failed exchange with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket could not be opened.
    #[error("open a route netlink socket")]
    Open(#[source] std::io::Error),
    /// The request could not be sent.
    #[error("ask the kernel to {act}")]
    Send {
        /// The first request.
        act: String,
        /// The cause.
        source: std::io::Error,
    },
    /// No answer could be read.
    #[error("read the kernel's answer: {0}")]
    Receive(Errno),
    /// The answer could not be decoded.
    #[error("decode the kernel's answer: {0}")]
    Decode(netlink_packet_core::DecodeError),
    /// The kernel refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel did not answer.
    #[error("the kernel did not answer the request to {act}")]
    Unanswered {
        /// The request.
        act: String,
    },
    /// Answers were lost because they were not read in time.
    #[error("the kernel's answers overran the socket's receive buffer")]
    Overrun,
    /// Every attempt at a dump was interrupted.
    #[error("{act}: interrupted by changes in {attempts} attempts")]
    Interrupted {
        /// What was listed.
        act: String,
        /// How many attempts were made.
        attempts: usize,
    },
}

/// What a failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The object does not exist.
    Gone,
    /// The object exists already.
    Exists,
    /// A retry may succeed.
    Retry,
    /// Not permitted (missing rights, or a feature that is turned off).
    Denied,
    /// A retry will fail again.
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

/// The meaning of an error number in answers of the route netlink family.
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
