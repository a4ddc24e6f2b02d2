//! Test hosts: machines that are made of Linux namespaces.
//!
//! A [`Host`] is a network namespace with a name. Hosts are connected by a [`Segment`] (an Ethernet
//! switch) or by a [`link`] (a cable between two of them); a closure or a command runs inside; a
//! [`Capture`] sees the packets.
//!
//! ```no_run
//! # fn main() -> Result<(), tenure_testbed::hosts::HostError> {
//! use tenure_testbed::hosts::{Host, Segment};
//! let (left, right) = (Host::new("left")?, Host::new("right")?);
//! let wire = Segment::new("wire")?;
//! wire.connect(&left, "eth0", &["192.0.2.1/24"])?;
//! wire.connect(&right, "eth0", &["192.0.2.2/24"])?;
//! left.ping("192.0.2.2".parse().unwrap(), std::time::Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! # Who cleans up
//!
//! The kernel does, so that it also happens after a panic and after a SIGKILL:
//!
//! - Network namespaces have no name in the file system; they live as long as a file descriptor of
//!   this process or a process inside. Switches are in namespaces of their own, so nothing shows in
//!   the namespace that the test was started in.
//! - Commands run in a PID namespace of their host. Its first process waits for the end of a pipe
//!   that only this process holds open, and when the first process of a PID namespace ends, the kernel
//!   kills all others (see `lifeline.rs`). The host's mounts are in a mount namespace that ends with them.

mod capture;
mod child;
mod error;
mod host;
pub(crate) mod lifeline;
mod namespace;
mod packet;
mod ping;
mod segment;

pub use capture::Capture;
pub use child::{HostChild, HostCommand};
pub use error::HostError;
pub use host::Host;
pub use lifeline::Mounts;
pub use namespace::NetworkNamespace;
pub use packet::{Arp, ArpOperation, Direction, Ip, MacAddress, Packet, Payload};
pub use segment::{Port, Segment, link};
