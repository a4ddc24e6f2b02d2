//! Why a call does not get what it asked for, as data. What people are told is for those to say who asked.

use std::time::Duration;

use tenure_ipam::{Address, Addresses};

use super::event::{ClaimUse, Wish};
use crate::key::{HoldKey, Pod};

/// Why a call does not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The node has just started, and has not yet read this.
    NotRead(String),
    /// The node is not driven any more.
    Ending,
    /// A pool has nothing to give.
    Pool(PoolError),
    /// The blocks of a pool that are given and not asked for have nothing that will do.
    Full(Box<Full>),
    /// Addresses of the block of this name may be in use although nobody here knows.
    Withheld(String),
    /// The block of this name was taken away meanwhile.
    BlockTaken(String),
    /// The attachment was deleted while it was being made.
    Deleted,
    /// The journal could not be written just now; in words.
    Journal(String),
    /// The journal cannot be written.
    JournalBroken,
    /// Two keys have the same id.
    SameId {
        /// The one that was asked for.
        asked: Box<HoldKey>,
        /// The one that is there.
        other: Box<HoldKey>,
    },
    /// Nothing is held for the key.
    NothingHeld(HoldKey),
    /// The key holds something else than was expected.
    OtherAddress {
        /// The key.
        key: Box<HoldKey>,
        /// What was expected.
        expected: Address,
        /// What is held.
        held: Addresses,
    },
    /// A claim's addresses cannot be had.
    Claim(ClaimError),
    /// The kernel did not do what it was asked.
    Kernel(KernelError),
    /// The interface is not as it was given.
    Differs(Vec<String>),
    /// Of several holds, some could not be ended.
    Unswept {
        /// How many ended.
        ended: usize,
        /// Why the others did not.
        errors: Vec<CallError>,
    },
}

/// Why a pool has nothing to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// There is no such pool.
    Missing {
        /// Its name.
        pool: String,
        /// Who asked for it.
        pod: Pod,
    },
    /// The pool is being deleted.
    Deleting(String),
    /// The pool is gone.
    Gone(String),
    /// The pool has no block left for this node.
    Exhausted {
        /// Its name.
        pool: String,
        /// What was said about it.
        message: String,
    },
    /// The pool cannot be carved.
    Unusable {
        /// Its name.
        pool: String,
        /// What was said about it.
        message: String,
    },
    /// No block came in time.
    TimedOut {
        /// The pool's name.
        pool: String,
        /// How long it was waited for.
        waited: Duration,
        /// What was last said about it.
        trouble: Option<String>,
    },
    /// There is no pool to assign from.
    NoneAtAll,
    /// No pool has an address left; for each, why.
    NothingLeft(Vec<String>),
}

/// Why a claim's addresses cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The key holds something else than the claim's addresses.
    Other {
        /// The key.
        key: Box<HoldKey>,
        /// What is held.
        held: Addresses,
        /// The claim that this is of, if it is of one.
        claim: Option<String>,
        /// The claim that was asked for.
        asked: Box<ClaimUse>,
    },
    /// The claim has no addresses that could be used.
    Unusable(Box<ClaimUse>),
    /// The claim has several addresses of a family, and the interface is ours.
    Crowded(Box<ClaimUse>),
    /// Somebody else has an address of the claim.
    InTheWay {
        /// The claim.
        claim: Box<ClaimUse>,
        /// Who, in words.
        problem: String,
    },
}

/// What was asked of blocks that have nothing that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// The pool.
    pub pool: String,
    /// The names of its blocks here.
    pub blocks: Vec<String>,
    /// What was asked for.
    pub wish: Wish,
    /// For whom.
    pub pod: Pod,
}

/// What the kernel did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// What it means for who asked.
    pub kind: KernelErrorKind,
    /// What happened.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

/// What a failure of the kernel means for who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelErrorKind {
    /// It may work later.
    Retry,
    /// The container is gone.
    Gone,
    /// What was asked for cannot be.
    Invalid,
    /// Anything else.
    Other,
}

impl KernelError {
    /// One without a remedy.
    pub fn new(kind: KernelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), remedy: String::new() }
    }
}

impl From<PoolError> for CallError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<ClaimError> for CallError {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

impl From<KernelError> for CallError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}
