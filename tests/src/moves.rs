//! What tests of addresses that move share: hosts with an agent each, a controller, pods, and traffic that lives through a move.

mod stage;
mod traffic;

pub use stage::{NAMESPACE, Network, Placed, Stage, figures, insist, now, plugins, say};
pub use traffic::{Blackouts, Traffic, resets};
