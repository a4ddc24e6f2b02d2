//! A start: nothing is assigned before all holds are known, from the journal, the kernel and the API.
//!
//! Each of the three knows what the others may not. The API knows which blocks are this node's. The journal
//! knows holds without an interface of ours, sequence numbers, and what cools. The kernel knows what was
//! wired just before a crash, and what is really in use when a journal was lost. Where they disagree about a
//! running pod, the kernel is right.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Granted};

use super::adopt::facts_of;
use super::attachment::{AddressLocation, Attachment, Former, Phase};
use super::block::{Object, Owned};
use super::event::{Attach, Found, SeenSlice, Wish};
use super::{CallError, Fence, Node, Planted, Report, Settings};
use crate::journal::{BlockFacts, Held, Image, ImageBlock, Known, Record, Released};
use crate::key::{HoldKey, HolderId, Pod};

/// The prefix of block UIDs in the journal for holds that fit no block. No real UID begins like this.
const LOST: &str = "*/";

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Start {
    journal: Option<Image>,
    kernel: Option<Vec<Found>>,
    api: bool,
    /// Those of [`Settings::sources`] that were read.
    sources: BTreeSet<&'static str>,
    /// The blocks in the API, by UID.
    pub(super) blocks: BTreeMap<String, SeenSlice>,
}

impl Start {
    /// The sources that were not read yet.
    fn unread<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'static str> + 'a {
        settings.sources.iter().copied().filter(|source| !self.sources.contains(source))
    }
}

impl Node {
    /// Whether all is replayed; the error says what is missing.
    pub(super) fn ready(&self) -> Result<(), CallError> {
        let Some(start) = &self.start else { return Ok(()) };
        let missing = [
            ("its journal", start.journal.is_some()),
            ("the kernel's links", start.kernel.is_some()),
            ("its pools and blocks from the API server", start.api),
        ];
        let missing = missing.into_iter().filter(|(_, read)| !read).map(|(name, _)| name);
        let missing: Vec<&str> = missing.chain(start.unread(&self.settings)).collect();
        Err(CallError::NotRead(missing.join(" and ")))
    }

    pub(super) fn read_journal(&mut self, image: Image) {
        if let Some(start) = self.start.as_mut().filter(|start| start.journal.is_none()) {
            let latest = image.latest();
            start.journal = Some(image);
            self.go_on_from(latest);
        }
        self.try_replay();
    }

    pub(super) fn read_kernel(&mut self, found: Vec<Found>) {
        if let Some(start) = &mut self.start {
            start.kernel.get_or_insert(found);
        }
        self.try_replay();
    }

    pub(super) fn read_api(&mut self) {
        if let Some(start) = &mut self.start {
            start.api = true;
        }
        self.try_replay();
    }

    pub(super) fn read_source(&mut self, source: &'static str) {
        if let Some(start) = &mut self.start {
            start.sources.insert(source);
        }
        self.try_replay();
    }

    /// What the journal knows of blocks at a start; `None` if it was not read yet.
    pub(super) fn journal_at_start(&self) -> Option<&Image> {
        self.start.as_ref()?.journal.as_ref()
    }

    fn try_replay(&mut self) {
        if self.has_planted(Planted::KernelUnread)
            && let Some(start) = &mut self.start
        {
            start.kernel.get_or_insert_default();
        }
        let sources = self.start.as_ref().is_some_and(|start| start.unread(&self.settings).next().is_none());
        match self.start.take() {
            Some(Start { journal: Some(journal), kernel: Some(kernel), api: true, blocks, .. })
                if sources =>
            {
                self.replay(&journal, kernel, blocks);
            }
            unfinished => self.start = unfinished,
        }
    }

    fn replay(&mut self, journal: &Image, kernel: Vec<Found>, mut blocks: BTreeMap<String, SeenSlice>) {
        self.ask_first(journal.known());
        for (uid, block) in journal.blocks() {
            self.restore(uid, block, journal.latest(), blocks.remove(uid).as_ref());
        }
        let restored: Vec<String> = self.blocks.keys().cloned().collect();
        for uid in &restored {
            if self.blocks.get(uid).is_some_and(|block| block.fence.is_none()) {
                self.clear(uid);
            }
        }
        for seen in blocks.into_values() {
            let known = self.knows_name(&seen);
            if seen.block.node == self.settings.node {
                self.adopt(seen, known);
            } else if !known {
                self.adopt_leftover(seen);
            }
        }
        for use_record in journal.claim_uses() {
            self.put_claim_user(use_record);
        }
        for found in kernel {
            self.found(found, journal.known() == Known::Lost);
        }
        self.settle_claim_users();
        self.doubt_after_start(journal.known());
        // Found links may use addresses of any block.
        let known: Vec<String> = self.blocks.keys().cloned().collect();
        for uid in &known {
            self.reserve(uid);
            self.dismiss(uid);
        }
        let pools = self.pools.keys().chain(self.blocks.values().map(|block| &block.facts.pool));
        self.touched = pools.cloned().collect();
        self.repair_routes();
        self.look_after_a_while();
        let holds = self.hold_count();
        self.report(Report::Replayed { blocks: self.blocks.len(), holds });
        self.judge_all();
    }

    /// Restores a block from the journal, in the state that the API gives. `latest` is when the journal ends.
    fn restore(&mut self, uid: &str, image: &ImageBlock, latest: Timestamp, seen: Option<&SeenSlice>) {
        let facts = image.facts.clone().or_else(|| seen.map(facts_of));
        let cooling = facts.as_ref().map_or(self.settings.cooling, |facts| self.cooling(&facts.pool));
        let Some(mut block) = facts.and_then(|facts| Owned::new(facts, cooling, self.now)) else {
            // Nobody knows which block this was. Its held addresses must not be assigned, whatever block they
            // are in.
            for held in image.holds() {
                self.put_stray(held);
            }
            if !is_lost(uid) || image.holds().next().is_none() {
                self.record(Record::Forgotten { uid: uid.to_owned() });
            }
            return;
        };
        if image.facts.is_none() {
            // The next start must know it, even if no source reports it any more.
            self.record(Record::Owned(block.facts.clone()));
        }
        block.fence = image.fenced.then_some(Fence::Before);
        block.doubted = image.doubted;
        for (held, freed) in image.freed() {
            let (id, address) = (held.key.id(), held.addresses.iter().next());
            let replayed = address.map(|address| block.engine.replay(id, address, Some(held.sequence)));
            if let Some(Ok(Granted::New(hold))) = replayed {
                // The time since the journal ended does not count, because the clock may have been set ahead
                // meanwhile.
                let (rest, passed) = (block.engine.rest(), self.now.since(latest));
                let cools = freed.until > latest;
                let until = freed.until.plus(passed).min(self.now.plus(rest));
                if cools && until > freed.until {
                    // The record keeps its old time, so that the journal does not end later before all of
                    // these are in it.
                    let (hold, at) = (held.clone(), freed.at);
                    self.record(Record::Released(Released { hold, at, until }));
                }
                let at = if cools { block.freed_at(until) } else { freed.at };
                block.engine.release(&id, hold.sequence, at);
                self.former.insert(id, Former { key: held.key.clone(), pod: held.pod.clone() });
            }
        }
        let mut strays = Vec::new();
        for held in image.holds() {
            let (id, address) = (held.key.id(), held.addresses.iter().next());
            let replayed = address.map(|address| block.engine.replay(id, address, Some(held.sequence)));
            match replayed {
                Some(Ok(Granted::New(hold))) if hold.addresses == held.addresses => {
                    let place = AddressLocation::Block { uid: uid.to_owned(), hold };
                    self.put_held(held, &block.facts.pool, place);
                }
                _ => strays.push(held),
            }
        }
        let changed = seen.is_some_and(|seen| facts_of(seen) != block.facts);
        let fence = match seen {
            None => Some((Object::Gone, Fence::Gone)),
            Some(seen) if seen.block.node != self.settings.node => {
                Some((Object::Elsewhere, Fence::OtherNode(seen.block.node.clone())))
            }
            Some(_) => changed.then_some((Object::Ours, Fence::Changed)),
        };
        if let Some(seen) = seen {
            (block.reserved, block.deleting) = (seen.block.reserved, seen.block.deleting);
            block.pod.clone_from(&seen.block.pod);
            block.see_mark(seen.block.releasing);
            block.draining = self.drains(&seen.block);
        }
        if let Some((object, _)) = &fence {
            block.object = *object;
        }
        let before = block.fence.is_some();
        let BlockFacts { pool, name, realm, .. } = block.facts.clone();
        self.blocks.insert(uid.to_owned(), block);
        for held in image.holds() {
            self.index_slice_holder(held.key.id());
        }
        for held in strays {
            self.put_stray(held);
        }
        let holds = if before { self.holds_in(uid) } else { Vec::new() };
        if !holds.is_empty() {
            self.report(Report::Fenced {
                pool,
                block: name,
                uid: uid.to_owned(),
                realm,
                fence: Fence::Before,
                holds,
            });
        }
        if let Some((_, fence)) = fence {
            self.fence(uid, fence);
        }
    }

    /// A link that the kernel has.
    fn found(&mut self, found: Found, incomplete: bool) {
        let Found { key, pod, addresses } = found;
        let (id, removes) = (key.id(), self.has_planted(Planted::RemovedAtFirstSight));
        match self.attachments.get_mut(&id) {
            Some(known) if addresses.is_empty() => {
                known.interface = true;
                known.be_routed(false);
            }
            None if addresses.is_empty() && removes => {
                self.attachments.insert(id, attachment(key, pod, String::new(), true, self.now));
                self.unwire(id);
            }
            // Its pod's claim may be elsewhere at present, and the journal would have known that.
            None if addresses.is_empty() && incomplete => {
                let mut unknown = attachment(key, pod, String::new(), true, self.now);
                unknown.place = AddressLocation::Stray(Vec::new());
                self.attachments.insert(id, unknown);
                // The next start must know it too.
                self.write_claim_user(id, false);
            }
            // Its creation was interrupted before it had an address, or somebody removed its route. Two
            // observations will find it.
            None if addresses.is_empty() => {}
            Some(known) if addresses.iter().any(|address| known.every_address().contains(address)) => {
                known.interface = true;
                known.be_routed(true);
            }
            known => {
                // For an unknown link the journal only says that it exists.
                if known.is_some_and(|it| !it.is_unknown()) {
                    self.give_up(id);
                }
                self.place_found(id, key, pod, addresses);
                if incomplete {
                    // The next start must know it too: its route may lead to another link by then.
                    self.write_claim_user(id, false);
                }
            }
        }
    }

    /// Ends a hold that the kernel contradicts.
    fn give_up(&mut self, id: HolderId) {
        let Some(attachment) = self.attachments.remove(&id) else { return };
        if let Some(use_record) = attachment.use_record() {
            self.depart(id, &use_record.claim);
            self.record(Record::ClaimUseEnded(use_record));
            return;
        }
        let Some(hold) = attachment.held() else { return };
        let mut until = self.now;
        if let Some(block) = attachment.block().and_then(|uid| self.blocks.get_mut(uid)) {
            block.engine.release(&id, hold.sequence, self.now);
            until = self.now.plus(block.engine.rest());
        }
        self.record(Record::Released(Released { hold, at: self.now, until }));
    }

    /// Holds the addresses of a link in their block.
    fn place_found(&mut self, id: HolderId, key: HoldKey, pod: Pod, addresses: Vec<Address>) {
        // Links are ours only if their addresses are the cluster's own.
        let has =
            |block: &&mut Owned| !block.is_slice() && addresses.iter().any(|address| block.has(*address));
        let own = |it: &Attachment| match it.block().and_then(|uid| self.blocks.get(uid)) {
            Some(block) => !block.is_slice(),
            None => it.use_state().is_none_or(|use_state| use_state.hosts().next().is_some()),
        };
        let shared =
            |it: &&Attachment| own(it) && it.every_address().iter().any(|own| addresses.contains(own));
        let other = self.attachments.values().find(shared).map(|it| it.key.clone());
        let block = self.blocks.values_mut().filter(has).min_by_key(|block| block.fence.is_some());
        let (mut pool, mut place, mut problem) =
            (String::new(), None, "they are of no block of this node".to_owned());
        if let Some(other) = other {
            problem = format!("{other} has one of them");
        } else if let (Some(block), Some(first)) = (block, addresses.first().copied()) {
            pool.clone_from(&block.facts.pool);
            match block.engine.replay(id, first, None) {
                Ok(granted) => {
                    let hold = granted.hold();
                    if addresses.iter().all(|address| hold.addresses.iter().any(|own| own == *address)) {
                        place = Some(AddressLocation::Block { uid: block.facts.uid.clone(), hold });
                    } else {
                        problem = format!("AddressBlock {:?} does not pair them so", block.facts.name);
                        block.engine.release(&id, hold.sequence, self.now);
                    }
                }
                Err(error) => problem = error.to_string(),
            }
        }
        let mut attachment = attachment(key, pod, pool, true, self.now);
        if let Some(place) = place {
            attachment.place = place;
            if let Some(held) = attachment.held() {
                self.record(Record::Held(held));
            }
        } else {
            let (key, pod) = (attachment.key.clone(), attachment.pod.clone());
            self.report(Report::Stray { key, pod, addresses: addresses.clone(), problem });
            attachment.place = AddressLocation::Stray(addresses);
        }
        self.attachments.insert(id, attachment);
    }

    fn put_held(&mut self, held: &Held, pool: &str, place: AddressLocation) {
        let mut attachment =
            attachment(held.key.clone(), held.pod.clone(), pool.to_owned(), held.interface, held.since);
        attachment.place = place;
        attachment.netns.clone_from(&held.netns);
        self.attachments.insert(held.key.id(), attachment);
    }

    /// A hold of the journal that fits no block. One that was adopted from a slice's record is known by its
    /// key, so that the DEL of its container ends it; without a DEL only its pod tells ([`Node::unseen`]).
    fn put_stray(&mut self, held: &Held) {
        let addresses: Vec<Address> = held.addresses.iter().collect();
        let problem = "the journal's block does not have them".to_owned();
        let (key, pod) = (held.key.clone(), held.pod.clone());
        self.report(Report::Stray { key, pod, addresses: addresses.clone(), problem });
        let pool = if held.key.is_adopted() { held.key.network() } else { "" };
        self.put_held(held, pool, AddressLocation::Stray(addresses));
        self.index_slice_holder(held.key.id());
        let mut held = held.clone();
        if !is_lost(&held.block) {
            // The next start must know it too. Its sequence number is not valid in its block, in case that
            // comes back.
            held.block = format!("{LOST}{}", held.block);
            self.record(Record::Held(held.clone()));
        }
        if let Some(attachment) = self.attachments.get_mut(&held.key.id()) {
            attachment.on_record = Some(held);
        }
    }
}

fn is_lost(uid: &str) -> bool {
    uid.starts_with(LOST)
}

pub(super) fn attachment(
    key: HoldKey,
    pod: Pod,
    pool: String,
    interface: bool,
    since: Timestamp,
) -> Attachment {
    let (netns, wish) = (String::new(), Wish::default());
    let attach = Attach { key, pool, pod, netns, wiring: None, wish, claim_use: None };
    Attachment { interface, since, phase: Phase::Held, ..Attachment::new(attach) }
}
