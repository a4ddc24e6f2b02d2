//! What a node wants done.

use std::collections::BTreeSet;

use tenure_ipam::{Address, Addresses, Cidr, Subnet};

use super::event::{Link, Wiring};
use super::{AskId, CallError, Job, Ticket};
use crate::journal::{Held, Record};
use crate::key::{HoldKey, Pod};

/// What a node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Append a record to the journal. Positions count from 1.
    Record {
        /// Its position since the start.
        position: u64,
        /// The record.
        record: Record,
    },
    /// Make an interface.
    Wire(WireJob),
    /// Take an interface out of service.
    Unwire {
        /// To be named in the answer.
        job: Job,
        /// Whose it is.
        key: HoldKey,
        /// The pod that it was for.
        pod: Pod,
    },
    /// Look whether an interface is as it should be.
    Inspect(WireJob),
    /// See to it that routes lead to these holders' interfaces, and to no others: after a start, and when a look found
    /// other ones. A holder may be there more than once.
    ///
    /// It must be carried out after everything that was asked of the kernel before, and before everything later.
    Repair(Vec<(HoldKey, Addresses)>),
    /// Have routes lead to a holder's interface, or none: the interface stays. A route takes the place of one that leads
    /// to the same address elsewhere. Not answered; a look finds what did not come of it.
    ///
    /// In order with everything else that is asked of the kernel.
    Reach {
        /// Whose it is.
        key: HoldKey,
        /// The pod that it is for.
        pod: Pod,
        /// Its addresses.
        addresses: Addresses,
        /// Whether routes are to lead to it.
        reached: bool,
    },
    /// Have an interface that somebody else made answer for its addresses, and tell everyone on its segment that they are
    /// here; or have it answer nobody. It may come a little later than this. Not answered.
    Announce {
        /// Whose it is; it says the interface's name.
        key: HoldKey,
        /// The path of the pod's namespace.
        netns: String,
        /// The addresses.
        addresses: Vec<Address>,
        /// Whether they are here.
        reached: bool,
        /// Whether another interface has them, too, so that it has to be told again and again: whoever makes interfaces announces
        /// their addresses, and does not ask us.
        contested: bool,
    },
    /// Look at what the kernel has of ours.
    Look {
        /// To be named in the answer.
        job: Job,
        /// Holders whose interface ours is: is it there?
        interfaces: Vec<HoldKey>,
        /// Holders whose interface is somebody else's, and the paths of their namespaces: are these there?
        namespaces: Vec<(HoldKey, String)>,
    },
    /// Ask who uses which addresses on this machine: network namespaces, this node's pods, and what the runtime remembers.
    /// Answered in any case, by [`Event::Consulted`](super::Event::Consulted).
    Consult {
        /// To be named in the answer.
        job: Job,
    },
    /// Ask the API server, and not a watch, whether these holders' pods are there, by UID. Answered by
    /// [`Event::PodsAsked`](super::Event::PodsAsked), or not at all.
    AskAboutPods(Vec<(HoldKey, Pod)>),
    /// Answer a call.
    Answer {
        /// The call.
        ticket: Ticket,
        /// The answer.
        outcome: Result<Done, CallError>,
    },
    /// Ask the controller for a block.
    AskForBlock {
        /// To be named in the answer.
        ask: AskId,
        /// Of which pool.
        pool: String,
        /// Whether anybody waits for it.
        urgency: Urgency,
    },
    /// Delete a block's object, if it still has this UID and still names this node. What is found instead is told, by
    /// [`Event::BlockGone`](super::Event::BlockGone) or [`Event::BlockSeen`](super::Event::BlockSeen).
    ReturnBlock {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Take the mark off a block's object by which somebody means to release it, if it still has this UID and still names this
    /// node. What is found then is told, by [`Event::BlockSeen`](super::Event::BlockSeen) or
    /// [`Event::BlockGone`](super::Event::BlockGone).
    KeepBlock {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Export exactly these networks.
    Export(BTreeSet<Cidr>),
    /// Tell people.
    Report(Report),
}

/// An interface to make or to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireJob {
    /// To be named in the answer.
    pub job: Job,
    /// Whose it is.
    pub key: HoldKey,
    /// The pod that it is for.
    pub pod: Pod,
    /// Its addresses.
    pub addresses: Addresses,
    /// Whether routes lead to it.
    pub reached: bool,
    /// What else is to be known.
    pub wiring: Wiring,
}

/// A call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The addresses are held, and the interface, if it is ours, is in place.
    Added {
        /// The addresses.
        addresses: Addresses,
        /// The networks of the block that they are of, if they are of one.
        subnet: Option<Subnet>,
        /// The interface.
        link: Option<Link>,
        /// Whether nothing was held before, and no earlier ADD asked for it.
        new: bool,
    },
    /// Nothing is held.
    Removed,
    /// All is as it should be.
    Checked,
    /// This many holds that were not alive have ended.
    Swept(usize),
}

/// Whether anybody waits for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// So many do.
    Waiting(usize),
    /// It is for those who come next.
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
    /// Its object has other networks than before.
    Changed,
    /// It was given back.
    Returned,
    /// It was fenced before the agent was restarted.
    Before,
}

/// What was left over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// A hold whose interface is gone, although nobody asked for that.
    NoInterface,
    /// A hold for an interface of somebody else, whose namespace is gone: its path.
    NoNamespace(String),
    /// A link that nobody holds an address for.
    NoHold,
}

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// All that is held is known; addresses are assigned from now on.
    Replayed {
        /// Blocks of this node.
        blocks: usize,
        /// Holds.
        holds: usize,
    },
    /// Nothing is assigned from a block any more; its holds stay until they are released.
    Fenced {
        /// The block's name.
        block: String,
        /// Its UID.
        uid: String,
        /// Among whose addresses its are unique; empty for the cluster's own.
        realm: String,
        /// Why.
        fence: Fence,
        /// What is held in it.
        holds: Vec<Held>,
    },
    /// A link uses addresses that are of no block of this node, or that somebody else holds. They are not assigned
    /// until it is released.
    Stray {
        /// Whose link.
        key: HoldKey,
        /// The pod.
        pod: Pod,
        /// The addresses.
        addresses: Vec<Address>,
        /// What is wrong with them.
        problem: String,
    },
    /// Something was left over, twice observed, and is being put away.
    Leak {
        /// Whose it was.
        key: HoldKey,
        /// The pod.
        pod: Pod,
        /// The addresses.
        addresses: Vec<Address>,
        /// What was left over.
        leak: Leak,
    },
    /// Routes to pods were not as they should be, and are being put right.
    Routes {
        /// What was wrong with them.
        differences: Vec<String>,
    },
    /// A block's networks cannot be used.
    Invalid {
        /// The block's name.
        block: String,
        /// Its networks.
        subnet: Subnet,
    },
    /// A block's networks overlap with another one's, so that nothing is assigned from it.
    Overlap {
        /// The block.
        block: String,
        /// The one that has the addresses.
        other: String,
    },
    /// There are no blocks for a pool.
    PoolRefused {
        /// The pool.
        pool: String,
        /// Why, and what to do.
        message: String,
    },
    /// There are blocks for a pool again.
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
