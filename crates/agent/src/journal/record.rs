//! One change on a node.
//!
//! Every record is self-contained: its meaning does not depend on earlier records, so a damaged record takes
//! no other with it.

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Sequence, Subnet};

use crate::key::{HoldKey, Pod};

/// One change.
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
    /// An address (or pair) is held from now on. The key's earlier hold, if any, moved here.
    Held(Held),
    /// An address (or pair) was freed.
    Released(Released),
    /// An interface has a claim's addresses from now on, or something about that changed.
    ClaimUse(ClaimUseRecord),
    /// An interface no longer has a claim's addresses; the claim keeps them.
    ClaimUseEnded(ClaimUseRecord),
    /// How much the absence of a record means.
    Known(Known),
    /// Whether addresses of a block may be in use although no record says so.
    Doubted {
        /// The block's UID.
        uid: String,
        /// Whether it is so.
        doubted: bool,
    },
}

/// How much the absence of a record means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// All holds are on record.
    #[default]
    All,
    /// Blocks whose holds may be incomplete are marked as doubted, and other sources are being asked who uses
    /// which addresses.
    Asking,
    /// An earlier journal of this boot was lost or damaged: any hold may be missing.
    Lost,
}

/// The facts about a block.
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
    /// The realm within which its addresses are unique; empty for the cluster's own.
    pub realm: String,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The UID of the address's block.
    pub block: String,
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// Whether the interface is ours, and not only the address.
    pub interface: bool,
    /// The address, or the address of each family.
    pub addresses: Addresses,
    /// The hold's number in its block.
    pub sequence: Sequence,
    /// Since when.
    pub since: Timestamp,
    /// The path of the pod's namespace; empty if unknown.
    pub netns: String,
}

/// A claim user: an interface with the addresses of a claim, which are in no block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUseRecord {
    /// The claim's UID.
    pub claim: String,
    /// The claim for people: `namespace/name`.
    pub claim_name: String,
    /// The pool that its network otherwise uses; empty if unknown.
    pub pool: String,
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// Whether the interface is ours.
    pub interface: bool,
    /// The claim's addresses with their prefix lengths.
    pub addresses: Vec<(Address, u8)>,
    /// Whether packets should arrive at it.
    pub reached: bool,
    /// Since when.
    pub since: Timestamp,
    /// The path of the pod's namespace; empty if unknown.
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
    /// The UID of its block; empty if it has none.
    pub fn block(&self) -> &str {
        match self {
            Self::Owned(facts) => &facts.uid,
            Self::Fenced { uid } | Self::Forgotten { uid } | Self::Doubted { uid, .. } => uid,
            Self::Held(held) => &held.block,
            Self::Released(released) => &released.hold.block,
            Self::ClaimUse(_) | Self::ClaimUseEnded(_) | Self::Known(_) => "",
        }
    }

    /// When it happened, if known.
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
