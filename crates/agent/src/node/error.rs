//! Why a call fails, as data. The callers turn it into text for people.

use std::time::Duration;

use tenure_ipam::{Address, Addresses};

use super::event::{ClaimUse, Wish};
use crate::key::{HoldKey, Pod};

/// Why a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The node just started and has not read this yet.
    NotRead(String),
    /// The node is shutting down.
    Ending,
    /// A pool has no address.
    Pool(PoolError),
    /// The blocks of a pool whose blocks cannot be requested have no suitable address.
    Full(Box<Full>),
    /// Unknown holders may use addresses of the block of this name.
    Withheld(String),
    /// The block of this name was taken away in the meantime.
    BlockTaken(String),
    /// The attachment was deleted while it was being set up.
    Deleted,
    /// The journal could not be written just now; the reason.
    Journal(String),
    /// The journal cannot be written.
    JournalBroken,
    /// Two keys have the same ID.
    SameId {
        /// The requested one.
        asked: Box<HoldKey>,
        /// The existing one.
        other: Box<HoldKey>,
    },
    /// Nothing is held for the key.
    NothingHeld(HoldKey),
    /// The key holds another address than expected.
    OtherAddress {
        /// The key.
        key: Box<HoldKey>,
        /// What was expected.
        expected: Address,
        /// What is held.
        held: Addresses,
    },
    /// A claim's addresses cannot be used.
    Claim(ClaimError),
    /// The kernel failed.
    Kernel(KernelError),
    /// The interface is not as it was set up.
    Differs(Vec<String>),
    /// Some of several holds could not be ended.
    Unswept {
        /// How many ended.
        ended: usize,
        /// Why the others did not.
        errors: Vec<CallError>,
    },
}

/// Why a pool has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// There is no such pool.
    Missing {
        /// Its name.
        pool: String,
        /// The pod that asked for it.
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
        /// The reason that was given.
        message: String,
    },
    /// The pool cannot be carved.
    Unusable {
        /// Its name.
        pool: String,
        /// The reason that was given.
        message: String,
    },
    /// No block came in time.
    TimedOut {
        /// The pool's name.
        pool: String,
        /// How long the call waited.
        waited: Duration,
        /// The last known reason.
        trouble: Option<String>,
    },
    /// There is no pool at all.
    NoneAtAll,
    /// No pool has an address left; the reason for each.
    NothingLeft(Vec<String>),
}

/// Why a claim's addresses cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// The key holds something other than the claim's addresses.
    Other {
        /// The key.
        key: Box<HoldKey>,
        /// What is held.
        held: Addresses,
        /// The claim that these are from, if any.
        claim: Option<String>,
        /// The requested claim.
        asked: Box<ClaimUse>,
    },
    /// The claim has no usable addresses.
    Unusable(Box<ClaimUse>),
    /// The claim has several addresses of a family, and the interface is ours.
    Crowded(Box<ClaimUse>),
    /// Another holder has an address of the claim.
    InTheWay {
        /// The claim.
        claim: Box<ClaimUse>,
        /// Who, as text.
        problem: String,
    },
}

/// A request that blocks without a suitable address cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// The pool.
    pub pool: String,
    /// The names of the pool's blocks on this node.
    pub blocks: Vec<String>,
    /// Which addresses the request accepts.
    pub wish: Wish,
    /// The pod.
    pub pod: Pod,
}

/// A failure of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// What it means for the caller.
    pub kind: KernelErrorKind,
    /// What happened.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

/// What a kernel failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelErrorKind {
    /// It may work later.
    Retry,
    /// The container is gone.
    Gone,
    /// The request is invalid.
    Invalid,
    /// Anything else.
    Other,
}

impl KernelError {
    /// A failure without a remedy.
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
