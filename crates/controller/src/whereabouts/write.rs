//! Writes of Whereabouts' ranges.
//!
//! All are compare-and-swaps except creations, whose names are the lock. A `NodeSlicePool` is written at the version
//! that was read, a mark or a change of some slices tests the version, a record is removed by a patch that tests its
//! value, and a deletion names the UID. A write that takes something from somebody first reads live.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Mark, PoolId, Request};
use tenure_whereabouts::reconcile::LivingPod;
use tenure_whereabouts::slices::{Event, Given, SliceChange, retell};

use super::events;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation};

/// The name of the part.
pub(super) const PART: &str = "whereabouts";

/// How a range is divided is stored in several objects: whether it is open for all in one, and who has which slice in
/// another. Each is decided by a live read of the other.
pub(crate) const DIVISIONS: &str = "divisions";

/// Freed addresses cool.
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
    /// Creates the object of a whole divided range, so that nobody takes an address outside the slices.
    Guard {
        /// The object: empty, and sealed.
        pool: Box<IPPool>,
    },
    /// Changes what the writers of an object have agreed on.
    Mark {
        /// The object.
        pool: At,
        /// The change.
        mark: Mark,
    },
    /// Creates a `NodeSlicePool`, or changes it at its current version.
    Slices {
        /// The desired pool.
        pool: Box<NodeSlicePool>,
        /// Nodes that lose their slice because they are gone, as a live read has to confirm.
        gone: Vec<String>,
        /// Ledgers of former owners of slices: one that exists again and assigns, as a live read has to show, keeps
        /// its slice.
        left: Vec<String>,
        /// The events of the write.
        events: Vec<Event>,
    },
    /// Changes some slices of a `NodeSlicePool` that has assigned slices before, at its current version.
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
    /// Deletes a `NodeSlicePool` that nobody asks for, as a live read has to confirm.
    DropSlices {
        /// The pool.
        pool: At,
    },
    /// Creates the ledger of a node's slice, which tells the node that it has the slice.
    Tell {
        /// The ledger, without records.
        ledger: Box<IPPool>,
    },
    /// Tells a node that it has the slice of a ledger, or that it has it no more.
    Retell {
        /// The ledger.
        pool: At,
        /// The slice.
        id: PoolId,
        /// What the node is told; `None` if the slice is withdrawn.
        given: Option<Given>,
    },
    /// Deletes the ledger of a slice that its node has no more, and in which the node has said nothing.
    Untell {
        /// The ledger.
        pool: At,
    },
    /// Reads the records of a ledger whose node is gone.
    Read {
        /// The ledger.
        pool: At,
    },
    /// Removes records from a ledger whose pods do not use them, as live reads have to confirm.
    Forget {
        /// The ledger.
        pool: At,
        /// Its network.
        network: String,
        /// The records.
        records: Vec<Request>,
        /// The living pods of these records, and what was known of them.
        pods: BTreeMap<String, LivingPod>,
        /// How long freed addresses cool.
        rest: Rest,
    },
    /// Deletes a reservation without a record.
    Unreserve {
        /// The reservation.
        reservation: At,
        /// Its pod.
        podref: String,
        /// The pod, if it lives, and what was known of it.
        pod: Option<LivingPod>,
    },
    /// Marks a ledger whose node is missing, if live reads confirm it and show no living pod there; or removes the
    /// mark.
    MarkLedger {
        /// The ledger.
        pool: At,
        /// The node.
        node: String,
        /// Since when; `None` to remove it.
        mark: Option<String>,
    },
    /// Deletes the empty ledger of a node, if live reads confirm that the node is missing or out of service, and show
    /// no living pod there.
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
            Self::Tell { .. } | Self::Retell { .. } => "tell",
            Self::Untell { .. } => "untell",
            Self::Read { .. } => "read",
            Self::Forget { .. } => "forget",
            Self::Unreserve { .. } => "unreserve",
            Self::MarkLedger { .. } => "mark_ledger",
            Self::DropLedger { .. } => "drop_ledger",
        }
    }

    fn subject(&self) -> &str {
        match self {
            // An object that does not exist yet has only a name.
            Self::Guard { pool: object } | Self::Tell { ledger: object } => {
                object.metadata.name.as_deref().unwrap_or_default()
            }
            Self::Slices { pool, .. } => {
                let id = pool.metadata.uid.as_deref().or(pool.metadata.name.as_deref());
                id.unwrap_or_default()
            }
            Self::Mark { pool: at, .. }
            | Self::ChangeSlices { pool: at, .. }
            | Self::DropSlices { pool: at }
            | Self::Retell { pool: at, .. }
            | Self::Untell { pool: at }
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

impl LedgerWrite {
    /// A ledger after this has told its node something; `None` if this tells nothing in a ledger that exists.
    pub fn retell(&self, ledger: &IPPool) -> Option<IPPool> {
        let Self::Retell { id, given, .. } = self else { return None };
        retell(ledger, id, given.as_ref()).ok()
    }
}

#[cfg(test)]
impl LedgerWrite {
    /// A change of some slices as a write of the whole pool.
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
