//! Egress: packets of client pods leave the cluster through gateways, which give them an address of their own.
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
//! There are two datapaths with one wire format, that of Coil: Foo-over-UDP by the kernel, where it has the modules for it,
//! and the same packets by programs on the interfaces, where not. [`Datapath::detect`] says which one a kernel can do. A
//! client and a gateway need not have the same.
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

/// The port that tunnels send to and receive at.
pub const FOU_PORT: u16 = 5555;
/// The time to live of outer packets.
const TTL: u8 = 225;
/// Table of destinations inside of the networks that are routed directly otherwise.
pub const NARROW_TABLE: u32 = 117;
/// Table of all other destinations.
pub const WIDE_TABLE: u32 = 118;
const MAIN_TABLE: u32 = 254;
/// Protocol number of our routes and rules, as of those on a node.
const PROTOCOL: u8 = 30;
