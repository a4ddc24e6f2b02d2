//! The JSON that a node agent serves at `/v1/node` and `/v1/history`: the agent writes it; the command line and other programs
//! read it.
//!
//! It promises that fields have camelCase names, times are RFC 3339 in UTC, and addresses and networks have
//! their usual text form. Fields may be added, and none changes its meaning. A reader ignores unknown fields
//! and treats missing ones as empty, so agent and command line need not have the same version.

mod block;
mod history;
mod hold;
mod node;
#[cfg(test)]
mod tests;

pub use block::{Block, Counts, Pool};
pub use history::{End, Gap, GapKind, HISTORY_PATH, Had, History, Period};
pub use hold::{Claim, Cooling, Hold, Holder, Pod, Traffic, Waiting};
pub use node::{
    Api, Calls, Difference, Egress, Journal, Kernel, Node, NodeAddress, NodePolicy, SlowAdd, Watch,
};

/// The path of the page.
pub const PATH: &str = "/v1/node";
/// The socket in the agent's run directory where root on the same host reads it.
pub const SOCKET: &str = "state.sock";
/// The agent's port: health and metrics for everybody, and this page for those with the right.
pub const PORT: u16 = 9384;

/// The header for the caller's token at the port. The API server's proxy removes the usual one.
pub const TOKEN_HEADER: &str = "tenure-token";
/// The service account in the agents' namespace whose tokens they accept, if a role allows it [`GROUP`],
/// [`RESOURCE`] and [`SUBRESOURCE`].
pub const VIEWER: &str = "tenure-viewer";
/// The right that a caller needs, in the terms of roles: `get` of `nodes/view` of the group `tenure`, with
/// the node's name.
pub const GROUP: &str = "tenure";
/// The resource.
pub const RESOURCE: &str = "nodes";
/// The subresource.
pub const SUBRESOURCE: &str = "view";

/// The audience of tokens for the agent of a node. It names one node, so that no node can use at another a
/// token that it received.
pub fn audience(node: &str) -> String {
    format!("tenured/{node}")
}
