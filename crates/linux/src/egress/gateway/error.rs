//! Errors of gateways.

use super::super::client;
use crate::{socket, sysctl};

/// Why a gateway could not be prepared, started or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pod's network was not prepared for a gateway.
    #[error(
        "this network was not prepared for a gateway: it has no devices fou4 and fou6, and the kernel has no \
         Foo-over-UDP (module fou); tenured prepares it on nodes where egress is enabled"
    )]
    NotPrepared,
    /// Forwarding is off, and a container cannot change that.
    #[error(
        "this network was not prepared for a gateway: forwarding is off, and cannot be switched on here; tenured \
         prepares it on nodes where egress is enabled"
    )]
    Forwarding(#[source] sysctl::Error),
    /// Another error.
    #[error(transparent)]
    Setup(#[from] client::Error),
}

impl Error {
    /// What this error means for the caller.
    pub fn kind(&self) -> socket::Kind {
        match self {
            Self::NotPrepared | Self::Forwarding(_) => socket::Kind::Retry,
            Self::Setup(error) => error.kind(),
        }
    }
}
