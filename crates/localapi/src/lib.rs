//! The Kubernetes API for one host, in one process.
//!
//! [`LocalApi`] is a `tower::Service` that answers the part of the Kubernetes API that Tenure uses, from a
//! single redb file, so that `kube::Client::new(LocalApi::open(…)?, "default")` gives reconcilers and agents a
//! control plane without a cluster. [`Server`] puts the same on a unix socket or a loopback port for `kubectl`.
//!
//! # What it promises
//!
//! - Acknowledged writes are on disk. If it is killed at any moment and reopened, nothing acknowledged is missing and
//!   resource versions never go back.
//! - Visible writes are on disk, too: a read or a watch never shows a write that a crash could undo.
//! - No request makes it panic; an unsupported request gets the `Status` that kube-apiserver would send.
//!
//! Where it differs from kube-apiserver on purpose is in the table of this crate's `README.md`.

mod core;
mod crd;
mod decode;
mod definitions;
mod discovery;
mod dispatch;
mod garbage_collector;
mod json;
mod kinds;
mod list;
mod meta;
mod names;
mod openapi;
mod owners;
mod patch;
mod present;
mod registry;
mod request;
mod respond;
mod scale;
mod schema;
mod selector;
mod server;
mod service;
mod status;
mod store;
mod table;
mod watch;
mod write;

pub use respond::ResponseBody;
pub use server::{ServeError, Server};
pub use service::{LocalApi, Options};
pub use store::{Durability, OpenError};
