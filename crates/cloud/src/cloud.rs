//! What a cloud must offer. Google's, AWS and Azure all do, in three ways: `docs/clouds.md` shows how each fits.

use std::collections::BTreeSet;

use futures::future::BoxFuture;

use crate::error::CloudError;
use crate::interface::{AliasRange, InterfaceId};

/// A cloud. Every call is one request; nothing is retried here, because the caller has the budget.
pub trait Cloud: Send + Sync {
    /// Reads an interface.
    fn observe<'a>(&'a self, interface: &'a InterfaceId) -> BoxFuture<'a, Result<Observed, CloudError>>;

    /// Changes an interface. The same request may be sent again: a cloud performs it once.
    fn apply<'a>(&'a self, update: &'a Update) -> BoxFuture<'a, Result<Ticket, CloudError>>;

    /// Follows a change.
    fn poll<'a>(
        &'a self,
        interface: &'a InterfaceId,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Progress, CloudError>>;

    /// A change of the machine that is still under way: what the controller before this one asked for.
    fn unfinished<'a>(
        &'a self,
        interface: &'a InterfaceId,
    ) -> BoxFuture<'a, Result<Option<Ticket>, CloudError>>;

    /// Looks for the interface of the region that has a range, on one page of what the cloud lists.
    fn owner<'a>(
        &'a self,
        region: &'a str,
        range: &'a AliasRange,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Owner, CloudError>>;
}

/// Who has a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This interface.
    Interface(InterfaceId),
    /// None, as far as the list goes.
    Nobody,
    /// None of this page; the next is this one.
    NextPage(String),
}

/// An interface as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Its alias ranges, those of others included.
    pub aliases: BTreeSet<AliasRange>,
    /// The version that an update must name.
    pub version: String,
    /// So many alias ranges this interface can have, of whatever size. In some clouds that depends on the machine.
    pub limit: usize,
}

/// A change of an interface: either additions or removals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The interface.
    pub interface: InterfaceId,
    /// Its whole list afterwards. Empty means that the last range goes.
    pub aliases: BTreeSet<AliasRange>,
    /// What is added to what was read.
    pub added: BTreeSet<AliasRange>,
    /// What is removed from what was read.
    pub removed: BTreeSet<AliasRange>,
    /// The version that was read.
    pub version: String,
    /// A UUID by which the cloud recognises the same request.
    pub request: String,
}

/// A change under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket(pub String);

/// How far a change is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Under way.
    Running,
    /// Done, as far as the cloud's records go. Packets may follow later.
    Done,
    /// It changed nothing.
    Failed(CloudError),
}
