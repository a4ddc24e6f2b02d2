//! Whereabouts' dialect, as far as it decides and does nothing: no I/O, no async, no client.
//!
//! | module | owns |
//! |---|---|
//! | [`config`] | CNI configuration, flat file and CNI arguments → what is to be done, or a refusal at once |
//! | [`ledger`] | `IPPool`s and reservations of overlapping ranges ↔ who holds what; waiting requests → one write an object |
//! | [`slices`] | attachment definitions, nodes and what is held → `NodeSlicePool`s, conditions and events |
//! | [`reconcile`] | pools and living pods → what nobody uses any more, after two looks |
//!
//! Addresses are decided by `tenure-ipam`, objects are those of `tenure-api`, and what goes over the wire is
//! `tenure-cni`'s. The agent and the controller bring the I/O.

pub mod config;
pub mod ledger;
pub mod reconcile;
pub mod slices;

#[cfg(test)]
mod planted;

pub use config::{Config, ConfigError, Refusal};
