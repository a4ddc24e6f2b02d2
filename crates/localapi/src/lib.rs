//! The Kubernetes API for one host, in one process.
//!
//! [`LocalApi`] is a `tower::Service` that answers the part of the Kubernetes API that Tenure uses, from a
//! single redb file, so that `kube::Client::new(LocalApi::open(…)?, "default")` gives reconcilers and agents a
//! control plane without a cluster.
//!
//! # What it promises
//!
//! - What it acknowledged is on disk. Killed at any moment and reopened, nothing acknowledged is missing and
//!   resource versions never go back.
//! - What it shows is on disk, too: a read or a watch never sees a write that a crash could undo.
//! - No request makes it panic; what it cannot do it refuses with the `Status` that kube-apiserver would send.

mod crd;
mod discovery;
mod names;
mod openapi;
mod patch;
mod schema;
mod selector;
mod service;
mod status;
mod table;

pub use service::{LocalApi, OpenError, ResponseBody};
