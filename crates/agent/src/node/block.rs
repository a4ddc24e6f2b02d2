//! A block that this node owns, or owned.

use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Cidr, Subnet};

use super::Fence;
use crate::journal::BlockFacts;
use crate::key::HolderId;

/// A block that this node owns, or owned as long as anything is held in it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each comes and goes by itself")]
pub(super) struct Owned {
    pub(super) facts: BlockFacts,
    pub(super) engine: Block<HolderId>,
    pub(super) object: Object,
    /// Nobody assigns from it; but it is routed here.
    pub(super) reserved: bool,
    /// Its object is being deleted.
    pub(super) deleting: bool,
    /// Somebody means to release it: nothing is assigned from it before that is taken back.
    pub(super) releasing: bool,
    /// When that was last asked for.
    pub(super) objected: Option<Timestamp>,
    /// Set for good once nothing is assigned from it any more.
    pub(super) fence: Option<Fence>,
    /// Where the journal says so.
    pub(super) fence_position: u64,
    /// Addresses of it may be in use although nobody here knows.
    pub(super) doubted: bool,
    /// And nothing is assigned from it before others were asked twice.
    pub(super) withheld: bool,
    /// When they gave the first complete answer since.
    pub(super) observed: Option<Timestamp>,
    /// Nothing is assigned from it before others gave one complete answer.
    pub(super) unasked: bool,
    /// The UID of a block that has some of its addresses.
    pub(super) shadow: Option<String>,
    /// Since when nothing is held in it.
    pub(super) empty_since: Timestamp,
    /// When it was last given back.
    pub(super) sent: Option<Timestamp>,
}

/// What became of a block's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// It names this node.
    Ours,
    /// It names another.
    Elsewhere,
    /// There is none any more.
    Gone,
}

impl Owned {
    /// A block in which nothing is held; `None` if these networks make no space.
    pub(super) fn new(facts: BlockFacts, cooling: Duration, now: Timestamp) -> Option<Self> {
        let engine = Block::new(facts.subnet.space()?.ok()?, cooling);
        Some(Self {
            facts,
            engine,
            object: Object::Ours,
            reserved: false,
            deleting: false,
            releasing: false,
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
            && !self.withheld
            && !self.unasked
    }

    /// Whether it will be usable as soon as the API says that nobody means to release it any more.
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

    /// Whether the address is one of its.
    pub(super) fn has(&self, address: Address) -> bool {
        self.networks().any(|network| network.contains(address))
    }

    /// Whether it has an address in common with the other block.
    pub(super) fn rivals(&self, other: &BlockFacts) -> bool {
        let overlaps = |own: Cidr| networks(&other.subnet).any(|other| own.overlaps(&other));
        shares_realm(&self.facts, other) && self.networks().any(overlaps)
    }

    /// Whether it is a slice of a range, which is neither asked for nor given back.
    pub(super) fn is_slice(&self) -> bool {
        !self.facts.realm.is_empty()
    }

    /// Whether nothing is held, and nothing cools either.
    pub(super) fn is_at_rest(&self) -> bool {
        let counts = self.engine.counts();
        counts.held == 0 && counts.cooling == 0
    }

    /// When something was freed that cools until then.
    pub(super) fn freed_at(&self, until: Timestamp) -> Timestamp {
        let rest = u64::try_from(self.engine.rest().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(until.as_millis().saturating_sub(rest))
    }

    /// When the last of what cools was freed.
    pub(super) fn last_freed(&self) -> Option<Timestamp> {
        self.cool_at().map(|until| self.freed_at(until))
    }

    /// When the last of what cools has cooled.
    pub(super) fn cool_at(&self) -> Option<Timestamp> {
        self.engine.cooling().map(|cooling| cooling.until).max()
    }
}

/// Whether the same address of both blocks is one and the same: in a realm, and in a pool, also if that was thought to be
/// of another realm before.
pub(super) fn shares_realm(one: &BlockFacts, other: &BlockFacts) -> bool {
    one.realm == other.realm || one.pool == other.pool
}

fn networks(subnet: &Subnet) -> impl Iterator<Item = Cidr> + use<> {
    [subnet.ipv4, subnet.ipv6].into_iter().flatten()
}
