//! The Kubernetes kinds that Tenure reads and writes, one module a group, with their rules and names.
//!
//! What this crate promises:
//!
//! - The kinds have the groups, versions, fields, defaults and names of the systems whose APIs we speak, so that
//!   manifests written for those apply unchanged. Fields of ours are optional and come after.
//! - Validation exists once: as rules in the schema (`x-kubernetes-validations`). A kube-apiserver enforces them,
//!   and the embedded server enforces the same text. There is no second validator in Rust to disagree with it.
//! - [`crds`] returns the definitions to install; `deploy/crds/` holds the same as files. In a cluster those of [`claims`] and the
//!   two that [`nmstate`] shares with others are installed only where they are missing.
//!   Use these and not the `crd()` of a single kind, which lacks the finishing of [`definitions`].
//! - No object makes another one unreadable: what others write is read one object at a time, see [`read`].
//! - What a schema cannot see, pools that overlap each other, is decided by the pure function [`overlap::overlaps`].

pub mod claims;
pub mod cloud;
pub mod coil;
pub mod definitions;
pub mod digest;
pub mod drain;
#[cfg(any(test, feature = "testing"))]
pub mod examples;
mod expressions;
pub mod names;
pub mod networks;
pub mod nmstate;
pub mod overlap;
pub mod read;
pub mod release;
pub mod whereabouts;

pub use definitions::{crd_of, crds};
