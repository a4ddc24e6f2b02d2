//! Who has a claim now.
//!
//! A claim's slots are one annotation of it. The swap is one write that names the version and the UID of the claim that the
//! decision was based on: if anybody has decided since, it conflicts, and two leaders never make two pods active.

use tenure_claims::Slots;

use super::super::events::of_move;
use super::PART;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// One step of a move.
#[derive(Clone, Debug, PartialEq)]
pub enum MoveWrite {
    /// Writes which pods have a claim.
    Hold {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// Who had it.
        before: Box<Slots>,
        /// Who has it.
        slots: Box<Slots>,
        /// Whether a pod that was coming in is gone before it was the active one, as far as is known.
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
