//! The input of a plan, and what follows from it for one node or range.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_api::cloud::{AliasRecord, IPLedger, ledger_name};
use tenure_cloud::{AliasRange, Refusal};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr};

use super::index::{Index, PoolView, cidr_of, records};
use super::known::{Aliases, Machine};
use super::reports;
use super::write::Wanted;
use crate::pods::Pods;
use crate::shared::Span;
use crate::world::World;

/// A bug that a test plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// A returned range is freed, whichever grant the node names.
    AnyGrant,
    /// A record is removed while its range is still on the machine.
    StillThere,
    /// Pods of any namespace take over an address.
    AnyNamespace,
    /// A pool assigns addresses that another one holds.
    Overlap,
    /// A range that moved away stays forever while more may follow.
    NeverLeaves,
    /// A pool is deleted while somebody holds addresses of it.
    DropsPool,
}

/// The input of a plan.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) world: &'a World,
    pub(super) known: &'a Aliases,
    pub(super) pods: &'a Pods,
    pub(super) index: &'a Index,
    /// Since when nodes with records are missing.
    pub(super) missing: &'a BTreeMap<String, Timestamp>,
    /// What the cloud refuses, by node.
    pub(super) refusals: &'a BTreeMap<String, Refusal>,
    /// How long they have to be missing.
    pub(super) rest: Duration,
    /// How many ranges an interface takes.
    pub(super) limit: usize,
    /// Machines are still being read: each may have anything.
    pub(super) reading: bool,
    pub(super) now: Timestamp,
    #[cfg(test)]
    pub(super) planted: Option<Planted>,
}

impl<'a> Context<'a> {
    /// Whether a test has planted this bug.
    #[cfg(test)]
    pub(super) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "as in tests")]
    pub(super) fn has(&self, _: Planted) -> bool {
        false
    }

    /// The machine of a node, even if the node is gone.
    pub(super) fn machine_of(&self, node: &str) -> Option<Machine> {
        let own = self.world.nodes().get(node).and_then(|node| Machine::of(node).ok());
        let told = || self.known.told(node).map(|told| told.machine.clone());
        let said = || self.known.nodes.get(node)?.status.as_ref()?.machine.as_ref()?.parse().ok();
        own.or_else(told).or_else(said)
    }

    /// Whether a range is on no machine, neither its node's nor one that it left, and nothing under way brings it to
    /// one.
    pub(super) fn is_off(&self, node: &str, range: Cidr) -> bool {
        let Some(machine) = self.machine_of(node).filter(|_| !self.has(Planted::StillThere)) else {
            return true;
        };
        let Some(told) = self.known.told(node).filter(|told| told.machine == machine) else { return false };
        let view = self.known.machine(node).filter(|view| view.known && view.turn >= told.turn);
        !self.reading && view.is_some() && !self.known.is_somewhere(&range)
    }

    /// Whether this pool assigns none of these addresses, because another pool has some of them and takes precedence.
    pub(super) fn withholds(&self, pool: &PoolView, cidr: Cidr) -> bool {
        self.index.overlaps.withholds(&pool.name, cidr) && !self.has(Planted::Overlap)
    }

    /// What others hold of this pool, through another pool or a claim.
    pub(super) fn held_elsewhere(&self, pool: &str, cidr: Cidr) -> Vec<Span> {
        let overlaps = &self.index.overlaps;
        let mut spans = overlaps.held(self.world, pool, cidr);
        // A block would take the address of a claim to its own machine.
        if self.index.pools.get(pool).is_some_and(|pool| pool.prefix < 32) {
            spans.extend(self.index.claimed.within(cidr).map(|address| (address, address)));
        }
        let blind = self.has(Planted::Overlap);
        for rival in overlaps.rivals(pool).filter(|rival| *rival != pool && !blind) {
            let Some(ranges) = self.index.pools.get(rival).and_then(|it| it.ranges.as_ref().ok()) else {
                continue;
            };
            for (number, name) in self.index.of_pool(rival) {
                let theirs = ranges.ledger(*number).map(|(theirs, _)| theirs);
                let Some(theirs) = theirs.filter(|theirs| theirs.overlaps(&cidr)) else { continue };
                let held = self.known.ledgers.get(name).into_iter().flat_map(records);
                let held = held.filter_map(|(offset, record)| cidr_of(theirs, offset, record));
                spans.extend(held.map(|range| (range.first(), range.last())));
            }
        }
        spans
    }

    /// A record.
    pub(super) fn record(&self, ledger: &str, offset: u8) -> Option<(&'a IPLedger, &'a AliasRecord)> {
        let ledger = self.known.ledgers.get(ledger)?;
        Some((ledger, ledger.spec.records.get(&offset.to_string())?))
    }

    /// Whether somebody else uses the name of a ledger, or it cannot be read.
    pub(super) fn is_name_taken(&self, pool: &PoolView, number: u128) -> bool {
        let Ok(name) = ledger_name(&pool.name, number) else { return true };
        self.known.ledgers.is_unreadable(&name) || self.known.ledgers.get(&name).is_some()
    }
}

/// What stays on a node's machine without a record, because a pod there reports the address. A record follows.
fn unrecorded(context: Context<'_>, node: &str, address: Address) -> Option<AliasRange> {
    let (pool, number) = context.index.pool_of(address)?;
    let (_, range) = pool.ranges.as_ref().ok()?.ledger(number)?;
    if context.index.is_recorded(pool, number, address) {
        return None;
    }
    let alias = |cidr| AliasRange { cidr, range: range.to_owned() };
    match reports::kept(context, pool, address) {
        Some(kept) => (kept.node == node).then(|| alias(kept.range)),
        // Its owner is known when all machines are read; until then it stays.
        None => context.reading.then(|| alias(Cidr::host(address))),
    }
}

/// What the driver should be told of a node, if it is new. `stays` has moved away, and is removed together with what
/// follows.
pub(super) fn wanted(context: Context<'_>, node: &str, stays: BTreeSet<AliasRange>) -> Option<Wanted> {
    let driver = context.known.driver()?;
    let machine = context.machine_of(node)?;
    let told = context.known.told(node);
    let leaves = context.world.nodes().get(node).is_none() && !context.world.nodes().is_unreadable(node);
    let mut ranges = stays;
    let mut has_records = false;
    for (ledger, offset) in context.index.of_node(node) {
        has_records = true;
        let Some((ledger, record)) = context.record(ledger, *offset) else { continue };
        ranges.extend(context.index.alias(ledger, *offset, record).filter(|_| record.freed.is_none()));
    }
    for (address, _) in context.index.claimed.of_node(node) {
        has_records = true;
        ranges.extend(context.index.alias_of_claim(*address));
    }
    ranges
        .extend(context.index.reports.of_node(node).filter_map(|address| unrecorded(context, node, address)));
    if leaves && !has_records && told.is_none() {
        return None;
    }
    // The places of ranges are recorded before the first is attached; otherwise nobody would know them after the node
    // is gone. Until then the driver is told nothing, rather than that nothing is wanted: some ranges may be there
    // from before Tenure.
    let status = context.known.nodes.get(node).and_then(|it| it.status.as_ref());
    let is_written = status.and_then(|it| it.machine.as_ref()).is_some_and(|it| *it == machine.to_string());
    if !is_written && !ranges.is_empty() {
        return None;
    }
    let managed = Arc::clone(&context.index.managed);
    let known = context.world.nodes().get(node);
    let info = known.and_then(|node| node.status.as_ref()?.node_info.as_ref());
    let uid = known.and_then(|node| node.metadata.uid.as_deref()).unwrap_or_default();
    let boot = format!("{uid}/{}", info.map_or("", |info| &info.boot_id));
    let is_told = told.is_some_and(|told| {
        (&told.machine, &told.boot, &told.ranges, &told.managed, told.leaves)
            == (&machine, &boot, &ranges, &managed, leaves)
    });
    let turn = told.map_or(1, |told| told.turn + 1);
    let subject = format!("driver/{node}");
    (!is_told).then(|| Wanted {
        subject,
        driver,
        turn,
        node: node.to_owned(),
        machine,
        boot,
        ranges,
        managed,
        leaves,
    })
}
