//! What is known of Whereabouts' ranges: attachment definitions, slices, ledgers, reservations and pods.

use std::collections::BTreeSet;

use kube::ResourceExt;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation, label};
use tenure_ipam::Address;
use tenure_whereabouts::ledger::State;

use crate::attachment::Attachment;
use crate::cache::{Cache, Known};
use crate::pods::Pods;
use crate::world::World;

/// Whereabouts' objects.
#[derive(Debug, Default)]
pub struct Ledgers {
    /// NetworkAttachmentDefinitions of all namespaces. Incomplete while their CRD is missing.
    pub attachments: Cache<Attachment>,
    /// Slices of nodes.
    pub slices: Cache<NodeSlicePool>,
    /// Ledgers.
    pub pools: Cache<Ledger>,
    /// Reservations of addresses of overlapping ranges.
    pub reservations: Cache<OverlappingRangeIPReservation>,
    /// Pods; watched only while there is a ledger or a reservation.
    pub pods: Pods,
}

/// An `IPPool`. Of one that a living node writes, only what slices depend on is kept: nodes' ledgers are many, and
/// together they have a record of every interface in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// The object, with its records only if `whole`.
    pub pool: IPPool,
    /// Whether its records are kept.
    pub whole: bool,
    /// Whether it has no records, not even ones that cannot be read.
    pub is_empty: bool,
    /// How many addresses its records name.
    pub used: u64,
    /// The lowest and highest of them.
    pub span: Option<(Address, Address)>,
    /// All of them, as intervals.
    pub held: Box<[(Address, Address)]>,
}

impl Ledger {
    /// What is kept of an object.
    pub fn of(mut pool: IPPool, whole: bool) -> Self {
        let entries = pool.spec.reservations().map(|decoded| decoded.entries).unwrap_or_default();
        let span = entries.first().zip(entries.last()).map(|(first, last)| (first.0, last.0));
        let used = entries.len() as u64;
        let held = intervals(entries.iter().map(|(address, _)| *address));
        let is_empty = pool.spec.allocations.is_empty();
        if !whole {
            pool.spec.allocations.clear();
        }
        Self { pool, whole, is_empty, used, span, held }
    }

    /// The node that writes it, if it names one.
    pub fn node(&self) -> Option<&str> {
        node_of(&self.pool)
    }

    /// Whether its addresses belong to the cluster's own address space: those of a named network are unique only
    /// within it.
    pub fn is_of_the_cluster(&self) -> bool {
        self.pool
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(label::NETWORK))
            .is_none_or(String::is_empty)
    }

    /// What its writers have agreed on.
    pub fn state(&self) -> State {
        State::of(&self.pool)
    }
}

impl Known for Ledger {
    fn key(&self) -> String {
        self.pool.name_any()
    }

    fn known_uid(&self) -> Option<String> {
        self.pool.uid()
    }

    fn known_version(&self) -> u128 {
        self.pool.known_version()
    }
}

impl Ledgers {
    /// Whether everything that slices depend on is listed. Without attachment definitions it is not known what to
    /// divide, and a ledger that cannot be read hides what is held.
    pub fn knows_slices(&self) -> bool {
        let unknown = |pool: &str| self.slices.is_unreadable(pool) && self.slices.get(pool).is_none();
        let unknown_ledger = |pool: &str| self.pools.is_unreadable(pool) && self.pools.get(pool).is_none();
        if self.slices.unreadable().any(unknown) || self.pools.unreadable().any(unknown_ledger) {
            return false;
        }
        self.attachments.is_complete() && self.slices.is_complete() && self.pools.is_complete()
    }

    /// Whether everything is listed that tells what is unused.
    pub fn knows_use(&self) -> bool {
        self.pools.is_complete() && self.reservations.is_complete() && self.pods.is_complete()
    }

    /// Whether pods have to be watched.
    pub fn needs_pods(&self) -> bool {
        !self.pools.is_empty() || !self.reservations.is_empty()
    }

    /// What is kept of an `IPPool`; `lives` tells which nodes live.
    pub(crate) fn kept(pool: IPPool, lives: impl Fn(&str) -> bool) -> Ledger {
        let whole = node_of(&pool).is_none_or(|node| !lives(node));
        Ledger::of(pool, whole)
    }

    /// Nodes with slices, living or not.
    pub(crate) fn nodes_with_slices(&self) -> BTreeSet<&str> {
        let status = self.slices.iter().filter_map(|pool| pool.status.as_ref());
        let nodes = status.flat_map(|status| &status.allocations).map(|slice| slice.node_name.as_str());
        nodes.filter(|node| !node.is_empty()).collect()
    }
}

impl crate::world::State for Ledgers {
    fn changes(&self) -> u64 {
        let of_ranges = self.attachments.changes() + self.slices.changes() + self.pools.changes();
        of_ranges + self.reservations.changes() + self.pods.changes()
    }
}

impl World {
    /// Whereabouts' ranges.
    pub fn ledgers(&self) -> &Ledgers {
        self.state()
    }

    /// The same, mutable.
    pub fn ledgers_mut(&mut self) -> &mut Ledgers {
        self.state_mut()
    }

    /// The current state of an `IPPool`.
    pub fn apply_ledger(&mut self, pool: IPPool) {
        let ledger = Ledgers::kept(pool, |node| self.lives(node));
        self.ledgers_mut().pools.apply(ledger);
    }

    /// An `IPPool` as a list shows it.
    pub fn list_ledger(&mut self, pool: IPPool) {
        let ledger = Ledgers::kept(pool, |node| self.lives(node));
        self.ledgers_mut().pools.list(ledger);
    }
}

/// Addresses in ascending order, with neighbours merged.
fn intervals(addresses: impl Iterator<Item = Address>) -> Box<[(Address, Address)]> {
    let mut intervals: Vec<(Address, Address)> = Vec::new();
    for address in addresses {
        match intervals.last_mut() {
            Some((_, last)) if last.next() == Some(address) => *last = address,
            _ => intervals.push((address, address)),
        }
    }
    intervals.into_boxed_slice()
}

fn node_of(pool: &IPPool) -> Option<&str> {
    pool.metadata.labels.as_ref()?.get(label::NODE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenure_api::whereabouts::{Allocation, IPPoolSpec};

    use super::*;

    fn pool(node: Option<&str>, keys: &[&str]) -> IPPool {
        let allocations = keys.iter().map(|key| ((*key).to_owned(), Allocation::default())).collect();
        let mut pool = IPPool::new("p", IPPoolSpec { range: "10.0.0.0/24".into(), allocations });
        pool.metadata.labels = node.map(|node| BTreeMap::from([(label::NODE.to_owned(), node.to_owned())]));
        pool
    }

    #[test]
    fn of_a_living_nodes_ledger_only_the_counts_are_kept_and_of_others_every_record() {
        for (node, kept) in [(Some("lives"), 0), (Some("gone"), 3), (None, 3)] {
            let ledger = Ledgers::kept(pool(node, &["7", "1", "9"]), |node| node == "lives");
            assert_eq!((ledger.pool.spec.allocations.len(), ledger.used), (kept, 3), "{node:?}");
            let span = ledger.span.map(|(first, last)| [first.to_string(), last.to_string()]);
            assert_eq!(span, Some(["10.0.0.1".to_owned(), "10.0.0.9".to_owned()]));
        }
    }
}
