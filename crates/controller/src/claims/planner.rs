//! The plan of the part: moves first, then owners, then records, each from the same look at who uses what.

use tenure_handles::Timestamp;

use super::plan::{ClaimSettings, MovePlanner, OwnerPlanner, RecordPlanner};
use super::records::Records;
use super::users::Users;
use crate::coil::Carving;
use crate::events::Note;
use crate::part::{Board, Plan};
use crate::whereabouts::SliceNeeds;
use crate::world::World;
use crate::write::Write;

/// Plans for claims: who has them, for whom they are made, and what each has on record.
#[derive(Debug)]
pub(crate) struct ClaimsPlanner {
    moves: MovePlanner,
    owners: OwnerPlanner,
    records: RecordPlanner,
}

impl ClaimsPlanner {
    pub(crate) fn new(settings: &ClaimSettings, pods_are_known: bool) -> Self {
        Self {
            moves: MovePlanner::default(),
            owners: OwnerPlanner::default(),
            records: RecordPlanner::new(settings, pods_are_known),
        }
    }
}

impl Plan for ClaimsPlanner {
    fn plan(&mut self, world: &World, board: &mut Board, now: Timestamp) -> Vec<Write> {
        let (users, records) = (Users::of(world), Records::of(world));
        let mut writes = self.moves.plan(world, &users, &records, now);
        writes.extend(self.owners.plan(world));
        if let Some(carving) = board.get::<Carving>() {
            writes.extend(self.records.plan(world, (&users, self.moves.naming()), carving, now));
        }
        board.put(SliceNeeds(self.records.needs().clone()));
        writes
    }

    fn next_look(&self) -> Option<Timestamp> {
        [self.records.next(), self.moves.next()].into_iter().flatten().min()
    }

    fn take_notes(&mut self, _: &World) -> Vec<Note> {
        let mut notes = self.moves.take_notes();
        notes.extend(self.owners.take_notes());
        notes
    }
}
