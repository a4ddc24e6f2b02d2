//! The seam: what a dialect is to the controller.
//!
//! A [`Part`] says what it watches, plans without I/O what to write, performs its writes, and counts. The control loop knows
//! nothing else of it. Parts read each other's objects in the [`World`], and pass what one plan decides to the next on a
//! [`Board`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;

use crate::events::Note;
use crate::executor::Answer;
use crate::kind::Observation;
use crate::watch::Watches;
use crate::world::World;
use crate::write::{Operation, Write};

/// A dialect.
pub trait Part: Debug + Send + Sync {
    /// Watches what it needs.
    fn watch(&self, watches: &mut Watches<'_>);

    /// Writes into the world what the settings say, before anything is observed.
    fn prepare(&self, _: &mut World) {}

    /// A planner that has seen nothing yet: each term begins with a new one.
    fn planner(&self) -> Box<dyn Plan>;

    /// The name of the part in its writes, and what performs them.
    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>);

    /// What counts for it.
    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count>;
}

/// Plans. All it may remember between two plans is since when it has seen what, and what it need not look at again.
///
/// A plan should cost what has changed, not what exists. [`crate::Cache::changed`] says what has changed since the last plan;
/// beside that a plan looks again at what it has planned and not seen done yet, and at what is due by now. It must plan the same
/// writes as a look at everything would.
pub trait Plan: Debug + Send {
    /// The writes that bring the world closer to what it should be, those of earlier plans that are not done included.
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write>;

    /// Whether enough is known to plan. Nothing is planned before every part says so.
    fn is_ready(&self, _: &World) -> bool {
        true
    }

    /// The next plan looks at everything, and relies on nothing that was remembered to spare a look.
    fn look_at_all(&mut self) {}

    /// When to plan again even if nothing is observed until then.
    fn next_look(&self) -> Option<Timestamp> {
        None
    }

    /// What people should know and no write says.
    fn take_notes(&mut self, _: &World) -> Vec<Note> {
        Vec::new()
    }

    /// How many records are suspected to be unused.
    fn suspects(&self) -> usize {
        0
    }
}

/// Performs the writes of one part.
pub trait Perform: Send + Sync {
    /// Performs a write. Others than those of its part are an error.
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer>;
}

/// Counts for one part.
pub trait Count: Debug + Send + Sync {
    /// Counts what is known; one that does not lead counts nothing.
    fn count(&self, world: &World, leads: bool, suspects: usize, now: Timestamp);

    /// A write was answered, and this was observed.
    fn answered(&self, _: &dyn Operation, _: &Observation) {}
}

/// What the parts of one plan tell each other, by its type.
#[derive(Debug, Default)]
pub struct Board {
    facts: HashMap<TypeId, Box<dyn Any + Send>>,
}

impl Board {
    /// Puts something on the board.
    pub fn put<T: Any + Send>(&mut self, fact: T) {
        self.facts.insert(TypeId::of::<T>(), Box::new(fact));
    }

    /// What an earlier part has put there.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.facts.get(&TypeId::of::<T>())?.downcast_ref()
    }
}
