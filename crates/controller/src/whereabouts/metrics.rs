//! Whereabouts' ranges in numbers: addresses of pools and of slices, slices of networks, and what nobody used.
//!
//! A large cluster has a hundred thousand slices, so these are counted anew only after something changed, and then not more
//! often than every few seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;
use tenure_whereabouts::ledger::PoolId;

use super::{Ledger, Ledgers};
use crate::kind::Observation;
use crate::metrics::{Labels, Numbers};
use crate::part::Count;
use crate::world::World;
use crate::write::Operation;

/// Up to so many ledgers are counted whenever anything is heard.
const FEW: usize = 200;
/// More of them are counted at most this often.
const SELDOM: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct LedgerMetrics {
    pool_addresses: Numbers,
    slice_addresses: Numbers,
    slices: Numbers,
    suspects: Gauge,
    released: Family<Labels, Counter>,
    counted: Mutex<Option<Timestamp>>,
}

impl LedgerMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register(registry);
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenure_whereabouts_pool_addresses",
            "Addresses of a range that all nodes share, by state",
            self.pool_addresses.clone(),
        );
        registry.register(
            "tenure_whereabouts_slice_addresses",
            "Addresses of a node's slice, by state, as its ledger says",
            self.slice_addresses.clone(),
        );
        registry.register(
            "tenure_whereabouts_slices",
            "Slices of a NodeSlicePool by state",
            self.slices.clone(),
        );
        registry.register(
            "tenure_whereabouts_suspects",
            "Records and reservations that nobody seems to use",
            self.suspects.clone(),
        );
        registry.register(
            "tenure_whereabouts_released",
            "Records and reservations released because nobody used them",
            self.released.clone(),
        );
        for kind in ["record", "reservation"] {
            self.released(kind, 0);
        }
    }

    fn released(&self, kind: &str, count: u64) {
        self.released.get_or_create(&vec![("kind", kind.to_owned())]).inc_by(count);
    }

    fn observe(&self, ledgers: &Ledgers, leads: bool, suspects: usize, now: Timestamp) {
        self.suspects.set(if leads { i64::try_from(suspects).unwrap_or(i64::MAX) } else { 0 });
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = counted.is_some_and(|at| at <= now && now.since(at) < SELDOM);
        if leads && recent && ledgers.pools.len() > FEW {
            return;
        }
        *counted = leads.then_some(now);
        [&self.pool_addresses, &self.slice_addresses, &self.slices].into_iter().for_each(Family::clear);
        if leads {
            self.pools(ledgers);
            self.slices(ledgers);
        }
    }

    /// Shared ranges, all objects of one together; and slices.
    fn pools(&self, ledgers: &Ledgers) {
        let mut shared: BTreeMap<String, (Cidr, u64)> = BTreeMap::new();
        for ledger in ledgers.pools.iter() {
            let Ok(range) = ledger.pool.spec.cidr() else { continue };
            match ledger.node() {
                Some(node) => {
                    let labels =
                        [("pool", network(ledger)), ("node", node.to_owned()), ("slice", range.to_string())];
                    numbers(&self.slice_addresses, &labels, &range, ledger.used);
                }
                None => {
                    shared.entry(first_object(ledger, range)).or_insert((range, 0)).1 += ledger.used;
                }
            }
        }
        for (pool, (range, used)) in shared {
            numbers(&self.pool_addresses, &[("pool", pool), ("range", range.to_string())], &range, used);
        }
    }

    fn slices(&self, ledgers: &Ledgers) {
        for pool in ledgers.slices.iter() {
            let slices = pool.status.iter().flat_map(|status| &status.allocations);
            let (free, assigned): (Vec<_>, Vec<_>) = slices.partition(|slice| slice.node_name.is_empty());
            for (state, count) in [("assigned", assigned.len()), ("free", free.len())] {
                let labels = vec![("pool", pool.name_any()), ("state", state.to_owned())];
                self.slices.get_or_create(&labels).set(float(count as u128));
            }
        }
    }
}

impl Count for LedgerMetrics {
    fn count(&self, world: &World, leads: bool, suspects: usize, now: Timestamp) {
        self.observe(&world.ledgers, leads, suspects, now);
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

fn numbers(family: &Numbers, labels: &[(&'static str, String)], range: &Cidr, used: u64) {
    let free = range.size().saturating_sub(u128::from(used));
    for (state, count) in [("used", u128::from(used)), ("free", free)] {
        let mut labels = labels.to_vec();
        labels.push(("state", state.to_owned()));
        family.get_or_create(&labels).set(float(count));
    }
}

/// Metrics are floating-point numbers, large ones lose their last digits.
fn float(count: u128) -> f64 {
    count.to_string().parse().unwrap_or(f64::NAN)
}
