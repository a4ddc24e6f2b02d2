//! Why a cloud did not do what it was asked, in the words of no cloud.

use std::time::Duration;

use tenure_ipam::Cidr;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// What to do about it.
    pub kind: ErrorKind,
    /// The act and the cloud's own words.
    pub message: String,
}

impl ErrorKind {
    /// Whether both ask for the same, whatever they are about.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl CloudError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// What a failed request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The interface changed since it was read: read it again.
    Conflict,
    /// Another interface has the range, if the cloud says which: find out who.
    InUse(Option<Cidr>),
    /// The interface or the network has as many ranges as it can.
    Capacity,
    /// Too many requests. Wait for this long; without it, for the next window of the quota.
    Throttled(Option<Duration>),
    /// Something else changes the machine or its network now: wait.
    NotReady,
    /// There is no such machine, interface or operation.
    NotFound,
    /// The program may not do this.
    Denied,
    /// The cloud will never accept this request. It names the range if the cloud does.
    Invalid(Option<Cidr>),
    /// The answer was lost, or the cloud had a problem of its own: the same request again.
    Transient,
}
