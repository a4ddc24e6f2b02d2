//! What is written for alias addresses, and what the driver is told.

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
    /// The first record of a ledger.
    Create {
        /// The ledger.
        ledger: Box<IPLedger>,
        /// What changes.
        changes: Vec<Change>,
    },
    /// The records of a ledger.
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
        /// Nodes that are missing: nothing is written if one of them is in use after all.
        missing: BTreeSet<String>,
    },
    /// An empty ledger that is being deleted, or whose pool is: it goes.
    Drop {
        /// Which.
        ledger: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// Whether it is being deleted already.
        deleting: bool,
    },
    /// Our finalizer comes onto a pool, or off one that nobody has anything of.
    Finalizers {
        /// Which.
        pool: At,
        /// All of its finalizers.
        finalizers: Vec<String>,
        /// It comes off: not while there is a ledger.
        last: bool,
    },
    /// What a node has.
    Node {
        /// Which object.
        node: At,
        /// What it says.
        status: Box<NodeAliasesStatus>,
    },
    /// How full a pool is.
    Pool {
        /// Which.
        pool: At,
        /// What it says.
        status: Box<AliasPoolStatus>,
    },
    /// What a node wants that is gone, and has nothing on any machine.
    Forget {
        /// Which object.
        node: At,
    },
    /// What is wanted at a machine, for the driver.
    Tell(Arc<Wanted>),
}

/// What is wanted at a node's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `driver/NODE`, by which writes are told apart.
    pub subject: String,
    /// The driver that is meant.
    pub driver: u64,
    /// Grows each time that the driver is told something else of the node.
    pub turn: u64,
    /// The node.
    pub node: String,
    /// Its machine.
    pub machine: Machine,
    /// Another value when the machine was started anew, or its node made anew: what it had may be gone.
    pub boot: String,
    /// All alias ranges that it is to have.
    pub ranges: BTreeSet<AliasRange>,
    /// The ranges of all pools: nothing else is removed from a machine.
    pub managed: Arc<Vec<Managed>>,
    /// The node is gone: once the machine has nothing of ours, it can be forgotten.
    pub leaves: bool,
}

/// What a write changes about a record.
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
        /// The pod that has it, as `namespace/name`, and its UID.
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
    /// A range of a missing node counts as free.
    Released {
        /// The node.
        node: String,
    },
    /// Anything that nobody needs to hear of.
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
