//! What the controller writes, and why a deposed leader's writes do nothing.
//!
//! A write is data: which object at which version, what is to become of it, which live reads have to agree before, and what
//! people are told after. Each part has an enumeration of its own writes ([`Operation`]); the executor knows no more of one than
//! its verb, its object and its rank.
//!
//! Every write is a compare-and-swap on the version that the decision was based on, or a creation whose name is the lock, or
//! completes, idempotently, what such a write has decided. So a write of a leader that was deposed meanwhile conflicts.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

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

/// Which writes of a plan begin first.
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

    /// What it is about, the same for repeated attempts: the UID of the object, or the name of one that does not exist yet.
    fn subject(&self) -> &str;

    /// Which writes begin first.
    fn rank(&self) -> Rank {
        Rank::Record
    }

    /// Writes with the same word here are not independent of each other, though they are about different objects: those of a
    /// later plan wait for those of an earlier one.
    fn sequence(&self) -> Option<&'static str> {
        None
    }

    /// What people are told once it is done; `world` is what was known before it.
    fn notes(&self, _: &World) -> Vec<Note> {
        Vec::new()
    }

    /// What people are told once it is done; `world` is what is known after it.
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
