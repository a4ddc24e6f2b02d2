//! Overlapping ranges: the range with lower precedence assigns nothing.
//!
//! Of two alias ranges, one with records precedes one without; then the older pool precedes; then the order in the
//! pool. What the other range has recorded stays recorded, and the preceding one does not assign it. AddressPools and
//! NodeIPPools do not know alias pools, so they precede all of them, except for what an alias pool excludes. A range
//! of Whereabouts may exclude any address in its configuration, so it withholds only what it has recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tenure_api::cloud::Ranges;
use tenure_api::coil::EnginePool;
use tenure_api::overlap::{Age, shared_networks};
use tenure_ipam::Cidr;

use super::index::PoolView;
use crate::cache::Known;
use crate::shared::{Shared, SharedRanges, Span, overlap};
use crate::world::World;

/// How many overlaps a message names.
const NAMED: usize = 4;

/// Which ranges assign nothing, and which addresses others hold.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    withheld: BTreeMap<String, Vec<Clash>>,
    /// By pool: the pools that share addresses with it, and may have recorded them.
    rivals: BTreeMap<String, BTreeSet<String>>,
    /// Ranges of Whereabouts. The keys are `pool range`.
    shared: SharedRanges,
    /// The keys in use.
    keys: BTreeMap<String, BTreeSet<Cidr>>,
}

/// A range that assigns nothing, because another pool has some of its addresses and takes precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clash {
    range: Cidr,
    kind: &'static str,
    other: String,
    theirs: String,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, kind, other, theirs } = self;
        write!(f, "{range} has addresses of {theirs}, which {kind} \"{other}\" has")
    }
}

impl Overlaps {
    /// Computes which ranges assign nothing. Returns the pools for which that changed. `in_use` tells whether a range
    /// of a pool has records.
    pub(super) fn compare(
        &mut self,
        pools: &BTreeMap<String, PoolView>,
        in_use: impl Fn(&str, Cidr) -> bool,
        world: &World,
    ) -> BTreeSet<String> {
        let mut ranges: Vec<(bool, &Age, usize, Cidr)> = Vec::new();
        for pool in pools.values() {
            let networks = pool.ranges.iter().flat_map(Ranges::networks);
            let networks = networks.enumerate();
            ranges.extend(networks.map(|(at, (cidr, _))| (!in_use(&pool.name, cidr), &pool.age, at, cidr)));
        }
        ranges.sort();
        let mut withheld: BTreeMap<String, Vec<Clash>> = BTreeMap::new();
        self.rivals.clear();
        let ranked = ranges.iter().enumerate().map(|(rank, (.., cidr))| (*cidr, rank)).collect();
        for (_, first, later) in shared_networks(ranked) {
            let ((_, (.., other), _, theirs), (_, (.., name), _, range)) = (ranges[first], ranges[later]);
            withheld.entry(name.clone()).or_default().push(Clash {
                range,
                kind: "IPPool",
                other: other.clone(),
                theirs: theirs.to_string(),
            });
            self.rivals.entry(name.clone()).or_default().insert(other.clone());
            self.rivals.entry(other.clone()).or_default().insert(name.clone());
        }
        for (kind, other, theirs, span) in before_all(world) {
            for (_, (.., name), _, range) in &ranges {
                let gives = pools[name].ranges.as_ref().is_ok_and(|ranges| ranges.has_usable(span.0, span.1));
                if overlap((range.first(), range.last()), span) && gives {
                    let clash = Clash { range: *range, kind, other: other.clone(), theirs: theirs.clone() };
                    withheld.entry(name.clone()).or_default().push(clash);
                }
            }
        }
        for clashes in withheld.values_mut() {
            clashes.sort();
        }
        let before = std::mem::replace(&mut self.withheld, withheld);
        let names = before.keys().chain(self.withheld.keys());
        names.filter(|name| before.get(*name) != self.withheld.get(*name)).cloned().collect()
    }

    /// Reads everything of Whereabouts, and all pools.
    pub(super) fn read_all(&mut self, pools: &BTreeMap<String, PoolView>, world: &World) {
        self.keys = pools.iter().map(|(name, pool)| (name.clone(), networks_of(pool))).collect();
        let all = self.keys.iter().flat_map(|(name, ranges)| ranges.iter().map(move |range| (name, range)));
        let all = all.map(|(name, range)| (key_of(name, *range), (range.first(), range.last())));
        self.shared.read_all(world.ledgers(), all);
    }

    /// Reads a pool that was added, removed or changed.
    pub(super) fn read_pool(&mut self, pools: &BTreeMap<String, PoolView>, name: &str) {
        let now = pools.get(name).map(networks_of).unwrap_or_default();
        for gone in self.keys.remove(name).unwrap_or_default().difference(&now) {
            self.shared.read_pool(&key_of(name, *gone), None);
        }
        for range in &now {
            self.shared.read_pool(&key_of(name, *range), Some((range.first(), range.last())));
        }
        self.keys.insert(name.to_owned(), now);
    }

    /// Reads ledgers and slices of Whereabouts. Returns the pools for which something may have changed.
    pub(super) fn read_ranges<'a>(
        &mut self,
        world: &World,
        ledgers: impl Iterator<Item = &'a str>,
        slices: impl Iterator<Item = &'a str>,
    ) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for key in ledgers {
            keys.extend(self.shared.read_ledger(world.ledgers(), key));
        }
        for key in slices {
            keys.extend(self.shared.read_slices(world.ledgers(), key));
        }
        keys.iter().filter_map(|key| key.split_once(' ')).map(|(pool, _)| pool.to_owned()).collect()
    }

    /// Whether this pool assigns none of these addresses.
    pub(super) fn withholds(&self, pool: &str, cidr: Cidr) -> bool {
        self.withheld.get(pool).into_iter().flatten().any(|clash| clash.range.overlaps(&cidr))
    }

    /// The pools that share addresses with this one, and may have recorded them.
    pub(super) fn rivals(&self, pool: &str) -> impl Iterator<Item = &String> {
        self.rivals.get(pool).into_iter().flatten()
    }

    /// What pods on networks of Whereabouts hold in a range of a pool.
    pub(super) fn held<'a>(&'a self, world: &'a World, pool: &str, cidr: Cidr) -> Vec<Span> {
        let ranges = self.keys.get(pool).into_iter().flatten().filter(|range| range.covers(&cidr));
        ranges.flat_map(|range| self.shared.held(world.ledgers(), &key_of(pool, *range))).collect()
    }

    /// Why ranges of a pool assign nothing, and what to do.
    pub(super) fn problem(&self, pool: &str) -> Option<String> {
        let clashes = self.withheld.get(pool)?;
        let named: Vec<String> = clashes.iter().take(NAMED).map(ToString::to_string).collect();
        let more = clashes.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(format!(
            "{}{more}: no address of such a range of IPPool \"{pool}\" is given to anybody until one of the two pools is deleted",
            named.join("; ")
        ))
    }

    /// A range of Whereabouts that overlaps a pool, and what to do.
    pub(super) fn neighbour(&self, pool: &str) -> Option<String> {
        let ranges = self.keys.get(pool).into_iter().flatten();
        let (range, Shared { kind, name }) =
            ranges.into_iter().find_map(|range| Some((range, self.shared.shared(&key_of(pool, *range))?)))?;
        Some(format!(
            "{kind} \"{name}\" of Whereabouts has addresses of {range}: no address that a pod has there is given to another, but a pod \
             there can get one that is attached here; exclude {range} in that network's configuration"
        ))
    }
}

fn key_of(pool: &str, range: Cidr) -> String {
    format!("{pool} {range}")
}

fn networks_of(pool: &PoolView) -> BTreeSet<Cidr> {
    pool.ranges.iter().flat_map(Ranges::networks).map(|(cidr, _)| cidr).collect()
}

/// Pools that precede all alias pools: kind, name, range, and its first and last address.
fn before_all(world: &World) -> Vec<(&'static str, String, String, Span)> {
    let mut all = Vec::new();
    for pool in world.coil().pools.iter() {
        let Ok(engine) = EnginePool::try_from(&pool.spec) else { continue };
        for cidr in engine.pool().subnets().filter_map(|subnet| subnet.ipv4) {
            all.push(("AddressPool", pool.key(), cidr.to_string(), (cidr.first(), cidr.last())));
        }
    }
    for pool in world.node_addresses().pools.iter() {
        let Ok(range) = &pool.facts.range else { continue };
        let text = format!("{}-{}", range.first(), range.last());
        all.push(("NodeIPPool", pool.key(), text, (range.first(), range.last())));
    }
    all
}
