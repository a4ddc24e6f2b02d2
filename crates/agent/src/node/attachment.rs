//! One holder: its address, its phase, and the calls that wait for it.

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Addresses, Hold};

use super::claim_use::{ClaimUseState, one_a_family};
use super::event::{Attach, Link, Wiring, Wish};
use super::{Job, Ticket};
use crate::journal::Held;
use crate::key::{HoldKey, Pod};

/// One holder.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) key: HoldKey,
    pub(super) pod: Pod,
    /// The pool of its address, present or future.
    pub(super) pool: String,
    /// The path of the pod's namespace; empty if unknown.
    pub(super) netns: String,
    /// Whether the interface is ours.
    pub(super) interface: bool,
    /// Whether routes to it were removed, because its pod is gone and its address may have another holder.
    pub(super) silenced: bool,
    /// The interface that the ADD in progress asks for.
    pub(super) wiring: Option<Wiring>,
    /// Which addresses the ADD in progress accepts or prefers.
    pub(super) wish: Wish,
    /// When it got its address.
    pub(super) since: Timestamp,
    pub(super) place: AddressLocation,
    /// The journal's record, for a hold that fits no block.
    pub(super) on_record: Option<Held>,
    pub(super) phase: Phase,
    /// Waiting ADDs and their start times.
    pub(super) adds: Vec<(Ticket, Timestamp)>,
    pub(super) dels: Vec<Deleter>,
    /// ADDs that came while it was being removed; they begin after that.
    pub(super) next: Vec<(Ticket, Attach)>,
}

/// Where an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressLocation {
    /// It has none.
    Nowhere,
    /// In a block, which may be fenced.
    Block { uid: String, hold: Hold },
    /// A claim's.
    Claim(ClaimUseState),
    /// In no block known here, or another holder has it: only the kernel knows of it, or a journal that lost
    /// its block. The list is empty for a link without a route: its pod's claim may be elsewhere at present.
    Stray(Vec<Address>),
}

/// The phase of a holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for an address.
    Waiting,
    /// Has an address, and is being recorded and wired.
    Attaching(Attaching),
    /// Has an address, and nothing is in progress.
    Held,
    /// The interface is being removed; then the address is released.
    Unwiring,
    /// The release is being recorded.
    Releasing,
}

/// The state of a holder that is being set up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attaching {
    /// Whether the address is new; otherwise it is a repeated ADD.
    pub(super) fresh: bool,
    pub(super) committed: bool,
    pub(super) wire: Wire,
    /// Whether to undo everything as soon as the kernel is done.
    pub(super) undo: bool,
}

/// What the kernel does for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Nothing,
    Running(Job),
    Done(Link),
}

/// Who ends a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleter {
    /// A DEL.
    Call(Ticket),
    /// A GC.
    Sweep(Ticket),
}

/// The last holder of a cooling address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Former {
    pub(super) key: HoldKey,
    pub(super) pod: Pod,
}

impl Attachment {
    pub(super) fn new(attach: Attach) -> Self {
        let Attach { key, pool, pod, netns, wiring, wish, claim_use: _ } = attach;
        Self {
            key,
            pod,
            pool,
            netns,
            interface: wiring.is_some(),
            silenced: false,
            wiring,
            wish,
            since: Timestamp::default(),
            place: AddressLocation::Nowhere,
            on_record: None,
            phase: Phase::Waiting,
            adds: Vec::new(),
            dels: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Its addresses, one per family.
    pub(super) fn addresses(&self) -> Addresses {
        match &self.place {
            AddressLocation::Nowhere => Addresses { ipv4: None, ipv6: None },
            AddressLocation::Block { hold, .. } => hold.addresses,
            AddressLocation::Claim(_) | AddressLocation::Stray(_) => one_a_family(self.every_address()),
        }
    }

    /// All its addresses.
    pub(super) fn every_address(&self) -> Vec<Address> {
        match &self.place {
            AddressLocation::Nowhere => Vec::new(),
            AddressLocation::Block { hold, .. } => hold.addresses.iter().collect(),
            AddressLocation::Claim(use_state) => use_state.every_address(),
            AddressLocation::Stray(addresses) => addresses.clone(),
        }
    }

    /// The block with its address.
    pub(super) fn block(&self) -> Option<&str> {
        match &self.place {
            AddressLocation::Block { uid, .. } => Some(uid),
            AddressLocation::Nowhere | AddressLocation::Claim(_) | AddressLocation::Stray(_) => None,
        }
    }

    /// Whether it is a link of which only the owner is known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(&self.place, AddressLocation::Stray(addresses) if addresses.is_empty())
    }

    /// Whether it is being removed.
    pub(super) fn is_leaving(&self) -> bool {
        match &self.phase {
            Phase::Attaching(setting) => setting.undo,
            Phase::Unwiring | Phase::Releasing => true,
            Phase::Waiting | Phase::Held => false,
        }
    }

    /// Its record in the journal.
    pub(super) fn held(&self) -> Option<Held> {
        let (block, addresses, sequence) = match &self.place {
            AddressLocation::Block { uid, hold } => (uid.clone(), hold.addresses, hold.sequence),
            AddressLocation::Stray(_) => {
                let Held { block, addresses, sequence, .. } = self.on_record.clone()?;
                (block, addresses, sequence)
            }
            AddressLocation::Nowhere | AddressLocation::Claim(_) => return None,
        };
        Some(Held {
            block,
            key: self.key.clone(),
            pod: self.pod.clone(),
            interface: self.interface,
            addresses,
            sequence,
            since: self.since,
            netns: self.netns.clone(),
        })
    }
}
