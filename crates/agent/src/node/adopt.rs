//! New blocks, and those of their addresses that are already in use.
//!
//! A block may arrive with addresses that holders on this node have: its object was deleted and recreated,
//! the node was registered again, or the journal was lost. Such holds move into the block, and cooling
//! addresses continue to cool there. Addresses that do not fit are reserved until they are released.

use tenure_handles::Timestamp;
use tenure_ipam::{Address, Granted, State};

use super::attachment::{AddressLocation, Attachment, Former, Phase};
use super::block::{Object, Owned, shares_realm};
use super::commit::AfterCommit;
use super::event::{SeenBlock, SeenSlice};
use super::{Fence, Node, Planted, Report};
use crate::journal::{BlockFacts, Held, Record, Released};
use crate::key::{HoldKey, HolderId, Pod, UNSAID};

impl Node {
    pub(super) fn block_seen(&mut self, seen: SeenSlice) {
        if let Some(start) = &mut self.start {
            let known = start.blocks.remove(&seen.block.uid).map(|known| known.records);
            // A repeated event without records does not mean that there are none.
            let records = if seen.records.is_empty() { known.unwrap_or_default() } else { seen.records };
            start.blocks.insert(seen.block.uid.clone(), SeenSlice { records, ..seen });
            return;
        }
        let ours = seen.block.node == self.settings.node;
        if self.blocks.contains_key(&seen.block.uid) {
            self.see_again(&seen, ours);
        } else if self.lost.contains(&seen.block.uid) {
            if ours && seen.realm.is_empty() {
                self.take_back(&seen);
            }
        } else {
            let known = self.knows_name(&seen);
            self.replace(&seen);
            if ours {
                self.adopt(seen, known);
            } else if !known {
                self.adopt_leftover(seen);
            }
        }
    }

    /// Whether there is a block of this name, or holds of a former one.
    pub(super) fn knows_name(&self, seen: &SeenSlice) -> bool {
        let same = |block: &Owned| block.facts.name == seen.block.name && block.facts.realm == seen.realm;
        self.blocks.values().any(same)
    }

    /// A known block: who owns it now?
    fn see_again(&mut self, again: &SeenSlice, ours: bool) {
        let seen = &again.block;
        let draining = self.drains(seen);
        let Some(block) = self.blocks.get_mut(&seen.uid) else { return };
        block.object = if ours { Object::Ours } else { Object::Elsewhere };
        block.reserved = seen.reserved;
        block.deleting = seen.deleting;
        block.see_mark(seen.releasing);
        block.draining = draining;
        block.pod.clone_from(&seen.pod);
        let changed = block.facts != facts_of(again);
        let pool = block.facts.pool.clone();
        self.touch(&pool);
        if !ours {
            self.fence(&seen.uid, Fence::OtherNode(seen.node.clone()));
        } else if changed {
            self.fence(&seen.uid, Fence::Changed);
        }
        self.dismiss(&seen.uid);
    }

    /// Whether an operator drains a block.
    pub(super) fn drains(&self, seen: &SeenBlock) -> bool {
        seen.draining && !self.has_planted(Planted::DrainingServes)
    }

    /// An object that this node gave up still exists: nothing is assigned from it, and the node returns it.
    fn take_back(&mut self, seen: &SeenSlice) {
        let cooling = self.cooling(&seen.block.pool);
        let Some(mut block) = Owned::new(facts_of(seen), cooling, self.now) else { return };
        let uid = seen.block.uid.clone();
        block.fence = Some(Fence::Before);
        self.record(Record::Owned(block.facts.clone()));
        block.fence_position = self.record(Record::Fenced { uid: uid.clone() });
        self.commits.after(block.fence_position, AfterCommit::Fenced(uid.clone()));
        self.blocks.insert(uid, block);
    }

    /// A known name with an unknown UID: the old object is gone, and its deletion was not reported yet.
    fn replace(&mut self, seen: &SeenSlice) {
        let same_name = self
            .blocks
            .iter()
            .filter(|(_, block)| block.facts.name == seen.block.name && block.facts.realm == seen.realm);
        let replaced: Vec<String> = same_name.map(|(uid, _)| uid.clone()).collect();
        for uid in replaced {
            if let Some(block) = self.blocks.get_mut(&uid) {
                block.object = Object::Gone;
            }
            self.fence(&uid, Fence::Replaced(seen.block.uid.clone()));
            self.dismiss(&uid);
        }
    }

    /// Starts to use a block of this node. Its records count only if nothing is `known` of it.
    pub(super) fn adopt(&mut self, slice: SeenSlice, known: bool) {
        let facts = facts_of(&slice);
        let SeenSlice { block: seen, records, .. } = slice;
        let (cooling, uid) = (self.cooling(&seen.pool), seen.uid.clone());
        let Some(block) = Owned::new(facts.clone(), cooling, self.now) else {
            return self.report(Report::Invalid { block: seen.name, subnet: seen.subnet });
        };
        self.record(Record::Owned(facts));
        // One that is kept for a pod came because of that pod, and not because somebody asked for a block.
        let kept_for_pod = seen.pod.is_some();
        let block = Owned {
            reserved: seen.reserved,
            deleting: seen.deleting,
            releasing: seen.releasing,
            draining: self.drains(&seen),
            pod: seen.pod,
            ..block
        };
        self.blocks.insert(uid.clone(), block);
        self.clear(&uid);
        if !known {
            self.adopt_records(&uid, records);
        }
        let asked_for = self.asks.values().any(|ask| ask.pool == seen.pool);
        self.granted_is_here(&seen.name);
        let useless = |block: &Owned| !block.is_usable() || block.engine.counts().free == 0;
        if asked_for && !kept_for_pod && self.blocks.get(&uid).is_some_and(useless) {
            // Otherwise the node would request the next block at once, and the next.
            self.useless(&seen.pool, &seen.name);
        }
    }

    /// Finds out which of a block's addresses are in use elsewhere.
    pub(super) fn clear(&mut self, uid: &str) {
        let Some(block) = self.blocks.get_mut(uid) else { return };
        block.shadow = None;
        let facts = block.facts.clone();
        let name = facts.name.clone();
        self.touch(&facts.pool);
        let shadow = self.blocks.iter().find(|(other, block)| {
            *other != uid && block.fence.is_none() && block.shadow.is_none() && block.overlaps(&facts)
        });
        if let Some((other, block)) = shadow {
            let (other, other_name) = (other.clone(), block.facts.name.clone());
            if let Some(block) = self.blocks.get_mut(uid) {
                block.shadow = Some(other);
            }
            return self.report(Report::Overlap { block: name, other: other_name });
        }
        self.inherit_doubt(uid);
        self.inherit(uid);
        self.reserve(uid);
    }

    /// Moves holds, cooling addresses and strays with the same addresses from fenced blocks into this one.
    fn inherit(&mut self, uid: &str) {
        let Some(facts) = self.blocks.get(uid).map(|block| block.facts.clone()) else { return };
        let fenced = self
            .blocks
            .iter()
            .filter(|(other, block)| *other != uid && block.fence.is_some() && block.overlaps(&facts));
        let fenced: Vec<String> = fenced.map(|(uid, _)| uid.clone()).collect();
        self.inherit_cooling(&fenced, uid);
        let movable = self.attachments.iter().filter(|(_, it)| match &it.place {
            // The journal already says that it is free.
            _ if it.phase == Phase::Releasing => false,
            AddressLocation::Nowhere | AddressLocation::Claim(_) => false,
            AddressLocation::Block { uid, .. } => fenced.contains(uid),
            AddressLocation::Stray(_) => self.is_of_realm(it, &facts),
        });
        // Holders of a block's addresses come before those that only the kernel knows.
        let mut movable: Vec<(bool, HolderId)> =
            movable.map(|(id, it)| (it.block().is_none(), *id)).collect();
        movable.sort_unstable();
        for (_, id) in movable {
            self.move_into(id, uid);
        }
        for old in fenced {
            self.dismiss(&old);
        }
    }

    /// Makes addresses that cool in fenced blocks continue to cool in this one.
    fn inherit_cooling(&mut self, fenced: &[String], uid: &str) {
        let mut cooling: Vec<(Timestamp, HolderId, Vec<Address>)> = Vec::new();
        for source in fenced.iter().filter_map(|uid| self.blocks.get(uid)) {
            let freed_at = |until| source.freed_at(until);
            cooling.extend(
                source
                    .engine
                    .cooling()
                    .map(|it| (freed_at(it.until), *it.last.key, it.addresses.iter().collect())),
            );
        }
        cooling.sort_by_key(|(freed_at, ..)| *freed_at);
        for (freed_at, id, addresses) in cooling {
            self.cool(uid, id, &addresses, freed_at);
        }
    }

    /// Moves one hold into a block, if its address (or pair) is in the block and nobody else holds it.
    fn move_into(&mut self, id: HolderId, uid: &str) {
        let Some(attachment) = self.attachments.get(&id) else { return };
        let addresses = attachment.every_address();
        let stray = matches!(attachment.place, AddressLocation::Stray(_));
        let Some(facts) = self.blocks.get(uid).map(|block| block.facts.clone()) else { return };
        let others =
            self.attachments.iter().filter(|(other, it)| **other != id && self.is_of_realm(it, &facts));
        let mut others = others.flat_map(|(_, it)| it.every_address());
        if stray && others.any(|address| addresses.contains(&address)) {
            return;
        }
        let Some(block) = self.blocks.get_mut(uid) else { return };
        let Some(first) = addresses.first().copied().filter(|address| block.has(*address)) else { return };
        let Ok(Granted::New(hold)) = block.engine.replay(id, first, None) else { return };
        let fits = addresses.iter().all(|address| hold.addresses.iter().any(|own| own == *address));
        if !fits {
            block.engine.release(&id, hold.sequence, self.now);
            return;
        }
        let pool = block.facts.pool.clone();
        let place = AddressLocation::Block { uid: uid.to_owned(), hold };
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let before = std::mem::replace(&mut attachment.place, place);
        attachment.pool = pool;
        let held = attachment.held();
        self.index_slice_holder(id);
        if let AddressLocation::Block { uid: old, hold } = before
            && let Some(old) = self.blocks.get_mut(&old)
        {
            old.engine.release(&id, hold.sequence, self.now);
        }
        if let Some(held) = held {
            self.record(Record::Held(held));
        }
    }

    /// Reserves what a pool excludes, and addresses whose holders are not in the block.
    pub(super) fn reserve(&mut self, uid: &str) {
        let Some(block) = self.blocks.get(uid) else { return };
        let pool = self.pools.get(&block.facts.pool).and_then(|pool| pool.facts.as_ref());
        let excluded = pool.into_iter().flat_map(|facts| &facts.exclusions);
        let mut kept_back: Vec<(Address, Address)> = excluded.map(|it| (it.first(), it.last())).collect();
        let facts = &block.facts;
        let others =
            self.attachments.values().filter(|it| it.block() != Some(uid) && self.is_of_realm(it, facts));
        let others = others.flat_map(Attachment::every_address);
        let others = others.chain(self.doubt.used());
        kept_back.extend(others.filter(|address| block.has(*address)).map(|address| (address, address)));
        let networks: Vec<_> = block.networks().collect();
        let Some(block) = self.blocks.get_mut(uid) else { return };
        for network in networks {
            // Cannot fail: these are the block's own networks. Addresses outside of them do not matter.
            let _ = block.engine.unreserve(network.first(), network.last());
        }
        for (first, last) in kept_back {
            let _ = block.engine.reserve(first, last);
        }
    }

    /// Starts the cooling of addresses that were reserved in blocks other than their holder's.
    pub(super) fn cool_elsewhere(&mut self, id: HolderId, addresses: &[Address], released_in: &str) {
        let facts = self.blocks.get(released_in).map(|block| block.facts.clone());
        self.cool_where(id, addresses, |block| {
            let same = |facts| shares_realm(&block.facts, facts);
            block.facts.uid != released_in && facts.as_ref().map_or(!block.is_slice(), same)
        });
    }

    /// The same for a holder in no block, wherever its addresses were reserved ([`Node::is_of_realm`]).
    pub(super) fn cool_stray(&mut self, id: HolderId, addresses: &[Address], interface: bool) {
        self.cool_where(id, addresses, |block| !block.is_slice() || !interface);
    }

    fn cool_where(&mut self, id: HolderId, addresses: &[Address], was_kept_back: impl Fn(&Owned) -> bool) {
        let has = |block: &Owned| addresses.iter().any(|address| block.has(*address));
        let blocks = self.blocks.iter().filter(|(_, block)| block.fence.is_none() && has(block));
        let blocks: Vec<String> =
            blocks.filter(|(_, block)| was_kept_back(block)).map(|(uid, _)| uid.clone()).collect();
        for uid in blocks {
            self.reserve(&uid);
            self.cool(&uid, id, addresses, self.now);
        }
    }

    /// Starts the cooling of an address that an unknown holder used.
    pub(super) fn cool_unknown(&mut self, uid: &str, address: Address) {
        let Ok(key) = HoldKey::new("", format!("unknown-{address}"), UNSAID) else { return };
        let id = key.id();
        self.former.insert(id, Former { key, pod: Pod::default() });
        self.cool(uid, id, &[address], self.now);
    }

    /// Makes an address of a block cool as if it had been held there.
    fn cool(&mut self, uid: &str, id: HolderId, addresses: &[Address], freed_at: Timestamp) {
        let Some(block) = self.blocks.get_mut(uid) else { return };
        let Some(address) = addresses.iter().copied().find(|address| block.has(*address)) else { return };
        let until = freed_at.plus(block.engine.rest());
        match block.engine.state(address) {
            Ok(State::Free) => {}
            Ok(State::Cooling(cooling)) if cooling.until < until => {}
            _ => return,
        }
        // The engine takes releases in the order of their times, and cooling longer does no harm.
        let freed_at = block.last_freed().map_or(freed_at, |last| last.max(freed_at));
        let Ok(Granted::New(hold)) = block.engine.replay(id, address, None) else { return };
        block.engine.release(&id, hold.sequence, freed_at);
        let until = freed_at.plus(block.engine.rest());
        let pool = block.facts.pool.clone();
        self.touch(&pool);
        let Some(former) = self.former.get(&id) else { return };
        let held = Held {
            block: uid.to_owned(),
            key: former.key.clone(),
            pod: former.pod.clone(),
            interface: false,
            addresses: hold.addresses,
            sequence: hold.sequence,
            since: freed_at,
            netns: String::new(),
        };
        self.record(Record::Released(Released { hold: held, at: freed_at, until }));
    }
}

/// The facts about a block that the journal keeps.
pub(super) fn facts_of(seen: &SeenSlice) -> BlockFacts {
    let SeenSlice { block, realm, .. } = seen;
    BlockFacts {
        uid: block.uid.clone(),
        name: block.name.clone(),
        pool: block.pool.clone(),
        subnet: block.subnet,
        realm: realm.clone(),
    }
}
