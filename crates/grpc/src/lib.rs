//! Unary gRPC over a unix socket, both ends.
//!
//! A call from the plugin to the agent is one message in each direction, over a connection made for it.
//! General implementations spend more time on the connection than the agent spends on the decision. Here both
//! ends are made for that one call, and are correct with any other peer that follows HTTP/2 (RFC 9113), HPACK
//! (RFC 7541) and gRPC.
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | one blocking call: for a program that lives for a millisecond |
//! | [`server`] | a connection as a state machine: bytes and answers in, calls and bytes out; its driver does the I/O |
//!
//! Both share the code for frames and header compression.

pub mod client;
mod frame;
mod hpack;
pub mod server;
mod status;

pub use client::{CallError, UnaryCall};
pub use status::{Code, Status};

/// The largest message that either end accepts: a configuration of 1 MiB is refused with a readable error, so
/// it must get through.
pub const LARGEST_MESSAGE: usize = 4 << 20;

/// The size of a message's prefix: whether it is compressed, and its length.
const MESSAGE_PREFIX: usize = 5;
