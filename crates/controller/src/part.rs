//! The seam between the controller and a dialect.
//!
//! A [`Part`] names what it watches, plans writes without I/O, performs them, and counts. The control loop knows
//! nothing else of it. Parts read each other's objects in the [`World`], and pass decisions of one plan to the next
//! part on a [`Board`].

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
    /// Starts the watches that it needs.
    fn watch(&self, watches: &mut Watches<'_>);

    /// Writes settings into the world, before anything is observed.
    fn prepare(&self, _: &mut World) {}

    /// A new planner: each term begins with one.
    fn planner(&self) -> Box<dyn Plan>;

    /// The name of the part in its writes, and what performs them.
    fn performer(&self, client: &Client) -> (&'static str, Arc<dyn Perform>);

    /// Registers and returns its metrics.
    fn metrics(&self, registry: &mut Registry) -> Box<dyn Count>;
}

/// Plans. Between two plans it may remember only since when it has seen something, and what it need not look at
/// again.
///
/// A plan should cost what changed, not what exists. [`crate::Cache::changed`] tells what changed since the last
/// plan. Beside that, a plan looks again at what it planned and has not seen done, and at what is due. It must plan
/// the same writes as a full plan would.
pub trait Plan: Debug + Send {
    /// The writes that bring the world closer to the desired state, including those of earlier plans that are not
    /// done.
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write>;

    /// Whether enough is known to plan. Nothing is planned before every part is ready.
    fn is_ready(&self, _: &World) -> bool {
        true
    }

    /// Makes the next plan look at everything, and rely on nothing that was remembered to save work.
    fn look_at_all(&mut self) {}

    /// When to plan again without an observation.
    fn next_look(&self) -> Option<Timestamp> {
        None
    }

    /// Events that belong to no write.
    fn take_notes(&mut self, _: &World) -> Vec<Note> {
        Vec::new()
    }

    /// How many records seem to be unused.
    fn suspects(&self) -> usize {
        0
    }
}

/// Performs the writes of one part.
pub trait Perform: Send + Sync {
    /// Performs a write. A write of another part is an error.
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer>;
}

/// Counts for one part.
pub trait Count: Debug + Send + Sync {
    /// Counts what is known; nothing if this replica does not lead.
    fn count(&self, world: &World, leads: bool, suspects: usize, now: Timestamp);

    /// Takes note of the answer to a write.
    fn answered(&self, _: &dyn Operation, _: &Observation) {}
}

/// What the parts of one plan tell each other, by type.
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
