//! The state that all records add up to.
//!
//! A journal is read into an image, and compaction writes the image. An image accepts records in any order
//! and any number of times: a release never touches a successor, and a missing (damaged) record leaves a hold
//! in place rather than losing one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use tenure_handles::Timestamp;
use tenure_ipam::Addresses;

use super::record::{BlockFacts, ClaimUseRecord, Held, Known, Record, Released};
use crate::key::HolderId;

/// Blocks with their holds and cooling addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    blocks: BTreeMap<String, ImageBlock>,
    /// Where each holder's hold is.
    places: BTreeMap<HolderId, (String, AddressPair)>,
    /// Interfaces with addresses of claims.
    claim_uses: BTreeMap<HolderId, ClaimUseRecord>,
    /// The time of the latest record.
    latest: Timestamp,
    /// Whether holds may be missing.
    known: Known,
}

/// One block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageBlock {
    /// The facts about it; `None` if their record was damaged.
    pub facts: Option<BlockFacts>,
    /// Whether nothing is assigned from it any more.
    pub fenced: bool,
    /// Whether its addresses may be in use although no record says so.
    pub doubted: bool,
    entries: BTreeMap<AddressPair, ImageEntry>,
}

/// An address that is or was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageEntry {
    /// The hold.
    pub hold: Held,
    /// Set when it has ended.
    pub freed: Option<Freed>,
}

/// The end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// When it was freed.
    pub at: Timestamp,
    /// Until when it cools.
    pub until: Timestamp,
}

/// Addresses in a form that can be ordered.
type AddressPair = (Option<Ipv4Addr>, Option<Ipv6Addr>);

fn place(addresses: &Addresses) -> AddressPair {
    (addresses.ipv4, addresses.ipv6)
}

impl Image {
    /// The image for a journal that was lost while containers may run.
    pub fn lost() -> Self {
        Self { known: Known::Lost, ..Self::default() }
    }

    /// How much the absence of a record means.
    pub fn known(&self) -> Known {
        self.known
    }

    /// Applies one more record.
    pub fn apply(&mut self, record: Record) {
        self.latest = self.latest.max(record.at().unwrap_or_default());
        match record {
            Record::Owned(facts) => {
                let block = self.block(facts.uid.clone());
                block.facts = Some(facts);
            }
            Record::Fenced { uid } => self.block(uid).fenced = true,
            Record::Known(known) => self.known = known,
            Record::Doubted { uid, doubted } => {
                // Nothing is recorded about a block that was forgotten.
                if doubted || self.blocks.contains_key(&uid) {
                    self.block(uid).doubted = doubted;
                }
            }
            Record::Forgotten { uid } => {
                self.blocks.remove(&uid);
                self.places.retain(|_, (block, _)| *block != uid);
            }
            Record::Held(hold) => self.hold(hold),
            Record::Released(released) => self.release(released),
            Record::ClaimUse(use_record) => self.use_claim(use_record),
            Record::ClaimUseEnded(left) => {
                let id = left.key.id();
                if self.claim_uses.get(&id).is_some_and(|claim_use| claim_use.since <= left.since) {
                    self.claim_uses.remove(&id);
                }
            }
        }
    }

    /// The blocks by their UIDs.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &ImageBlock)> {
        self.blocks.iter().map(|(uid, block)| (uid.as_str(), block))
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = &Held> {
        self.blocks.values().flat_map(ImageBlock::holds)
    }

    /// All claim users.
    pub fn claim_uses(&self) -> impl Iterator<Item = &ClaimUseRecord> {
        self.claim_uses.values()
    }

    /// The time of the latest record.
    pub fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.claim_uses.is_empty() && self.known == Known::All
    }

    /// Drops addresses that have cooled. The youngest number of each block stays, so that no number is used
    /// twice.
    pub fn prune(&mut self) {
        for block in self.blocks.values_mut() {
            let youngest = block.entries.values().map(|entry| entry.hold.sequence).max();
            block.entries.retain(|_, entry| {
                let over = entry.freed.is_some_and(|freed| freed.until <= self.latest);
                !over || Some(entry.hold.sequence) == youngest
            });
        }
    }

    /// The records that produce this image.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let blocks = self.blocks.iter().flat_map(|(uid, block)| {
            let owned = block.facts.clone().map(Record::Owned);
            let fenced = block.fenced.then(|| Record::Fenced { uid: uid.clone() });
            let doubted = block.doubted.then(|| Record::Doubted { uid: uid.clone(), doubted: true });
            let entries = block.entries.values().map(|entry| match entry.freed {
                None => Record::Held(entry.hold.clone()),
                Some(Freed { at, until }) => {
                    Record::Released(Released { hold: entry.hold.clone(), at, until })
                }
            });
            owned.into_iter().chain(fenced).chain(doubted).chain(entries)
        });
        let known = (self.known != Known::All).then_some(Record::Known(self.known));
        known.into_iter().chain(blocks).chain(self.claim_uses.values().cloned().map(Record::ClaimUse))
    }

    fn block(&mut self, uid: String) -> &mut ImageBlock {
        self.blocks.entry(uid).or_default()
    }

    fn hold(&mut self, hold: Held) {
        let (id, at) = (hold.key.id(), place(&hold.addresses));
        let uid = hold.block.clone();
        if let Some(entry) = self.blocks.get(&uid).and_then(|block| block.entries.get(&at))
            && entry.hold.sequence > hold.sequence
        {
            return;
        }
        self.claim_uses.remove(&id);
        if let Some((block, before)) = self.places.insert(id, (uid.clone(), at))
            && (block != uid || before != at)
        {
            self.vacate(&block, before);
        }
        let replaced = self.block(uid).entries.insert(at, ImageEntry { hold, freed: None });
        if let Some(replaced) = replaced.filter(|entry| entry.freed.is_none() && entry.hold.key.id() != id) {
            self.places.remove(&replaced.hold.key.id());
        }
    }

    fn use_claim(&mut self, use_record: ClaimUseRecord) {
        let id = use_record.key.id();
        if self.claim_uses.get(&id).is_some_and(|claim_use| claim_use.since > use_record.since) {
            return;
        }
        if let Some((block, before)) = self.places.remove(&id) {
            self.vacate(&block, before);
        }
        self.claim_uses.insert(id, use_record);
    }

    /// Frees the place of a hold that moved to another.
    fn vacate(&mut self, block: &str, place: AddressPair) {
        let Some(old) = self.blocks.get_mut(block) else { return };
        old.entries.remove(&place);
        // Nothing is known of it and nothing is in it, so there is nothing to write.
        if *old == ImageBlock::default() {
            self.blocks.remove(block);
        }
    }

    fn release(&mut self, released: Released) {
        let Released { hold, at: freed_at, until } = released;
        let (id, at) = (hold.key.id(), place(&hold.addresses));
        let (uid, sequence) = (hold.block.clone(), hold.sequence);
        let block = self.block(uid.clone());
        if block.entries.get(&at).is_some_and(|entry| entry.hold.sequence > sequence) {
            return;
        }
        let freed = Some(Freed { at: freed_at, until });
        let replaced = block.entries.insert(at, ImageEntry { hold, freed });
        for id in [Some(id), replaced.map(|entry| entry.hold.key.id())].into_iter().flatten() {
            if self.places.get(&id).is_some_and(|(block, place)| *block == uid && *place == at) {
                self.places.remove(&id);
            }
        }
    }
}

impl ImageBlock {
    /// Its holds.
    pub fn holds(&self) -> impl Iterator<Item = &Held> {
        self.entries.values().filter(|entry| entry.freed.is_none()).map(|entry| &entry.hold)
    }

    /// Freed addresses, first freed first.
    pub fn freed(&self) -> Vec<(&Held, Freed)> {
        let freed = self.entries.values().filter_map(|entry| Some((&entry.hold, entry.freed?)));
        let mut freed: Vec<_> = freed.collect();
        freed.sort_by_key(|(hold, freed)| (freed.at, hold.sequence));
        freed
    }
}

#[cfg(test)]
mod tests;
