//! Errors of traffic.

use std::io;
use std::net::SocketAddr;

use super::Strange;
use crate::hosts::HostError;

/// A failed operation, and why.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The kernel refused something.
    #[error("{act} of {with}: {source}")]
    Refused {
        /// The operation, as a noun phrase.
        act: &'static str,
        /// The connection or the socket.
        with: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A connection that is not established cannot be frozen.
    #[error("freezing the connection to {peer}: its state is {state}, and only 1 (established) can be moved")]
    State {
        /// The other end.
        peer: SocketAddr,
        /// The kernel's number of the state.
        state: u8,
    },
    /// The bytes are not those that were sent.
    #[error("from {peer}: {strange}")]
    Strange {
        /// The other end.
        peer: SocketAddr,
        /// Which byte, and its value.
        strange: Strange,
    },
    /// The connection ended too early.
    #[error("{peer} ended after {received} bytes")]
    Ended {
        /// The other end.
        peer: SocketAddr,
        /// How many bytes had arrived.
        received: u64,
    },
    /// The thread that talks has panicked.
    #[error("talking to {0} panicked")]
    Panicked(SocketAddr),
    /// A namespace could not be entered.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl TrafficError {
    /// For `map_err`.
    pub(super) fn refused<E: Into<io::Error>>(
        act: &'static str,
        with: impl ToString,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Refused { act, with: with.to_string(), source: source.into() }
    }
}
