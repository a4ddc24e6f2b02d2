//! Floating blocks: those of pools that the controller owns, and whose addresses it gives to claims.
//!
//! A plan works on drafts of the blocks' records, so that whatever it frees and gives becomes one write a block. Which address
//! is free is asked of the engine, which is restored from the records, those at rest included.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_api::coil::{
    AddressBlock, AddressPool, ClaimRecord, EnginePool, FINALIZER, block_name, split_block_name,
};
use tenure_api::overlap::Overlaps;
use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Choice, HoldError, IntervalSet, State};

use super::super::at;
use super::super::carved::{Carved, belongs_to};
use super::Refused;
use crate::world::World;
use crate::write::{ClaimId, ClaimWrite, Write};

/// As many records a block may have before another is carved: an object must stay far smaller than the API server and etcd
/// let it be (1.5 MB), however long the names in it are, and each of its records costs each write of it.
pub(super) const MOST: u128 = 1_024;

/// The floating blocks, as they are to be.
pub(super) struct Blocks<'a> {
    world: &'a World,
    overlaps: &'a Overlaps,
    carved: &'a Carved<'a>,
    /// Names of blocks that this plan promises or gives to nodes.
    promised: BTreeSet<&'a str>,
    now: Timestamp,
    /// How long addresses of pools that do not say so rest.
    rest: Duration,
    drafts: BTreeMap<String, Draft<'a>>,
    shelves: BTreeMap<String, Result<Shelf<'a>, Refused>>,
}

/// A block's records, as they are to be.
pub(super) struct Draft<'a> {
    pub(super) block: &'a AddressBlock,
    pub(super) records: BTreeMap<String, ClaimRecord>,
    changed: bool,
    /// Claims of records that were freed, of which only a live look says that they are gone.
    doubtful: Vec<ClaimId>,
}

/// What a pool has for claims.
struct Shelf<'a> {
    pool: &'a AddressPool,
    engine: EnginePool,
    /// Numbers of blocks that cannot be carved.
    taken: IntervalSet,
    rest: Duration,
    blocks: BTreeMap<u128, Floating>,
    /// Those of them that may have a free address.
    open: BTreeSet<u128>,
    /// Whether one was asked for in vain: nothing becomes free in the same plan.
    used_up: bool,
}

/// A block that hands out.
struct Floating {
    block: Block<String>,
    /// The records of one that is to be made.
    made: Option<BTreeMap<String, ClaimRecord>>,
}

impl Floating {
    /// Whether it has a free address, and not so many records that another block should have the next.
    fn has_room(&self) -> bool {
        let counts = self.block.counts();
        counts.free > 0 && counts.held + counts.cooling < MOST
    }
}

impl<'a> Blocks<'a> {
    /// Those of `world`; `writes` is what the plan has decided for nodes.
    pub(super) fn of(
        world: &'a World,
        overlaps: &'a Overlaps,
        carved: &'a Carved<'a>,
        writes: &'a [Write],
        rest: Duration,
        now: Timestamp,
    ) -> Self {
        let promised = writes.iter().filter_map(|write| match write {
            Write::Reserve { block, .. } => Some(block.as_str()),
            Write::Create { block } => block.metadata.name.as_deref(),
            _ => None,
        });
        let drafts = world.blocks.iter().filter(|block| block.is_floating()).map(|block| {
            let records = block.spec.claims.clone();
            (block.name_any(), Draft { block, records, changed: false, doubtful: Vec::new() })
        });
        Self {
            world,
            overlaps,
            carved,
            promised: promised.collect(),
            now,
            rest,
            drafts: drafts.collect(),
            shelves: BTreeMap::new(),
        }
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

    /// The address of a record is free from now on, and rests. `doubtful` is whether only a live look says that the claim is
    /// gone.
    pub(super) fn free(&mut self, block: &str, offset: &str, doubtful: bool) {
        let now = MicroTime(self.now.to_jiff());
        let Some(draft) = self.drafts.get_mut(block) else { return };
        let Some(record) = draft.records.get_mut(offset) else { return };
        record.freed = Some(now);
        draft.changed = true;
        if doubtful {
            draft.doubtful.push(ClaimId::of_record(record));
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
        let shelf = match self.shelves.get_mut(pool) {
            Some(Ok(shelf)) => shelf,
            Some(Err(refused)) => return Err(refused.clone()),
            None => return Ok(()),
        };
        if shelf.pool.metadata.deletion_timestamp.is_some() {
            let words = format!("AddressPool \"{pool}\" is being deleted and gives no more addresses");
            return Err(Refused::new(Reason::SubnetExhausted, words));
        }
        let uid = claim.uid.clone();
        let (index, offset) = match wishes {
            [] => shelf.next(uid, self.now)?,
            _ => shelf.wished(self.world, owners, uid, wishes, self.now)?,
        };
        let record = ClaimRecord {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            freed: None,
        };
        let made = shelf.blocks.get_mut(&index).and_then(|floating| floating.made.as_mut());
        if let Some(records) = made {
            records.insert(offset.to_string(), record);
        } else if let Some(draft) = self.drafts.get_mut(&block_name(pool, index)) {
            draft.records.insert(offset.to_string(), record);
            draft.changed = true;
        }
        Ok(())
    }

    fn open(&mut self, name: &str) {
        if !self.shelves.contains_key(name) {
            let shelf = self.shelf(name);
            self.shelves.insert(name.to_owned(), shelf);
        }
    }

    fn shelf(&self, name: &str) -> Result<Shelf<'a>, Refused> {
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
        let mut taken = engine.excluded_blocks();
        let none = IntervalSet::new();
        let withheld = self.overlaps.younger.get(name).map_or(&none, |overlap| &overlap.withheld);
        taken.extend(withheld.iter());
        if let Some(there) = self.carved.from(name) {
            taken.extend(there.carved.iter());
            taken.extend(there.promised.iter());
        }
        for network in &self.carved.orphans {
            taken.extend(engine.pool().indexes_overlapping(network));
        }
        for (_, index) in
            self.promised.iter().filter_map(|block| split_block_name(block)).filter(|it| it.0 == name)
        {
            taken.insert(index, index);
        }
        let rest = engine.rest().unwrap_or(self.rest);
        let mut shelf = Shelf {
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
            if let Some(block) = shelf.restore(draft, self.now) {
                shelf.blocks.insert(index, Floating { block, made: None });
                shelf.open.insert(index);
            }
        }
        Ok(shelf)
    }

    /// Everything as writes, and when to look again at blocks that rest: an empty one goes after `empty_after`.
    pub(super) fn into_writes(mut self, empty_after: Duration) -> (Vec<Write>, Option<Timestamp>) {
        let (mut writes, mut wake) = (Vec::new(), None::<Timestamp>);
        for shelf in self.shelves.into_values().flatten() {
            for (index, floating) in shelf.blocks {
                let Some(records) = floating.made.filter(|records| !records.is_empty()) else { continue };
                match AddressBlock::carve_floating(shelf.pool, index) {
                    Ok(mut block) => {
                        block.spec.claims = records;
                        writes.push(Write::Create { block: Box::new(block) });
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
        let gone = self.doubtful.clone();
        Write::Claim(ClaimWrite::Records { block: at(self.block), records, finalizers, gone })
    }

    fn drop(&self) -> Write {
        let finalizers = self.block.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect();
        let deleting = self.block.metadata.deletion_timestamp.is_some();
        Write::Claim(ClaimWrite::DropBlock { block: at(self.block), finalizers, deleting })
    }
}

impl Shelf<'_> {
    /// The engine's idea of a block, from its records: what was freed first is freed first again.
    fn restore(&self, draft: &Draft<'_>, now: Timestamp) -> Option<Block<String>> {
        let space = self.engine.space(&draft.block.spec.to_subnet().ok()?).ok()?;
        let mut block = Block::new(space, self.rest);
        let mut resting: Vec<(Timestamp, &String, &ClaimRecord)> = draft
            .records
            .iter()
            .filter_map(|(offset, record)| Some((freed(record)?, offset, record)))
            .collect();
        resting.sort_by_key(|(freed, ..)| *freed);
        for (freed, offset, record) in resting {
            let Some(address) = addresses(draft.block, offset).first().copied() else { continue };
            if let Ok(granted) = block.replay(record.uid.clone(), address, None) {
                block.release(&record.uid, granted.hold().sequence, freed.min(now));
            }
        }
        for (offset, record) in draft.records.iter().filter(|(_, record)| record.freed.is_none()) {
            let Some(address) = addresses(draft.block, offset).first().copied() else { continue };
            // One claim has two addresses of the block only if somebody wrote that by hand: both are taken all the same.
            if block.replay(record.uid.clone(), address, None).is_err() {
                _ = block.reserve(address, address);
            }
        }
        block.advance(now);
        Some(block)
    }

    /// What is free: of the lowest block that has few records, else of one more, else of any, else what has rested longest.
    fn next(&mut self, uid: String, now: Timestamp) -> Result<(u128, u128), Refused> {
        while let Some(index) = self.open.first().copied() {
            match self.blocks.get_mut(&index).filter(|floating| floating.has_room()) {
                Some(floating) => return hold(floating, index, uid, Choice::LowestFree, now),
                None => _ = self.open.pop_first(),
            }
        }
        if self.used_up {
            return Err(self.exhausted());
        }
        if let Some(index) = self.engine.pool().lowest_free(&self.taken)
            && let Some(floating) = self.carve(index)
        {
            return hold(floating, index, uid, Choice::LowestFree, now);
        }
        let free = self.blocks.iter().find(|(_, floating)| floating.block.counts().free > 0);
        let resting = || {
            let oldest = self.blocks.iter().filter_map(|(index, floating)| {
                let oldest = floating.block.cooling().next()?;
                Some((oldest.until, *index))
            });
            oldest.min().map(|(_, index)| index)
        };
        match free.map(|(index, _)| *index).or_else(resting) {
            Some(index) if let Some(floating) = self.blocks.get_mut(&index) => {
                hold(floating, index, uid, Choice::LowestFree, now)
            }
            _ => {
                self.used_up = true;
                Err(self.exhausted())
            }
        }
    }

    fn exhausted(&self) -> Refused {
        let pool = self.pool.name_any();
        Refused::new(
            Reason::SubnetExhausted,
            format!(
                "AddressPool \"{pool}\" has no free block and its blocks for claims have no free address: append a subnet to its \
                 spec.subnets, or delete claims that nobody needs"
            ),
        )
    }

    /// One more block; `None` if the pool has none of that number.
    fn carve(&mut self, index: u128) -> Option<&mut Floating> {
        let space = self.engine.space(&self.engine.pool().block(index)?).ok()?;
        self.taken.insert(index, index);
        self.open.insert(index);
        let made = Some(BTreeMap::new());
        Some(self.blocks.entry(index).or_insert(Floating { block: Block::new(space, self.rest), made }))
    }

    /// These addresses and no others.
    fn wished(
        &mut self,
        world: &World,
        drafts: &BTreeMap<String, Draft<'_>>,
        uid: String,
        wishes: &[Address],
        now: Timestamp,
    ) -> Result<(u128, u128), Refused> {
        let name = self.pool.name_any();
        let mut places = Vec::new();
        for wish in wishes {
            let index = self.engine.pool().index_of_address(*wish).ok_or_else(|| {
                Refused::new(Reason::Invalid, format!("{wish} is not an address of AddressPool \"{name}\""))
            })?;
            let subnet = self.engine.pool().block(index);
            let cidrs = subnet.into_iter().flat_map(|it| [it.ipv4, it.ipv6]).flatten();
            let offset =
                cidrs.filter(|cidr| cidr.contains(*wish)).find_map(|it| wish.distance_from(it.first()).ok());
            places.push((index, offset.unwrap_or_default()));
        }
        places.dedup();
        let (&[(index, _)], Some(&wish)) = (&places[..], wishes.first()) else {
            let texts: Vec<String> = wishes.iter().map(ToString::to_string).collect();
            return Err(Refused::new(
                Reason::Invalid,
                format!(
                    "{} are not the addresses of one hold of AddressPool \"{name}\": accepted is one address, or an IPv4 and \
                     an IPv6 address that lie equally far from the beginning of their subnets",
                    texts.join(" and ")
                ),
            ));
        };
        let conflict = |words: String| Refused::new(Reason::IpAddressConflict, words);
        if !self.blocks.contains_key(&index) {
            let block = block_name(&name, index);
            if let Some(there) = world.blocks.get(&block) {
                let owner = match there.node() {
                    Some(node) => format!("belongs to node {node}"),
                    None => "is not one that addresses are given of at present".to_owned(),
                };
                return Err(conflict(format!(
                    "{wish} lies in AddressBlock {block}, which {owner}; wish for an address of another block, or wait until \
                     this one is returned"
                )));
            }
            if self.taken.contains(index) {
                return Err(conflict(format!(
                    "{wish} lies in block {index} of AddressPool \"{name}\", which is excluded, kept back for an older pool, \
                     or promised to a node"
                )));
            }
            self.carve(index);
        }
        let Some(floating) = self.blocks.get_mut(&index) else { return Err(self.exhausted()) };
        let holder = match floating.block.state(wish) {
            Ok(State::Held(entry)) => {
                let records = drafts.get(&block_name(&name, index)).map(|draft| &draft.records);
                let records = records.into_iter().chain(&floating.made).flat_map(BTreeMap::values);
                let record = records.into_iter().find(|record| record.uid == *entry.active.key);
                Some(record.map_or_else(
                    || "another claim".to_owned(),
                    |it| format!("claim {}/{}", it.namespace, it.name),
                ))
            }
            _ => None,
        };
        if let Some(holder) = holder {
            return Err(conflict(format!(
                "{wish} belongs to {holder}: delete that claim, or wish for another address"
            )));
        }
        hold(floating, index, uid, Choice::Named(wish), now)
    }
}

fn hold(
    floating: &mut Floating,
    index: u128,
    uid: String,
    choice: Choice,
    now: Timestamp,
) -> Result<(u128, u128), Refused> {
    match floating.block.hold(uid, choice, now) {
        Ok(granted) => Ok((index, granted.hold().offset)),
        Err(error @ HoldError::Exhausted { .. }) => {
            Err(Refused::new(Reason::SubnetExhausted, error.to_string()))
        }
        Err(error @ (HoldError::Taken { .. } | HoldError::Reserved { .. } | HoldError::NotUsable { .. })) => {
            Err(Refused::new(Reason::IpAddressConflict, error.to_string()))
        }
        Err(error) => Err(Refused::new(Reason::InternalError, error.to_string())),
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
