//! A block that this node owns, or owned.

use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Cidr, Subnet};

use super::Fence;
use crate::journal::BlockFacts;
use crate::key::HolderId;

/// A block that this node owns, or that it owned and that still has holds.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each changes independently")]
pub(super) struct Owned {
    pub(super) facts: BlockFacts,
    pub(super) engine: Block<HolderId>,
    pub(super) object: Object,
    /// Nobody assigns from it, but it is routed here.
    pub(super) reserved: bool,
    /// Its object is being deleted.
    pub(super) deleting: bool,
    /// Its object has a release mark: nothing is assigned from it until the mark is gone.
    pub(super) releasing: bool,
    /// An operator drains it: nothing new is assigned from it, and it is returned once it is empty.
    pub(super) draining: bool,
    /// The UID of the only pod that gets an address of it.
    pub(super) pod: Option<String>,
    /// When the node last asked for the mark's removal.
    pub(super) objected: Option<Timestamp>,
    /// Set for good once nothing is assigned from it any more.
    pub(super) fence: Option<Fence>,
    /// The journal position of the fence.
    pub(super) fence_position: u64,
    /// Unknown holders may use its addresses.
    pub(super) doubted: bool,
    /// Nothing is assigned from it before other sources were asked twice.
    pub(super) withheld: bool,
    /// When they first answered completely since then.
    pub(super) observed: Option<Timestamp>,
    /// Nothing is assigned from it before other sources answered completely once.
    pub(super) unasked: bool,
    /// The UID of a block that shares addresses with it and keeps them.
    pub(super) shadow: Option<String>,
    /// Since when it has no holds.
    pub(super) empty_since: Timestamp,
    /// When the node last tried to return it.
    pub(super) sent: Option<Timestamp>,
}

/// The state of a block's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// It names this node.
    Ours,
    /// It names another.
    Elsewhere,
    /// It no longer exists.
    Gone,
}

impl Owned {
    /// A block without holds; `None` if these networks form no space.
    pub(super) fn new(facts: BlockFacts, cooling: Duration, now: Timestamp) -> Option<Self> {
        let engine = Block::new(facts.subnet.space()?.ok()?, cooling);
        Some(Self {
            facts,
            engine,
            object: Object::Ours,
            reserved: false,
            deleting: false,
            releasing: false,
            draining: false,
            pod: None,
            objected: None,
            fence: None,
            fence_position: 0,
            doubted: false,
            withheld: false,
            observed: None,
            unasked: false,
            shadow: None,
            empty_since: now,
            sent: None,
        })
    }

    /// Whether addresses may be assigned from it, if its pool allows.
    pub(super) fn is_usable(&self) -> bool {
        self.fence.is_none()
            && self.object == Object::Ours
            && self.shadow.is_none()
            && !self.reserved
            && !self.deleting
            && !self.releasing
            && !self.draining
            && !self.withheld
            && !self.unasked
    }

    /// Whether it will be usable as soon as the API confirms that its release mark is gone.
    pub(super) fn is_being_kept(&self) -> bool {
        self.fence.is_none()
            && self.object == Object::Ours
            && self.releasing
            && !self.deleting
            && !self.is_slice()
    }

    /// Its networks.
    pub(super) fn networks(&self) -> impl Iterator<Item = Cidr> {
        networks(&self.facts.subnet)
    }

    /// Whether the address is in it.
    pub(super) fn has(&self, address: Address) -> bool {
        self.networks().any(|network| network.contains(address))
    }

    /// Whether it shares an address with the other block.
    pub(super) fn overlaps(&self, other: &BlockFacts) -> bool {
        let overlaps = |own: Cidr| networks(&other.subnet).any(|other| own.overlaps(&other));
        shares_realm(&self.facts, other) && self.networks().any(overlaps)
    }

    /// Whether it is a slice of a range, which is neither requested nor returned.
    pub(super) fn is_slice(&self) -> bool {
        !self.facts.realm.is_empty()
    }

    /// Whether it is not this node's to return.
    pub(super) fn is_kept_back(&self) -> bool {
        self.reserved || self.pod.is_some() || self.is_slice()
    }

    /// Whether nothing is held and nothing cools.
    pub(super) fn is_at_rest(&self) -> bool {
        let counts = self.engine.counts();
        counts.held == 0 && counts.cooling == 0
    }

    /// When an address was freed that cools until then.
    pub(super) fn freed_at(&self, until: Timestamp) -> Timestamp {
        let rest = u64::try_from(self.engine.rest().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(until.as_millis().saturating_sub(rest))
    }

    /// When the most recently freed address was freed.
    pub(super) fn last_freed(&self) -> Option<Timestamp> {
        self.cool_at().map(|until| self.freed_at(until))
    }

    /// When all its cooling addresses have cooled.
    pub(super) fn cool_at(&self) -> Option<Timestamp> {
        self.engine.cooling().map(|cooling| cooling.until).max()
    }
}

/// Whether equal addresses of the two blocks are the same address: within a realm, and within a pool even if
/// it was thought to be in another realm before.
pub(super) fn shares_realm(one: &BlockFacts, other: &BlockFacts) -> bool {
    one.realm == other.realm || one.pool == other.pool
}

fn networks(subnet: &Subnet) -> impl Iterator<Item = Cidr> + use<> {
    [subnet.ipv4, subnet.ipv6].into_iter().flatten()
}
