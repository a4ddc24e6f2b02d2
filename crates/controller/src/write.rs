//! Writes, and why those of a deposed leader do nothing.
//!
//! A write is data: which object at which version, what to change, which live reads have to agree first, and which
//! events to publish afterwards. Each part has its own enumeration of writes ([`Operation`]); the executor knows only
//! verb, object and rank of one.
//!
//! Every write is a compare-and-swap on the version that the decision was based on, or a creation whose name is the
//! lock, or idempotently completes such a decision. So a write of a deposed leader conflicts.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt};

use crate::events::Note;
use crate::world::World;

/// An object at the version that a decision was based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub version: String,
}

impl At {
    /// The object as the decision saw it.
    pub fn of(object: &impl Resource) -> Self {
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
        }
    }
}

/// The order in which the writes of a plan start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Traffic waits for it.
    Traffic,
    /// A node or a pod waits for it.
    Request,
    /// Somebody will need it.
    Record,
    /// Nothing waits for it, and there may be thousands.
    Status,
}

/// A write of some part.
pub trait Operation: Any + Debug + Send + Sync {
    /// The name of its part, which performs it.
    fn part(&self) -> &'static str;

    /// One word for what it does.
    fn verb(&self) -> &'static str;

    /// Its object, the same for repeated attempts: the UID, or the name of an object that does not exist yet.
    fn subject(&self) -> &str;

    /// Its rank.
    fn rank(&self) -> Rank {
        Rank::Record
    }

    /// Writes with the same word here depend on each other although their objects differ: those of a later plan wait
    /// for those of an earlier one.
    fn sequence(&self) -> Option<&'static str> {
        None
    }

    /// How long its object is not written in the same way again: for news for people on an object that every node watches.
    fn pace(&self, _: &World) -> Duration {
        Duration::ZERO
    }

    /// The events once it is done; `world` is the state before it.
    fn notes(&self, _: &World) -> Vec<Note> {
        Vec::new()
    }

    /// The events once it is done; `world` is the state after it.
    fn notes_after(&self, _: &World) -> Vec<Note> {
        Vec::new()
    }
}

/// One write to the API.
#[derive(Clone, Debug)]
pub struct Write(Arc<dyn Operation>);

impl<O: Operation> From<O> for Write {
    fn from(operation: O) -> Self {
        Self(Arc::new(operation))
    }
}

impl std::ops::Deref for Write {
    type Target = dyn Operation;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// The operation, if it is one of this part.
pub fn of<O: Operation>(operation: &dyn Operation) -> Option<&O> {
    (operation as &dyn Any).downcast_ref()
}

impl Write {
    /// The operation, if it is one of this part.
    pub fn of<O: Operation>(&self) -> Option<&O> {
        of(&*self.0)
    }
}

#[cfg(test)]
impl PartialEq for Write {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}
