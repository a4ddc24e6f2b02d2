//! Whereabouts' ranges that overlap other pools, and which of the shared addresses pods have.
//!
//! An `IPPool` does not say where its range starts or what it excludes: network configurations do. So if a range
//! overlaps a pool, the pool's status says so, and addresses with a record in the range are not assigned; the pool's
//! other addresses are. Named networks are separate from all others, and their records do not count. Alias pools and
//! node address pools both use this.

use std::collections::{BTreeMap, BTreeSet};

use tenure_ipam::{Address, Notation};

use crate::cache::Known;
use crate::index::Index;
use crate::whereabouts::{Ledger, Ledgers};

const SLICES: &str = "NodeSlicePool";
const LEDGER: &str = "IPPool";

/// The first and the last of some addresses.
pub(crate) type Span = (Address, Address);

/// Which ranges overlap which pools.
#[derive(Debug, Default)]
pub(crate) struct SharedRanges {
    /// By `kind name`: the first and last address.
    spans: BTreeMap<String, Span>,
    pools: BTreeMap<String, Span>,
    to_pools: Index,
}

/// A range of Whereabouts that overlaps a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

impl SharedRanges {
    /// Reads all ranges, and pools by key.
    pub(crate) fn read_all(&mut self, ledgers: &Ledgers, pools: impl Iterator<Item = (String, Span)>) {
        *self = Self { pools: pools.collect(), ..Self::default() };
        for key in ledgers.pools.iter().map(Known::key) {
            self.read_ledger(ledgers, &key);
        }
        for key in ledgers.slices.iter().map(Known::key) {
            self.read_slices(ledgers, &key);
        }
    }

    /// Reads a ledger that was added, removed or changed. Returns the pools that it overlapped or overlaps.
    pub(crate) fn read_ledger(&mut self, ledgers: &Ledgers, key: &str) -> BTreeSet<String> {
        let ledger = ledgers.pools.get(key).filter(|it| it.is_of_the_cluster());
        self.read(LEDGER, key, ledger.map(|it| it.pool.spec.range.as_str()))
    }

    /// Reads slices. Returns the same.
    pub(crate) fn read_slices(&mut self, ledgers: &Ledgers, key: &str) -> BTreeSet<String> {
        self.read(SLICES, key, ledgers.slices.get(key).map(|it| it.spec.range.as_str()))
    }

    fn read(&mut self, kind: &str, name: &str, range: Option<&str>) -> BTreeSet<String> {
        let key = format!("{kind} {name}");
        let mut touched: BTreeSet<String> = self.to_pools.owners(&key).cloned().collect();
        let cidr = range.and_then(|range| Notation::LeadingZeros.cidr(range).ok());
        if let Some(span) = cidr.map(|cidr| (cidr.first(), cidr.last())) {
            let pools = self.pools.iter().filter(|(_, pool)| overlap(**pool, span));
            let pools: Vec<String> = pools.map(|(pool, _)| pool.clone()).collect();
            self.to_pools.set(&key, pools);
            self.spans.insert(key.clone(), span);
        } else {
            self.to_pools.set(&key, []);
            self.spans.remove(&key);
        }
        touched.extend(self.to_pools.owners(&key).cloned());
        touched
    }

    /// Sets the addresses of a pool. Only other addresses than before need a look at all ranges.
    pub(crate) fn read_pool(&mut self, name: &str, now: Option<Span>) {
        if self.pools.get(name) == now.as_ref() {
            return;
        }
        match now {
            Some(now) => _ = self.pools.insert(name.to_owned(), now),
            None => _ = self.pools.remove(name),
        }
        for (key, span) in &self.spans {
            let has = now.is_some_and(|now| overlap(now, *span));
            let mut pools: BTreeSet<String> = self.to_pools.owners(key).cloned().collect();
            let changed = if has { pools.insert(name.to_owned()) } else { pools.remove(name) };
            if changed {
                self.to_pools.set(key, pools);
            }
        }
    }

    /// A range that overlaps a pool; whole ranges come before the ledgers of their parts.
    pub(crate) fn shared(&self, pool: &str) -> Option<Shared> {
        let ranges = self.to_pools.members(pool).filter_map(|key| key.split_once(' '));
        let first = ranges.min_by_key(|(kind, name)| (*kind != SLICES, *name))?;
        let kind = if first.0 == SLICES { SLICES } else { LEDGER };
        Some(Shared { kind, name: first.1.to_owned() })
    }

    /// The addresses of a pool that pods have, as intervals.
    pub(crate) fn held<'a>(
        &'a self,
        ledgers: &'a Ledgers,
        pool: &str,
    ) -> impl Iterator<Item = Span> + use<'a> {
        let own = self.pools.get(pool).copied();
        let keys: Vec<&String> = self.to_pools.members(pool).collect();
        let overlapping = keys.into_iter().filter_map(|key| key.split_once(' '));
        let found: Vec<&Ledger> = overlapping
            .filter(|(kind, _)| *kind == LEDGER)
            .filter_map(|(_, name)| ledgers.pools.get(name))
            .collect();
        found.into_iter().flat_map(|ledger| ledger.held.iter().copied()).filter_map(move |held| {
            let own = own.filter(|own| overlap(*own, held))?;
            Some((held.0.max(own.0), held.1.min(own.1)))
        })
    }
}

/// Whether two spans overlap.
pub(crate) fn overlap(one: Span, other: Span) -> bool {
    one.0.family() == other.0.family() && one.0 <= other.1 && other.0 <= one.1
}
