//! One thing that happened on a node.
//!
//! Every record stands on its own: what it says does not depend on records before it, so that one that is lost to damage
//! takes nothing else with it.

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Sequence, Subnet};

use crate::key::{HoldKey, Pod};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// This node owns a block from now on.
    Owned(BlockFacts),
    /// Nothing is assigned from a block from now on, for good.
    Fenced {
        /// The block's UID.
        uid: String,
    },
    /// A block is gone, and nothing is held in it any more.
    Forgotten {
        /// The block's UID.
        uid: String,
    },
    /// An address (or pair) is held from now on. The key's earlier hold, if any, has moved here.
    Held(Held),
    /// An address (or pair) was freed.
    Released(Released),
    /// An interface has a claim's addresses from now on, or something about that is different.
    ClaimUse(ClaimUseRecord),
    /// An interface does not have a claim's addresses any more; the claim does.
    ClaimUseEnded(ClaimUseRecord),
    /// How much can be told from what no record says.
    Known(Known),
    /// Addresses of a block may be in use although no record says so. Or not any more.
    Doubted {
        /// The block's UID.
        uid: String,
        /// Whether it is so.
        doubted: bool,
    },
}

/// How much can be told from what no record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// All that is held is on record.
    #[default]
    All,
    /// Blocks whose holds may be forgotten are marked as doubted, and others are being asked who uses which addresses.
    Asking,
    /// An earlier journal of this boot was lost or damaged: any hold may be missing.
    Lost,
}

/// What is known of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// The UID of its object.
    pub uid: String,
    /// The name of its object.
    pub name: String,
    /// The pool that it was carved from.
    pub pool: String,
    /// Its networks.
    pub subnet: Subnet,
    /// Among whose addresses its are unique; empty for the cluster's own.
    pub realm: String,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The UID of the block that the address is of.
    pub block: String,
    /// Whose it is.
    pub key: HoldKey,
    /// The pod that it is for.
    pub pod: Pod,
    /// Whether the interface is ours too, and not only the address.
    pub interface: bool,
    /// The address, or the address of each family.
    pub addresses: Addresses,
    /// The hold's number in its block.
    pub sequence: Sequence,
    /// Since when.
    pub since: Timestamp,
    /// The path of the pod's namespace; empty if it is not known.
    pub netns: String,
}

/// A claim user: an interface with the addresses of a claim, which are of no block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUseRecord {
    /// The claim's UID.
    pub claim: String,
    /// The claim, for people: `namespace/name`.
    pub claim_name: String,
    /// The pool that its network asks for addresses of otherwise; empty if it is not known.
    pub pool: String,
    /// Whose the interface is.
    pub key: HoldKey,
    /// The pod that it is for.
    pub pod: Pod,
    /// Whether the interface is ours too.
    pub interface: bool,
    /// The claim's addresses, with the length of their prefix.
    pub addresses: Vec<(Address, u8)>,
    /// Whether packets are to arrive at it.
    pub reached: bool,
    /// Since when.
    pub since: Timestamp,
    /// The path of the pod's namespace; empty if it is not known.
    pub netns: String,
}

/// The end of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// What was held.
    pub hold: Held,
    /// When it was freed.
    pub at: Timestamp,
    /// Until when it cools.
    pub until: Timestamp,
}

impl Record {
    /// The UID of the block that it is about; empty if it is about none.
    pub fn block(&self) -> &str {
        match self {
            Self::Owned(facts) => &facts.uid,
            Self::Fenced { uid } | Self::Forgotten { uid } | Self::Doubted { uid, .. } => uid,
            Self::Held(held) => &held.block,
            Self::Released(released) => &released.hold.block,
            Self::ClaimUse(_) | Self::ClaimUseEnded(_) | Self::Known(_) => "",
        }
    }

    /// When it happened, where it says so.
    pub(super) fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Held(held) => Some(held.since),
            Self::Released(released) => Some(released.at),
            Self::ClaimUse(use_record) | Self::ClaimUseEnded(use_record) => Some(use_record.since),
            Self::Owned(_)
            | Self::Fenced { .. }
            | Self::Forgotten { .. }
            | Self::Known(_)
            | Self::Doubted { .. } => None,
        }
    }
}
