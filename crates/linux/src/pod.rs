//! A pod's interface: set up from a plan, which is a plain value, and taken out of service again.
//!
//! ```text
//!  host namespace                                 │ pod namespace
//!                                                 │
//!  rule 2000: lookup 116                          │  10.2.0.7/32, fd01::7/128 on eth0
//!  table 116: 10.2.0.7 dev tnr5e…                 │  169.254.1.1 dev eth0
//!             fd01::7  dev tnr5e…                 │  default via 169.254.1.1
//!                                  veth pair      │  default via fe80::1
//!  tnr5e…: 169.254.1.1/32, fe80::1/64 ────────────┼─ eth0
//! ```
//!
//! Both sides have neighbour entries from the start, so the first packet needs no resolution. IPv6 addresses are usable at
//! once: we assign the addresses of both ends, so duplicate address detection is not needed.

mod check;
mod destroy;
mod identity;
mod messages;
mod name;
mod plan;
mod reach;
mod setup;
#[cfg(test)]
mod tests;

pub use self::check::{CheckError, Difference, check};
pub use self::destroy::{Destroyed, destroy, discard};
pub use self::identity::{Identity, InvalidIdentity, Truncated};
pub use self::name::host_name;
pub use self::plan::{InvalidPlan, PodPlan};
pub use self::reach::{Reached, reach, withdraw};
pub use self::setup::{SetupError, Wired, setup};
