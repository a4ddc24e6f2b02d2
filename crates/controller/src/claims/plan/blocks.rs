//! Floating blocks: blocks of pools that the controller owns, to assign their addresses to claims.
//!
//! A plan works on drafts of the blocks' records, so that everything it frees and assigns in a block becomes one
//! write. The engine finds free addresses; it is restored from the records, including those that cool.

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

/// A block with this many records is full, and another is carved. An object must stay far below the limit of the API
/// server and etcd (1.5 MB), however long its names are, and every record makes every write of the object larger.
pub(super) const MOST: u128 = 1_024;

/// What plans remember of floating blocks.
#[derive(Debug, Default)]
pub(super) struct KnownBlocks {
    /// The inventories of pools that were asked for.
    inventories: BTreeMap<String, PoolInventory>,
    empty: EmptyBlocks,
    /// Blocks for which something was planned.
    pending: Names,
    /// How many were looked at.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl KnownBlocks {
    /// When to look again without an event.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.empty.next()
    }

    /// Reads what changed.
    pub(super) fn refresh(&mut self, look: &Look) {
        for (pool, index) in look.blocks.iter().filter_map(|block| split_block_name(block)) {
            if let Some(inventory) = self.inventories.get_mut(pool) {
                inventory.is_stale(index);
            }
        }
    }
}

/// The floating blocks with planned changes.
pub(super) struct Blocks<'a> {
    inputs: Inputs<'a>,
    carving: &'a Carving,
    /// How long addresses cool in pools that do not say.
    rest: Duration,
    /// Blocks that change.
    drafts: BTreeMap<String, Draft<'a>>,
    known: KnownBlocks,
    /// The pools that this plan assigns from, or why it cannot.
    opened: BTreeMap<String, Option<Refused>>,
}

/// The planned records of a block.
pub(super) struct Draft<'a> {
    pub(super) block: &'a AddressBlock,
    pub(super) records: BTreeMap<String, ClaimRecord>,
    /// What a live read has to confirm, because records were freed.
    gone: Gone,
    /// Claims that a live read has to confirm, because their records name more pods.
    named: Vec<ClaimId>,
}

impl<'a> Blocks<'a> {
    /// Starts without changes; `carving` is what the plan decided for nodes.
    pub(super) fn of(inputs: Inputs<'a>, carving: &'a Carving, rest: Duration, known: KnownBlocks) -> Self {
        Self { inputs, carving, rest, drafts: BTreeMap::new(), known, opened: BTreeMap::new() }
    }

    /// The planned record at this offset.
    pub(super) fn record(&self, place: &RecordKey) -> Option<&ClaimRecord> {
        let records = match self.drafts.get(place.object.as_ref()) {
            Some(draft) => &draft.records,
            None => &self.inputs.world.coil().blocks.get(&place.object)?.spec.claims,
        };
        records.get(place.key.as_ref())
    }

    /// Whether a claim holds the address of a record.
    pub(super) fn is_held(&self, place: &RecordKey) -> bool {
        self.record(place).is_some_and(|record| record.freed.is_none())
    }

    /// The addresses of a record.
    pub(super) fn addresses(&self, place: &RecordKey) -> Vec<Address> {
        place.addresses(self.inputs.world)
    }

    /// The pools of blocks that change.
    pub(super) fn changed_pools(&self) -> impl Iterator<Item = &str> {
        self.drafts.keys().filter_map(|block| Some(split_block_name(block)?.0))
    }

    /// Frees the address of a record, which then cools, if a live read confirms that its pods have ended. `doubtful`:
    /// only a live read can tell that the claim is gone.
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

    /// Sets the pods of a record.
    pub(super) fn rename(&mut self, place: &RecordKey, pods: Vec<PodRecord>) {
        let Some(draft) = self.draft(&place.object) else { return };
        let Some(record) = draft.records.get_mut(place.key.as_ref()) else { return };
        if names_more(&record.pods, &pods) {
            draft.named.push(ClaimId::of_record(record));
        }
        record.pods = pods;
    }

    /// A pod still uses a freed address: holds it again.
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

    /// Assigns an address of a pool, or a pair, to a claim; these addresses if the claim asks for any.
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

    /// Brings the inventory of a pool up to date.
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
        // The next plan finds them changed.
        for index in drafts {
            inventory.is_stale(index);
        }
        inventory.advance(now);
        self.known.inventories.insert(name.to_owned(), inventory);
        Ok(())
    }

    /// Returns everything as writes, and what to remember. An empty block is returned after `empty_after`.
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
        // A block that lost its finalizer, because somebody was about to delete it, gets it back with its records.
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

/// Since when no claim holds an address of a block; `None` if one does.
fn empty_since(block: &AddressBlock, records: &BTreeMap<String, ClaimRecord>) -> Timestamp {
    let created = block.creation_timestamp().map(|time| Timestamp::from_jiff(time.0)).unwrap_or_default();
    records.values().filter_map(freed).fold(created, Timestamp::max)
}

/// Since when the address of a record cools.
fn freed(record: &ClaimRecord) -> Option<Timestamp> {
    record.freed.as_ref().map(|freed| Timestamp::from_jiff(freed.0))
}
