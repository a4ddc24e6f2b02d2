//! What the controller writes of blocks, pools and requests.
//!
//! A request is served in three writes, each of which any leader may repeat or take over:
//!
//! ```text
//!    pending ──Reserve──▶ reserved(block name) ──Create──▶ the block exists ──Complete──▶ complete
//!       │       (CAS on the request)     (its name is the lock)      (CAS on the request)
//!       └──Refuse (CAS on the request)──▶ failed
//! ```
//!
//! `Reserve`, `Refuse` and `Complete` name the resource version that was read: if anyone else has decided since, they
//! conflict. `Create` makes exactly the block that the request's status names; if it is there already, it is done.
//!
//! The name is the lock within a pool. Where pools share addresses, whoever carves of the older one occupies the names of the
//! younger ones' blocks first, and whoever carves of a younger one does not carve what an older one has (`coil::locks`).
//!
//! `Create` is the one write that no resource version can guard, because what it creates does not exist yet. It is
//! sent only within the leader's term and given up at its end. Should it arrive later all the same, after the block was
//! created, used and returned, then the node that asked has a block too many: no address has two holders, because the
//! name is still the lock, and the node returns the block as any other that is empty.

use tenure_api::coil::{AddressBlock, AddressPoolStatus, BlockRequestStatus};
use tenure_ipam::Subnet;

use super::events;
use crate::events::Note;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// The name of the part.
pub(super) const PART: &str = "coil";

/// One write of this part.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockWrite {
    /// Notes in a request's status which block it will get.
    Reserve {
        /// The request.
        request: At,
        /// The block's name.
        block: String,
    },
    /// Creates a block: one that a request's status names, or one for claims. "Already exists" is success. Names of younger
    /// pools that share its addresses are occupied before.
    Create {
        /// The block.
        block: Box<AddressBlock>,
    },
    /// Answers a request: complete, or complete and failed.
    Answer {
        /// The request.
        request: At,
        /// The answer.
        status: BlockRequestStatus,
        /// The block that was promised to a request which is now to be refused. If a live look shows that it exists
        /// and answers this request, there is no refusal.
        unless_exists: Option<String>,
    },
    /// Writes the status of a pool.
    PoolStatus {
        /// The pool.
        pool: At,
        /// Its status.
        status: Box<AddressPoolStatus>,
    },
    /// Sets a pool's finalizers, so that it stays while blocks exist or goes when none do.
    PoolFinalizers {
        /// The pool.
        pool: At,
        /// All of its finalizers.
        finalizers: Vec<String>,
    },
    /// Deletes a block that only occupies its name, provided that a live list shows none of these pools.
    Unlock {
        /// The block.
        block: At,
        /// The UIDs of the pools for which the name was occupied.
        pools: Vec<String>,
    },
    /// Notes on a block that its node is missing, provided that live reads confirm it and show no pod that lives there.
    MarkBlock {
        /// The block.
        block: At,
        /// The node that owned it.
        node: String,
        /// Since when.
        mark: String,
    },
    /// Takes that note back.
    UnmarkBlock {
        /// The block.
        block: At,
    },
    /// Deletes a block at this version and takes our finalizer off it, provided that live reads confirm that nobody can use
    /// its addresses any more. If somebody can, the block loses its mark.
    ReleaseBlock {
        /// The block.
        block: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// The node that owned it.
        node: String,
        /// What a live look has to confirm.
        because: Because,
    },
}

/// Why nobody can use a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// There is no such node and no pod that lives is bound to it, as there was none when the block was marked.
    NodeIsGone,
    /// The node is out of service, and no pod on it has or may still get an address of the block.
    OutOfService {
        /// The addresses of the block; `None` if it does not say any that can be understood.
        addresses: Option<Subnet>,
    },
}

impl BlockWrite {
    /// The name of the block that will be there, or be promised, when it is done.
    pub(crate) fn block(&self) -> Option<&str> {
        match self {
            Self::Reserve { block, .. } => Some(block),
            Self::Create { block } => block.metadata.name.as_deref(),
            _ => None,
        }
    }
}

impl Operation for BlockWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Create { .. } => "create",
            Self::Answer { .. } => "answer",
            Self::PoolStatus { .. } => "pool_status",
            Self::PoolFinalizers { .. } => "pool_finalizers",
            Self::Unlock { .. } => "unlock",
            Self::MarkBlock { .. } => "mark",
            Self::UnmarkBlock { .. } => "unmark",
            Self::ReleaseBlock { .. } => "release",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Reserve { request: at, .. }
            | Self::Answer { request: at, .. }
            | Self::PoolStatus { pool: at, .. }
            | Self::PoolFinalizers { pool: at, .. }
            | Self::Unlock { block: at, .. }
            | Self::MarkBlock { block: at, .. }
            | Self::UnmarkBlock { block: at }
            | Self::ReleaseBlock { block: at, .. } => &at.uid,
            // A floating one answers nobody, and does not exist yet.
            Self::Create { block } => {
                block.request_uid().or(block.metadata.name.as_deref()).unwrap_or_default()
            }
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Create { block } if block.is_floating() => Rank::Record,
            _ => Rank::Request,
        }
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        events::notes(self, world)
    }
}
