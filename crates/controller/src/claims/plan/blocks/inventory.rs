//! The inventory of a pool for claims: which address the next claim gets.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::coil::{
    AddressBlock, AddressPool, AddressPoolSpec, ClaimRecord, EnginePool, block_name, split_block_name,
};
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Choice, HoldError, IntervalSet, State};

use super::super::super::records::addresses;
use super::super::Refused;
use super::{Draft, MOST, freed};
use crate::coil::Carving;
use crate::world::World;

/// The inventory of a pool. The engine's state of a block stays from plan to plan until the block changes.
#[derive(Debug)]
pub(super) struct PoolInventory {
    name: String,
    uid: Option<String>,
    spec: AddressPoolSpec,
    engine: EnginePool,
    /// Numbers of blocks that overlap older pools.
    withheld: IntervalSet,
    rest: Duration,
    blocks: BTreeMap<u128, Floating>,
    /// Blocks that may have room.
    open: BTreeSet<u128>,
    /// When the next address of a block has cooled.
    rested: BTreeSet<(Timestamp, u128)>,
    /// Numbers of blocks that changed since they were restored.
    stale: BTreeSet<u128>,
    /// Numbers of blocks that cannot be carved, once this plan has asked.
    taken: Option<IntervalSet>,
    /// Whether a request failed: nothing becomes free in the same plan.
    used_up: bool,
}

/// A block that assigns addresses.
#[derive(Debug)]
struct Floating {
    block: Block<String>,
    /// When the address that cools longest has cooled.
    until: Option<Timestamp>,
    /// The records of a block to be created.
    made: Option<BTreeMap<String, ClaimRecord>>,
}

impl Floating {
    /// Whether it has a free address, and few enough records.
    fn has_room(&self) -> bool {
        let counts = self.block.counts();
        counts.free > 0 && counts.held + counts.cooling < MOST
    }
}

impl PoolInventory {
    /// The empty inventory of a pool. `rest` is how long addresses cool if the pool does not say.
    pub(super) fn of(pool: &AddressPool, withheld: IntervalSet, rest: Duration) -> Result<Self, Refused> {
        let name = pool.name_any();
        let engine = EnginePool::try_from(&pool.spec).map_err(|error| {
            let words = format!("AddressPool \"{name}\" cannot be used: {error}");
            Refused::new(Reason::InternalError, words)
        })?;
        Ok(Self {
            name,
            uid: pool.uid(),
            spec: pool.spec.clone(),
            rest: engine.rest().unwrap_or(rest),
            engine,
            withheld,
            blocks: BTreeMap::new(),
            open: BTreeSet::new(),
            rested: BTreeSet::new(),
            stale: BTreeSet::new(),
            taken: None,
            used_up: false,
        })
    }

    /// Whether it belongs to this version of the pool.
    pub(super) fn is_of(&self, pool: &AddressPool, withheld: &IntervalSet) -> bool {
        self.uid == pool.uid() && self.spec == pool.spec && self.withheld == *withheld
    }

    /// The block of this number has changed.
    pub(super) fn is_stale(&mut self, index: u128) {
        self.stale.insert(index);
    }

    /// Begins a plan. Returns the numbers of blocks to restore, if they exist.
    pub(super) fn begin(&mut self) -> BTreeSet<u128> {
        (self.taken, self.used_up) = (None, false);
        let stale = mem::take(&mut self.stale);
        for index in &stale {
            self.open.remove(index);
            let old = self.blocks.remove(index);
            if let Some(until) = old.and_then(|floating| floating.until) {
                self.rested.remove(&(until, *index));
            }
        }
        stale
    }

    /// Restores the engine's state of a block from its records, in the order in which they were freed.
    pub(super) fn restore(
        &mut self,
        index: u128,
        of: &AddressBlock,
        records: &BTreeMap<String, ClaimRecord>,
        now: Timestamp,
    ) {
        let space = of.spec.to_subnet().ok().and_then(|subnet| self.engine.space(&subnet).ok());
        let Some(space) = space else { return };
        let mut block = Block::new(space, self.rest);
        let mut resting: Vec<(Timestamp, &String, &ClaimRecord)> =
            records.iter().filter_map(|(offset, record)| Some((freed(record)?, offset, record))).collect();
        resting.sort_by_key(|(freed, ..)| *freed);
        for (freed, offset, record) in resting {
            if freed > now {
                // The time is from another clock. Until ours reaches it, the address counts as freed just now.
                self.stale.insert(index);
            }
            let Some(address) = addresses(of, offset).first().copied() else { continue };
            if let Ok(granted) = block.replay(record.uid.clone(), address, None) {
                block.release(&record.uid, granted.hold().sequence, freed.min(now));
            }
        }
        for (offset, record) in records.iter().filter(|(_, record)| record.freed.is_none()) {
            let Some(address) = addresses(of, offset).first().copied() else { continue };
            // A claim has two addresses of a block only if somebody wrote that by hand. Both are taken anyway.
            if block.replay(record.uid.clone(), address, None).is_err() {
                _ = block.reserve(address, address);
            }
        }
        self.put(index, block, now);
    }

    /// Frees what has cooled.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while let Some((_, index)) = self.rested.first().copied().filter(|(until, _)| *until <= now) {
            self.rested.pop_first();
            if let Some(floating) = self.blocks.remove(&index) {
                self.put(index, floating.block, now);
            }
        }
    }

    fn put(&mut self, index: u128, mut block: Block<String>, now: Timestamp) {
        block.advance(now);
        let until = block.cooling().next().map(|oldest| oldest.until);
        self.rested.extend(until.map(|until| (until, index)));
        self.open.insert(index);
        self.blocks.insert(index, Floating { block, until, made: None });
    }

    /// The records of a block that this plan creates.
    pub(super) fn made(&mut self, index: u128) -> Option<&mut BTreeMap<String, ClaimRecord>> {
        self.blocks.get_mut(&index)?.made.as_mut()
    }

    /// The blocks that this plan creates, and their records.
    pub(super) fn all_made(&self) -> impl Iterator<Item = (u128, &BTreeMap<String, ClaimRecord>)> {
        let stale = self.stale.iter().filter_map(|index| Some((*index, self.blocks.get(index)?)));
        let made = stale.filter_map(|(index, floating)| Some((index, floating.made.as_ref()?)));
        made.filter(|(_, records)| !records.is_empty())
    }

    /// Numbers of blocks that cannot be carved.
    fn taken(&mut self, carving: &Carving) -> &mut IntervalSet {
        self.taken.get_or_insert_with(|| {
            let mut taken = carving.carved.not_free_for_claims(&self.name, &self.engine, &carving.overlaps);
            let promised = carving.promised.iter().filter_map(|block| split_block_name(block));
            for (_, index) in promised.filter(|(pool, _)| *pool == self.name) {
                taken.insert(index, index);
            }
            taken
        })
    }

    /// The next free address: of the lowest block with few records, otherwise of a new block, otherwise of any block,
    /// otherwise the one that has cooled longest.
    pub(super) fn next(
        &mut self,
        carving: &Carving,
        uid: String,
        now: Timestamp,
    ) -> Result<(u128, u128), Refused> {
        while let Some(index) = self.open.first().copied() {
            if self.blocks.get(&index).is_some_and(Floating::has_room) {
                return self.hold(index, uid, Choice::LowestFree, now);
            }
            self.open.pop_first();
        }
        if self.used_up {
            return Err(self.exhausted());
        }
        self.taken(carving);
        let lowest = self.taken.as_ref().and_then(|taken| self.engine.pool().lowest_free(taken));
        if let Some(index) = lowest
            && self.carve(carving, index)
        {
            return self.hold(index, uid, Choice::LowestFree, now);
        }
        let free = self.blocks.iter().find(|(_, floating)| floating.block.counts().free > 0);
        let resting = || {
            let oldest = self.blocks.iter().filter_map(|(index, floating)| {
                let oldest = floating.block.cooling().next()?;
                Some((oldest.until, *index))
            });
            oldest.min().map(|(_, index)| index)
        };
        let Some(index) = free.map(|(index, _)| *index).or_else(resting) else {
            self.used_up = true;
            return Err(self.exhausted());
        };
        self.hold(index, uid, Choice::LowestFree, now)
    }

    fn exhausted(&self) -> Refused {
        let pool = &self.name;
        Refused::new(
            Reason::SubnetExhausted,
            format!(
                "AddressPool \"{pool}\" has no free block and its blocks for claims have no free address: append a subnet to its \
                 spec.subnets, or delete claims that nobody needs"
            ),
        )
    }

    /// Adds a block. Returns whether the pool has one of that number.
    fn carve(&mut self, carving: &Carving, index: u128) -> bool {
        let block = self.engine.pool().block(index);
        let Some(space) = block.and_then(|block| self.engine.space(&block).ok()) else { return false };
        self.taken(carving).insert(index, index);
        self.open.insert(index);
        self.stale.insert(index);
        let (block, made) = (Block::new(space, self.rest), Some(BTreeMap::new()));
        self.blocks.entry(index).or_insert(Floating { block, until: None, made });
        true
    }

    /// Exactly these addresses.
    pub(super) fn wished(
        &mut self,
        (world, carving): (&World, &Carving),
        drafts: &BTreeMap<String, Draft<'_>>,
        uid: String,
        wishes: &[Address],
        now: Timestamp,
    ) -> Result<(u128, u128), Refused> {
        let name = self.name.clone();
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
            if let Some(there) = world.coil().blocks.get(&block) {
                let owner = match there.node() {
                    Some(node) => format!("belongs to node {node}"),
                    None => "is not one that addresses are given of at present".to_owned(),
                };
                return Err(conflict(format!(
                    "{wish} lies in AddressBlock {block}, which {owner}; wish for an address of another block, or wait until \
                     this one is returned"
                )));
            }
            if self.taken(carving).contains(index) {
                return Err(conflict(format!(
                    "{wish} lies in block {index} of AddressPool \"{name}\", which is excluded, kept back for an older pool, \
                     or promised to a node"
                )));
            }
            self.carve(carving, index);
        }
        let Some(floating) = self.blocks.get(&index) else { return Err(self.exhausted()) };
        let holder = match floating.block.state(wish) {
            Ok(State::Held(entry)) => {
                let block = block_name(&name, index);
                let known = || Some(&world.coil().blocks.get(&block)?.spec.claims);
                let records = drafts.get(&block).map(|draft| &draft.records).or_else(known);
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
        self.hold(index, uid, Choice::Named(wish), now)
    }

    fn hold(
        &mut self,
        index: u128,
        uid: String,
        choice: Choice,
        now: Timestamp,
    ) -> Result<(u128, u128), Refused> {
        let Some(floating) = self.blocks.get_mut(&index) else { return Err(self.exhausted()) };
        self.stale.insert(index);
        match floating.block.hold(uid, choice, now) {
            Ok(granted) => Ok((index, granted.hold().offset)),
            Err(error @ HoldError::Exhausted { .. }) => {
                Err(Refused::new(Reason::SubnetExhausted, error.to_string()))
            }
            Err(
                error @ (HoldError::Taken { .. } | HoldError::Reserved { .. } | HoldError::NotUsable { .. }),
            ) => Err(Refused::new(Reason::IpAddressConflict, error.to_string())),
            Err(error) => Err(Refused::new(Reason::InternalError, error.to_string())),
        }
    }
}
