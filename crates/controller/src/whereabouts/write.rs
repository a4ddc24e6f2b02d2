//! What the controller writes of Whereabouts' ranges.
//!
//! All are compare-and-swaps but the creations, whose names are the lock: a `NodeSlicePool` is written at the version that
//! was read, a mark or a change of some slices tests the version, a record goes by a patch that tests that it still is what it was, and whatever is
//! deleted is deleted by its UID. What takes something away from somebody looks again, live, before it does.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Mark, Request};
use tenure_whereabouts::reconcile::LivingPod;
use tenure_whereabouts::slices::{Event, SliceChange};

use super::events;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation};

/// The name of the part.
pub(super) const PART: &str = "whereabouts";

/// How a range is divided into slices is in several objects: whether a range is open for all is one, who has which slice of it another, and
/// each is decided by a live look at the other.
pub(crate) const DIVISIONS: &str = "divisions";

/// Addresses that are freed rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// From when.
    pub from: Timestamp,
    /// How long.
    pub lasts: Duration,
}

/// One write to Whereabouts' objects.
#[derive(Clone, Debug, PartialEq)]
pub enum LedgerWrite {
    /// Makes the object of a whole range that is cut, so that nobody takes an address beside the slices.
    Guard {
        /// The object: empty, and sealed.
        pool: Box<IPPool>,
    },
    /// Changes what an object's writers have agreed on.
    Mark {
        /// The object.
        pool: At,
        /// The change.
        mark: Mark,
    },
    /// Makes a `NodeSlicePool`, or changes it at the version that it has.
    Slices {
        /// As it is to be.
        pool: Box<NodeSlicePool>,
        /// Nodes that lose their slice because they are gone: a live look has to confirm it.
        gone: Vec<String>,
        /// Ledgers of nodes that have left slices: one of them that is there again, as a live look has to show, and hands out
        /// keeps its slice from others.
        left: Vec<String>,
        /// What people are told when it is written.
        events: Vec<Event>,
    },
    /// Changes some slices of a `NodeSlicePool` that has given slices away before, at the version that it has.
    ChangeSlices {
        /// The pool.
        pool: At,
        /// What changes.
        change: Box<SliceChange>,
        /// As above.
        gone: Vec<String>,
        /// As above.
        left: Vec<String>,
        /// As above.
        events: Vec<Event>,
    },
    /// Deletes a `NodeSlicePool` that, as a live look has to confirm, nobody asks for.
    DropSlices {
        /// The pool.
        pool: At,
    },
    /// Reads the records of a ledger whose node is gone.
    Read {
        /// The ledger.
        pool: At,
    },
    /// Takes records out of a ledger whose pods, as live looks have to confirm, do not use them.
    Forget {
        /// The ledger.
        pool: At,
        /// The network that it is of.
        network: String,
        /// The records.
        records: Vec<Request>,
        /// The pods of these records that live, and what was known of them.
        pods: BTreeMap<String, LivingPod>,
        /// How long what is freed rests.
        rest: Rest,
    },
    /// Deletes a reservation that no record explains.
    Unreserve {
        /// The reservation.
        reservation: At,
        /// Its pod.
        podref: String,
        /// The pod, if it lives, and what was known of it.
        pod: Option<LivingPod>,
    },
    /// Notes on a ledger that its node is missing, provided that live reads confirm it and show no pod that lives there; or takes
    /// the note off.
    MarkLedger {
        /// The ledger.
        pool: At,
        /// The node.
        node: String,
        /// Since when; nothing to take it off.
        mark: Option<String>,
    },
    /// Deletes the empty ledger of a node, provided that live reads confirm that the node is missing, or out of service, and
    /// show no pod that lives there.
    DropLedger {
        /// The ledger.
        pool: At,
        /// The node.
        node: String,
    },
}

impl Operation for LedgerWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Guard { .. } => "guard",
            Self::Mark { .. } => "mark",
            Self::Slices { .. } | Self::ChangeSlices { .. } => "slices",
            Self::DropSlices { .. } => "drop_slices",
            Self::Read { .. } => "read",
            Self::Forget { .. } => "forget",
            Self::Unreserve { .. } => "unreserve",
            Self::MarkLedger { .. } => "mark_ledger",
            Self::DropLedger { .. } => "drop_ledger",
        }
    }

    fn subject(&self) -> &str {
        match self {
            // What does not exist yet has only its name.
            Self::Guard { pool } => pool.metadata.name.as_deref().unwrap_or_default(),
            Self::Slices { pool, .. } => {
                let id = pool.metadata.uid.as_deref().or(pool.metadata.name.as_deref());
                id.unwrap_or_default()
            }
            Self::Mark { pool: at, .. }
            | Self::ChangeSlices { pool: at, .. }
            | Self::DropSlices { pool: at }
            | Self::Read { pool: at }
            | Self::Forget { pool: at, .. }
            | Self::Unreserve { reservation: at, .. }
            | Self::MarkLedger { pool: at, .. }
            | Self::DropLedger { pool: at, .. } => &at.uid,
        }
    }

    fn sequence(&self) -> Option<&'static str> {
        match self {
            Self::Guard { .. }
            | Self::Mark { .. }
            | Self::Slices { .. }
            | Self::ChangeSlices { .. }
            | Self::DropSlices { .. }
            | Self::DropLedger { .. } => Some(DIVISIONS),
            _ => None,
        }
    }

    fn notes_after(&self, world: &World) -> Vec<Note> {
        events::of_ledger(self, world)
    }
}

#[cfg(test)]
impl LedgerWrite {
    /// A change of some slices as the whole pool that it gives.
    pub(super) fn whole(self, world: &World) -> Self {
        match self {
            Self::ChangeSlices { pool, change, gone, left, events } => {
                let known = world.ledgers().slices.get(&pool.name).expect("the pool is there");
                let pool = Box::new(change.apply(known).expect("the change fits"));
                Self::Slices { pool, gone, left, events }
            }
            other => other,
        }
    }
}
