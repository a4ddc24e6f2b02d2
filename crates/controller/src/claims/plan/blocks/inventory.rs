//! What a pool has for claims, and which address the next one gets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::coil::{AddressPool, ClaimRecord, EnginePool, block_name};
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Choice, HoldError, IntervalSet, State};

use super::super::Refused;
use super::{Draft, MOST, addresses, freed};
use crate::world::World;

/// What a pool has for claims.
pub(super) struct PoolInventory<'a> {
    pub(super) pool: &'a AddressPool,
    pub(super) engine: EnginePool,
    /// Numbers of blocks that cannot be carved.
    pub(super) taken: IntervalSet,
    pub(super) rest: Duration,
    pub(super) blocks: BTreeMap<u128, Floating>,
    /// Those of them that may have a free address.
    pub(super) open: BTreeSet<u128>,
    /// Whether one was asked for in vain: nothing becomes free in the same plan.
    pub(super) used_up: bool,
}

/// A block that hands out.
pub(super) struct Floating {
    pub(super) block: Block<String>,
    /// The records of one that is to be made.
    pub(super) made: Option<BTreeMap<String, ClaimRecord>>,
}

impl Floating {
    /// Whether it has a free address, and not so many records that another block should have the next.
    pub(super) fn has_room(&self) -> bool {
        let counts = self.block.counts();
        counts.free > 0 && counts.held + counts.cooling < MOST
    }
}

impl PoolInventory<'_> {
    /// The engine's idea of a block, from its records: what was freed first is freed first again.
    pub(super) fn restore(&self, draft: &Draft<'_>, now: Timestamp) -> Option<Block<String>> {
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
    pub(super) fn next(&mut self, uid: String, now: Timestamp) -> Result<(u128, u128), Refused> {
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
    pub(super) fn wished(
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
