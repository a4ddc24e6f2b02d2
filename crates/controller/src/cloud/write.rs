//! Writes for alias addresses, and messages to the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::cloud::{AliasPoolStatus, AliasRecord, IPLedger, NodeAliasesStatus};
use tenure_cloud::{AliasRange, Managed};

use super::events;
use super::known::Machine;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// The name of the part.
pub(super) const PART: &str = "cloud";

/// A write for alias addresses.
#[derive(Clone, Debug)]
pub enum CloudWrite {
    /// Creates a ledger with its first record.
    Create {
        /// The ledger.
        ledger: Box<IPLedger>,
        /// What changes.
        changes: Vec<Change>,
    },
    /// Writes the records of a ledger.
    Ledger {
        /// Which.
        ledger: At,
        /// Its pool.
        pool: String,
        /// All records.
        records: BTreeMap<String, AliasRecord>,
        /// All finalizers.
        finalizers: Vec<String>,
        /// What changes.
        changes: Vec<Change>,
        /// Missing nodes: nothing is written if one of them is in use after all.
        missing: BTreeSet<String>,
    },
    /// Deletes an empty ledger that is in deletion, or whose pool is.
    Drop {
        /// Which.
        ledger: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// Whether it is already in deletion.
        deleting: bool,
    },
    /// Adds our finalizer to a pool, or removes it once nobody holds anything of it.
    Finalizers {
        /// Which.
        pool: At,
        /// All its finalizers.
        finalizers: Vec<String>,
        /// Whether it is removed: not while there is a ledger.
        last: bool,
    },
    /// Writes what a node has.
    Node {
        /// Which object.
        node: At,
        /// The status.
        status: Box<NodeAliasesStatus>,
    },
    /// Writes the usage of a pool.
    Pool {
        /// Which.
        pool: At,
        /// The status.
        status: Box<AliasPoolStatus>,
    },
    /// Deletes the object of a node that is gone and has nothing on any machine.
    Forget {
        /// Which object.
        node: At,
    },
    /// Tells the driver what a machine should have.
    Tell(Arc<Wanted>),
}

/// What a node's machine should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `driver/NODE`, which tells writes apart.
    pub subject: String,
    /// The driver that is meant.
    pub driver: u64,
    /// Grows each time that the driver is told something else of the node.
    pub turn: u64,
    /// The node.
    pub node: String,
    /// Its machine.
    pub machine: Machine,
    /// Changes when the machine was restarted or its node re-created: what it had may be gone.
    pub boot: String,
    /// All alias ranges that it should have.
    pub ranges: BTreeSet<AliasRange>,
    /// The ranges of all pools: nothing else is removed from a machine.
    pub managed: Arc<Vec<Managed>>,
    /// The node is gone: the machine can be forgotten once it has nothing of ours.
    pub leaves: bool,
}

/// How a write changes a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node gets a range.
    Granted {
        /// The node.
        node: String,
    },
    /// The pods of a move have changed, and the address is at this node now.
    Moved {
        /// The address.
        address: String,
        /// The pod that uses it, as `namespace/name`, and its UID.
        pod: (String, String),
        /// Its node.
        node: String,
        /// The node before.
        from: String,
    },
    /// A node keeps what the prototype allocated.
    Imported {
        /// The node.
        node: String,
    },
    /// A range of a missing node becomes free.
    Released {
        /// The node.
        node: String,
    },
    /// A change without an event.
    Quiet,
}

impl CloudWrite {
    /// How many ranges each node gets by this write.
    pub(super) fn granted(&self) -> BTreeMap<&str, usize> {
        let (Self::Create { changes, .. } | Self::Ledger { changes, .. }) = self else {
            return BTreeMap::new();
        };
        let mut granted = BTreeMap::new();
        for change in changes {
            if let Change::Granted { node } = change {
                *granted.entry(node.as_str()).or_default() += 1;
            }
        }
        granted
    }

    /// The pool whose ledger it writes.
    pub(super) fn pool(&self) -> Option<&str> {
        match self {
            Self::Create { ledger, .. } => Some(&ledger.spec.pool),
            Self::Ledger { pool, .. } => Some(pool),
            _ => None,
        }
    }
}

impl Operation for CloudWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create_alias_ledger",
            Self::Ledger { .. } => "alias_ledger",
            Self::Drop { .. } => "drop_alias_ledger",
            Self::Finalizers { .. } => "alias_pool_finalizers",
            Self::Node { .. } => "node_aliases_status",
            Self::Pool { .. } => "alias_pool_status",
            Self::Forget { .. } => "forget_node_aliases",
            Self::Tell(_) => "tell_cloud_driver",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Create { ledger, .. } => ledger.metadata.name.as_deref().unwrap_or_default(),
            Self::Ledger { ledger: at, .. }
            | Self::Drop { ledger: at, .. }
            | Self::Finalizers { pool: at, .. }
            | Self::Node { node: at, .. }
            | Self::Forget { node: at }
            | Self::Pool { pool: at, .. } => &at.uid,
            Self::Tell(wanted) => &wanted.subject,
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Tell(_) => Rank::Traffic,
            Self::Ledger { changes, .. } if changes.iter().all(|change| *change == Change::Quiet) => {
                Rank::Record
            }
            Self::Finalizers { last: false, .. }
            | Self::Create { .. }
            | Self::Ledger { .. }
            | Self::Node { .. } => Rank::Request,
            Self::Drop { .. } | Self::Finalizers { .. } | Self::Forget { .. } => Rank::Record,
            Self::Pool { .. } => Rank::Status,
        }
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        events::notes(self, world)
    }
}
