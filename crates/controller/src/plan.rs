//! What to write next, from all that is known: the plans of all parts, in the order of their ranks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::Timestamp;

use crate::events::Note;
use crate::part::{Board, Part, Plan};
use crate::world::World;
use crate::write::Write;

/// How often everything is planned for, whatever has changed, to see that nothing was overlooked.
const CHECK: Duration = Duration::from_mins(1);

/// Plans. All it remembers between two plans is since when it has seen what, and what it need not look at again.
#[derive(Debug)]
pub struct Planner {
    parts: Vec<Box<dyn Plan>>,
    /// When everything was last planned for.
    checked: Option<Timestamp>,
    /// How many writes only a look at everything has found.
    overlooked: u64,
    /// One that always looks at everything, to compare each plan with.
    #[cfg(test)]
    full: Option<Box<Planner>>,
    /// The world that it was last shown.
    #[cfg(test)]
    world: Option<WorldIdentity>,
}

impl Planner {
    /// One that has seen nothing yet, of these parts.
    pub fn of(parts: &[Arc<dyn Part>]) -> Self {
        Self::new(parts.iter().map(|part| part.planner()).collect())
    }

    fn new(parts: Vec<Box<dyn Plan>>) -> Self {
        Self {
            parts,
            checked: None,
            overlooked: 0,
            #[cfg(test)]
            full: None,
            #[cfg(test)]
            world: None,
        }
    }

    /// The writes that bring the world closer to what it should be: at most one for each object. Nothing while part of
    /// the world is unknown.
    ///
    /// A plan looks at what has changed since the last one, at what was not done then, and at what is due. Every [`CHECK`] it
    /// looks at everything, and counts what it would have overlooked.
    pub fn plan(&mut self, world: &World, now: Timestamp) -> Vec<Write> {
        if !self.is_ready(world) {
            return Vec::new();
        }
        #[cfg(test)]
        self.recognize(world);
        let mut writes = self.plan_parts(world, now);
        #[cfg(test)]
        self.compare(world, &writes, now);
        if self.checked.is_none_or(|checked| checked > now || now.since(checked) >= CHECK)
            && self.checked.replace(now).is_some()
        {
            let before: HashSet<(&str, &str)> =
                writes.iter().map(|write| (write.verb(), write.subject())).collect();
            self.look_at_all();
            let all = self.plan_parts(world, now);
            for write in all.iter().filter(|write| !before.contains(&(write.verb(), write.subject()))) {
                let (verb, subject) = (write.verb(), write.subject());
                tracing::error!(verb, subject, "a plan has overlooked this write; please report it");
                self.overlooked += 1;
            }
            writes = all;
        }
        writes
    }

    /// Whether enough is known to plan: nodes, and what each part needs.
    pub(crate) fn is_ready(&self, world: &World) -> bool {
        world.nodes().is_complete() && self.parts.iter().all(|part| part.is_ready(world))
    }

    fn plan_parts(&mut self, world: &World, now: Timestamp) -> Vec<Write> {
        let mut board = Board::default();
        let mut writes: Vec<Write> =
            self.parts.iter_mut().flat_map(|part| part.plan(world, &mut board, now)).collect();
        writes.sort_by_key(|write| write.rank());
        // The others come when this one is done.
        let mut subjects = HashSet::with_capacity(writes.len());
        let mut first =
            writes.iter().map(|write| subjects.insert(write.subject())).collect::<Vec<_>>().into_iter();
        writes.retain(|_| first.next().unwrap_or_default());
        writes
    }

    /// The next plan looks at everything.
    pub fn look_at_all(&mut self) {
        self.parts.iter_mut().for_each(|part| part.look_at_all());
    }

    /// How many writes only a look at everything has found.
    pub(crate) fn overlooked(&self) -> u64 {
        self.overlooked
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
pub(crate) use planted::{Planted, WorldIdentity, plant};
