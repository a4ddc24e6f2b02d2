//! Egress: packets of client pods leave the cluster through gateways, which masquerade them.
//!
//! ```text
//!  client pod's namespace                       gateway pod's namespace
//!
//!  rule 1900: table 117, narrow destinations    eth0: packets of clients come out of their tunnels,
//!  rule 2000…: private networks: main           are forwarded and masqueraded,
//!  rule 2100: table 118, wide destinations      and what comes back goes into the client's tunnel
//!      │
//!      ▼            IP in UDP, port 5555
//!  tunnel ═══════════════════════════════════▶  tunnel ──▶ outside
//!          to the Service's ClusterIP
//! ```
//!
//! There are two datapaths with one wire format, Coil's: the kernel's own Foo-over-UDP where its modules exist,
//! otherwise BPF programs on the interfaces. [`Datapath::detect`] tells which one a kernel supports. A client and a
//! gateway need not use the same.
//!
//! - [`client`] is the side of a pod: a [`ClientPlan`], which is a plain value, becomes rules, routes and tunnels, and
//!   changed plans become the fewest changes.
//! - [`gateway`] is the other side: [`prepare`](gateway::prepare()) is the agent's part of it, and a
//!   [`Gateway`](gateway::Gateway) is what serves whoever is a client.

mod answers;
pub mod client;
mod datapath;
mod decapsulate;
mod devices;
mod encapsulate;
mod family;
mod fou;
pub mod gateway;
mod masquerade;
mod modules;
mod places;
mod plan;
mod programs;
mod state;
#[cfg(test)]
mod tests;

pub use self::datapath::{Datapath, Missing};
pub use self::family::Family;
pub use self::masquerade::Counted;
pub use self::modules::load as load_modules;
pub use self::plan::{ClientPlan, DIRECT, Egress, InvalidPlan, SourcePort};

/// The UDP port of tunnels.
pub const FOU_PORT: u16 = 5555;
/// The time to live of outer packets.
const TTL: u8 = 225;
/// Table of destinations inside the networks that are otherwise routed directly.
pub const NARROW_TABLE: u32 = 117;
/// Table of all other destinations.
pub const WIDE_TABLE: u32 = 118;
const MAIN_TABLE: u32 = 254;
/// Protocol number of our routes and rules, the same as on a node.
const PROTOCOL: u8 = 30;
