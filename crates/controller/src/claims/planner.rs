//! Plans the part: moves first, then owners, then records, all from the same view of who uses what.

use tenure_handles::Timestamp;

use super::index::Index;
use super::owners::{CLAIM, INSTANCE, MACHINE, STATEFUL_SET, WEBHOOK};
use super::plan::{ClaimSettings, Inputs, MovePlanner, OwnerPlanner, RecordPlanner, knows_records};
#[cfg(test)]
use super::records::{Overlooked, Planted};
use super::sets::Names;
use crate::coil::Carving;
use crate::events::Note;
use crate::part::{Board, Plan};
use crate::sightings::Sightings;
use crate::whereabouts::SliceNeeds;
use crate::world::World;
use crate::write::Write;

/// Plans claims: who uses them, for whom to create them, and what each has on record.
#[derive(Debug)]
pub(crate) struct ClaimsPlanner {
    index: Index,
    /// Names of claims with a planned write to an object that others write, too. They are planned again until the
    /// write is seen done. A planned write to the claim's own object stays until something changes.
    pending: Names,
    /// By claim name: when a pod that a record names changes state with time alone.
    traces: Sightings<()>,
    /// Kinds whose first list is complete.
    known: Vec<bool>,
    /// The time of the last plan; `None` if the next one looks at everything.
    planned: Option<Timestamp>,
    moves: MovePlanner,
    owners: OwnerPlanner,
    records: RecordPlanner,
    /// How many claims, blocks, ledgers and owners the last plan looked at.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

impl ClaimsPlanner {
    pub(crate) fn new(settings: &ClaimSettings, pods_are_known: bool) -> Self {
        Self {
            index: Index::default(),
            pending: Names::new(),
            traces: Sightings::default(),
            known: Vec::new(),
            planned: None,
            moves: MovePlanner::default(),
            owners: OwnerPlanner::default(),
            records: RecordPlanner::new(settings, pods_are_known),
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Remembers when to look at a record's pods again.
    fn note_traces(&mut self, world: &World, names: &Names, all: bool, now: Timestamp) {
        if all {
            self.traces.look_again();
        }
        let records = &self.index.records;
        for name in names {
            if !all {
                self.traces.look_again_at(name);
            }
            let pods = records.of_name(name).filter_map(|place| records.get(place));
            let ends = pods.flat_map(super::records::Record::pods).filter_map(|pod| world.trace_ends(pod));
            if let Some(next) = ends.filter(|end| *end > now).min() {
                self.traces.note(name.to_string(), (), next, now);
            }
        }
    }
}

impl Plan for ClaimsPlanner {
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write> {
        let known = known(world);
        // If the clock was set back, what was due is not due any more.
        let all = self.planned.replace(now).is_none_or(|planned| planned > now) || self.known != known;
        self.known = known;
        let mut look = self.index.look(world, all);
        let mut due: Names = self.traces.due(now).map(Into::into).collect();
        self.records.note_due(&self.index, &mut due, now);
        #[cfg(test)]
        match world.claims().planted.filter(|_| !look.all) {
            Some(Planted::Overlooks(Overlooked::Time)) => due.clear(),
            Some(Planted::Overlooks(Overlooked::Pending)) => self.pending.clear(),
            _ => {}
        }
        look.names.append(&mut due);
        look.names.append(&mut self.pending);
        self.index.complete(&mut look.names);
        let inputs = Inputs { world, index: &self.index, look: &look, now };
        let mut writes = self.moves.plan(inputs, &mut self.pending);
        writes.extend(self.owners.plan(inputs));
        if let Some(carving) = board.get::<Carving>() {
            writes.extend(self.records.plan(inputs, self.moves.naming(), carving, &mut self.pending));
        }
        board.put(SliceNeeds(self.records.needs().clone()));
        self.note_traces(world, &look.names, look.all, now);
        #[cfg(test)]
        {
            self.looked_at = self.records.looked_at + self.owners.looked_at;
        }
        writes
    }

    fn look_at_all(&mut self) {
        self.planned = None;
    }

    fn next_look(&self) -> Option<Timestamp> {
        [self.records.next(), self.traces.next()].into_iter().flatten().min()
    }

    fn take_notes(&mut self, _: &World) -> Vec<Note> {
        let mut notes = self.moves.take_notes();
        notes.extend(self.owners.take_notes());
        notes
    }
}

/// Kinds that claims depend on and whose first list is complete. When that changes, absence means something else.
fn known(world: &World) -> Vec<bool> {
    let (ledgers, owners) = (world.ledgers(), world.owners());
    let complete = [
        world.claims().all.is_complete(),
        world.claims().namespaces.is_complete(),
        world.nodes().is_complete(),
        ledgers.attachments.is_complete(),
        ledgers.pods.is_complete(),
        ledgers.pools.is_complete(),
        knows_records(world),
        ledgers.reservations.is_complete(),
        ledgers.slices.is_complete(),
        owners.machines.is_complete(),
        owners.instances.is_complete(),
        owners.stateful_sets.is_complete(),
        owners.webhooks.is_complete(),
    ];
    let kinds = [CLAIM, MACHINE, INSTANCE, STATEFUL_SET, WEBHOOK, "NetworkAttachmentDefinition"];
    complete.into_iter().chain(kinds.map(|kind| world.lacks(kind))).collect()
}
