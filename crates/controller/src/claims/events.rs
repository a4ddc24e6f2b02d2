//! Events about claims, their pods and their owners.

mod moves;
mod owners;
mod records;

pub(super) use moves::{crowded, definition_refused, not_allowed, of_move, unreadable_signal};
pub(super) use owners::{of_machine, of_stateful_set};
pub(super) use records::of_claim;
