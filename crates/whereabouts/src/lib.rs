//! The decisions of Whereabouts' dialect: no I/O, no async, no client.
//!
//! | module | owns |
//! |---|---|
//! | [`config`] | CNI configuration, flat file and CNI arguments → the effective configuration, or an immediate refusal |
//! | [`ledger`] | `IPPool`s and reservations of overlapping ranges ↔ holders; waiting requests → one write per object |
//! | [`slices`] | attachment definitions, nodes and holds → `NodeSlicePool`s, conditions and events |
//! | [`reconcile`] | pools and live pods → unused records, after two observations |
//!
//! `tenure-ipam` decides addresses, `tenure-api` has the objects, and `tenure-cni` the wire format. The agent
//! and the controller do the I/O.

pub mod config;
pub mod ledger;
pub mod reconcile;
pub mod slices;

#[cfg(test)]
mod planted;

pub use config::{Config, ConfigError, Refusal};
