//! Alias addresses of a cloud: pools, ledgers and what nodes have, as they were read.

use kube::ResourceExt;
use tenure_api::cloud::{AliasPool, AliasRecord, IPLedger, NodeAliases, Ranges};
use tenure_claims::Slots;
use tenure_ipam::{Address, Cidr, Notation};

/// Pools, and what is on record of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aliases {
    pub(crate) pools: Vec<AliasPool>,
    pub(crate) ledgers: Vec<IPLedger>,
    pub(crate) nodes: Vec<NodeAliases>,
}

/// A record of a ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded<'a> {
    pub(crate) ledger: &'a IPLedger,
    pub(crate) range: Cidr,
    pub(crate) record: &'a AliasRecord,
}

impl Recorded<'_> {
    /// Whether its range cools.
    pub(crate) fn cools(&self) -> bool {
        self.record.freed.is_some()
    }

    /// The pods that an address moves between, as `namespace/name`, the one that has it first; nothing if nobody moves with it.
    pub(crate) fn pods(&self) -> Option<Vec<String>> {
        let moving = self.record.moving.as_ref()?;
        let slots = Slots::from_annotation(&moving.holders).unwrap_or_default();
        Some(slots.both().map(|slot| format!("{}/{}", moving.namespace, slot.pod)).collect())
    }
}

impl Aliases {
    /// The pools that make sense, with their addresses.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&AliasPool, Ranges)> {
        self.pools.iter().filter_map(|pool| Some((pool, Ranges::of(&pool.spec).ok()?)))
    }

    /// All records that can be read.
    pub(crate) fn records(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.ledgers.iter().flat_map(|ledger| {
            let cidr = Notation::Strict.cidr(&ledger.spec.cidr).ok();
            let all = ledger.spec.records.iter();
            all.filter_map(move |(key, record)| {
                let first = cidr?.nth(key.parse().ok()?).ok()?;
                let prefix = record.prefix.and_then(|prefix| u8::try_from(prefix).ok()).unwrap_or(32);
                Some(Recorded { ledger, range: Cidr::new(first, prefix)?, record })
            })
        })
    }

    /// The record of an address: one that has it before one that cools.
    pub(crate) fn record_of(&self, address: Address) -> Option<Recorded<'_>> {
        let all = self.records().filter(|it| it.range.contains(address));
        all.min_by_key(Recorded::cools)
    }

    /// The pool from which pods get an address.
    pub(crate) fn pool_with(&self, address: Address) -> Option<(String, bool)> {
        let (pool, ranges) = self.ranges().find(|(_, ranges)| ranges.place(address).is_some())?;
        Some((pool.name_any(), ranges.is_usable(address)))
    }
}
