//! What a node agent tells of itself as JSON at `/v1/node`: written by the agent, read by the command line and by anyone
//! else who is curious.
//!
//! What it promises: fields have camelCase names, times are RFC 3339 in UTC, addresses and networks are in their usual text.
//! Fields may be added, and none changes its meaning; a reader ignores what it does not know, and takes what is missing
//! for none, so that agent and command line need not be of the same version.

mod block;
mod hold;
mod node;
#[cfg(test)]
mod tests;

pub use block::{Block, Counts, Pool};
pub use hold::{Claim, Cooling, Hold, Holder, Pod, Traffic, Waiting};
pub use node::{Api, Difference, Journal, Kernel, Node, Watch};

/// Where it is told.
pub const PATH: &str = "/v1/node";
/// The socket in the agent's run directory where it is told to root on the same host.
pub const SOCKET: &str = "state.sock";
/// The agent's port for health, metrics and this.
pub const PORT: u16 = 9384;
