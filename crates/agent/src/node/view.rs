//! Views of a node: for STATUS, for people, and for `check`.

use std::collections::BTreeSet;

use tenure_handles::Timestamp;
use tenure_ipam::block::State;
use tenure_ipam::{Address, Addresses, Cidr, Counts, Subnet};

use super::attachment::{AddressLocation, Phase};
use super::block::Object;
use super::pool::Pool;
use super::{Action, CallError, Fence, Node, PoolError};
use crate::key::{HoldKey, Pod};

/// What is known of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Somebody has it.
    Held(HoldView),
    /// It was freed, and is not assigned again before that time unless nothing else is left.
    Cooling {
        /// The block that it is in.
        block: String,
        /// Its last holder, if still known.
        last: Option<(HoldKey, Pod)>,
        /// When it has cooled.
        until: Timestamp,
    },
    /// Nobody has it.
    Free {
        /// The block that it is in.
        block: String,
    },
    /// It is not assigned: excluded, or in a block that nothing is assigned from.
    KeptBack {
        /// The block that it is in.
        block: String,
    },
    /// It is in no block of this node.
    NotHere,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// Its pool; empty if unknown.
    pub pool: String,
    /// The name of its block; `None` if it is in no block of this node.
    pub block: Option<String>,
    /// The addresses.
    pub addresses: Addresses,
    /// Since when.
    pub since: Timestamp,
    /// Whether the interface is ours.
    pub interface: bool,
    /// Whether nothing is in progress: neither its ADD nor its DEL.
    pub settled: bool,
    /// Whether packets no longer arrive at it, because its pod is gone and its address may have another
    /// holder.
    pub silenced: bool,
    /// The claim that owns the addresses, if any.
    pub claim: Option<ClaimView>,
}

/// A claim whose addresses a holder has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// Its UID.
    pub uid: String,
    /// Its namespace and name.
    pub name: String,
    /// Whether packets for its addresses should arrive at this holder.
    pub reached: bool,
    /// Whether routes lead to this holder's interface, if it is ours. They also do for a moment after it is
    /// no longer reached.
    pub routed: bool,
}

/// An interface of ours that a pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceView {
    /// The network, container and interface.
    pub key: HoldKey,
    /// The pod.
    pub pod: Pod,
    /// The path of the pod's network namespace.
    pub netns: String,
    /// Its addresses.
    pub addresses: Addresses,
}

/// A cooling address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoolingView {
    /// The name of its block.
    pub block: String,
    /// The addresses.
    pub addresses: Addresses,
    /// When it has cooled.
    pub until: Timestamp,
    /// Its last holder, if still known.
    pub last: Option<(HoldKey, Pod)>,
}

/// A holder that waits for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingView {
    /// The holder.
    pub key: HoldKey,
    /// Its pod.
    pub pod: Pod,
    /// The pool.
    pub pool: String,
    /// Since when.
    pub since: Timestamp,
}

/// How far the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalView {
    /// Records since the start.
    pub records: u64,
    /// How many of them are committed.
    pub committed: u64,
    /// Whether it cannot be written at present.
    pub broken: bool,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its pool.
    pub pool: String,
    /// Its networks.
    pub subnet: Subnet,
    /// The states of its addresses.
    pub counts: Counts,
    /// Why nothing is assigned from it any more, if so.
    pub fence: Option<Fence>,
    /// Whether addresses are assigned from it.
    pub usable: bool,
}

/// A pool, as far as this node uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Blocks that addresses are assigned from.
    pub blocks: usize,
    /// The states of their addresses.
    pub counts: Counts,
    /// ADDs that wait for an address.
    pub waiting: usize,
    /// Blocks that were requested.
    pub asked: usize,
    /// The last refusal, while it applies.
    pub trouble: Option<String>,
}

impl Node {
    /// Whether an ADD could be served: for STATUS.
    pub fn status(&self) -> Result<(), CallError> {
        self.ready()?;
        if self.commits.is_broken() {
            return Err(CallError::JournalBroken);
        }
        let giving: Vec<PoolView> = self
            .pools()
            .into_iter()
            .filter(|it| self.pools.get(&it.name).is_some_and(Pool::is_giving))
            .collect();
        if giving.is_empty() {
            return Err(PoolError::NoneAtAll.into());
        }
        let refused = |view: &PoolView| {
            let refused = self.pools.get(&view.name).is_some_and(Pool::is_refused);
            refused && view.counts.free == 0 && view.counts.cooling == 0
        };
        if giving.iter().any(|view| !refused(view)) {
            return Ok(());
        }
        let reason = |it: &PoolView| format!("{}: {}", it.name, it.trouble.as_deref().unwrap_or_default());
        Err(PoolError::NothingLeft(giving.iter().map(reason).collect()).into())
    }

    /// Who holds an address.
    pub fn who(&self, address: Address) -> Who {
        let holders = self.attachments.values().filter(|it| it.every_address().contains(&address));
        // Of several users of a claim, the one that packets arrive at.
        if let Some(held) = holders.max_by_key(|it| it.use_state().is_none_or(|use_state| use_state.reached))
        {
            return Who::Held(self.hold_view(held));
        }
        let blocks = self.blocks.values().filter(|block| block.has(address));
        let Some(block) = blocks.min_by_key(|block| block.fence.is_some()) else { return Who::NotHere };
        let name = block.facts.name.clone();
        match block.engine.state(address) {
            Ok(State::Cooling(cooling)) => {
                let last = self.former.get(cooling.last.key).map(|it| (it.key.clone(), it.pod.clone()));
                Who::Cooling { block: name, last, until: cooling.until }
            }
            Ok(State::Free) if block.is_usable() => Who::Free { block: name },
            _ => Who::KeptBack { block: name },
        }
    }

    /// All holds, ordered by key.
    pub fn holds(&self) -> Vec<HoldView> {
        let held =
            self.attachments.values().filter(|it| it.place != AddressLocation::Nowhere && !it.is_unknown());
        let mut holds: Vec<HoldView> = held.map(|it| self.hold_view(it)).collect();
        holds.sort_by(|one, other| one.key.cmp(&other.key));
        holds
    }

    /// The interfaces of ours that pods have; nothing before all is known.
    pub fn interfaces(&self) -> Option<Vec<InterfaceView>> {
        if self.start.is_some() {
            return None;
        }
        let whole = |it: &&super::attachment::Attachment| it.phase == Phase::Held && it.interface;
        let interfaces = self.attachments.values().filter(whole).map(|it| InterfaceView {
            key: it.key.clone(),
            pod: it.pod.clone(),
            netns: it.netns.clone(),
            addresses: it.addresses(),
        });
        Some(interfaces.collect())
    }

    /// All cooling addresses, ordered by block and address.
    pub fn what_cools(&self) -> Vec<CoolingView> {
        let mut views = Vec::new();
        for block in self.blocks.values() {
            views.extend(block.engine.cooling().map(|cooling| CoolingView {
                block: block.facts.name.clone(),
                addresses: cooling.addresses,
                until: cooling.until,
                last: self.former.get(cooling.last.key).map(|it| (it.key.clone(), it.pod.clone())),
            }));
        }
        views.sort_by(|one, other| {
            let first = |view: &CoolingView| view.addresses.iter().next();
            (&one.block, first(one)).cmp(&(&other.block, first(other)))
        });
        views
    }

    /// Holders that wait for an address, longest first.
    pub fn waiting(&self) -> Vec<WaitingView> {
        let waiting = self.attachments.values().filter(|it| it.phase == Phase::Waiting);
        let mut views: Vec<WaitingView> = waiting
            .map(|it| WaitingView {
                key: it.key.clone(),
                pod: it.pod.clone(),
                pool: it.pool.clone(),
                since: it.adds.iter().map(|(_, since)| *since).min().unwrap_or(self.now),
            })
            .collect();
        views.sort_by(|one, other| (one.since, &one.key).cmp(&(other.since, &other.key)));
        views
    }

    /// The number of holders with an address.
    pub fn hold_count(&self) -> usize {
        self.attachments
            .values()
            .filter(|it| it.place != AddressLocation::Nowhere && !it.is_unknown())
            .count()
    }

    /// How far the journal is.
    pub fn journal(&self) -> JournalView {
        self.commits.view()
    }

    /// All blocks, ordered by name.
    pub fn blocks(&self) -> Vec<BlockView> {
        let views = self.blocks.values().map(|block| BlockView {
            name: block.facts.name.clone(),
            uid: block.facts.uid.clone(),
            pool: block.facts.pool.clone(),
            subnet: block.facts.subnet,
            counts: block.engine.counts(),
            fence: block.fence.clone(),
            usable: block.is_usable(),
        });
        let mut views: Vec<BlockView> = views.collect();
        views.sort_by(|one, other| (&one.name, &one.uid).cmp(&(&other.name, &other.uid)));
        views
    }

    /// All pools, ordered by name.
    pub fn pools(&self) -> Vec<PoolView> {
        let view = |(name, pool): (&String, &Pool)| {
            let mut counts = Counts::default();
            let usable = || self.blocks.values().filter(|it| it.facts.pool == *name && it.is_usable());
            for block in usable() {
                let of = block.engine.counts();
                counts.capacity = counts.capacity.saturating_add(of.capacity);
                counts.held += of.held;
                counts.reserved = counts.reserved.saturating_add(of.reserved);
                if block.pod.is_some() {
                    // Nobody else can have it.
                    counts.reserved = counts.reserved.saturating_add(of.free).saturating_add(of.cooling);
                } else {
                    counts.cooling += of.cooling;
                    counts.free = counts.free.saturating_add(of.free);
                }
            }
            PoolView {
                name: name.clone(),
                blocks: usable().count(),
                counts,
                waiting: pool.queue.len(),
                asked: self.asks.values().filter(|ask| ask.pool == *name).count(),
                trouble: pool.trouble.as_ref().map(|trouble| trouble.message.clone()),
            }
        };
        self.pools.iter().map(view).collect()
    }

    /// Whether all is replayed.
    pub fn is_ready(&self) -> bool {
        self.start.is_none()
    }

    /// Whether nothing is in progress: every call was answered.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.attachments.values().all(|it| it.phase == Phase::Held) && self.jobs.is_empty()
    }

    /// Exports the blocks whose objects name this node, if that changed.
    pub(super) fn export(&mut self) {
        let exported = |block: &&super::block::Owned| {
            let unexported = self.pools.get(&block.facts.pool).is_some_and(|pool| pool.unexported);
            block.object == Object::Ours && !block.is_slice() && !unexported
        };
        let ours = self.blocks.values().filter(exported);
        let blocks = ours.flat_map(super::block::Owned::networks);
        let mut networks: Vec<Cidr> = blocks.chain(self.exported_for_claim_users()).collect();
        networks.sort_unstable();
        networks.dedup();
        // Every event gets here, and hardly any changes something.
        if self.exported.as_ref().is_none_or(|exported| !exported.iter().eq(&networks)) {
            let networks: BTreeSet<Cidr> = networks.into_iter().collect();
            self.exported = Some(networks.clone());
            self.actions.push(Action::Export(networks));
        }
    }

    fn hold_view(&self, attachment: &super::attachment::Attachment) -> HoldView {
        let block = attachment.block().and_then(|uid| self.blocks.get(uid));
        HoldView {
            key: attachment.key.clone(),
            pod: attachment.pod.clone(),
            pool: attachment.pool.clone(),
            block: block.map(|block| block.facts.name.clone()),
            addresses: attachment.addresses(),
            since: attachment.since,
            interface: attachment.interface,
            settled: attachment.phase == Phase::Held,
            silenced: attachment.silenced,
            claim: attachment.use_state().map(|use_state| ClaimView {
                uid: use_state.claim.clone(),
                name: use_state.claim_name.clone(),
                reached: use_state.reached,
                routed: use_state.is_routed(),
            }),
        }
    }
}
