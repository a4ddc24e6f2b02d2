//! Assigns addresses of divided ranges: from slices that no node owns.
//!
//! ```text
//!   claims wait ─▶ the slices' planner gives a slice to `tenure:claims` ─▶ its empty ledger is made ─▶ records
//!   nothing is on record for a while ─▶ the ledger is deleted ─▶ the slice is given back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::{PodRecord, SLICE_OWNER};
use tenure_api::whereabouts::{Allocation, NodeSlicePool};
use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Block, Choice, Cidr, Slices};
use tenure_whereabouts::config::{Config, RangeConfig};
use tenure_whereabouts::ledger::{PoolId, State, adopt, cooling_after, cooling_of};
use tenure_whereabouts::slices::{Floating, slice_pools};

use super::super::sets::Names;
use super::super::write::{ClaimId, ClaimWrite, Gone};
use super::ledgers::LedgerIndex;
use super::line::{Awaited, Line};
use super::ranges::{RangeRecord, Resting, by_range, who};
use super::recorded::names_more;
use super::{Inputs, Refused};
use crate::suspicions::Suspicions;
use crate::whereabouts::{Ledger, LedgerWrite};
use crate::write::{At, Write};

mod known;

pub(super) use known::KnownSlices;
use known::{Demand, Ours};

/// Slices for claims, with planned changes.
pub(super) struct ClaimSlices<'a> {
    inputs: Inputs<'a>,
    ledgers: &'a LedgerIndex,
    rest: Duration,
    known: KnownSlices,
    /// Ledgers of slices for claims that change, by name.
    drafts: BTreeMap<String, Draft<'a>>,
    /// The pools of slices that this plan decides about, and those it assigns from.
    served: BTreeSet<String>,
    pools: BTreeMap<String, Pool>,
}

struct Draft<'a> {
    ledger: &'a Ledger,
    ours: Ours,
    records: BTreeMap<String, Allocation>,
    gone: Gone,
    /// Claims that a live read has to confirm, because their records name more pods.
    named: Vec<ClaimId>,
}

/// The part of a pool of slices that is for claims.
#[derive(Default)]
struct Pool {
    /// Slices that assign addresses, with the engine.
    open: Vec<(Ours, Block<String>)>,
    need: Floating,
    /// How many claims wait for another slice, and how many addresses a slice has.
    waiting: usize,
    addresses: usize,
    /// Whether claims wait for ledgers of slices without one.
    make: bool,
    /// Whether a claim that waits for a slice of another range will get an address of this one.
    wanted: bool,
}

/// Where an address of a range can come from.
enum SlicePosition {
    /// This slice.
    Open(usize, Choice),
    /// A slice that is requested.
    Later,
}

impl<'a> ClaimSlices<'a> {
    /// Starts without changes.
    pub(super) fn of(
        inputs: Inputs<'a>,
        ledgers: &'a LedgerIndex,
        rest: Duration,
        known: KnownSlices,
    ) -> Self {
        let (drafts, served, pools) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { inputs, ledgers, rest, known, drafts, served, pools }
    }

    /// This plan decides about all claims that wait for this pool of slices.
    pub(super) fn serve(&mut self, pool: &str) {
        self.served.insert(pool.to_owned());
    }

    /// The pools of slices whose ledgers change.
    pub(super) fn changed_pools(&self) -> impl Iterator<Item = &str> {
        self.drafts.values().map(|draft| draft.ours.pool.as_ref())
    }

    /// The planned state of a ledger, if it belongs to a slice for claims.
    fn draft(&mut self, name: &str) -> Option<&mut Draft<'a>> {
        if !self.drafts.contains_key(name) {
            let ours = self.known.of_ledger(name)?.clone();
            let ledger = self.inputs.world.ledgers().pools.get(name)?;
            let (records, gone) = (ledger.pool.spec.allocations.clone(), Gone::default());
            self.drafts.insert(name.to_owned(), Draft { ledger, ours, records, gone, named: Vec::new() });
        }
        self.drafts.get_mut(name)
    }

    /// The planned records of a ledger.
    fn records<'l>(&'l self, name: &str, ledger: &'l Ledger) -> &'l BTreeMap<String, Allocation> {
        self.drafts.get(name).map_or(&ledger.pool.spec.allocations, |draft| &draft.records)
    }

    /// Removes a record. `doubtful`: only a live read can tell that its claim is gone. Returns whether it belongs to
    /// a slice.
    pub(super) fn free(&mut self, record: &RangeRecord<'_>, doubtful: bool) -> bool {
        let Some(draft) = self.draft(&record.ledger.pool.name_any()) else { return false };
        if draft.records.remove(record.key).is_some() {
            draft.gone.pods.extend(record.pods());
            if doubtful {
                draft.gone.claims.push(record.claim());
            }
        }
        true
    }

    /// Sets the pods of a record. Returns whether it belongs to a slice.
    pub(super) fn rename(&mut self, record: &RangeRecord<'_>, pods: &[PodRecord]) -> bool {
        let Some(draft) = self.draft(&record.ledger.pool.name_any()) else { return false };
        if let Some(known) = draft.records.get_mut(record.key) {
            if names_more(&known.pods, pods) {
                draft.named.push(record.claim());
            }
            known.pods = pods.to_vec();
        }
        true
    }

    /// Assigns a claim an address of each range, or none; `Ok(false)` if it has to wait for a slice.
    pub(super) fn give(
        &mut self,
        config: &Config,
        claim: &ClaimFacts,
        wishes: &[Address],
        resting: &Resting,
    ) -> Result<bool, Refused> {
        let invalid = |words: String| Refused::new(Reason::InternalError, words);
        let wishes = by_range(config, wishes)?;
        let names = slice_pools(config).map_err(|error| invalid(error.to_string()))?;
        let id = who(claim).id;
        let mut places = Vec::new();
        for ((range, (pool, cut)), wish) in config.ranges.iter().zip(&names).zip(&wishes) {
            self.open(config, range, pool, resting);
            places.push((pool.clone(), self.place(config, range, pool, cut, *wish, &id)?));
        }
        if places.iter().any(|(_, place)| matches!(place, SlicePosition::Later)) {
            for (pool, _) in &places {
                self.pools.entry(pool.clone()).or_default().wanted = true;
            }
            return Ok(false);
        }
        for (pool, place) in places {
            let SlicePosition::Open(number, choice) = place else { continue };
            let Some((ours, block)) = self.pools.get_mut(&pool).and_then(|pool| pool.open.get_mut(number))
            else {
                continue;
            };
            let held = block.hold(id.clone(), choice, self.inputs.now);
            let hold =
                held.map_err(|error| Refused::new(Reason::IpAddressConflict, error.to_string()))?.hold();
            let (key, ledger) = (hold.offset.to_string(), ours.ledger.clone());
            // A record that it already has keeps its pods.
            if self.record(&ledger, &key).is_some_and(|known| known.id == id) {
                continue;
            }
            if let Some(draft) = self.draft(&ledger) {
                let who = who(claim);
                let record = Allocation {
                    id: who.id,
                    podref: who.podref,
                    ifname: Some(who.ifname),
                    ..Allocation::default()
                };
                draft.records.insert(key, record);
            }
        }
        Ok(true)
    }

    /// The planned record of a ledger.
    fn record(&self, ledger: &str, key: &str) -> Option<&Allocation> {
        let known = self.inputs.world.ledgers().pools.get(ledger)?;
        self.records(ledger, known).get(key)
    }

    fn place(
        &mut self,
        config: &Config,
        range: &RangeConfig,
        name: &str,
        cut: &Slices,
        wish: Option<Address>,
        id: &String,
    ) -> Result<SlicePosition, Refused> {
        let known = self.inputs.world.ledgers().slices.get(name);
        let unmade = self.known.unmade(self.inputs.world, name).next().is_some();
        let Some(pool) = self.pools.get_mut(name) else { return Ok(SlicePosition::Later) };
        if let Some(has) = pool.open.iter().position(|(_, block)| block.find(id).is_some()) {
            return Ok(SlicePosition::Open(has, Choice::LowestFree));
        }
        let Some(wish) = wish else {
            if let Some(free) = pool.open.iter().position(|(_, block)| block.counts().free > 0) {
                return Ok(SlicePosition::Open(free, Choice::LowestFree));
            }
            let usable = |slice: &Cidr| range.within(*slice);
            let mut free = known.into_iter().flat_map(|pool| slices_of(pool, ""));
            pool.make |= unmade;
            let next = free.find_map(|slice| usable(&slice));
            if unmade || known.is_none() || next.is_some() {
                let count = next.map_or(1, |range| range.count());
                pool.addresses = usize::try_from(count).unwrap_or(usize::MAX).max(1);
                pool.waiting += usize::from(!unmade);
                return Ok(SlicePosition::Later);
            }
            if let Some(rests) = pool.open.iter().position(|(_, block)| block.cooling().next().is_some()) {
                return Ok(SlicePosition::Open(rests, Choice::LowestFree));
            }
            return Err(Refused::new(
                Reason::SubnetExhausted,
                format!(
                    "no slice of NodeSlicePool {name} is left for claims of network \"{}\": make the range larger or \
                     node_slice_size smaller, or delete claims that nobody needs",
                    config.name
                ),
            ));
        };
        let slice = cut.index_of_address(wish).and_then(|index| cut.get(index));
        let owner = known.and_then(|pool| owner_of(pool, &slice?));
        let conflict = |words: String| Err(Refused::new(Reason::IpAddressConflict, words));
        match (slice, owner.as_deref()) {
            (Some(slice), Some(SLICE_OWNER)) => {
                let open = pool.open.iter().position(|(ours, _)| ours.slice == slice);
                let Some((number, ledger)) =
                    open.and_then(|number| Some((number, pool.open.get(number)?.0.ledger.clone())))
                else {
                    pool.make = true;
                    return Ok(SlicePosition::Later);
                };
                let key = Offsets::of(&slice).offset(wish).unwrap_or_default().to_string();
                match self.record(&ledger, &key) {
                    Some(record) => conflict(format!(
                        "{wish} belongs to claim {}: delete that claim, or wish for another address",
                        record.podref
                    )),
                    None => Ok(SlicePosition::Open(number, Choice::Named(wish))),
                }
            }
            (Some(slice), None | Some("")) => {
                pool.need.slices.insert(slice);
                Ok(SlicePosition::Later)
            }
            (_, Some(node)) => conflict(format!(
                "{wish} lies in a slice of NodeSlicePool {name} that belongs to node {node}: wish for an address of another \
                 slice, or wait until this one is given back"
            )),
            (None, None) => conflict(format!("{wish} is in no slice of NodeSlicePool {name}")),
        }
    }

    /// Restores the engine's state of a pool's slices.
    fn open(&mut self, config: &Config, range: &RangeConfig, name: &str, resting: &Resting) {
        if self.pools.contains_key(name) {
            return;
        }
        let mut pool = Pool { addresses: 1, ..Pool::default() };
        let resting = resting.of(&config.network);
        let Inputs { world, now, .. } = self.inputs;
        for (ours, ledger) in self.known.made(world, name) {
            let Some(space) = range.within(ours.slice) else { continue };
            let id = PoolId::floating(&config.network, ours.slice);
            let mut block: Block<String> = Block::new(space, self.rest);
            for (freed, address) in resting.iter().filter(|(_, address)| ours.slice.contains(*address)) {
                if let Ok(granted) = block.replay(address.to_string(), *address, None) {
                    block.release(&address.to_string(), granted.hold().sequence, *freed);
                }
            }
            for (until, address) in cooling_of(&ledger.pool) {
                let known = resting.iter().any(|(_, known)| *known == address);
                if !known
                    && until > now
                    && let Ok(granted) = block.replay(address.to_string(), address, None)
                {
                    let rest = u64::try_from(self.rest.as_millis()).unwrap_or(u64::MAX);
                    let freed = Timestamp::from_millis(until.as_millis().saturating_sub(rest));
                    block.release(&address.to_string(), granted.hold().sequence, freed);
                }
            }
            let offsets = Offsets::of(&ours.slice);
            for (key, record) in self.records(&ours.ledger, ledger) {
                let address = key.parse().ok().and_then(|offset| offsets.address(offset).ok());
                if let Some(address) = address
                    && block.replay(record.id.clone(), address, None).is_err()
                {
                    _ = block.reserve(address, address);
                }
            }
            let others = self.ledgers.overlapping(ours.slice).filter(|other| **other != ours.ledger);
            let others = others.filter_map(|other| world.ledgers().pools.get(other));
            for address in adopt(&id, None, others.map(|it| &it.pool)).reserved {
                _ = block.reserve(address, address);
            }
            block.advance(now);
            pool.open.push((ours.clone(), block));
        }
        self.pools.insert(name.to_owned(), pool);
    }

    /// Returns everything as writes, and what to remember. `idle` tells since when a ledger is empty.
    pub(super) fn into_writes(mut self, idle: &mut Suspicions, line: &mut Line) -> (Vec<Write>, KnownSlices) {
        let Inputs { world, look, now, .. } = self.inputs;
        let mut writes = Vec::new();
        let pools = std::mem::take(&mut self.pools);
        for (name, pool) in &pools {
            // Created when somebody waits for it, otherwise returned.
            for ours in self.known.unmade(world, name).filter(|_| pool.make) {
                match ours.id.empty_object(0, State::Owned) {
                    Ok(object) => writes.push(LedgerWrite::Guard { pool: Box::new(object) }.into()),
                    Err(error) => {
                        tracing::warn!(name = %ours.ledger, %error, "a ledger for claims cannot be made");
                    }
                }
                line.note(Awaited::Slices(name.as_str().into()));
            }
        }
        let demands = pools.into_iter().map(|(name, pool)| (name, pool.into_demand()));
        self.known.demand(demands, &self.served, line, now);
        let mut names: Names = self.drafts.keys().map(|name| name.as_str().into()).collect();
        self.known.take_looks(self.inputs, self.ledgers, &mut names);
        names.extend(idle.due(now).map(Into::into));
        for name in &names {
            if !look.all {
                idle.look_again_at(name);
            }
            let Some(ledger) = world.ledgers().pools.get(name) else { continue };
            let draft = self.drafts.remove(name.as_ref());
            let write = match self.known.of_ledger(name) {
                Some(ours) => {
                    let wanted = self.known.is_wanted(&ours.pool);
                    let empty = ledger.pool.spec.allocations.is_empty() && !wanted;
                    match draft {
                        Some(draft) => Some(self.write(draft)),
                        None => (empty && idle.suspect(name.to_string(), now)).then(|| drop_ledger(ledger)),
                    }
                }
                // Leftovers of slices that are not ours any more, or whose pool is gone.
                None => None,
            };
            let left = || {
                let is_left = self.ledgers.floating().contains(name) && ledger.whole && ledger.used == 0;
                let slice = ledger.pool.spec.cidr().ok();
                is_left && !slice.is_some_and(|slice| self.known.has(&slice))
            };
            let write = write
                .or_else(|| (left() && idle.suspect(name.to_string(), now)).then(|| drop_ledger(ledger)));
            if let Some(write) = write {
                self.known.is_pending(name);
                writes.push(write);
            }
        }
        #[cfg(test)]
        {
            self.known.looked_at = names.len();
        }
        self.known.sum_up(world, look.all);
        (writes, self.known)
    }

    fn write(&self, draft: Draft<'_>) -> Write {
        let Draft { ledger, ours, records, gone, named } = draft;
        let (slices, slice) = (ours.pool.to_string(), ours.slice.to_string());
        let before = &ledger.pool.spec.allocations;
        let offsets = Offsets::of(&ours.slice);
        let freed = before.keys().filter(|key| !records.contains_key(*key));
        let freed: Vec<Address> = freed.filter_map(|key| offsets.address(key.parse().ok()?).ok()).collect();
        let cooling = (!freed.is_empty())
            .then(|| cooling_after(&ledger.pool, freed, self.rest, self.inputs.now))
            .flatten();
        let ledger = At::of(&ledger.pool);
        ClaimWrite::Slice { ledger, slices, slice, records, gone, named, cooling }.into()
    }
}

impl Pool {
    /// What claims need of it, for plans in which nothing about it changes.
    fn into_demand(self) -> Demand {
        let rested = self.open.iter().filter_map(|(_, block)| Some(block.cooling().next()?.until));
        Demand {
            rested: rested.min(),
            slices: self.need.slices,
            more: self.waiting.div_ceil(self.addresses.max(1)),
            make: self.make,
            wanted: self.wanted,
        }
    }
}

fn drop_ledger(ledger: &Ledger) -> Write {
    ClaimWrite::DropLedger { ledger: At::of(&ledger.pool) }.into()
}

/// The slices of a node.
fn slices_of(pool: &NodeSlicePool, node: &str) -> impl Iterator<Item = Cidr> {
    let all = pool.status.iter().flat_map(|status| &status.allocations);
    all.filter(move |slice| slice.node_name == node).filter_map(|slice| slice.slice_range.parse().ok())
}

fn owner_of(pool: &NodeSlicePool, slice: &Cidr) -> Option<String> {
    let mut all = pool.status.iter().flat_map(|status| &status.allocations);
    let found = all.find(|it| it.slice_range.parse::<Cidr>().is_ok_and(|it| it == *slice));
    found.map(|it| it.node_name.clone())
}
