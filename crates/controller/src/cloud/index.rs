//! Indexes: the records of each node, the ledgers of each pool, and the pods that name an address.
//!
//! They follow changes, so that a plan finds what a change affects without looking at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use tenure_api::cloud::{AliasPool, AliasRecord, Allocation, FINALIZER, IPLedger, Ranges};
use tenure_api::overlap::{Age, age};
use tenure_cloud::{AliasRange, Managed};
use tenure_ipam::{Address, Cidr, Notation};

use super::claimed::Claimed;
use super::known::Aliases;
use super::moves;
use super::overlaps::Overlaps;
use super::reports::Reports;
use crate::pods::Pods;
use crate::world::World;

/// A pool, as plans need it.
#[derive(Debug)]
pub(super) struct PoolView {
    pub(super) name: String,
    pub(super) age: Age,
    /// It is being deleted.
    pub(super) deleting: bool,
    /// It has our finalizer; nothing is assigned before.
    pub(super) is_kept: bool,
    pub(super) owner: Option<OwnerReference>,
    /// Its addresses, or why it has none.
    pub(super) ranges: Result<Ranges, String>,
    pub(super) cooling: Duration,
    pub(super) move_timeout: Duration,
    /// The prefix length of what is attached.
    pub(super) prefix: u8,
    /// What the prototype allocated.
    pub(super) allocations: BTreeMap<Address, Allocation>,
}

/// Where a record is: the ledger's name and the offset.
pub(super) type Spot = (Arc<str>, u8);

/// The previous content of a ledger, to remove it from the indexes.
#[derive(Debug, Default)]
struct LedgerFacts {
    pool: String,
    number: u128,
    nodes: BTreeMap<u8, String>,
    /// The prefix lengths of those records.
    prefixes: BTreeMap<u8, u8>,
    pods: BTreeSet<String>,
    /// Addresses of ranges that are not free.
    taken: u128,
}

impl LedgerFacts {
    /// Whether a record covers this offset.
    fn covers(&self, offset: u8) -> bool {
        self.prefixes
            .range(..=offset)
            .next_back()
            .is_some_and(|(first, prefix)| u32::from(offset) - u32::from(*first) < 1 << (32 - *prefix).min(8))
    }
}

/// All indexes.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) pools: BTreeMap<String, PoolView>,
    /// Which entries of a machine's list are ours to remove.
    pub(super) managed: Arc<Vec<Managed>>,
    /// By pool: the prefix lengths that it attaches, or was seen to have attached.
    prefixes: BTreeMap<String, BTreeSet<u8>>,
    pub(super) overlaps: Overlaps,
    pub(super) claimed: Claimed,
    pub(super) reports: Reports,
    /// Which pools overlap may have changed.
    stale: bool,
    ledgers: BTreeMap<Arc<str>, LedgerFacts>,
    of_pools: BTreeMap<String, BTreeMap<u128, Arc<str>>>,
    taken: BTreeMap<String, u128>,
    of_nodes: BTreeMap<String, BTreeSet<Spot>>,
    /// By `namespace/name` of pods in a record's slots: the ledgers.
    of_pods: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// Pods that name an address.
    naming: BTreeSet<(Address, String)>,
    named: BTreeMap<String, Address>,
    /// By pool: the nodes that want addresses of it.
    asking: BTreeMap<String, BTreeSet<String>>,
    asks: BTreeMap<String, String>,
    /// Where the next grant of a ledger starts.
    next: BTreeMap<Arc<str>, u8>,
}

impl Index {
    /// Forgets everything but where grants continue, and the sizes of attached ranges.
    pub(super) fn clear(&mut self) {
        let (next, prefixes) = (std::mem::take(&mut self.next), std::mem::take(&mut self.prefixes));
        *self = Self { prefixes, next, ..Self::default() };
    }

    /// Reads a pool.
    pub(super) fn read_pool(&mut self, known: &Aliases, name: &str) {
        self.pools.remove(name);
        if let Some(pool) = known.pools.get(name) {
            self.pools.insert(name.to_owned(), PoolView::of(pool));
        }
        self.overlaps.read_pool(&self.pools, name);
        self.stale = true;
        if let Some(pool) = self.pools.get(name) {
            self.prefixes.entry(name.to_owned()).or_default().extend([32, pool.prefix]);
        }
        self.note_managed(known);
    }

    /// What is ours to remove: ranges in the pools, of the sizes that they attach.
    fn note_managed(&mut self, known: &Aliases) {
        let ranges = known.pools.iter().flat_map(|pool| {
            let prefixes = self.prefixes.get(&pool.name_any()).cloned().unwrap_or_default();
            let more = pool.spec.ranges.iter().map(|range| (&range.cidr, &range.secondary_range_name));
            let all = [(&pool.spec.cidr, &pool.spec.secondary_range_name)].into_iter().chain(more);
            all.filter_map(move |(text, range)| {
                let cidr = Notation::Strict.cidr(text).ok()?;
                Some(Managed { cidr, range: range.clone(), prefixes: prefixes.clone() })
            })
        });
        let managed: BTreeSet<Managed> = ranges.collect();
        if !managed.iter().eq(self.managed.iter()) {
            self.managed = Arc::new(managed.into_iter().collect());
        }
    }

    /// Pools of other kinds have changed; they may overlap ours.
    pub(super) fn other_pools_changed(&mut self) {
        self.stale = true;
    }

    /// Computes which pools overlap, if that may have changed. Returns the pools for which it has.
    pub(super) fn compare(&mut self, world: &World) -> BTreeSet<String> {
        if !std::mem::take(&mut self.stale) {
            return BTreeSet::new();
        }
        let mut overlaps = std::mem::take(&mut self.overlaps);
        let in_use = |pool: &str, range: Cidr| {
            let ranges = self.pools.get(pool).and_then(|pool| pool.ranges.as_ref().ok());
            let is_of = |number: u128| {
                ranges.and_then(|ranges| ranges.ledger(number)).is_some_and(|(cidr, _)| range.covers(&cidr))
            };
            let has_records = |name| self.ledgers.get(name).is_some_and(|facts| !facts.nodes.is_empty());
            self.of_pool(pool).any(|(number, name)| is_of(*number) && has_records(name))
        };
        let changed = overlaps.compare(&self.pools, in_use, world);
        self.overlaps = overlaps;
        changed
    }

    /// Reads a ledger. Returns the nodes that had or have something of it, and its pool.
    pub(super) fn read_ledger(
        &mut self,
        known: &Aliases,
        name: &Arc<str>,
    ) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut nodes, mut pools) = (BTreeSet::new(), BTreeSet::new());
        let mut before = BTreeSet::new();
        let was_known = self.ledgers.contains_key(name);
        let was_used = self.ledgers.get(name).is_some_and(|old| !old.nodes.is_empty());
        if let Some(old) = self.ledgers.remove(name) {
            for (offset, node) in &old.nodes {
                remove(&mut self.of_nodes, node, &(name.clone(), *offset));
                before.insert(*offset);
            }
            for pod in &old.pods {
                remove(&mut self.of_pods, pod, name);
            }
            if let Some(of_pool) = self.of_pools.get_mut(&old.pool) {
                of_pool.remove(&old.number);
            }
            if let Some(taken) = self.taken.get_mut(&old.pool) {
                *taken = taken.saturating_sub(old.taken);
            }
            nodes.extend(old.nodes.into_values());
            pools.insert(old.pool);
        }
        let is_used = known.ledgers.get(name).is_some_and(|ledger| records(ledger).next().is_some());
        self.stale |= was_used != is_used;
        let Some(ledger) = known.ledgers.get(name) else { return (nodes, pools) };
        let mut facts = LedgerFacts {
            pool: ledger.spec.pool.clone(),
            number: u128::try_from(ledger.spec.index).unwrap_or_default(),
            ..LedgerFacts::default()
        };
        for (offset, record) in records(ledger) {
            facts.nodes.insert(offset, record.node.clone());
            facts.prefixes.insert(offset, prefix_of(record));
            self.of_nodes.entry(record.node.clone()).or_default().insert((name.clone(), offset));
            for pod in moves::pods_of(record) {
                self.of_pods.entry(pod.clone()).or_default().insert(name.clone());
                facts.pods.insert(pod);
            }
            if record.freed.is_none() {
                facts.taken += size_of(record);
            }
            if was_known && !before.contains(&offset) {
                self.next.insert(name.clone(), offset.wrapping_add(1));
            }
        }
        let prefixes = self.prefixes.entry(facts.pool.clone()).or_default();
        let sizes = prefixes.len();
        prefixes.extend(facts.prefixes.values());
        if prefixes.len() > sizes {
            self.note_managed(known);
        }
        self.of_pools.entry(facts.pool.clone()).or_default().insert(facts.number, name.clone());
        *self.taken.entry(facts.pool.clone()).or_default() += facts.taken;
        nodes.extend(facts.nodes.values().cloned());
        pools.insert(facts.pool.clone());
        self.ledgers.insert(name.clone(), facts);
        (nodes, pools)
    }

    /// Reads what a node wants. Returns the affected pools.
    pub(super) fn read_node(&mut self, known: &Aliases, node: &str) -> BTreeSet<String> {
        let mut pools = BTreeSet::new();
        if let Some(old) = self.asks.remove(node) {
            remove(&mut self.asking, &old, &node.to_owned());
            pools.insert(old);
        }
        if let Some(aliases) = known.nodes.get(node) {
            let pool = aliases.spec.pool.clone();
            self.asking.entry(pool.clone()).or_default().insert(node.to_owned());
            self.asks.insert(node.to_owned(), pool.clone());
            pools.insert(pool);
        }
        pools
    }

    /// Reads a pod. Returns the addresses that it named or names, and the ledgers whose slots have it.
    pub(super) fn read_pod(&mut self, pods: &Pods, podref: &str) -> (Vec<Address>, BTreeSet<Arc<str>>) {
        let mut addresses = Vec::new();
        if let Some(old) = self.named.remove(podref) {
            self.naming.remove(&(old, podref.to_owned()));
            addresses.push(old);
        }
        if let Some(new) = pods.claim_user(podref).and_then(|pod| pod.alias) {
            self.naming.insert((new, podref.to_owned()));
            self.named.insert(podref.to_owned(), new);
            addresses.push(new);
        }
        (addresses, self.of_pods.get(podref).cloned().unwrap_or_default())
    }

    /// The records of a node.
    pub(super) fn of_node(&self, node: &str) -> impl Iterator<Item = &Spot> {
        self.of_nodes.get(node).into_iter().flatten()
    }

    /// All nodes that have a record.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.of_nodes.keys()
    }

    /// The ledgers of a pool, by number.
    pub(super) fn of_pool(&self, pool: &str) -> impl Iterator<Item = (&u128, &Arc<str>)> {
        self.of_pools.get(pool).into_iter().flatten()
    }

    /// The ledger of a pool with this number, if there is one.
    pub(super) fn ledger(&self, pool: &str, number: u128) -> Option<&Arc<str>> {
        self.of_pools.get(pool)?.get(&number)
    }

    /// How many addresses of a pool are in use.
    pub(super) fn taken(&self, pool: &str) -> u128 {
        self.taken.get(pool).copied().unwrap_or_default()
    }

    /// The pods that name an address.
    pub(super) fn naming(&self, address: Address) -> impl Iterator<Item = &str> {
        self.naming
            .range((address, String::new())..)
            .take_while(move |(other, _)| *other == address)
            .map(|(_, podref)| podref.as_str())
    }

    /// The pods that name an address of a network.
    pub(super) fn naming_within(&self, cidr: Cidr) -> impl Iterator<Item = (Address, &str)> {
        self.naming
            .range((cidr.first(), String::new())..)
            .take_while(move |(address, _)| cidr.contains(*address))
            .map(|(address, podref)| (*address, podref.as_str()))
    }

    /// The nodes that want addresses of a pool.
    pub(super) fn asking(&self, pool: &str) -> impl Iterator<Item = &String> {
        self.asking.get(pool).into_iter().flatten()
    }

    /// How many usable addresses withheld ranges have, and how many are in use.
    pub(super) fn withheld(&self, pool: &PoolView, ranges: &Ranges) -> (u128, u128) {
        let is_withheld = |cidr: Cidr| self.overlaps.withholds(&pool.name, cidr);
        let capacity = ranges.networks().filter(|(cidr, _)| is_withheld(*cidr)).map(|(_, count)| count).sum();
        let taken = self
            .of_pool(&pool.name)
            .filter(|(number, _)| ranges.ledger(**number).is_some_and(|(cidr, _)| is_withheld(cidr)));
        (capacity, taken.filter_map(|(_, name)| self.ledgers.get(name)).map(|facts| facts.taken).sum())
    }

    /// The pool of an address, with the number of its ledger. If there are several: the one with a record of it,
    /// otherwise one that may assign it.
    pub(super) fn pool_of(&self, address: Address) -> Option<(&PoolView, u128)> {
        let places = self.pools.values().filter_map(|pool| {
            let place = pool.ranges.as_ref().ok()?.place(address)?;
            Some((pool, place))
        });
        let best = places.max_by_key(|(pool, place)| {
            let facts = self.ledger(&pool.name, place.ledger).and_then(|name| self.ledgers.get(name));
            let has_record = facts.is_some_and(|facts| facts.covers(place.offset));
            (has_record, !self.overlaps.withholds(&pool.name, Cidr::host(address)))
        });
        best.map(|(pool, place)| (pool, place.ledger))
    }

    /// The alias range of a claim's address, if no pod got it from the pool.
    pub(super) fn alias_of_claim(&self, address: Address) -> Option<AliasRange> {
        let (pool, number) = self.pool_of(address)?;
        let (cidr, range) = pool.ranges.as_ref().ok()?.ledger(number)?;
        super::ledger::offset_of(cidr, address)?;
        let is_free = !self.is_recorded(pool, number, address);
        is_free.then(|| AliasRange { cidr: Cidr::host(address), range: range.to_owned() })
    }

    /// Whether a record of a ledger covers an address, alone or in a block.
    pub(super) fn is_recorded(&self, pool: &PoolView, number: u128, address: Address) -> bool {
        let place = pool.ranges.as_ref().ok().and_then(|ranges| ranges.place(address));
        let facts = self.ledger(&pool.name, number).and_then(|name| self.ledgers.get(name));
        place.zip(facts).is_some_and(|(place, facts)| facts.covers(place.offset))
    }

    /// The pods that name an address, and the address.
    pub(super) fn all_naming(&self) -> impl Iterator<Item = (&str, Address)> {
        self.named.iter().map(|(podref, address)| (podref.as_str(), *address))
    }

    /// Where the next grant of a ledger starts: at what has been free longest, as far as this planner has seen.
    pub(super) fn next_offset(&self, ledger: &str) -> u8 {
        self.next.get(ledger).copied().unwrap_or_default()
    }

    /// The alias range of a record, if its pool is known.
    pub(super) fn alias(&self, ledger: &IPLedger, offset: u8, record: &AliasRecord) -> Option<AliasRange> {
        let ranges = self.pools.get(&ledger.spec.pool)?.ranges.as_ref().ok()?;
        let (cidr, range) = ranges.ledger(u128::try_from(ledger.spec.index).ok()?)?;
        Some(AliasRange { cidr: cidr_of(cidr, offset, record)?, range: range.to_owned() })
    }
}

impl PoolView {
    /// Whether its addresses may be assigned.
    pub(super) fn gives(&self) -> bool {
        self.is_kept && !self.deleting
    }

    fn of(pool: &AliasPool) -> Self {
        let allocations = pool.spec.allocations.iter();
        let allocations =
            allocations.filter_map(|(text, it)| Some((Notation::Strict.address(text).ok()?, it.clone())));
        Self {
            name: pool.name_any(),
            age: age(pool),
            deleting: pool.metadata.deletion_timestamp.is_some(),
            is_kept: pool.finalizers().iter().any(|it| it == FINALIZER),
            owner: pool.controller_owner_ref(&()),
            ranges: Ranges::of(&pool.spec).map_err(|error| error.to_string()),
            cooling: pool.spec.cools_for(),
            move_timeout: pool.spec.waits_for_a_pod(),
            prefix: pool.spec.prefix(),
            allocations: allocations.collect(),
        }
    }
}

/// The records of a ledger by offset.
pub(super) fn records(ledger: &IPLedger) -> impl Iterator<Item = (u8, &AliasRecord)> {
    ledger.spec.records.iter().filter_map(|(key, record)| Some((key.parse().ok()?, record)))
}

/// The range of a record in a ledger with these addresses.
pub(super) fn cidr_of(ledger: Cidr, offset: u8, record: &AliasRecord) -> Option<Cidr> {
    Cidr::new(ledger.nth(u128::from(offset)).ok()?, prefix_of(record))
}

/// The prefix length of a record.
pub(super) fn prefix_of(record: &AliasRecord) -> u8 {
    record.prefix.and_then(|prefix| u8::try_from(prefix).ok()).filter(|prefix| *prefix <= 32).unwrap_or(32)
}

/// How many addresses a record covers.
pub(super) fn size_of(record: &AliasRecord) -> u128 {
    1 << (32 - prefix_of(record)).min(8)
}

fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
