//! Floating blocks: those of pools that the controller owns, and whose addresses it gives to claims.
//!
//! A plan works on drafts of the blocks' records, so that whatever it frees and gives becomes one write a block. Which address
//! is free is asked of the engine, which is restored from the records, those at rest included.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_api::claims::PodRecord;
use tenure_api::coil::{AddressBlock, ClaimRecord, EnginePool, FINALIZER, block_name, split_block_name};
use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, IntervalSet};

use super::super::index::Look;
use super::super::records::RecordKey;
use super::super::sets::Names;
use super::super::write::{ClaimId, ClaimWrite, Gone, PodId};
use super::recorded::names_more;
use super::{Inputs, Refused};
use crate::coil::{BlockWrite, Carving, belongs_to};
use crate::write::{At, Write};

mod empty;
mod inventory;

use empty::EmptyBlocks;
use inventory::PoolInventory;

/// As many records a block may have before another is carved: an object must stay far smaller than the API server and etcd
/// let it be (1.5 MB), however long the names in it are, and each of its records costs each write of it.
pub(super) const MOST: u128 = 1_024;

/// What is remembered of floating blocks from plan to plan.
#[derive(Debug, Default)]
pub(super) struct KnownBlocks {
    /// What pools have for claims, those of which one asked.
    inventories: BTreeMap<String, PoolInventory>,
    empty: EmptyBlocks,
    /// Those for which something was planned.
    pending: Names,
    /// How many were looked at.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl KnownBlocks {
    /// When to look again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.empty.next()
    }

    /// Takes in what has changed.
    pub(super) fn refresh(&mut self, look: &Look) {
        for (pool, index) in look.blocks.iter().filter_map(|block| split_block_name(block)) {
            if let Some(inventory) = self.inventories.get_mut(pool) {
                inventory.is_stale(index);
            }
        }
    }
}

/// The floating blocks, as they are to be.
pub(super) struct Blocks<'a> {
    inputs: Inputs<'a>,
    carving: &'a Carving,
    /// How long addresses of pools that do not say so rest.
    rest: Duration,
    /// Those that are to be changed.
    drafts: BTreeMap<String, Draft<'a>>,
    known: KnownBlocks,
    /// The pools of which this plan gives, or why it gives nothing.
    opened: BTreeMap<String, Option<Refused>>,
}

/// A block's records, as they are to be.
pub(super) struct Draft<'a> {
    pub(super) block: &'a AddressBlock,
    pub(super) records: BTreeMap<String, ClaimRecord>,
    /// What a live look has to confirm, because records were freed.
    gone: Gone,
    /// Claims that a live look has to confirm, because their records name more pods.
    named: Vec<ClaimId>,
}

impl<'a> Blocks<'a> {
    /// As they are; `carving` is what the plan has decided for nodes.
    pub(super) fn of(inputs: Inputs<'a>, carving: &'a Carving, rest: Duration, known: KnownBlocks) -> Self {
        Self { inputs, carving, rest, drafts: BTreeMap::new(), known, opened: BTreeMap::new() }
    }

    /// The record at a place, as it is to be.
    pub(super) fn record(&self, place: &RecordKey) -> Option<&ClaimRecord> {
        let records = match self.drafts.get(place.object.as_ref()) {
            Some(draft) => &draft.records,
            None => &self.inputs.world.coil().blocks.get(&place.object)?.spec.claims,
        };
        records.get(place.key.as_ref())
    }

    /// Whether a claim has the address of a record.
    pub(super) fn is_held(&self, place: &RecordKey) -> bool {
        self.record(place).is_some_and(|record| record.freed.is_none())
    }

    /// The addresses of a record.
    pub(super) fn addresses(&self, place: &RecordKey) -> Vec<Address> {
        place.addresses(self.inputs.world)
    }

    /// The pools of blocks that are to be changed.
    pub(super) fn changed_pools(&self) -> impl Iterator<Item = &str> {
        self.drafts.keys().filter_map(|block| Some(split_block_name(block)?.0))
    }

    /// The address of a record is free from now on, and rests, if a live look confirms that its pods have ended. `doubtful` is
    /// whether only a live look says that the claim is gone.
    pub(super) fn free(&mut self, place: &RecordKey, doubtful: bool) {
        let now = MicroTime(self.inputs.now.to_jiff());
        let Some(draft) = self.draft(&place.object) else { return };
        let Some(record) = draft.records.get_mut(place.key.as_ref()) else { return };
        record.freed = Some(now);
        draft.gone.pods.extend(PodId::all_of(&record.namespace, &record.pods));
        if doubtful {
            draft.gone.claims.push(ClaimId::of_record(record));
        }
    }

    /// A record gets these pods.
    pub(super) fn rename(&mut self, place: &RecordKey, pods: Vec<PodRecord>) {
        let Some(draft) = self.draft(&place.object) else { return };
        let Some(record) = draft.records.get_mut(place.key.as_ref()) else { return };
        if names_more(&record.pods, &pods) {
            draft.named.push(ClaimId::of_record(record));
        }
        record.pods = pods;
    }

    /// A pod was seen after all that uses a freed address: it is held again.
    pub(super) fn keep(&mut self, place: &RecordKey) {
        let record = self.draft(&place.object).and_then(|draft| draft.records.get_mut(place.key.as_ref()));
        if let Some(record) = record {
            record.freed = None;
        }
    }

    fn draft(&mut self, name: &str) -> Option<&mut Draft<'a>> {
        if !self.drafts.contains_key(name) {
            let block = self.inputs.world.coil().blocks.get(name)?;
            let (records, gone, named) = (block.spec.claims.clone(), Gone::default(), Vec::new());
            self.drafts.insert(name.to_owned(), Draft { block, records, gone, named });
        }
        self.drafts.get_mut(name)
    }

    /// Gives a claim an address of a pool, or the pair of addresses; these, if it wishes any.
    pub(super) fn give(&mut self, pool: &str, claim: &ClaimFacts, wishes: &[Address]) -> Result<(), Refused> {
        if !self.opened.contains_key(pool) {
            let refused = self.open(pool).err();
            self.opened.insert(pool.to_owned(), refused);
        }
        if let Some(Some(refused)) = self.opened.get(pool) {
            return Err(refused.clone());
        }
        let Inputs { world, now, .. } = self.inputs;
        let known = world.coil().pools.get(pool);
        let (Some(known), Some(inventory)) = (known, self.known.inventories.get_mut(pool)) else {
            return Ok(());
        };
        if known.metadata.deletion_timestamp.is_some() {
            let words = format!("AddressPool \"{pool}\" is being deleted and gives no more addresses");
            return Err(Refused::new(Reason::SubnetExhausted, words));
        }
        let uid = claim.uid.clone();
        let (index, offset) = match wishes {
            [] => inventory.next(self.carving, uid, now)?,
            _ => inventory.wished((world, self.carving), &self.drafts, uid, wishes, now)?,
        };
        let record = ClaimRecord {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            ..ClaimRecord::default()
        };
        if let Some(records) = inventory.made(index) {
            records.insert(offset.to_string(), record);
        } else if let Some(draft) = self.draft(&block_name(pool, index)) {
            draft.records.insert(offset.to_string(), record);
        }
        Ok(())
    }

    /// Brings what a pool has for claims up to date.
    fn open(&mut self, name: &str) -> Result<(), Refused> {
        let known = self.known.inventories.remove(name);
        let Inputs { world, index, now, .. } = self.inputs;
        let pool = world.coil().pools.get(name).ok_or_else(|| {
            Refused::new(
                Reason::InternalError,
                format!(
                    "there is no AddressPool \"{name}\": create it, or correct the pool of the network's configuration or the \
                     namespace's annotation"
                ),
            )
        })?;
        let none = IntervalSet::new();
        let withheld = self.carving.overlaps.younger.get(name).map_or(&none, |overlap| &overlap.withheld);
        let mut inventory = if let Some(known) = known.filter(|known| known.is_of(pool, withheld)) {
            known
        } else {
            let mut inventory = PoolInventory::of(pool, withheld.clone(), self.rest)?;
            let prefix = format!("{name}-");
            let blocks = index.records.blocks_from(&prefix);
            let numbers = blocks.filter_map(|block| split_block_name(block)).filter(|(of, _)| *of == name);
            numbers.for_each(|(_, index)| inventory.is_stale(index));
            inventory
        };
        let drafts = self.drafts.keys().filter_map(|block| split_block_name(block));
        let drafts: Vec<u128> = drafts.filter(|(of, _)| *of == name).map(|(_, index)| index).collect();
        for index in drafts.iter().copied() {
            inventory.is_stale(index);
        }
        for index in inventory.begin() {
            let block = world.coil().blocks.get(&block_name(name, index)).filter(|block| {
                block.is_floating() && belongs_to(block, pool) && block.metadata.deletion_timestamp.is_none()
            });
            if let Some(block) = block.filter(|_| !withheld.contains(index)) {
                let draft = self.drafts.get(&block.name_any());
                let records = draft.map_or(&block.spec.claims, |draft| &draft.records);
                inventory.restore(index, block, records, now);
            }
        }
        // They are not as the next plan finds them.
        for index in drafts {
            inventory.is_stale(index);
        }
        inventory.advance(now);
        self.known.inventories.insert(name.to_owned(), inventory);
        Ok(())
    }

    /// Everything as writes, and what is to be remembered: an empty block goes after `empty_after`.
    pub(super) fn into_writes(mut self, empty_after: Duration) -> (Vec<Write>, KnownBlocks) {
        let Inputs { world, index, look, now } = self.inputs;
        let mut writes = Vec::new();
        let opened = self
            .opened
            .keys()
            .filter_map(|pool| Some((world.coil().pools.get(pool)?, self.known.inventories.get(pool)?)));
        for (pool, (index, records)) in
            opened.flat_map(|(pool, it)| it.all_made().map(move |made| (pool, made)))
        {
            match AddressBlock::carve_floating(pool, index) {
                Ok(mut block) => {
                    block.spec.claims = records.clone();
                    writes.push(BlockWrite::Create { block: Box::new(block) }.into());
                }
                Err(error) => tracing::warn!(%error, "a floating block cannot be carved"),
            }
        }
        let KnownBlocks { empty, pending, .. } = &mut self.known;
        let mut names = std::mem::take(pending);
        if look.all {
            names.extend(index.records.blocks().cloned());
        }
        names.extend(look.blocks.iter().cloned());
        names.extend(self.drafts.keys().map(|name| name.as_str().into()));
        empty.add_due(&look.pools, &mut names, look.all, now);
        for name in &names {
            empty.look_again_at(name, look.all);
            let draft = self.drafts.get_mut(name.as_ref());
            let Some(block) = world.coil().blocks.get(name).filter(|block| block.is_floating()) else {
                continue;
            };
            let records = draft.as_ref().map_or(&block.spec.claims, |draft| &draft.records);
            let is_empty = records.values().all(|record| record.freed.is_some());
            if !is_empty && draft.is_none() {
                continue;
            }
            let pool = block.pool().and_then(|pool| world.coil().pools.get(pool));
            let rest =
                pool.and_then(|pool| EnginePool::try_from(&pool.spec).ok()).and_then(|pool| pool.rest());
            let rest = rest.unwrap_or(self.rest);
            let leaves = block.metadata.deletion_timestamp.is_some()
                || pool.is_none_or(|pool| pool.metadata.deletion_timestamp.is_some());
            let until = if leaves { now } else { empty_since(block, records).plus(rest.max(empty_after)) };
            if is_empty {
                empty.note(name, block.pool(), until, now);
            }
            let write = match draft {
                Some(draft) => {
                    draft
                        .records
                        .retain(|_, record| freed(record).is_none_or(|freed| freed.plus(rest) > now));
                    Some(draft.write())
                }
                None => (until <= now).then(|| drop_block(block)),
            };
            if let Some(write) = write {
                pending.insert(name.clone());
                writes.push(write);
            }
        }
        #[cfg(test)]
        {
            self.known.looked_at = names.len();
        }
        (writes, self.known)
    }
}

impl Draft<'_> {
    fn write(&self) -> Write {
        // One that lost it, because somebody was about to delete the block, gets it back with its records.
        let mut finalizers = self.block.finalizers().to_vec();
        if !finalizers.iter().any(|it| it == FINALIZER) && self.block.metadata.deletion_timestamp.is_none() {
            finalizers.push(FINALIZER.to_owned());
        }
        let records = self.records.clone();
        let (gone, named) = (self.gone.clone(), self.named.clone());
        ClaimWrite::Records { block: At::of(self.block), records, finalizers, gone, named }.into()
    }
}

fn drop_block(block: &AddressBlock) -> Write {
    let finalizers = block.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect();
    let deleting = block.metadata.deletion_timestamp.is_some();
    ClaimWrite::DropBlock { block: At::of(block), finalizers, deleting }.into()
}

/// Since when no claim has an address of a block, if none has.
fn empty_since(block: &AddressBlock, records: &BTreeMap<String, ClaimRecord>) -> Timestamp {
    let created = block.creation_timestamp().map(|time| Timestamp::from_jiff(time.0)).unwrap_or_default();
    records.values().filter_map(freed).fold(created, Timestamp::max)
}

/// Since when a record's address rests.
fn freed(record: &ClaimRecord) -> Option<Timestamp> {
    record.freed.as_ref().map(|freed| Timestamp::from_jiff(freed.0))
}
