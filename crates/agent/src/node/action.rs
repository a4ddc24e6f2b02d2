//! The actions that a node requests.

use std::collections::BTreeSet;

use tenure_ipam::{Address, Addresses, Cidr, Subnet};

use super::event::{Link, Wiring};
use super::{AskId, CallError, Job, Ticket};
use crate::journal::{Held, Record};
use crate::key::{HoldKey, Pod};

/// An action that a node requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Append a record to the journal. Positions count from 1.
    Record {
        /// Its position since the start.
        position: u64,
        /// The record.
        record: Record,
    },
    /// Create an interface.
    Wire(WireJob),
    /// Remove an interface.
    Unwire {
        /// The answer names it.
        job: Job,
        /// The holder.
        key: HoldKey,
        /// Its pod.
        pod: Pod,
    },
    /// Check whether an interface is as it should be.
    Inspect(WireJob),
    /// Make routes lead to these holders' interfaces and to no others: after a start, and when an observation
    /// found others. A holder may appear more than once.
    ///
    /// The kernel must do this after everything requested before it, and before everything requested later.
    Repair(Vec<(HoldKey, Addresses)>),
    /// Make routes lead to a holder's interface, or remove them; the interface stays. A route replaces one
    /// that leads to the same address elsewhere. There is no answer; the next observation finds what failed.
    ///
    /// Ordered with everything else that is requested from the kernel.
    Reach {
        /// The holder.
        key: HoldKey,
        /// Its pod.
        pod: Pod,
        /// Its addresses.
        addresses: Addresses,
        /// Whether routes lead to the interface afterwards.
        reached: bool,
    },
    /// Make an interface of another plugin answer for its addresses and announce them on its segment, or make
    /// it answer nobody. This may happen a little later. There is no answer.
    Announce {
        /// The holder; it contains the interface's name.
        key: HoldKey,
        /// The path of the pod's namespace.
        netns: String,
        /// The addresses.
        addresses: Vec<Address>,
        /// Whether the addresses are here.
        reached: bool,
        /// Whether another interface has the addresses as well, so that they must be announced repeatedly:
        /// whoever creates an interface announces its addresses without asking us.
        contested: bool,
    },
    /// Observe what the kernel has of ours.
    Look {
        /// The answer names it.
        job: Job,
        /// Holders with an interface of ours: does it exist?
        interfaces: Vec<HoldKey>,
        /// Holders with another plugin's interface, and the paths of their namespaces: do these exist?
        namespaces: Vec<(HoldKey, String)>,
    },
    /// Ask who uses which addresses on this machine: network namespaces, this node's pods, and the runtime's
    /// cached results. Always answered, by [`Event::Consulted`](super::Event::Consulted).
    Consult {
        /// The answer names it.
        job: Job,
    },
    /// Ask the API server, not a watch, whether these holders' pods exist, by UID. Answered by
    /// [`Event::PodsAsked`](super::Event::PodsAsked), or not at all.
    AskAboutPods(Vec<(HoldKey, Pod)>),
    /// Answer a call.
    Answer {
        /// The call.
        ticket: Ticket,
        /// The answer.
        outcome: Result<Done, CallError>,
    },
    /// Request a block from the controller.
    AskForBlock {
        /// The answer names it.
        ask: AskId,
        /// The pool.
        pool: String,
        /// Whether calls wait for it.
        urgency: Urgency,
    },
    /// Delete a block's object if it still has this UID and still names this node. The result comes as
    /// [`Event::BlockGone`](super::Event::BlockGone) or [`Event::BlockSeen`](super::Event::BlockSeen).
    ReturnBlock {
        /// Its pool.
        pool: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Remove the release mark from a block's object, if it still has this UID and still names this node. The
    /// result comes as [`Event::BlockSeen`](super::Event::BlockSeen) or
    /// [`Event::BlockGone`](super::Event::BlockGone).
    KeepBlock {
        /// Its pool.
        pool: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Export exactly these networks.
    Export(BTreeSet<Cidr>),
    /// Publish a report.
    Report(Report),
}

impl Action {
    /// The pool that it concerns, if it is one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::AskForBlock { pool, .. }
            | Self::ReturnBlock { pool, .. }
            | Self::KeepBlock { pool, .. }
            | Self::Report(
                Report::Fenced { pool, .. } | Report::PoolRefused { pool, .. } | Report::PoolHealed { pool },
            ) => Some(pool),
            _ => None,
        }
    }
}

/// An interface to create or to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireJob {
    /// The answer names it.
    pub job: Job,
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// Its addresses.
    pub addresses: Addresses,
    /// Whether routes lead to it.
    pub reached: bool,
    /// The rest of the interface's configuration.
    pub wiring: Wiring,
}

/// The result of a successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The addresses are held, and the interface, if it is ours, is in place.
    Added {
        /// The addresses.
        addresses: Addresses,
        /// The networks of their block, if they are from a block.
        subnet: Option<Subnet>,
        /// The interface.
        link: Option<Link>,
        /// Whether this call created the hold: nothing was held before, and no earlier ADD asked for it.
        new: bool,
    },
    /// Nothing is held.
    Removed,
    /// Everything is as it should be.
    Checked,
    /// How many holds ended because they were not alive.
    Swept(usize),
}

/// Whether calls wait for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// This many do.
    Waiting(usize),
    /// The block is for later calls.
    Ahead,
}

/// Why nothing is assigned from a block any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Its object is gone.
    Gone,
    /// Its object says that another node owns it.
    OtherNode(String),
    /// There is an object of the same name with this other UID.
    Replaced(String),
    /// The networks of its object changed.
    Changed,
    /// The node returned it.
    Returned,
    /// It was fenced before the agent's last start.
    Before,
}

/// What leaked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// A hold whose interface is gone without a DEL.
    NoInterface,
    /// A hold for another plugin's interface whose namespace is gone: its path.
    NoNamespace(String),
    /// A link that nobody holds an address for.
    NoHold,
}

impl Leak {
    /// The words for all kinds.
    pub const WORDS: [&'static str; 3] = ["no interface", "no namespace", "no hold"];

    /// The kind in words.
    pub fn word(&self) -> &'static str {
        let [no_interface, no_namespace, no_hold] = Self::WORDS;
        match self {
            Self::NoInterface => no_interface,
            Self::NoNamespace(_) => no_namespace,
            Self::NoHold => no_hold,
        }
    }
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// All holds are known; the node assigns addresses from now on.
    Replayed {
        /// Blocks of this node.
        blocks: usize,
        /// Holds.
        holds: usize,
    },
    /// Nothing is assigned from a block any more; its holds stay until they are released.
    Fenced {
        /// The block's pool.
        pool: String,
        /// The block's name.
        block: String,
        /// Its UID.
        uid: String,
        /// The realm within which its addresses are unique; empty for the cluster's own.
        realm: String,
        /// Why.
        fence: Fence,
        /// The holds in it.
        holds: Vec<Held>,
    },
    /// A link uses addresses that are in no block of this node, or that have another holder. They are not
    /// assigned until it is released.
    Stray {
        /// The link's holder.
        key: HoldKey,
        /// The pod.
        pod: Pod,
        /// The addresses.
        addresses: Vec<Address>,
        /// What is wrong with them.
        problem: String,
    },
    /// A leak, observed twice; it is being repaired.
    Leak {
        /// The holder.
        key: HoldKey,
        /// The pod.
        pod: Pod,
        /// The addresses.
        addresses: Vec<Address>,
        /// What leaked.
        leak: Leak,
    },
    /// Routes to pods were wrong and are being repaired.
    Routes {
        /// What was wrong.
        differences: Vec<String>,
    },
    /// A block's networks cannot be used.
    Invalid {
        /// The block's name.
        block: String,
        /// Its networks.
        subnet: Subnet,
    },
    /// A block's networks overlap with another block's, so nothing is assigned from it.
    Overlap {
        /// The block.
        block: String,
        /// The block that keeps the addresses.
        other: String,
    },
    /// A pool has no blocks for this node.
    PoolRefused {
        /// The pool.
        pool: String,
        /// The reason, and what to do.
        message: String,
    },
    /// A pool has blocks again.
    PoolHealed {
        /// The pool.
        pool: String,
    },
    /// The journal cannot be written; nothing new is assigned until it can.
    JournalFailed {
        /// Why.
        message: String,
    },
    /// The journal can be written again.
    JournalHealed,
}
