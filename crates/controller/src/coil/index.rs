//! What plans remember of all objects. It follows changes.
//!
//! It stores what it took from each object ([`super::facts`]), to remove that again. A change that is not relevant
//! changes nothing here, and causes no planning.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tenure_api::coil::AddressPool;
use tenure_api::overlap::{Overlaps, overlaps};
use tenure_ipam::Address;

use super::addresses::{Addresses, Source};
use super::carved::{Carved, Change, Number, networks};
use super::facts::{BlockFacts, NodeState, NumberFacts, PoolFacts, RequestFacts};
use super::pending::Pending;
use super::requests::waits;
use super::share::Shares;
use crate::cache::Known;
use crate::changes::Cursors;
use crate::world::World;

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    cursors: Cursors,
    pub(super) carved: Arc<Carved>,
    pub(super) overlaps: Arc<Overlaps>,
    pub(super) shares: Shares,
    /// Requests without an answer, in the status or as a block if that is their answer; the oldest first.
    waiting: BTreeSet<(Option<Time>, Arc<str>)>,
    /// Names of blocks by the UID of the request that they answer.
    answers: HashMap<Arc<str>, Vec<Arc<str>>>,
    pool_uids: HashSet<String>,
    pools: HashMap<Arc<str>, PoolFacts>,
    blocks: HashMap<Arc<str>, BlockFacts>,
    unreadable: HashMap<Arc<str>, NumberFacts>,
    /// Requests whose status has no answer.
    requests: HashMap<Arc<str>, RequestFacts>,
    /// The names of those among them whose answer is the block itself, by UID.
    by_block: HashMap<Arc<str>, Arc<str>>,
    /// Blocks and ledgers by their addresses.
    addresses: Addresses,
    /// What ledgers hold of addresses that are unique in the cluster.
    ledgers: HashMap<Arc<str>, Vec<(Address, Address)>>,
    /// The last seen state of nodes with blocks.
    nodes: HashMap<Arc<str>, (NodeState, BTreeSet<Arc<str>>)>,
    /// Blocks that only occupy a name.
    withheld: BTreeSet<Arc<str>>,
}

/// Objects that have changed, by their keys.
#[derive(Debug, Default)]
struct Keys {
    pools: BTreeSet<Arc<str>>,
    blocks: BTreeSet<Arc<str>>,
    requests: BTreeSet<Arc<str>>,
    ledgers: BTreeSet<Arc<str>>,
    nodes: BTreeSet<Arc<str>>,
}

/// The result of an update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Updated {
    /// Whether everything was read again, and has to be looked at.
    pub(super) all: bool,
    /// How many objects were read.
    #[cfg(test)]
    pub(super) objects: usize,
}

impl Index {
    /// Reads what changed in `world`, and notes what to look at because of it.
    pub(super) fn update(&mut self, world: &World, pending: &mut Pending) -> Updated {
        let mut changed = Keys::changed(world, &mut self.cursors);
        let all = self.cursors.take_missed();
        if all {
            *self = Self { cursors: std::mem::take(&mut self.cursors), ..Self::default() };
            changed = Keys::of(world);
        }
        self.take_pools(world, &changed.pools, pending);
        for name in &changed.blocks {
            self.take_block(world, name, pending);
        }
        for name in &changed.requests {
            self.take_request(world, name);
        }
        for name in &changed.ledgers {
            self.take_ledger(world, name);
        }
        for name in &changed.nodes {
            self.take_node(world, name, pending);
        }
        self.carved().set_in_flight(&world.in_flight);
        Updated {
            all,
            #[cfg(test)]
            objects: changed.len(),
        }
    }

    /// A planted bug: overlooks what changed in `world`.
    #[cfg(test)]
    pub(super) fn overlook(&mut self, world: &World) {
        Keys::changed(world, &mut self.cursors);
    }

    /// What is used, mutable. It is copied only if somebody still reads that of an earlier plan.
    pub(super) fn carved(&mut self) -> &mut Carved {
        Arc::make_mut(&mut self.carved)
    }

    /// The names of waiting requests, oldest first.
    pub(super) fn waiting(&self) -> impl ExactSizeIterator<Item = &str> {
        self.waiting.iter().map(|(_, name)| name.as_ref())
    }

    /// The block that answers a request.
    pub(super) fn answer_to(&self, request_uid: &str) -> Option<&str> {
        self.answers.get(request_uid)?.iter().max().map(AsRef::as_ref)
    }

    /// Whether there is a pool with this UID.
    pub(super) fn has_pool(&self, uid: &str) -> bool {
        self.pool_uids.contains(uid)
    }

    fn take_pools(&mut self, world: &World, names: &BTreeSet<Arc<str>>, pending: &mut Pending) {
        let (mut reshaped, mut compare, mut other_uids) = (BTreeSet::new(), false, false);
        for name in names {
            pending.pools.0.insert(Arc::clone(name));
            let now = world.coil().pools.get(name).map(PoolFacts::of);
            let before = self.pools.remove(name);
            if now == before {
                self.pools.extend(now.map(|now| (Arc::clone(name), now)));
                continue;
            }
            self.carved().note_change(name);
            let [is, was] = [now.as_ref(), before.as_ref()];
            let [engine, other_engine] = [is, was].map(|facts| facts.and_then(|it| it.engine.as_ref().ok()));
            if engine != other_engine {
                self.carved().shape(name, engine.cloned());
                reshaped.insert(Arc::clone(name));
            }
            let [overlapping, other] = [is, was].map(|facts| facts.map(|it| (&it.created, &it.engine)));
            compare |= overlapping != other;
            let [uid, other_uid] = [is, was].map(|facts| facts.and_then(|it| it.uid.as_ref()));
            if uid != other_uid {
                other_uids = true;
                if let Some(uid) = other_uid {
                    self.pool_uids.remove(uid);
                }
                self.pool_uids.extend(uid.cloned());
            }
            self.pools.extend(now.map(|now| (Arc::clone(name), now)));
        }
        if !reshaped.is_empty() {
            self.reshape(world, &reshaped);
        }
        if compare {
            self.compare_pools(world.coil().pools.iter());
        }
        if other_uids {
            pending.locks.0.extend(self.withheld.iter().cloned());
        }
    }

    /// Adds again what everything uses of these pools, which are divided differently now.
    fn reshape(&mut self, world: &World, reshaped: &BTreeSet<Arc<str>>) {
        let carved = Arc::make_mut(&mut self.carved);
        carved.find_subnets();
        let networks_of = reshaped.iter().flat_map(|pool| carved.networks_of(pool));
        let overlapping = networks_of.flat_map(|(first, last)| self.addresses.overlapping(first, last));
        let overlapping: BTreeSet<&Source> = overlapping.collect();
        for source in overlapping {
            match source {
                Source::Block(name) => {
                    let Some(BlockFacts { number, subnet, .. }) = self.blocks.get(name) else { continue };
                    carved.take_addresses(number.as_ref(), networks(*subnet), Change::Add, Some(reshaped));
                }
                Source::Ledger(name) => {
                    let held = self.ledgers.get(name).into_iter().flatten().copied();
                    carved.take_addresses(None, held, Change::Add, Some(reshaped));
                }
            }
        }
        for NumberFacts { number, subnet } in self.unreadable.values() {
            carved.take_addresses(Some(number), networks(*subnet), Change::Add, Some(reshaped));
        }
        // Their addresses follow from their pools.
        let is_of = |number: &Number| reshaped.contains(&number.pool);
        let unreadable = self.unreadable.iter().filter(|(_, facts)| is_of(&facts.number));
        let unreadable: Vec<Arc<str>> = unreadable.map(|(name, _)| Arc::clone(name)).collect();
        for name in &unreadable {
            self.take_unreadable(world, name);
        }
    }

    /// Which pools overlap, and for which of them that changed.
    fn compare_pools<'a>(&mut self, pools: impl Iterator<Item = &'a AddressPool>) {
        let now = overlaps(pools);
        let before = std::mem::replace(&mut self.overlaps, Arc::new(now));
        let now = Arc::clone(&self.overlaps);
        for (name, overlap) in before.younger.iter().chain(&now.younger) {
            if before.younger.get(name) != now.younger.get(name) {
                let carved = self.carved();
                carved.note_change(name);
                overlap.older.keys().for_each(|older| carved.note_change(older));
            }
        }
    }

    fn take_block(&mut self, world: &World, name: &Arc<str>, pending: &mut Pending) {
        let now = world.coil().blocks.get(name).map(BlockFacts::of);
        if self.blocks.get(name).into_iter().chain(&now).any(|facts| facts.node.is_some()) {
            pending.blocks.0.insert(Arc::clone(name));
        }
        if now.as_ref().is_some_and(|facts| facts.withheld) {
            pending.locks.0.insert(Arc::clone(name));
        }
        if self.blocks.get(name) != now.as_ref() {
            if let Some(before) = self.blocks.remove(name) {
                self.change_block(world, name, &before, Change::Remove);
            }
            if let Some(now) = now {
                self.change_block(world, name, &now, Change::Add);
                self.blocks.insert(Arc::clone(name), now);
            }
        }
        self.take_unreadable(world, name);
    }

    fn change_block(&mut self, world: &World, name: &Arc<str>, facts: &BlockFacts, change: Change) {
        let carved = Arc::make_mut(&mut self.carved);
        let own = facts.number.as_ref();
        if facts.withheld {
            if let Some(number) = own {
                carved.occupy(number, change);
            }
            change_set(&mut self.withheld, name, change);
        } else {
            if let Some(number) = own {
                carved.carve(number, facts.floating, change);
            }
            if let Some(pool) = facts.owner() {
                carved.count_object(pool, change);
            }
            carved.take_addresses(own, networks(facts.subnet), change, None);
            for network in networks(facts.subnet) {
                match change {
                    Change::Add => self.addresses.insert(Source::Block(Arc::clone(name)), network),
                    Change::Remove => self.addresses.remove(Source::Block(Arc::clone(name)), network),
                }
            }
            if let Some(uid) = &facts.request {
                let blocks = self.answers.entry(Arc::clone(uid)).or_default();
                match change {
                    Change::Add => blocks.push(Arc::clone(name)),
                    Change::Remove => blocks.retain(|block| block != name),
                }
                if blocks.is_empty() {
                    self.answers.remove(uid);
                }
                if let Some(request) = self.by_block.get(uid).cloned() {
                    self.line_up(&request);
                }
            }
        }
        if let Some(node) = &facts.node {
            if let Some(pool) = &facts.pool {
                self.shares.change(pool, node, change);
            }
            let known = self.nodes.entry(Arc::clone(node));
            let (_, blocks) = known.or_insert_with(|| (NodeState::of(world, node), BTreeSet::new()));
            change_set(blocks, name, change);
            if blocks.is_empty() {
                self.nodes.remove(node);
            }
        }
    }

    fn take_unreadable(&mut self, world: &World, name: &Arc<str>) {
        let carved = Arc::make_mut(&mut self.carved);
        let now = NumberFacts::of_unreadable(world, name, carved);
        if self.unreadable.get(name) == now.as_ref() {
            return;
        }
        let before = self.unreadable.remove(name);
        for (facts, change) in [(&before, Change::Remove), (&now, Change::Add)] {
            let Some(NumberFacts { number, subnet }) = facts else { continue };
            carved.carve(number, false, change);
            carved.count_object(&number.pool, change);
            carved.take_addresses(Some(number), networks(*subnet), change, None);
        }
        self.unreadable.extend(now.map(|now| (Arc::clone(name), now)));
    }

    fn take_request(&mut self, world: &World, name: &Arc<str>) {
        let now = world.coil().requests.get(name).filter(|request| waits(request)).map(RequestFacts::of);
        if self.requests.get(name) == now.as_ref() {
            return;
        }
        if let Some(before) = self.requests.remove(name) {
            self.waiting.remove(&(before.created, Arc::clone(name)));
            before.by_block.and_then(|uid| self.by_block.remove(&uid));
        }
        if let Some(now) = now {
            self.by_block.extend(now.by_block.clone().map(|uid| (uid, Arc::clone(name))));
            self.requests.insert(Arc::clone(name), now);
            self.line_up(name);
        }
    }

    /// A request without an answer in its status waits, unless there is the block that is its answer.
    fn line_up(&mut self, name: &Arc<str>) {
        let Some(request) = self.requests.get(name) else { return };
        let place = (request.created.clone(), Arc::clone(name));
        if request.by_block.as_ref().is_some_and(|uid| self.answers.contains_key(uid)) {
            self.waiting.remove(&place);
        } else {
            self.waiting.insert(place);
        }
    }

    fn take_ledger(&mut self, world: &World, name: &Arc<str>) {
        let ledger = world.ledgers().pools.get(name).filter(|ledger| ledger.is_of_the_cluster());
        let mut now = ledger.map(|ledger| ledger.held.to_vec()).unwrap_or_default();
        now.sort_unstable();
        now.dedup();
        let before = self.ledgers.remove(name).unwrap_or_default();
        let carved = Arc::make_mut(&mut self.carved);
        for (held, others, change) in [(&before, &now, Change::Remove), (&now, &before, Change::Add)] {
            let different = held.iter().filter(|interval| others.binary_search(interval).is_err());
            carved.take_addresses(None, different.copied(), change, None);
        }
        let (was, is) = (span(&before), span(&now));
        if was != is {
            let source = || Source::Ledger(Arc::clone(name));
            if let Some(was) = was {
                self.addresses.remove(source(), was);
            }
            if let Some(is) = is {
                self.addresses.insert(source(), is);
            }
        }
        if !now.is_empty() {
            self.ledgers.insert(Arc::clone(name), now);
        }
    }

    fn take_node(&mut self, world: &World, name: &Arc<str>, pending: &mut Pending) {
        let Some((before, blocks)) = self.nodes.get_mut(name) else { return };
        let now = NodeState::of(world, name);
        if std::mem::replace(before, now) != now {
            pending.blocks.0.extend(blocks.iter().cloned());
        }
    }
}

/// The first and last address that a ledger holds. They are ordered and of one family.
fn span(held: &[(Address, Address)]) -> Option<(Address, Address)> {
    Some((held.first()?.0, held.last()?.1))
}

fn change_set(set: &mut BTreeSet<Arc<str>>, name: &Arc<str>, change: Change) {
    match change {
        Change::Add => set.insert(Arc::clone(name)),
        Change::Remove => set.remove(name),
    };
}

impl Keys {
    /// The changed ones.
    fn changed(world: &World, cursors: &mut Cursors) -> Self {
        Self {
            pools: cursors.read("pools", |at| world.coil().pools.changed(at)),
            blocks: cursors.read("blocks", |at| world.coil().blocks.changed(at)),
            requests: cursors.read("requests", |at| world.coil().requests.changed(at)),
            ledgers: cursors.read("ledgers", |at| world.ledgers().pools.changed(at)),
            nodes: cursors.read("nodes", |at| world.nodes().changed(at)),
        }
    }

    /// All objects except nodes, of which only those with blocks are remembered.
    fn of(world: &World) -> Self {
        let blocks = world.coil().blocks.iter().map(|block| block.name_any().into());
        Self {
            pools: world.coil().pools.iter().map(|pool| pool.name_any().into()).collect(),
            blocks: blocks.chain(world.coil().blocks.unreadable().map(Arc::from)).collect(),
            requests: world.coil().requests.iter().map(|request| request.name_any().into()).collect(),
            ledgers: world.ledgers().pools.iter().map(|ledger| ledger.key().into()).collect(),
            nodes: BTreeSet::new(),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        [&self.pools, &self.blocks, &self.requests, &self.ledgers, &self.nodes]
            .map(BTreeSet::len)
            .iter()
            .sum()
    }
}
