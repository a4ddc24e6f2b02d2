//! Floating blocks: those of pools that the controller owns, and whose addresses it gives to claims.
//!
//! A plan works on drafts of the blocks' records, so that whatever it frees and gives becomes one write a block. Which address
//! is free is asked of the engine, which is restored from the records, those at rest included.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_api::claims::PodRecord;
use tenure_api::coil::{AddressBlock, ClaimRecord, EnginePool, FINALIZER, block_name, split_block_name};
use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, IntervalSet};

use super::super::write::{ClaimId, ClaimWrite, Gone, PodId};
use super::Refused;
use super::recorded::names_more;
use crate::coil::{BlockWrite, Carving, belongs_to};
use crate::world::World;
use crate::write::{At, Write};

mod inventory;

use inventory::{Floating, PoolInventory};

/// As many records a block may have before another is carved: an object must stay far smaller than the API server and etcd
/// let it be (1.5 MB), however long the names in it are, and each of its records costs each write of it.
pub(super) const MOST: u128 = 1_024;

/// The floating blocks, as they are to be.
pub(super) struct Blocks<'a> {
    world: &'a World,
    carving: &'a Carving,
    now: Timestamp,
    /// How long addresses of pools that do not say so rest.
    rest: Duration,
    drafts: BTreeMap<String, Draft<'a>>,
    inventories: BTreeMap<String, Result<PoolInventory<'a>, Refused>>,
}

/// A block's records, as they are to be.
pub(super) struct Draft<'a> {
    pub(super) block: &'a AddressBlock,
    pub(super) records: BTreeMap<String, ClaimRecord>,
    changed: bool,
    /// What a live look has to confirm, because records were freed.
    gone: Gone,
    /// Claims that a live look has to confirm, because their records name more pods.
    named: Vec<ClaimId>,
}

impl<'a> Blocks<'a> {
    /// Those of `world`; `carving` is what the plan has decided for nodes.
    pub(super) fn of(world: &'a World, carving: &'a Carving, rest: Duration, now: Timestamp) -> Self {
        let drafts = world.blocks.iter().filter(|block| block.is_floating()).map(|block| {
            let records = block.spec.claims.clone();
            let (gone, named) = (Gone::default(), Vec::new());
            (block.name_any(), Draft { block, records, changed: false, gone, named })
        });
        Self { world, carving, now, rest, drafts: drafts.collect(), inventories: BTreeMap::new() }
    }

    /// The records that are held: block, offset, addresses.
    pub(super) fn held(&self) -> impl Iterator<Item = (&str, &str, Vec<Address>, &ClaimRecord)> {
        self.drafts.iter().flat_map(|(name, draft)| {
            let held = draft.records.iter().filter(|(_, record)| record.freed.is_none());
            held.map(move |(offset, record)| {
                (name.as_str(), offset.as_str(), addresses(draft.block, offset), record)
            })
        })
    }

    /// The address of a record is free from now on, and rests, if a live look confirms that its pods have ended. `doubtful` is
    /// whether only a live look says that the claim is gone.
    pub(super) fn free(&mut self, block: &str, offset: &str, doubtful: bool) {
        let now = MicroTime(self.now.to_jiff());
        let Some(draft) = self.drafts.get_mut(block) else { return };
        let Some(record) = draft.records.get_mut(offset) else { return };
        record.freed = Some(now);
        draft.changed = true;
        draft.gone.pods.extend(PodId::all_of(&record.namespace, &record.pods));
        if doubtful {
            draft.gone.claims.push(ClaimId::of_record(record));
        }
    }

    /// Records that are held get the pods that `next` says, where they are others than before.
    pub(super) fn rename(&mut self, next: impl Fn(&str, &str, &[PodRecord]) -> Option<Vec<PodRecord>>) {
        for draft in self.drafts.values_mut() {
            for record in draft.records.values_mut().filter(|record| record.freed.is_none()) {
                if let Some(pods) = next(&record.namespace, &record.uid, &record.pods) {
                    if names_more(&record.pods, &pods) {
                        draft.named.push(ClaimId::of_record(record));
                    }
                    record.pods = pods;
                    draft.changed = true;
                }
            }
        }
    }

    /// A pod was seen after all that uses a freed address: it is held again.
    pub(super) fn keep(&mut self, used: impl Fn(&ClaimRecord, &[Address]) -> bool) {
        for draft in self.drafts.values_mut() {
            for (offset, record) in &mut draft.records {
                if record.freed.is_some() && used(record, &addresses(draft.block, offset)) {
                    record.freed = None;
                    draft.changed = true;
                }
            }
        }
    }

    /// Gives a claim an address of a pool, or the pair of addresses; these, if it wishes any.
    pub(super) fn give(&mut self, pool: &str, claim: &ClaimFacts, wishes: &[Address]) -> Result<(), Refused> {
        self.open(pool);
        let owners = &self.drafts;
        let inventory = match self.inventories.get_mut(pool) {
            Some(Ok(inventory)) => inventory,
            Some(Err(refused)) => return Err(refused.clone()),
            None => return Ok(()),
        };
        if inventory.pool.metadata.deletion_timestamp.is_some() {
            let words = format!("AddressPool \"{pool}\" is being deleted and gives no more addresses");
            return Err(Refused::new(Reason::SubnetExhausted, words));
        }
        let uid = claim.uid.clone();
        let (index, offset) = match wishes {
            [] => inventory.next(uid, self.now)?,
            _ => inventory.wished(self.world, owners, uid, wishes, self.now)?,
        };
        let record = ClaimRecord {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            ..ClaimRecord::default()
        };
        let made = inventory.blocks.get_mut(&index).and_then(|floating| floating.made.as_mut());
        if let Some(records) = made {
            records.insert(offset.to_string(), record);
        } else if let Some(draft) = self.drafts.get_mut(&block_name(pool, index)) {
            draft.records.insert(offset.to_string(), record);
            draft.changed = true;
        }
        Ok(())
    }

    fn open(&mut self, name: &str) {
        if !self.inventories.contains_key(name) {
            let inventory = self.inventory(name);
            self.inventories.insert(name.to_owned(), inventory);
        }
    }

    fn inventory(&self, name: &str) -> Result<PoolInventory<'a>, Refused> {
        let pool = self.world.pools.get(name).ok_or_else(|| {
            Refused::new(
                Reason::InternalError,
                format!(
                    "there is no AddressPool \"{name}\": create it, or correct the pool of the network's configuration or the \
                     namespace's annotation"
                ),
            )
        })?;
        let invalid = |error: &dyn std::fmt::Display| {
            Refused::new(Reason::InternalError, format!("AddressPool \"{name}\" cannot be used: {error}"))
        };
        let engine = EnginePool::try_from(&pool.spec).map_err(|error| invalid(&error))?;
        let mut taken = self.carving.carved.not_free_for_claims(name, &engine, &self.carving.overlaps);
        let none = IntervalSet::new();
        let withheld = self.carving.overlaps.younger.get(name).map_or(&none, |overlap| &overlap.withheld);
        for (_, index) in
            self.carving.promised.iter().filter_map(|block| split_block_name(block)).filter(|it| it.0 == name)
        {
            taken.insert(index, index);
        }
        let rest = engine.rest().unwrap_or(self.rest);
        let mut inventory = PoolInventory {
            pool,
            engine,
            taken,
            rest,
            blocks: BTreeMap::new(),
            open: BTreeSet::new(),
            used_up: false,
        };
        for (block, draft) in &self.drafts {
            let index = split_block_name(block).filter(|(of, _)| *of == name).map(|(_, index)| index);
            let Some(index) = index.filter(|_| belongs_to(draft.block, pool)) else { continue };
            if draft.block.metadata.deletion_timestamp.is_some() || withheld.contains(index) {
                continue;
            }
            if let Some(block) = inventory.restore(draft, self.now) {
                inventory.blocks.insert(index, Floating { block, made: None });
                inventory.open.insert(index);
            }
        }
        Ok(inventory)
    }

    /// Everything as writes, and when to look again at blocks that rest: an empty one goes after `empty_after`.
    pub(super) fn into_writes(mut self, empty_after: Duration) -> (Vec<Write>, Option<Timestamp>) {
        let (mut writes, mut wake) = (Vec::new(), None::<Timestamp>);
        for inventory in self.inventories.into_values().flatten() {
            for (index, floating) in inventory.blocks {
                let Some(records) = floating.made.filter(|records| !records.is_empty()) else { continue };
                match AddressBlock::carve_floating(inventory.pool, index) {
                    Ok(mut block) => {
                        block.spec.claims = records;
                        writes.push(BlockWrite::Create { block: Box::new(block) }.into());
                    }
                    Err(error) => tracing::warn!(%error, "a floating block cannot be carved"),
                }
            }
        }
        for draft in self.drafts.values_mut() {
            let pool = draft.block.pool().and_then(|pool| self.world.pools.get(pool));
            let rest =
                pool.and_then(|pool| EnginePool::try_from(&pool.spec).ok()).and_then(|pool| pool.rest());
            let rest = rest.unwrap_or(self.rest);
            let leaves = draft.block.metadata.deletion_timestamp.is_some()
                || pool.is_none_or(|pool| pool.metadata.deletion_timestamp.is_some());
            let until = if leaves { self.now } else { draft.empty_since().plus(rest.max(empty_after)) };
            if draft.changed {
                let now = self.now;
                draft.records.retain(|_, record| freed(record).is_none_or(|freed| freed.plus(rest) > now));
                writes.push(draft.write());
            } else if draft.is_empty() && until <= self.now {
                writes.push(draft.drop());
            }
            if draft.is_empty() && until > self.now {
                wake = Some(wake.map_or(until, |wake| wake.min(until)));
            }
        }
        (writes, wake)
    }
}

impl Draft<'_> {
    /// Whether no claim has an address of it.
    fn is_empty(&self) -> bool {
        self.records.values().all(|record| record.freed.is_some())
    }

    /// Since when that is so, if it is.
    fn empty_since(&self) -> Timestamp {
        let created =
            self.block.creation_timestamp().map(|time| Timestamp::from_jiff(time.0)).unwrap_or_default();
        self.records.values().filter_map(freed).fold(created, Timestamp::max)
    }

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

    fn drop(&self) -> Write {
        let finalizers = self.block.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect();
        let deleting = self.block.metadata.deletion_timestamp.is_some();
        ClaimWrite::DropBlock { block: At::of(self.block), finalizers, deleting }.into()
    }
}

/// Since when a record's address rests.
fn freed(record: &ClaimRecord) -> Option<Timestamp> {
    record.freed.as_ref().map(|freed| Timestamp::from_jiff(freed.0))
}

/// The addresses at an offset of a block.
fn addresses(block: &AddressBlock, offset: &str) -> Vec<Address> {
    let (Ok(subnet), Ok(offset)) = (block.spec.to_subnet(), offset.parse::<u128>()) else {
        return Vec::new();
    };
    let cidrs = [subnet.ipv4, subnet.ipv6].into_iter().flatten();
    cidrs.filter_map(|cidr| cidr.nth(offset).ok()).collect()
}
