//! The seam: what a dialect of CNI configurations is to the agent.
//!
//! A [`Dialect`] says which configurations are its own, and answers the verbs for them.
//! [`Service`](super::Service) asks its dialects in order and calls the first one that says yes. A dialect
//! gets addresses from these sources, all in terms of an opaque [`HoldKey`](crate::HoldKey):
//!
//! | source | reached by | survives a restart |
//! |---|---|---|
//! | blocks of this node, of any [`BlockSource`](crate::sources::BlockSource) | [`Call::hold`] with a pool | in the node's journal |
//! | claims, and other addresses that are named in advance | [`Call::hold`] with [`Attach::claim_use`](crate::node::Attach::claim_use) | in the node's journal |
//! | ledgers that nodes share | [`Ledgers`](crate::whereabouts::ledgers::Ledgers) | in the API, and recorded on this node |
//!
//! So a dialect itself needs to remember nothing across restarts. Two parts remember what is no address that they gave: egress after
//! another plugin has a file for each attachment, which a reboot deletes (`egress/attachments.rs`), and node addresses have
//! `node-addresses.json`, which survives a reboot (`node_addresses/record.rs`). A DEL that cannot be done now becomes a
//! file until it is done ([`Deleted::Later`]). A failed ADD leaves nothing: the agent releases what
//! [`Call::hold`] held for it.

use std::fmt::Debug;

use futures::future::BoxFuture;
use tenure_cni::{CniResult, Failure, NetworkConfig};

use super::call::Call;

/// A future answer to a call.
pub type Answered<'a, T = ()> = BoxFuture<'a, Result<T, Failure>>;

/// A dialect of CNI configurations.
pub trait Dialect: Debug + Send + Sync + 'static {
    /// Which configurations are its own, as text for the error when no dialect accepts one.
    fn accepts(&self) -> &str;

    /// Whether a configuration is its own.
    fn is_for(&self, network: &NetworkConfig) -> bool;

    /// ADD. A repeated one has the same result.
    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult>;

    /// DEL. Nothing to delete is a success.
    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted>;

    /// CHECK.
    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;

    /// GC. [`Call::collect`] does this for all holds of the node.
    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;

    /// STATUS: whether an ADD could be served.
    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;
}

/// The result of a DEL.
#[derive(Debug)]
pub enum Deleted {
    /// It is done.
    Done,
    /// It cannot be done now, for this reason. The service records it and does it later.
    Later(Failure),
}
