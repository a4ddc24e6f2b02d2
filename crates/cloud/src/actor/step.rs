//! What an actor asks for, what it is answered, and what it says about a range.

use tenure_handles::Timestamp;

use crate::budget::RequestKind;
use crate::cloud::{Observed, Owner, Progress, Ticket, Update};
use crate::error::CloudError;
use crate::interface::AliasRange;

/// A request to the cloud. Every one is answered by [`Actor::answer`], whatever happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find an operation of the leader before.
    Unfinished,
    /// Read the interface.
    Observe,
    /// Change it.
    Apply(Update),
    /// Follow the change.
    Poll(Ticket),
    /// Find the interface that has a range, on this page of the cloud's list, or on the first.
    Owner(AliasRange, Option<String>),
}

impl Action {
    /// What it is counted as.
    pub fn kind(&self) -> RequestKind {
        if matches!(self, Self::Apply(_)) { RequestKind::Write } else { RequestKind::Read }
    }
}

/// What became of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Action::Unfinished`].
    Unfinished(Result<Option<Ticket>, CloudError>),
    /// Of [`Action::Observe`].
    Observed(Result<Observed, CloudError>),
    /// Of [`Action::Apply`].
    Applied(Result<Ticket, CloudError>),
    /// Of [`Action::Poll`].
    Polled(Result<Progress, CloudError>),
    /// Of [`Action::Owner`].
    Owner(Result<Owner, CloudError>),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This request.
    Do(Action),
    /// Nothing before this time.
    Until(Timestamp),
    /// Nothing before something else happens.
    Nothing,
}

/// Where a range is, as seen from one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Neither wanted nor there.
    Absent,
    /// Wanted, and being added.
    Attaching,
    /// Wanted and there.
    Attached,
    /// Wanted, and not added because of this. It is tried again.
    Refused(String),
    /// Not wanted, and being removed.
    Detaching,
}
