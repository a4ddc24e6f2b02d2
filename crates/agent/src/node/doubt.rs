//! Doubt: blocks whose holds may be incomplete, because a journal of this boot was lost or damaged while containers ran.
//!
//! The kernel's list shows the links that we created, but no interfaces that other plugins created with our addresses. So
//! nothing is assigned from a block of that time before other sources were asked who uses its addresses: every network
//! namespace that can be found, the pods of this node, and the runtime's cached results ([`Action::Consult`]).
//!
//! ```text
//!   a start with a journal that was lost                two complete answers, as far apart as addresses cool
//!   ─────────────────────────────────────▶ withheld ──────────────────────────────────────────────────────▶ doubted
//!                                                                                                              │
//!                         trusted ◀────────────────────────────────────────────────────────────────────────────┘
//!                                        no unknown holder uses its addresses
//! ```
//!
//! Meanwhile the node requests new blocks, and assigns from them after one complete answer: running containers may have
//! addresses of any block. An address in use is held if the runtime knows its holder. Otherwise it is reserved until two
//! complete answers say that nobody uses it; then it cools. A doubted block is not returned. The journal records that other
//! sources are being asked and which blocks are doubted, so that a restart does not make them trusted.

use std::collections::BTreeMap;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Granted, State};

use super::attachment::{AddressLocation, Attachment};
use super::block::Owned;
use super::{Action, Job, Node, Planted};
use crate::journal::{Known, Record};
use crate::key::{HoldKey, Pod};

/// How much longer than between two observations the node waits between two consultations that only wait for
/// an unknown user to end.
const PATIENT: u32 = 4;
/// How much sooner the node asks again while nothing can be assigned before there is an answer.
const IMPATIENT: u32 = 10;

/// What other sources say about who uses which addresses on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consulted {
    /// Whether all sources could be asked. Absence counts only then.
    pub complete: bool,
    /// What is in use.
    pub uses: Vec<Use>,
}

/// Addresses in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The addresses.
    pub addresses: Vec<Address>,
    /// The holder, if the runtime knows it.
    pub key: Option<HoldKey>,
    /// The pod, as far as known.
    pub pod: Pod,
    /// The path of the namespace; empty if unknown.
    pub netns: String,
}

/// What the node doubts.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// When to ask again; `None` without doubt.
    consult_at: Option<Timestamp>,
    consulting: Option<Job>,
    /// Whether there was no complete answer since the start.
    blind: bool,
    /// Whether there was one complete answer but not a second.
    once: bool,
    /// Addresses with an unknown user, and since when each was no longer seen.
    used: BTreeMap<Address, Option<Timestamp>>,
}

impl Doubt {
    /// When to ask other sources.
    pub(super) fn moment(&self) -> Option<Timestamp> {
        self.consult_at.filter(|_| self.consulting.is_none())
    }

    /// Addresses with an unknown user.
    pub(super) fn used(&self) -> impl Iterator<Item = Address> {
        self.used.keys().copied()
    }
}

impl Node {
    /// At a start, before any block is known: asks other sources first.
    pub(super) fn ask_first(&mut self, known: Known) {
        self.doubt.blind = known != Known::All && !self.has_planted(Planted::LostJournalTrusted);
    }

    /// After a start: decides which blocks are doubted.
    pub(super) fn doubt_after_start(&mut self, known: Known) {
        if !self.doubt.blind {
            return;
        }
        let lost = known == Known::Lost;
        if lost && self.blocks.is_empty() && self.attachments.is_empty() {
            // A node without blocks has lost nothing: it is the node's first start.
            self.doubt.blind = false;
            self.record(Record::Known(Known::All));
            return;
        }
        let doubted = self.blocks.iter().filter(|(_, block)| lost || block.doubted);
        let doubted: Vec<String> = doubted.map(|(uid, _)| uid.clone()).collect();
        for uid in &doubted {
            self.withhold(uid);
        }
        if lost {
            self.record(Record::Known(Known::Asking));
        }
        self.doubt.consult_at = Some(self.now);
        self.consult();
    }

    /// Assigns nothing from a block before other sources were asked twice who uses its addresses.
    fn withhold(&mut self, uid: &str) {
        self.doubt_block(uid);
        let Some(block) = self.blocks.get_mut(uid) else { return };
        (block.withheld, block.observed) = (true, None);
        let pool = block.facts.pool.clone();
        self.touch(&pool);
    }

    /// Marks a block: unknown holders may use its addresses.
    fn doubt_block(&mut self, uid: &str) {
        let Some(block) = self.blocks.get_mut(uid) else { return };
        if !std::mem::replace(&mut block.doubted, true) {
            self.record(Record::Doubted { uid: uid.to_owned(), doubted: true });
        }
    }

    /// A block that arrives while other sources are being asked, or that shares addresses with a doubted one,
    /// is doubted as well.
    pub(super) fn inherit_doubt(&mut self, uid: &str) {
        let blind = self.doubt.blind;
        let Some(block) = self.blocks.get_mut(uid) else { return };
        block.unasked |= blind;
        let facts = block.facts.clone();
        let rival =
            |(other, block): (&String, &Owned)| *other != uid && block.doubted && block.overlaps(&facts);
        if self.blocks.iter().any(rival) {
            self.withhold(uid);
        } else if self.has_used(uid) {
            self.doubt_block(uid);
        }
    }

    fn has_used(&self, uid: &str) -> bool {
        self.blocks.get(uid).is_some_and(|block| self.doubt.used().any(|address| block.has(address)))
    }

    /// Asks other sources if it is time.
    pub(super) fn consult(&mut self) {
        if self.doubt.moment().is_none_or(|at| at > self.now) {
            return;
        }
        let job = Job(self.number());
        self.doubt.consulting = Some(job);
        self.actions.push(Action::Consult { job });
    }

    pub(super) fn consulted(&mut self, job: Job, consulted: Consulted) {
        if self.doubt.consulting != Some(job) {
            return;
        }
        self.doubt.consulting = None;
        let Consulted { complete, uses } = consulted;
        let mut seen: Vec<Address> = Vec::new();
        for used in uses {
            self.hold_used(&used);
            seen.extend(used.addresses);
        }
        seen.retain(|address| self.matters(*address) && !self.is_accounted_for(*address));
        if complete {
            self.forget_unused(&seen);
        }
        for address in seen {
            self.doubt.used.insert(address, None);
        }
        if complete {
            self.lift();
        }
        let known: Vec<String> = self.blocks.keys().cloned().collect();
        for uid in &known {
            if self.has_used(uid) {
                self.doubt_block(uid);
            }
            self.reserve(uid);
            self.trust_block(uid);
        }
        self.consult_again();
        self.touched.extend(self.blocks.values().map(|block| block.facts.pool.clone()));
    }

    /// Schedules the next consultation, or ends the doubt.
    fn consult_again(&mut self) {
        let every = self.settings.look_every;
        let Doubt { blind, once, .. } = self.doubt;
        let wait = if blind {
            every / IMPATIENT
        } else if once || self.blocks.values().any(|block| block.withheld) {
            every
        } else {
            every.saturating_mul(PATIENT)
        };
        let doubted = !self.doubt.used.is_empty() || self.blocks.values().any(|block| block.doubted);
        let again = blind || once || doubted;
        self.doubt.consult_at = again.then(|| self.now.plus(wait));
        if !again {
            self.record(Record::Known(Known::All));
        }
    }

    /// Holds addresses in use, if the runtime knows the holder and its end can be observed.
    fn hold_used(&mut self, used: &Use) {
        let Some(key) = used.key.clone().filter(|_| !used.netns.is_empty()) else { return };
        let (id, Some(first)) = (key.id(), used.addresses.first().copied()) else { return };
        let taken = self.attachments.values().any(|it| it.every_address().contains(&first));
        if self.attachments.contains_key(&id) || taken {
            return;
        }
        // All holds of a trusted block are known, and the records of slices name the other holders.
        let mut blocks = self.blocks.values_mut();
        let Some(block) = blocks.find(|it| it.doubted && !it.is_slice() && it.has(first)) else { return };
        let Ok(Granted::New(hold)) = block.engine.replay(id, first, None) else { return };
        if !used.addresses.iter().all(|address| hold.addresses.iter().any(|own| own == *address)) {
            block.engine.release(&id, hold.sequence, self.now);
            return;
        }
        let (pool, uid) = (block.facts.pool.clone(), block.facts.uid.clone());
        let mut attachment = super::replay::attachment(key, used.pod.clone(), pool, false, self.now);
        attachment.netns.clone_from(&used.netns);
        attachment.place = AddressLocation::Block { uid, hold };
        if let Some(held) = attachment.held() {
            self.record(Record::Held(held));
        }
        self.attachments.insert(id, attachment);
    }

    /// Whether an address is in a block or pool of this node.
    fn matters(&self, address: Address) -> bool {
        let of_block = self.blocks.values().any(|block| block.has(address));
        let networks = |facts: &super::PoolFacts| {
            let networks = facts.subnets.iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]);
            networks.flatten().any(|network| network.contains(address))
        };
        of_block || self.pools.values().filter_map(|pool| pool.facts.as_ref()).any(networks)
    }

    /// Whether the holder of an address is known in every block that contains it. The address of a link that
    /// was only found may have another user as well, so its doubt outlives the link.
    fn is_accounted_for(&self, address: Address) -> bool {
        let held = self.attachments.values().filter(|it| !matches!(it.place, AddressLocation::Stray(_)));
        let known = held.flat_map(Attachment::every_address).any(|it| it == address);
        let open = |block: &Owned| {
            let held = matches!(block.engine.state(address), Ok(State::Held(_)));
            block.fence.is_none() && block.has(address) && !held
        };
        known && !self.blocks.values().any(open)
    }

    /// Starts the cooling of addresses that were not seen for the second time.
    fn forget_unused(&mut self, seen: &[Address]) {
        let (now, apart) = (self.now, self.settings.look_apart);
        let mut over = Vec::new();
        self.doubt.used.retain(|address, gone| {
            if seen.contains(address) {
                return true;
            }
            let since = *gone.get_or_insert(now);
            let goes = since.plus(apart) <= now;
            over.extend(goes.then_some(*address));
            !goes
        });
        for address in over {
            let blocks = self.blocks.iter().filter(|(_, it)| it.fence.is_none() && it.has(address));
            let blocks: Vec<String> = blocks.map(|(uid, _)| uid.clone()).collect();
            for uid in blocks {
                self.reserve(&uid);
                self.cool_unknown(&uid, address);
            }
        }
    }

    /// Assigns from withheld blocks again, once two complete answers are at least the cooling time apart:
    /// addresses that were freed just before the journal was lost have cooled by then.
    fn lift(&mut self) {
        let (now, apart) = (self.now, self.settings.look_apart);
        self.doubt.once = std::mem::take(&mut self.doubt.blind);
        for block in self.blocks.values_mut() {
            block.unasked = false;
            let rest = apart.max(block.engine.rest());
            let first = *block.observed.get_or_insert(now);
            block.withheld &= first.plus(rest) > now;
        }
    }

    /// Ends the doubt about a block if no unknown holder uses an address of it.
    fn trust_block(&mut self, uid: &str) {
        let Some(block) = self.blocks.get(uid).filter(|block| block.doubted && !block.withheld) else {
            return;
        };
        if self.doubt.used().any(|address| block.has(address)) {
            return;
        }
        if let Some(block) = self.blocks.get_mut(uid) {
            (block.doubted, block.observed) = (false, None);
        }
        self.record(Record::Doubted { uid: uid.to_owned(), doubted: false });
        self.dismiss(uid);
    }
}
