//! Writes that change who uses a claim.
//!
//! A claim's slots are one annotation. A swap is one write that names the version and UID of the claim it was decided
//! on. If anybody has changed the claim since, it conflicts, so two leaders never make two pods active.

use tenure_claims::Slots;

use super::super::events::of_move;
use super::PART;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// One step of a move.
#[derive(Clone, Debug, PartialEq)]
pub enum MoveWrite {
    /// Sets which pods use a claim.
    Hold {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// Its users before.
        before: Box<Slots>,
        /// Its users from now on.
        slots: Box<Slots>,
        /// Whether a pod that was to take over is gone before it became active, as far as known.
        aborts: bool,
    },
}

impl Operation for MoveWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Hold { .. } => "hold",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Hold { claim, .. } => &claim.uid,
        }
    }

    fn rank(&self) -> Rank {
        Rank::Traffic
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        of_move(self, world)
    }
}
