//! The seam: what a dialect of CNI configurations is to the agent.
//!
//! A [`Dialect`] says which configurations are its own, and answers the verbs for them. [`Service`](super::Service) asks
//! its dialects in order and calls the first that says yes. A dialect gets addresses from three sources, all in terms of
//! an opaque [`HoldKey`](crate::HoldKey):
//!
//! | source | reached by | survives a restart |
//! |---|---|---|
//! | blocks of this node | [`Call::hold`] with a pool | in the node's journal |
//! | claims, and other addresses that are named in advance | [`Call::hold`] with [`Attach::claim_use`](crate::node::Attach::claim_use) | in the node's journal |
//! | ledgers that nodes share | [`Ledgers`](crate::whereabouts::ledgers::Ledgers) | in the API, and noted on this node |
//!
//! So a dialect itself has nothing to remember over a restart. A DEL that cannot be done now is a file until it is done
//! ([`Deleted::Later`]). An ADD that fails leaves nothing: what [`Call::hold`] gave for it is taken back.

use std::fmt::Debug;

use futures::future::BoxFuture;
use tenure_cni::{CniResult, Failure, NetworkConfig};

use super::call::Call;

/// The answer to a call, when it is there.
pub type Answered<'a, T = ()> = BoxFuture<'a, Result<T, Failure>>;

/// A dialect of CNI configurations.
pub trait Dialect: Debug + Send + Sync + 'static {
    /// Which configurations are its own, in words, for those whose configuration nobody takes.
    fn accepts(&self) -> &str;

    /// Whether a configuration is its own.
    fn is_for(&self, network: &NetworkConfig) -> bool;

    /// ADD. A repeated one gives the same.
    fn add<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, CniResult>;

    /// DEL. Nothing to delete is a success.
    fn del<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a, Deleted>;

    /// CHECK.
    fn check<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;

    /// GC. [`Call::collect`] does what is to be done for all that the node holds.
    fn gc<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;

    /// STATUS: whether an ADD could be served.
    fn status<'a>(&'a self, call: &'a Call<'a>) -> Answered<'a>;
}

/// What became of a DEL.
#[derive(Debug)]
pub enum Deleted {
    /// It is done.
    Done,
    /// It cannot be done now, for this reason. The service writes it down and does it later.
    Later(Failure),
}
