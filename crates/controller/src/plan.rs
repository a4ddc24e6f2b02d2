//! What to write next, from all that is known: the plans of all parts, in the order of their ranks.

use std::collections::HashSet;
use std::sync::Arc;

use tenure_handles::Timestamp;

use crate::events::Note;
use crate::part::{Board, Part, Plan};
use crate::world::World;
use crate::write::Write;

/// Plans. All it remembers between two plans is since when it has seen what.
#[derive(Debug)]
pub struct Planner {
    parts: Vec<Box<dyn Plan>>,
}

impl Planner {
    /// One that has seen nothing yet, of these parts.
    pub fn of(parts: &[Arc<dyn Part>]) -> Self {
        Self { parts: parts.iter().map(|part| part.planner()).collect() }
    }

    /// The writes that bring the world closer to what it should be: at most one for each object. Nothing while part of
    /// the world is unknown.
    pub fn plan(&mut self, world: &World, now: Timestamp) -> Vec<Write> {
        if !world.is_complete() {
            return Vec::new();
        }
        let mut board = Board::default();
        let mut writes: Vec<Write> =
            self.parts.iter_mut().flat_map(|part| part.plan(world, &mut board, now)).collect();
        writes.sort_by_key(|write| write.rank());
        // The others come when this one is done.
        let mut subjects = HashSet::new();
        writes.retain(|write| subjects.insert(write.subject().to_owned()));
        writes
    }

    /// How many records are suspected to be unused.
    pub fn suspects(&self) -> usize {
        self.parts.iter().map(|part| part.suspects()).sum()
    }

    /// What people should know and no write says.
    pub(crate) fn take_notes(&mut self, world: &World) -> Vec<Note> {
        self.parts.iter_mut().flat_map(|part| part.take_notes(world)).collect()
    }

    /// When to plan again even if nothing is observed until then.
    pub fn next_look(&self) -> Option<Timestamp> {
        self.parts.iter().filter_map(|part| part.next_look()).min()
    }
}

/// The time as objects have it.
pub(crate) fn time(now: Timestamp) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now.to_jiff())
}

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use planted::{Planted, plant};
