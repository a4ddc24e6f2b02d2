//! Metrics in the text format that Prometheus reads. Pools and nodes are counted by the leader alone, so that a sum
//! over replicas counts nothing twice.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use kube::ResourceExt;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_api::coil::{PoolUsage, RequestOutcome};
use tenure_handles::Timestamp;

use crate::act::Learned;
use crate::ledgers::Ledgers;
use crate::world::World;
use crate::write::LedgerWrite;
use of_claims::ClaimMetrics;
use of_ledgers::LedgerMetrics;

mod of_claims;
mod of_ledgers;

type Labels = Vec<(&'static str, String)>;
type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;

/// The controller's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held while counting and while telling, so that nobody sees half a count.
    whole: Mutex<()>,
    leader: Gauge,
    waiting: Gauge,
    writes: Family<Labels, Counter>,
    unreadable: Family<Labels, Gauge>,
    pool_blocks: Numbers,
    pool_addresses: Numbers,
    node_blocks: Numbers,
    coil_max: Numbers,
    coil_allocated: Numbers,
    ledgers: LedgerMetrics,
    claims: ClaimMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            whole: Mutex::default(),
            leader: Gauge::default(),
            waiting: Gauge::default(),
            writes: Family::default(),
            unreadable: Family::default(),
            pool_blocks: Family::default(),
            pool_addresses: Family::default(),
            node_blocks: Family::default(),
            coil_max: Family::default(),
            coil_allocated: Family::default(),
            ledgers: LedgerMetrics::default(),
            claims: ClaimMetrics::default(),
        };
        let registry = &mut metrics.registry;
        metrics.ledgers.register(registry);
        metrics.claims.register(registry);
        registry.register("tenure_controller_leader", "Whether this replica leads", metrics.leader.clone());
        registry.register(
            "tenure_requests_waiting",
            "Requests that wait for a block",
            metrics.waiting.clone(),
        );
        registry.register(
            "tenure_controller_writes",
            "Writes by what they do and what became of them",
            metrics.writes.clone(),
        );
        registry.register(
            "tenure_controller_undecodable_objects",
            "Objects of a kind that are there and cannot be read; each has an event that says why",
            metrics.unreadable.clone(),
        );
        registry.register("tenure_pool_blocks", "Blocks of a pool by state", metrics.pool_blocks.clone());
        registry.register(
            "tenure_pool_addresses",
            "Addresses of a pool by state",
            metrics.pool_addresses.clone(),
        );
        registry.register(
            "tenure_node_blocks",
            "Blocks that a node owns, by pool",
            metrics.node_blocks.clone(),
        );
        registry.register(
            "coil_controller_max_blocks",
            "The maximum number of blocks of a pool",
            metrics.coil_max.clone(),
        );
        registry.register(
            "coil_controller_allocated_blocks",
            "The number of allocated blocks of a pool",
            metrics.coil_allocated.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// All of them, as text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(crate) fn wrote(&self, verb: &'static str, outcome: &'static str) {
        let labels = vec![("write", verb.to_owned()), ("outcome", outcome.to_owned())];
        self.writes.get_or_create(&labels).inc();
    }

    /// Counts what a write has released.
    pub(crate) fn released(&self, write: &LedgerWrite, learned: &Learned) {
        let (kind, count) = match (write, learned) {
            (LedgerWrite::Forget { .. }, Learned::Ledger(_, count)) if *count > 0 => ("record", *count),
            (LedgerWrite::Unreserve { .. }, Learned::ReservationGone(_)) => ("reservation", 1),
            _ => return,
        };
        self.ledgers.released(kind, count);
    }

    /// Counts what the leader knows of Whereabouts' ranges, where it has changed.
    pub(crate) fn observe_ledgers(&self, ledgers: &Ledgers, leads: bool, suspects: usize, now: Timestamp) {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledgers.observe(ledgers, leads, suspects, now);
    }

    /// Counts what the leader knows; one that stands by counts nothing.
    pub(crate) fn observe(&self, world: &World, leads: bool) {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.leader.set(leads.into());
        self.claims.observe(world, leads);
        let numbers = [
            &self.pool_blocks,
            &self.pool_addresses,
            &self.node_blocks,
            &self.coil_max,
            &self.coil_allocated,
        ];
        numbers.into_iter().for_each(Family::clear);
        self.unreadable.clear();
        if !leads {
            self.waiting.set(0);
            return;
        }
        let waiting = world.requests.iter().filter(|request| request.outcome() == RequestOutcome::Pending);
        self.waiting.set(i64::try_from(waiting.count()).unwrap_or(i64::MAX));
        for (kind, count) in world.unreadable.count() {
            self.unreadable.get_or_create(&vec![("kind", kind.to_owned())]).set(count);
        }
        for pool in world.pools.iter() {
            let name = pool.name_any();
            let Some(status) = &pool.status else { continue };
            if let Some(usage) = &status.blocks {
                states(&self.pool_blocks, &name, usage);
                let of_pool = vec![("pool", name.clone())];
                self.coil_max.get_or_create(&of_pool).set(number(&usage.capacity));
                self.coil_allocated.get_or_create(&of_pool).set(number(&usage.allocated));
            }
            if let Some(usage) = &status.addresses {
                states(&self.pool_addresses, &name, usage);
            }
        }
        let mut of_nodes: HashMap<(&str, &str), u32> = HashMap::new();
        for block in world.blocks.iter() {
            if let (Some(node), Some(pool)) = (block.node(), block.pool()) {
                *of_nodes.entry((node, pool)).or_default() += 1;
            }
        }
        for ((node, pool), count) in of_nodes {
            let labels = vec![("node", node.to_owned()), ("pool", pool.to_owned())];
            self.node_blocks.get_or_create(&labels).set(count.into());
        }
    }
}

fn states(numbers: &Numbers, pool: &str, usage: &PoolUsage) {
    let states = [("capacity", &usage.capacity), ("allocated", &usage.allocated), ("free", &usage.free)];
    for (state, value) in states {
        let labels = vec![("pool", pool.to_owned()), ("state", state.to_owned())];
        numbers.get_or_create(&labels).set(number(value));
    }
}

/// A count as a status writes it. Metrics are floating-point numbers, large ones lose their last digits.
fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}
