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
/// The agent's port: health and metrics for everybody, and this for those who are allowed.
pub const PORT: u16 = 9384;

/// The header of the token of whoever asks at the port. The API server's proxy takes the usual one away.
pub const TOKEN_HEADER: &str = "tenure-token";
/// The service account in the agents' namespace whose tokens they accept, if a role lets it [`GROUP`], [`RESOURCE`] and [`SUBRESOURCE`].
pub const VIEWER: &str = "tenure-viewer";
/// What one must be allowed to `get`, as roles say it: `nodes/view` of the group `tenure`, with the node's name.
pub const GROUP: &str = "tenure";
/// The resource.
pub const RESOURCE: &str = "nodes";
/// The subresource.
pub const SUBRESOURCE: &str = "view";

/// The audience of tokens for the agent of a node. It is of one node, so that no node can use at another what it was shown.
pub fn audience(node: &str) -> String {
    format!("tenured/{node}")
}
