//! Giving addresses of ranges that are cut: out of slices that no node owns.
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

use super::super::write::{ClaimId, ClaimWrite, Gone};
use super::Refused;
use super::ranges::{RangeRecord, Resting, by_range, who};
use super::recorded::names_more;
use crate::suspicions::Suspicions;
use crate::whereabouts::{Ledger, LedgerWrite};
use crate::world::World;
use crate::write::{At, Write};

/// Slices for claims, as they are to be.
pub(super) struct ClaimSlices<'a> {
    world: &'a World,
    rest: Duration,
    now: Timestamp,
    /// The ledgers of slices that are for claims, by name.
    drafts: BTreeMap<String, Draft<'a>>,
    /// The same by pool of slices.
    pools: BTreeMap<String, Pool>,
    /// Slices without a ledger, by the name that it would have; and their pool.
    unmade: BTreeMap<String, (String, PoolId)>,
}

struct Draft<'a> {
    ledger: &'a Ledger,
    pool: String,
    slice: Cidr,
    records: BTreeMap<String, Allocation>,
    changed: bool,
    gone: Gone,
    /// Claims that a live look has to confirm, because their records name more pods.
    named: Vec<ClaimId>,
}

/// What of a pool of slices is for claims.
#[derive(Default)]
struct Pool {
    /// Slices that hand out: ledger and engine.
    open: Vec<(String, Block<String>)>,
    need: Floating,
    /// How many claims wait for one more, and how many addresses one has.
    waiting: usize,
    addresses: usize,
    /// Whether claims wait for the ledgers of slices that have none.
    make: bool,
    /// Whether a claim that waits for another range's slice will be given out of this one's.
    wanted: bool,
}

/// Where an address of a range can come from.
enum SlicePosition {
    /// This slice.
    Open(usize, Choice),
    /// A slice that is asked for.
    Later,
}

impl<'a> ClaimSlices<'a> {
    /// Those of `world`.
    pub(super) fn of(world: &'a World, rest: Duration, now: Timestamp) -> Self {
        let mut cut = Self {
            world,
            rest,
            now,
            drafts: BTreeMap::new(),
            pools: BTreeMap::new(),
            unmade: BTreeMap::new(),
        };
        for pool in world.ledgers.slices.iter() {
            let network = tenure_whereabouts::slices::network_of(pool);
            for slice in ours(pool) {
                let id = PoolId::floating(&network, slice);
                let Ok(name) = id.name() else { continue };
                match world.ledgers.pools.get(&name) {
                    None => drop(cut.unmade.insert(name, (pool.name_any(), id))),
                    Some(ledger) => {
                        let records = ledger.pool.spec.allocations.clone();
                        let pool = pool.name_any();
                        let (gone, named) = (Gone::default(), Vec::new());
                        let draft = Draft { ledger, pool, slice, records, changed: false, gone, named };
                        cut.drafts.insert(name, draft);
                    }
                }
            }
        }
        cut
    }

    /// A record goes; `doubtful` is whether only a live look says that its claim is gone. Whether it is one of a slice.
    pub(super) fn free(&mut self, record: &RangeRecord<'_>, doubtful: bool) -> bool {
        let Some(draft) = self.drafts.get_mut(&record.ledger.pool.name_any()) else { return false };
        if draft.records.remove(record.key).is_some() {
            draft.changed = true;
            draft.gone.pods.extend(record.pods());
            if doubtful {
                draft.gone.claims.push(record.claim());
            }
        }
        true
    }

    /// A record gets these pods. Whether it is one of a slice.
    pub(super) fn rename(&mut self, record: &RangeRecord<'_>, pods: &[PodRecord]) -> bool {
        let Some(draft) = self.drafts.get_mut(&record.ledger.pool.name_any()) else { return false };
        if let Some(known) = draft.records.get_mut(record.key) {
            if names_more(&known.pods, pods) {
                draft.named.push(record.claim());
            }
            known.pods = pods.to_vec();
            draft.changed = true;
        }
        true
    }

    /// Gives a claim an address of each range, or none; `Ok(false)` if it has to wait for a slice.
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
            let Some((ledger, block)) = self.pools.get_mut(&pool).and_then(|pool| pool.open.get_mut(number))
            else {
                continue;
            };
            let held = block.hold(id.clone(), choice, self.now);
            let hold =
                held.map_err(|error| Refused::new(Reason::IpAddressConflict, error.to_string()))?.hold();
            if let Some(draft) = self.drafts.get_mut(ledger) {
                let who = who(claim);
                let record = Allocation {
                    id: who.id,
                    podref: who.podref,
                    ifname: Some(who.ifname),
                    ..Allocation::default()
                };
                // What it has already it has with the pods that were given it.
                let key = hold.offset.to_string();
                if draft.records.get(&key).is_none_or(|known| known.id != record.id) {
                    draft.records.insert(key, record);
                    draft.changed = true;
                }
            }
        }
        Ok(true)
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
        let known = self.world.ledgers.slices.get(name);
        let Some(pool) = self.pools.get_mut(name) else { return Ok(SlicePosition::Later) };
        if let Some(has) = pool.open.iter().position(|(_, block)| block.find(id).is_some()) {
            return Ok(SlicePosition::Open(has, Choice::LowestFree));
        }
        let Some(wish) = wish else {
            if let Some(free) = pool.open.iter().position(|(_, block)| block.counts().free > 0) {
                return Ok(SlicePosition::Open(free, Choice::LowestFree));
            }
            let usable = |slice: &Cidr| range.within(*slice);
            let free: Vec<Cidr> = known.map(of_nobody).unwrap_or_default();
            let unmade = self.unmade.values().any(|(of, _)| of == name);
            pool.make |= unmade;
            let next = free.iter().find_map(usable);
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
                let drafts = &self.drafts;
                let open = pool
                    .open
                    .iter()
                    .position(|(ledger, _)| drafts.get(ledger).is_some_and(|draft| draft.slice == slice));
                let Some(number) = open else {
                    pool.make = true;
                    return Ok(SlicePosition::Later);
                };
                let key = Offsets::of(&slice).offset(wish).unwrap_or_default().to_string();
                let holder =
                    pool.open.get(number).and_then(|(ledger, _)| drafts.get(ledger)?.records.get(&key));
                match holder {
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

    /// Restores the engine's idea of a pool's slices.
    fn open(&mut self, config: &Config, range: &RangeConfig, name: &str, resting: &Resting) {
        if self.pools.contains_key(name) {
            return;
        }
        let mut pool = Pool { addresses: 1, ..Pool::default() };
        let resting = resting.of(&config.network);
        for (ledger, draft) in self.drafts.iter().filter(|(_, draft)| draft.pool == name) {
            let Some(space) = range.within(draft.slice) else { continue };
            let id = PoolId::floating(&config.network, draft.slice);
            let mut block: Block<String> = Block::new(space, self.rest);
            for (freed, address) in resting.iter().filter(|(_, address)| draft.slice.contains(*address)) {
                if let Ok(granted) = block.replay(address.to_string(), *address, None) {
                    block.release(&address.to_string(), granted.hold().sequence, *freed);
                }
            }
            for (until, address) in cooling_of(&draft.ledger.pool) {
                let known = resting.iter().any(|(_, known)| *known == address);
                if !known
                    && until > self.now
                    && let Ok(granted) = block.replay(address.to_string(), address, None)
                {
                    let rest = u64::try_from(self.rest.as_millis()).unwrap_or(u64::MAX);
                    let freed = Timestamp::from_millis(until.as_millis().saturating_sub(rest));
                    block.release(&address.to_string(), granted.hold().sequence, freed);
                }
            }
            let offsets = Offsets::of(&draft.slice);
            for (key, record) in &draft.records {
                let address = key.parse().ok().and_then(|offset| offsets.address(offset).ok());
                if let Some(address) = address
                    && block.replay(record.id.clone(), address, None).is_err()
                {
                    _ = block.reserve(address, address);
                }
            }
            let others =
                self.world.ledgers.pools.iter().filter(|it| it.whole && it.pool.name_any() != *ledger);
            for address in adopt(&id, None, others.map(|it| &it.pool)).reserved {
                _ = block.reserve(address, address);
            }
            block.advance(self.now);
            pool.open.push((ledger.clone(), block));
        }
        self.pools.insert(name.to_owned(), pool);
    }

    /// Everything as writes, and what is needed of slices. `idle` knows since when a ledger has been empty.
    pub(super) fn into_writes(self, idle: &mut Suspicions) -> (Vec<Write>, BTreeMap<String, Floating>) {
        let (mut writes, mut needs) = (Vec::new(), BTreeMap::<String, Floating>::new());
        // Made when somebody waits for it, and else given back.
        for (name, (pool, id)) in self.unmade {
            if !self.pools.get(&pool).is_some_and(|pool| pool.make) {
                continue;
            }
            match id.empty_object(0, State::Owned) {
                Ok(object) => writes.push(LedgerWrite::Guard { pool: Box::new(object) }.into()),
                Err(error) => tracing::warn!(name, %error, "a ledger for claims cannot be made"),
            }
            needs.entry(pool).or_default().slices.insert(id.range);
        }
        let mut wanted = BTreeSet::new();
        for (name, pool) in self.pools {
            if pool.wanted {
                wanted.insert(name.clone());
            }
            let need = needs.entry(name).or_default();
            need.slices.extend(pool.need.slices);
            need.more = pool.waiting.div_ceil(pool.addresses);
        }
        idle.look_again();
        for (name, draft) in self.drafts {
            let empty = draft.records.is_empty() && !wanted.contains(&draft.pool);
            let ledger = At::of(&draft.ledger.pool);
            let lasted = empty && !draft.changed && idle.suspect(name, self.now);
            if draft.changed {
                let (slices, slice) = (draft.pool.clone(), draft.slice.to_string());
                let before = &draft.ledger.pool.spec.allocations;
                let offsets = Offsets::of(&draft.slice);
                let freed = before.keys().filter(|key| !draft.records.contains_key(*key));
                let freed: Vec<Address> =
                    freed.filter_map(|key| offsets.address(key.parse().ok()?).ok()).collect();
                let cooling = (!freed.is_empty())
                    .then(|| cooling_after(&draft.ledger.pool, freed, self.rest, self.now))
                    .flatten();
                let (records, gone, named) = (draft.records, draft.gone, draft.named);
                let write = ClaimWrite::Slice { ledger, slices, slice, records, gone, named, cooling };
                writes.push(write.into());
            } else if lasted {
                writes.push(ClaimWrite::DropLedger { ledger }.into());
            }
            needs.entry(draft.pool).or_default().slices.insert(draft.slice);
        }
        // What is left of slices that are not ours any more, or whose pool is gone.
        for ledger in self.world.ledgers.pools.iter().filter(|it| is_floating(it) && it.whole && it.used == 0)
        {
            let name = ledger.pool.name_any();
            let slice = ledger.pool.spec.cidr().ok();
            let has = |pool: &NodeSlicePool| slice.is_some_and(|slice| ours(pool).any(|it| it == slice));
            if !self.world.ledgers.slices.iter().any(has) && idle.suspect(name, self.now) {
                writes.push(ClaimWrite::DropLedger { ledger: At::of(&ledger.pool) }.into());
            }
        }
        (writes, needs)
    }
}

/// Whether a ledger is of a slice for claims.
fn is_floating(ledger: &Ledger) -> bool {
    let labels = ledger.pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(tenure_api::claims::label::FLOATING))
}

fn allocations(pool: &NodeSlicePool) -> impl Iterator<Item = (&str, Cidr)> {
    let all = pool.status.iter().flat_map(|status| &status.allocations);
    all.filter_map(|slice| Some((slice.node_name.as_str(), slice.slice_range.parse().ok()?)))
}

fn ours(pool: &NodeSlicePool) -> impl Iterator<Item = Cidr> {
    allocations(pool).filter(|(node, _)| *node == SLICE_OWNER).map(|(_, slice)| slice)
}

fn of_nobody(pool: &NodeSlicePool) -> Vec<Cidr> {
    allocations(pool).filter(|(node, _)| node.is_empty()).map(|(_, slice)| slice).collect()
}

fn owner_of(pool: &NodeSlicePool, slice: &Cidr) -> Option<String> {
    allocations(pool).find(|(_, it)| it == slice).map(|(node, _)| node.to_owned())
}
