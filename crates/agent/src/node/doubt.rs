//! Doubt: blocks of which holds may be forgotten, because a journal of this boot was lost or damaged while containers ran.
//!
//! The kernel's own list shows the links that we made, and nothing of the interfaces that other plugins made with addresses of
//! ours. So nothing is assigned from a block of that time before others were asked who uses its addresses: every network namespace
//! that can be found, the pods of this node, and what the runtime remembers of its calls ([`Action::Consult`]).
//!
//! ```text
//!   a start with a journal that was lost                two complete answers, as far apart as addresses cool
//!   ─────────────────────────────────────▶ withheld ──────────────────────────────────────────────────────▶ doubted
//!                                                                                                              │
//!                         trusted ◀────────────────────────────────────────────────────────────────────────────┘
//!                                        none of its addresses is used by somebody unknown any more
//! ```
//!
//! New blocks are asked for meanwhile, and are assigned from as soon as there was one complete answer: what runs here may have
//! addresses of any block. What is found in use is held where the runtime says whose it is, and kept back otherwise, until two
//! complete answers say that nobody uses it; then it cools. A block goes back to nobody while it is doubted. The journal remembers
//! that others are being asked, and which blocks are doubted, so that a restart does not make them trusted.

use std::collections::BTreeMap;

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Granted, State};

use super::attachment::{AddressLocation, Attachment};
use super::block::Owned;
use super::{Action, Job, Node, Planted};
use crate::journal::{Known, Record};
use crate::key::{HoldKey, Pod};

/// How many times as long as between two looks it is between two consultations that only wait for somebody to go.
const PATIENT: u32 = 4;
/// And how much sooner others are asked again when nothing can be assigned before they answer.
const IMPATIENT: u32 = 10;

/// What others say about who uses which addresses on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consulted {
    /// Whether all could be asked. What is not there counts only then.
    pub complete: bool,
    /// What is in use.
    pub uses: Vec<Use>,
}

/// Addresses in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The addresses.
    pub addresses: Vec<Address>,
    /// Whose they are, if the runtime says so.
    pub key: Option<HoldKey>,
    /// The pod, as far as it is known.
    pub pod: Pod,
    /// The path of the namespace; empty if it is not known.
    pub netns: String,
}

/// What is doubted.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// When others are to be asked next; nothing if there is no doubt.
    consult_at: Option<Timestamp>,
    consulting: Option<Job>,
    /// Whether there was no complete answer since the start.
    blind: bool,
    /// Whether there was one, and not a second one.
    once: bool,
    /// Addresses that somebody uses whom nobody knows, each since when it was not seen any more.
    used: BTreeMap<Address, Option<Timestamp>>,
}

impl Doubt {
    /// When others are to be asked.
    pub(super) fn moment(&self) -> Option<Timestamp> {
        self.consult_at.filter(|_| self.consulting.is_none())
    }

    /// Addresses that somebody uses whom nobody knows.
    pub(super) fn used(&self) -> impl Iterator<Item = Address> {
        self.used.keys().copied()
    }
}

impl Node {
    /// At a start, before any block is known: others come first.
    pub(super) fn ask_first(&mut self, known: Known) {
        self.doubt.blind = known != Known::All && !self.has_planted(Planted::LostJournalTrusted);
    }

    /// After a start: which blocks are doubted.
    pub(super) fn doubt_after_start(&mut self, known: Known) {
        if !self.doubt.blind {
            return;
        }
        let lost = known == Known::Lost;
        if lost && self.blocks.is_empty() && self.attachments.is_empty() {
            // Who owns nothing has forgotten nothing: the first start on a node.
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

    /// Nothing is assigned from a block before others were asked twice who uses its addresses.
    fn withhold(&mut self, uid: &str) {
        self.doubt_block(uid);
        let Some(block) = self.blocks.get_mut(uid) else { return };
        (block.withheld, block.observed) = (true, None);
        let pool = block.facts.pool.clone();
        self.touch(&pool);
    }

    /// Addresses of a block may be in use although nobody here knows.
    fn doubt_block(&mut self, uid: &str) {
        let Some(block) = self.blocks.get_mut(uid) else { return };
        if !std::mem::replace(&mut block.doubted, true) {
            self.record(Record::Doubted { uid: uid.to_owned(), doubted: true });
        }
    }

    /// A block that comes while others are being asked, or with addresses of one that is doubted, is no less in doubt.
    pub(super) fn inherit_doubt(&mut self, uid: &str) {
        let blind = self.doubt.blind;
        let Some(block) = self.blocks.get_mut(uid) else { return };
        block.unasked |= blind;
        let facts = block.facts.clone();
        let rival =
            |(other, block): (&String, &Owned)| *other != uid && block.doubted && block.rivals(&facts);
        if self.blocks.iter().any(rival) {
            self.withhold(uid);
        } else if self.has_used(uid) {
            self.doubt_block(uid);
        }
    }

    fn has_used(&self, uid: &str) -> bool {
        self.blocks.get(uid).is_some_and(|block| self.doubt.used().any(|address| block.has(address)))
    }

    /// Asks others, if it is time.
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

    /// Says when others are asked again, or ends the doubt.
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

    /// Holds what is in use, if the runtime says whose it is and its end can be seen.
    fn hold_used(&mut self, used: &Use) {
        let Some(key) = used.key.clone().filter(|_| !used.netns.is_empty()) else { return };
        let (id, Some(first)) = (key.id(), used.addresses.first().copied()) else { return };
        let taken = self.attachments.values().any(|it| it.every_address().contains(&first));
        if self.attachments.contains_key(&id) || taken {
            return;
        }
        // What a trusted block holds is known, and records of slices say whose the rest is.
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

    /// Whether an address is of a block or pool of this node's.
    fn matters(&self, address: Address) -> bool {
        let of_block = self.blocks.values().any(|block| block.has(address));
        let networks = |facts: &super::PoolFacts| {
            let networks = facts.subnets.iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]);
            networks.flatten().any(|network| network.contains(address))
        };
        of_block || self.pools.values().filter_map(|pool| pool.facts.as_ref()).any(networks)
    }

    /// Whether it is known who has an address, in every block that has it. That of a link which was only found may be somebody
    /// else's, too: it outlasts the link.
    fn is_accounted_for(&self, address: Address) -> bool {
        let held = self.attachments.values().filter(|it| !matches!(it.place, AddressLocation::Stray(_)));
        let known = held.flat_map(Attachment::every_address).any(|it| it == address);
        let open = |block: &Owned| {
            let held = matches!(block.engine.state(address), Ok(State::Held(_)));
            block.fence.is_none() && block.has(address) && !held
        };
        known && !self.blocks.values().any(open)
    }

    /// What is not seen any more, for the second time, cools.
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

    /// Assigns from what was withheld again, if two complete answers lie as far apart as addresses cool: what was freed just before
    /// the journal was lost has cooled by then.
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

    /// Ends the doubt about a block, if nobody unknown uses an address of it.
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
