//! Metrics of Whereabouts' ranges: addresses of pools and slices, slices of networks, and unused records.
//!
//! A large cluster has a hundred thousand slices, so only what changed is counted again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_api::whereabouts::NodeSlicePool;
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;
use tenure_whereabouts::ledger::PoolId;

use super::{Ledger, Ledgers};
use crate::cache::Known;
use crate::changes::{Changed, Cursor};
use crate::kind::Observation;
use crate::metrics::{Labels, Numbers, labels, metric};
use crate::part::Count;
use crate::world::World;
use crate::write::Operation;

#[derive(Debug)]
pub(super) struct LedgerMetrics {
    pool_addresses: Numbers,
    slice_addresses: Numbers,
    slices: Numbers,
    suspects: Gauge,
    released: Family<Labels, Counter>,
    counted: Mutex<Counted>,
}

/// What was counted.
#[derive(Debug, Default)]
struct Counted {
    pools: Cursor,
    slices: Cursor,
    /// What each ledger counts as.
    ledgers: HashMap<Arc<str>, Numbered>,
    /// Shared ranges by the name of their first object: the range, how many objects it has, and the addresses that are used.
    shared: HashMap<String, (Cidr, usize, u64)>,
}

/// What a ledger counts as.
#[derive(Debug)]
enum Numbered {
    /// A node's slice, with these labels.
    Slice(Labels),
    /// An object of this shared range, with so many addresses in use.
    Shared(String, u64),
}

impl LedgerMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self {
            pool_addresses: metric(
                registry,
                "tenure_whereabouts_pool_addresses",
                "Addresses of a range that all nodes share, by state",
            ),
            slice_addresses: metric(
                registry,
                "tenure_whereabouts_slice_addresses",
                "Addresses of a node's slice, by state, as its ledger says",
            ),
            slices: metric(registry, "tenure_whereabouts_slices", "Slices of a NodeSlicePool by state"),
            suspects: metric(
                registry,
                "tenure_whereabouts_suspects",
                "Records and reservations that nobody seems to use",
            ),
            released: metric(
                registry,
                "tenure_whereabouts_released",
                "Records and reservations released because nobody used them",
            ),
            counted: Mutex::default(),
        };
        for kind in ["record", "reservation"] {
            metrics.released(kind, 0);
        }
        metrics
    }

    fn released(&self, kind: &str, count: u64) {
        self.released.get_or_create(&labels([("kind", kind)])).inc_by(count);
    }

    fn observe(&self, ledgers: &Ledgers, leads: bool, suspects: usize) {
        self.suspects.set(if leads { i64::try_from(suspects).unwrap_or(i64::MAX) } else { 0 });
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !leads {
            self.forget(&mut counted);
            return;
        }
        let pools = ledgers.pools.changed(&mut counted.pools);
        let slices = ledgers.slices.changed(&mut counted.slices);
        if let (Changed::Keys(pools), Changed::Keys(slices)) = (pools, slices) {
            for name in &pools {
                self.ledger(&mut counted, name, ledgers.pools.get(name));
            }
            for name in &slices {
                self.slices(name, ledgers.slices.get(name));
            }
            return;
        }
        let (pools, slices) = (counted.pools, counted.slices);
        self.forget(&mut counted);
        (counted.pools, counted.slices) = (pools, slices);
        for ledger in ledgers.pools.iter() {
            self.ledger(&mut counted, &ledger.key().into(), Some(ledger));
        }
        for pool in ledgers.slices.iter() {
            self.slices(&pool.name_any(), Some(pool));
        }
    }

    fn forget(&self, counted: &mut Counted) {
        *counted = Counted::default();
        [&self.pool_addresses, &self.slice_addresses, &self.slices].into_iter().for_each(Family::clear);
    }

    /// Counts a ledger: a slice by itself, and all objects of a shared range together.
    fn ledger(&self, counted: &mut Counted, name: &Arc<str>, ledger: Option<&Ledger>) {
        match counted.ledgers.remove(name) {
            Some(Numbered::Slice(labels)) => self.slice_addresses.uncount(&labels),
            Some(Numbered::Shared(pool, used)) => self.share(counted, &pool, None, used),
            None => {}
        }
        let Some((ledger, range)) = ledger.and_then(|ledger| Some((ledger, ledger.pool.spec.cidr().ok()?)))
        else {
            return;
        };
        let numbered = if let Some(node) = ledger.node() {
            let slice = range.to_string();
            let labels = labels([("pool", &network(ledger)), ("node", node), ("slice", &slice)]);
            self.slice_addresses.count(&labels, &range, ledger.used);
            Numbered::Slice(labels)
        } else {
            let pool = first_object(ledger, range);
            self.share(counted, &pool, Some(range), ledger.used);
            Numbered::Shared(pool, ledger.used)
        };
        counted.ledgers.insert(name.clone(), numbered);
    }

    /// An object of a shared range was added or removed.
    fn share(&self, counted: &mut Counted, pool: &str, came: Option<Cidr>, used: u64) {
        let labels = |range: &Cidr| labels([("pool", pool), ("range", &range.to_string())]);
        let Some(range) = came.or_else(|| counted.shared.get(pool).map(|shared| shared.0)) else { return };
        let shared = counted.shared.entry(pool.to_owned()).or_insert((range, 0, 0));
        let of = labels(&shared.0);
        if came.is_some() {
            (shared.1, shared.2) = (shared.1 + 1, shared.2 + used);
        } else {
            (shared.1, shared.2) = (shared.1.saturating_sub(1), shared.2.saturating_sub(used));
        }
        let (range, objects, used) = *shared;
        if objects == 0 {
            counted.shared.remove(pool);
            self.pool_addresses.uncount(&of);
        } else {
            self.pool_addresses.count(&of, &range, used);
        }
    }

    fn slices(&self, name: &str, pool: Option<&NodeSlicePool>) {
        let slices = pool.and_then(|pool| pool.status.as_ref()).map(|status| status.allocations.as_slice());
        let slices = slices.unwrap_or_default();
        let free = slices.iter().filter(|slice| slice.node_name.is_empty()).count();
        for (state, count) in [("assigned", slices.len() - free), ("free", free)] {
            let labels = labels([("pool", name), ("state", state)]);
            if pool.is_some() {
                self.slices.get_or_create(&labels).set(float(count as u128));
            } else {
                self.slices.remove(&labels);
            }
        }
    }
}

impl Count for LedgerMetrics {
    fn count(&self, world: &World, leads: bool, suspects: usize, _: Timestamp) {
        self.observe(world.ledgers(), leads, suspects);
    }

    fn answered(&self, _: &dyn Operation, observation: &Observation) {
        if let Some((kind, count)) = observation.released().filter(|(_, count)| *count > 0) {
            self.released(kind, count);
        }
    }
}

fn network(ledger: &Ledger) -> String {
    let labels = ledger.pool.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(tenure_api::whereabouts::label::NETWORK)).cloned().unwrap_or_default()
}

/// The name of the pool's first object: the others have a number behind a dot.
fn first_object(ledger: &Ledger, range: Cidr) -> String {
    let name = ledger.pool.name_any();
    let own = PoolId::shared("", range).name().unwrap_or_default();
    match name.rfind(&own) {
        Some(at) if !own.is_empty() => name[..at + own.len()].to_owned(),
        _ => name,
    }
}

/// Addresses of a range, used and free.
trait Addresses {
    fn count(&self, labels: &Labels, range: &Cidr, used: u64);
    fn uncount(&self, labels: &Labels);
}

impl Addresses for Numbers {
    fn count(&self, labels: &Labels, range: &Cidr, used: u64) {
        let free = range.size().saturating_sub(u128::from(used));
        for (state, count) in [("used", u128::from(used)), ("free", free)] {
            self.get_or_create(&in_state(labels, state)).set(float(count));
        }
    }

    fn uncount(&self, labels: &Labels) {
        for state in ["used", "free"] {
            self.remove(&in_state(labels, state));
        }
    }
}

fn in_state(labels: &Labels, state: &str) -> Labels {
    labels.iter().cloned().chain([("state", state.to_owned())]).collect()
}

/// Metrics are floating-point numbers, large ones lose their last digits.
fn float(count: u128) -> f64 {
    count.to_string().parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tenure_api::whereabouts::{
        Allocation, IPPool, IPPoolSpec, NodeSliceAllocation, NodeSlicePoolStatus, label,
    };

    use super::*;

    fn registered() -> (LedgerMetrics, Registry) {
        let mut registry = Registry::default();
        (LedgerMetrics::registered(&mut registry), registry)
    }

    fn text((metrics, registry): &(LedgerMetrics, Registry), ledgers: &Ledgers) -> String {
        metrics.observe(ledgers, true, 0);
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    fn ledger(name: &str, range: &str, node: Option<&str>, records: usize, version: u64) -> Ledger {
        let allocations = (1..=records).map(|key| (key.to_string(), Allocation::default())).collect();
        let mut pool = IPPool::new(name, IPPoolSpec { range: range.to_owned(), allocations });
        pool.labels_mut().extend(node.map(|node| (label::NODE.to_owned(), node.to_owned())));
        (pool.metadata.uid, pool.metadata.resource_version) =
            (Some(name.to_owned()), Some(version.to_string()));
        Ledger::of(pool, true)
    }

    #[test]
    fn counting_what_has_changed_gives_what_counting_everything_gives() {
        let (mut ledgers, metrics) = (Ledgers::default(), registered());
        ledgers.pools.finish();
        ledgers.slices.finish();
        let check = |ledgers: &Ledgers| assert_eq!(text(&metrics, ledgers), text(&registered(), ledgers));
        check(&ledgers);
        ledgers.pools.apply(ledger("10.0.0.0-23", "10.0.0.0/23", None, 3, 1));
        ledgers.pools.apply(ledger("10.0.0.0-23.1", "10.0.0.0/23", None, 2, 2));
        ledgers.pools.apply(ledger("a-10.1.0.0-26", "10.1.0.0/26", Some("a"), 5, 3));
        let slice = |node: &str| NodeSliceAllocation { node_name: node.to_owned(), ..Default::default() };
        let mut pool = NodeSlicePool::new("net", tenure_api::whereabouts::NodeSlicePoolSpec::default());
        pool.status =
            Some(NodeSlicePoolStatus { allocations: vec![slice("a"), slice("")], ..Default::default() });
        pool.metadata.uid = Some("net".to_owned());
        ledgers.slices.apply(pool);
        check(&ledgers);
        assert!(text(&metrics, &ledgers).contains("range=\"10.0.0.0/23\",state=\"used\"} 5"));
        ledgers.pools.apply(ledger("10.0.0.0-23", "10.0.0.0/23", None, 1, 4));
        ledgers.pools.apply(ledger("a-10.1.0.0-26", "10.1.0.0/26", Some("b"), 6, 5));
        check(&ledgers);
        ledgers.pools.remove("10.0.0.0-23.1", "10.0.0.0-23.1");
        ledgers.pools.remove("a-10.1.0.0-26", "a-10.1.0.0-26");
        ledgers.slices.remove("net", "net");
        check(&ledgers);
        metrics.0.observe(&ledgers, false, 0);
        check(&ledgers);
        ledgers.pools.remove("10.0.0.0-23", "10.0.0.0-23");
        check(&ledgers);
    }
}
