//! Writes of blocks, pools and requests.
//!
//! A request of our agents is served in one write, because the block is the answer (`tenure/answered-by: block`). Others get an
//! answer in the status as well. Any leader may repeat each write or take over after it:
//!
//! ```text
//!    pending ──Create──▶ a block names the request ══ if the block is the answer ══▶ nothing is left to do
//!       │    (the block's name is the lock) │
//!       │                                   └──Complete (CAS on the request)──▶ complete
//!       └──Refuse (CAS on the request)──▶ failed
//! ```
//!
//! The node uses the block as soon as it sees it. `Refuse` and `Complete` name the resource version that was read: if
//! anybody else has decided since, they conflict. A request that only its block answers is pending again if that block goes
//! before the request: its node does not return the block so early.
//!
//! The name is the lock within a pool. Where pools share addresses, whoever carves from the older one first occupies
//! the names of the younger ones' blocks, and nobody carves from a younger pool where an older one has addresses
//! (`coil::locks`).
//!
//! `Create` is the one write that no resource version can guard, because the object does not exist yet. It is sent
//! only within the leader's term and abandoned at its end. If it arrives later anyway, and the next leader has served the
//! request with another block, then the node that asked has a block too many. No address has two holders, because the
//! name is still the lock, and the node returns the empty block like any other.

use std::time::Duration;

use tenure_api::coil::{AddressBlock, AddressPoolStatus, BlockRequestStatus};
use tenure_ipam::Subnet;

use super::events;
use crate::events::Note;
use crate::pace;
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// The name of the part.
pub(super) const PART: &str = "coil";

/// One write of this part.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockWrite {
    /// Creates a block: one that answers a request, or one for claims. The names of younger pools that share its
    /// addresses are occupied first.
    Create {
        /// The block.
        block: Box<AddressBlock>,
    },
    /// Answers a request in its status: complete, unless the block is the answer, or complete and failed.
    Answer {
        /// The request.
        request: At,
        /// The answer.
        status: BlockRequestStatus,
    },
    /// Writes the status of a pool.
    PoolStatus {
        /// The pool.
        pool: At,
        /// Its status.
        status: Box<AddressPoolStatus>,
    },
    /// Sets a pool's finalizers, so that it stays while blocks exist and goes when none do.
    PoolFinalizers {
        /// The pool.
        pool: At,
        /// All its finalizers.
        finalizers: Vec<String>,
    },
    /// Deletes a block that only occupies its name, if a live list shows none of these pools.
    Unlock {
        /// The block.
        block: At,
        /// The UIDs of the pools for which the name is occupied.
        pools: Vec<String>,
    },
    /// Marks a block whose node is missing, if live reads confirm it and show no living pod there.
    MarkBlock {
        /// The block.
        block: At,
        /// The node that owned it.
        node: String,
        /// Since when.
        mark: String,
    },
    /// Removes that mark.
    UnmarkBlock {
        /// The block.
        block: At,
    },
    /// Deletes a block at this version and removes our finalizer, if live reads confirm that nobody can use its
    /// addresses any more. Otherwise the block loses its mark.
    ReleaseBlock {
        /// The block.
        block: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// The node that owned it.
        node: String,
        /// What a live read has to confirm.
        because: Because,
    },
}

/// Why nobody can use a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// There is no such node, and no living pod is bound to it, as when the block was marked.
    NodeIsGone,
    /// The node is out of service, and no pod on it has or may still get an address of the block.
    OutOfService {
        /// The addresses of the block; `None` if they cannot be understood.
        addresses: Option<Subnet>,
    },
}

impl BlockWrite {
    /// The block that will exist afterwards.
    pub(crate) fn block(&self) -> Option<&AddressBlock> {
        match self {
            Self::Create { block } => Some(block),
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
            Self::Answer { request: at, .. }
            | Self::PoolStatus { pool: at, .. }
            | Self::PoolFinalizers { pool: at, .. }
            | Self::Unlock { block: at, .. }
            | Self::MarkBlock { block: at, .. }
            | Self::UnmarkBlock { block: at }
            | Self::ReleaseBlock { block: at, .. } => &at.uid,
            // A floating block answers nobody, and does not exist yet.
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

    /// Numbers of a pool are news for people, and every node watches pools. What has become true or false of it is not delayed.
    fn pace(&self, world: &World) -> Duration {
        let Self::PoolStatus { pool: at, status } = self else { return Duration::ZERO };
        let known = world.coil().pools.get(&at.name).and_then(|pool| pool.status.as_ref());
        let verdicts = |status: &AddressPoolStatus| -> Vec<(String, String, String)> {
            let each = status.conditions.iter();
            each.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone())).collect()
        };
        let same = known.is_some_and(|known| {
            known.observed_generation == status.observed_generation && verdicts(known) == verdicts(status)
        });
        if same { pace::of_everybody(world) } else { Duration::ZERO }
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        events::notes(self, world)
    }
}
