//! Unary gRPC over a unix socket, both ends of it.
//!
//! A call from the plugin to the agent is one message there and one back, over a connection that is made for it. General
//! implementations spend more on the connection than the agent spends on deciding; here both ends are made for that one call,
//! and are correct with any other peer that keeps to HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC.
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | one call, blocking: what a program needs that lives for a millisecond |
//! | [`server`] | a connection as a state machine: bytes and answers in, calls and bytes out; whoever drives it does the I/O |
//!
//! Frames and header compression are the same code for both.

pub mod client;
mod frame;
mod hpack;
pub mod server;
mod status;

pub use client::{CallError, UnaryCall};
pub use status::{Code, Status};

/// The largest message that either end takes: a configuration of 1 MiB is refused with words, and these need to get through.
pub const LARGEST_MESSAGE: usize = 4 << 20;

/// What every message has in front: whether it is compressed, and its length.
const MESSAGE_PREFIX: usize = 5;
