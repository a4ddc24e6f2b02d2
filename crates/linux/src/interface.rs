//! The node's own interfaces, where nothing else manages them: up, MTU, static addresses and routes.
//!
//! ```text
//!   read ──▶ state ──▶ steps (without I/O) ──▶ change ──▶ read ──▶ differences
//!                                                 └─ failure ──▶ restore what was before
//! ```
//!
//! What it promises:
//!
//! - Only what is ours is changed or removed: addresses and routes that carry our mark, or that the caller has on record.
//!   Addresses of others stay, also those that the kernel would remove together with one of ours.
//! - What it says about an interface is what the kernel lists, never what was asked for.
//! - If the kernel refuses something, all interfaces of the plan return to what they had.
//!
//! What is not obvious:
//!
//! - The kernel removes all further addresses of a network (`secondary`) with its first one, unless `promote_secondaries` is
//!   set. So it is set meanwhile, and those addresses are put back in the same message, which changes nothing if they stayed.
//! - An address is deleted before another of its network is added: added first, it would be such a further one.
//! - Deleting needs `IFA_LOCAL`: with `IFA_ADDRESS` alone the kernel takes the first address of the network.
//! - A route is never replaced: replacing finds routes of others with the same destination and metric, too.

mod apply;
mod plan;
mod state;
#[cfg(test)]
mod tests;

pub use apply::{Error, apply, restore, set_up};
pub use plan::{Difference, InterfacePlan, PlannedRoute};
pub use state::{Detection, InterfaceAddress, InterfaceRoute, InterfaceState, read, read_all, read_whole};

/// The mark of our addresses (`IFA_PROTO`, since Linux 5.18) and routes (`RTA_PROTOCOL`).
pub const MARK: u8 = 32;
