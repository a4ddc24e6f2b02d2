//! A pod's interface: from a plan, which is a plain value, to a link with addresses and routes, and away again.
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
//! Neither side asks who has which address before the first packet: both know it from the start. IPv6 addresses are
//! usable at once, because duplicate address detection cannot find anything on a link with two ends that both got
//! their addresses from us.

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
