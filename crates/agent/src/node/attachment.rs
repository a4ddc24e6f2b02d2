//! One holder: where its address is, how far it is, and who waits for that.

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
    /// The pool that its address is of, or shall be.
    pub(super) pool: String,
    /// The path of the pod's namespace; empty if it is not known.
    pub(super) netns: String,
    /// Whether the interface is ours too.
    pub(super) interface: bool,
    /// Whether routes lead to it no more, because its address may be somebody else's and its pod is gone.
    pub(super) silenced: bool,
    /// The interface that the ADD under way asks for.
    pub(super) wiring: Option<Wiring>,
    /// The addresses that the ADD under way would like.
    pub(super) wish: Wish,
    /// Since when it has its address.
    pub(super) since: Timestamp,
    pub(super) place: AddressLocation,
    /// What the journal says of one that fits no block.
    pub(super) on_record: Option<Held>,
    pub(super) phase: Phase,
    /// ADDs that wait, each since when.
    pub(super) adds: Vec<(Ticket, Timestamp)>,
    pub(super) dels: Vec<Deleter>,
    /// ADDs that came while it was being removed: they begin when that is over.
    pub(super) next: Vec<(Ticket, Attach)>,
}

/// Where an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressLocation {
    /// There is none.
    Nowhere,
    /// In a block, which may be fenced.
    Block { uid: String, hold: Hold },
    /// A claim's.
    Claim(ClaimUseState),
    /// In none that is known here, or where somebody else is: only the kernel knows of it, or a journal that lost its block. A link
    /// that no address leads to has none: it may be that of a pod whose claim is elsewhere at present.
    Stray(Vec<Address>),
}

/// How far a holder is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for an address.
    Waiting,
    /// Has an address, and is being recorded and wired.
    Attaching(Attaching),
    /// Has an address, and nothing is under way.
    Held,
    /// The interface is being taken out of service; then it is released.
    Unwiring,
    /// The release is being recorded.
    Releasing,
}

/// What being set up has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attaching {
    /// Whether the address is new; else it is a repeated ADD.
    pub(super) fresh: bool,
    pub(super) committed: bool,
    pub(super) wire: Wire,
    /// Whether all is to be undone as soon as the kernel is done.
    pub(super) undo: bool,
}

/// What the kernel is doing for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Nothing,
    Running(Job),
    Done(Link),
}

/// Who wants a hold to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleter {
    /// A DEL.
    Call(Ticket),
    /// A GC.
    Sweep(Ticket),
}

/// Who held an address that cools.
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

    /// Its addresses, one a family.
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

    /// The block that its address is in.
    pub(super) fn block(&self) -> Option<&str> {
        match &self.place {
            AddressLocation::Block { uid, .. } => Some(uid),
            AddressLocation::Nowhere | AddressLocation::Claim(_) | AddressLocation::Stray(_) => None,
        }
    }

    /// Whether it is a link of which nothing but its owner is known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(&self.place, AddressLocation::Stray(addresses) if addresses.is_empty())
    }

    /// Whether it is on its way out.
    pub(super) fn is_leaving(&self) -> bool {
        match &self.phase {
            Phase::Attaching(setting) => setting.undo,
            Phase::Unwiring | Phase::Releasing => true,
            Phase::Waiting | Phase::Held => false,
        }
    }

    /// As the journal has it.
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
