//! The kernel, and nothing but the kernel: this is the only crate of Tenure that touches it.
//!
//! # What is where
//!
//! - [`Host`] is a node's network namespace with the [`Settings`] that apply; almost everything starts from it.
//! - [`pod`] makes a pod's interface from a plan and takes it away again; [`reaper`] deletes what was taken away.
//! - [`inventory`] says what the kernel has of ours; [`routes`] verifies and repairs the routes to pods; [`rule`] leads
//!   packets to them.
//! - [`export`] is the table that a routing daemon reads; [`remote`] routes to other nodes without one; [`announce`]
//!   tells neighbours on a segment, and [`answering`] says whether an interface answers them.
//! - [`uplink`] and [`sysctl`] are what a node already has; [`memory`] says whether a file waits for no disk.
//! - [`survey`] finds the addresses of all network namespaces of a machine, whoever made the interfaces.
//! - [`segment`] connects hosts that are made of namespaces, to show or try nodes on one machine.
//! - Below them: [`netns`] and [`socket`], and the objects [`link`](mod@link), [`address`] and [`route`].
//!
//! # What it promises
//!
//! - No program is run, and no thread of a caller changes its namespace.
//! - It is synchronous. The kernel changes links one after the other anyway, so a caller with many wishes keeps one thread
//!   for them.
//! - Nothing on the way of setting up or destroying a pod lists anything, so that no list can be interrupted.
//! - An error names what was asked for and carries the kernel's own explanation; `kind()` says whether to try again.
//!
//! # What it costs
//!
//! Measured on two busy cores: a pod's interface with both families 0.5 ms (0.35 ms with IPv4 alone), taking it out of
//! service 0.06 ms, deleting a hundred of them together 33 ms, against 16 ms for each alone; while that goes on, one setup
//! waits 15 ms and the others do not notice. With a thousand pods on the host a setup takes twice as long, because the
//! kernel keeps what all of their links have in common in lists.

pub mod address;
pub mod announce;
pub mod answering;
pub mod export;
pub mod host;
pub mod inventory;
pub mod link;
mod mac;
pub mod memory;
mod neighbour;
pub mod netns;
pub mod pod;
pub mod reaper;
mod reconcile;
pub mod remote;
pub mod route;
pub mod routes;
pub mod rule;
pub mod segment;
pub mod settings;
pub mod socket;
pub mod survey;
pub mod sysctl;
pub mod uplink;

pub use host::Host;
pub use mac::{Mac, NotAMac};
pub use reconcile::Changes;
pub use settings::Settings;
