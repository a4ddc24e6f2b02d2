//! Access to the kernel. Only this crate of Tenure touches it.
//!
//! # What is where
//!
//! - [`Host`] is a node's network namespace with the [`Settings`] that apply; almost everything starts from it.
//! - [`pod`] sets up a pod's interface from a plan and takes it out of service; [`reaper`] deletes it.
//! - [`inventory`] lists our objects in the kernel; [`routes`] verifies and repairs the routes to pods; [`rule`] directs
//!   packets to them.
//! - [`export`] is the table that a routing daemon reads; [`remote`] routes to other nodes without one; [`announce`] informs
//!   neighbours on a segment, [`answering`] controls whether an interface answers them, and [`probe`] asks them.
//! - [`egress`] sends pods' packets through gateways; [`bpf`] assembles and loads the programs for it; [`conntrack`] counts a
//!   gateway's connections.
//! - [`removal`] takes everything of ours out of the kernel.
//! - [`interface`] gives the node's own interfaces addresses and routes, and takes them away again.
//! - [`uplink`] and [`sysctl`] read what a node already has; [`memory`] tells whether a file is in memory.
//! - [`survey`] finds the addresses of all network namespaces of a machine, whoever created the interfaces.
//! - [`segment`] connects hosts that are network namespaces, to run several nodes on one machine.
//! - Below them: [`netns`] and [`socket`], and the objects [`link`](mod@link), [`address`], [`route`] and [`policy`].
//!
//! # What it promises
//!
//! - It runs no other program, and never leaves a caller's thread in another namespace.
//! - It is synchronous. The kernel changes links one after the other anyway, so a caller uses one thread for many requests.
//! - Setup and teardown of a pod list nothing, because a concurrent change can interrupt a list.
//! - An error names the request and carries the kernel's own explanation; `kind()` tells whether a retry can help.
//!
//! # What it costs
//!
//! Measured on two busy cores: setting up a pod's interface with both families takes 0.5 ms (0.35 ms with IPv4 alone), and
//! taking it out of service 0.06 ms. Deleting a hundred links together takes 33 ms, against 16 ms for each alone; meanwhile one
//! setup waits 15 ms and the others are not delayed. With a thousand pods on the host a setup takes twice as long, because the
//! kernel keeps some objects of all links in common lists.

pub mod address;
pub mod announce;
pub mod answering;
pub mod bpf;
mod causes;
pub mod conntrack;
pub mod egress;
pub mod ethtool;
pub mod export;
mod generic;
pub mod host;
pub mod interface;
pub mod inventory;
pub mod link;
mod mac;
pub mod memory;
mod neighbour;
pub mod netns;
mod nft;
pub mod pod;
pub mod policy;
pub mod probe;
pub mod reaper;
mod reconcile;
pub mod remote;
pub mod removal;
pub mod route;
pub mod routes;
pub mod rule;
pub mod segment;
pub mod settings;
pub mod socket;
pub mod survey;
pub mod sysctl;
mod tc;
pub mod uplink;

pub use causes::chain;
pub use host::Host;
pub use mac::{Mac, NotAMac};
pub use reconcile::Changes;
pub use settings::Settings;
