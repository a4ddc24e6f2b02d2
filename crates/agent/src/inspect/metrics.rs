//! Metrics in the text format that Prometheus reads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{ApiCalls, Calls};
use crate::node::view::{JournalView, PoolView};
use crate::node::{Leak, Node};
use crate::objects::{ApiHealth, WatchHealth};
use crate::part::Inspect;

type Labels = Vec<(&'static str, String)>;
type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;

/// The counted parts of a node: no list of anything but pools.
#[derive(Debug)]
pub(super) struct Seen {
    pools: Vec<PoolView>,
    journal: JournalView,
    holds: usize,
    /// All claim uses, and the reached ones.
    claim_uses: (usize, usize),
    blocks: usize,
    fenced: usize,
    /// What seems to have leaked, by kind.
    leaks: BTreeMap<&'static str, usize>,
    leaks_repaired: u64,
    replayed: bool,
}

impl Seen {
    pub(super) fn of(node: &Node) -> Self {
        let blocks = node.blocks();
        let mut leaks: BTreeMap<_, _> = Leak::WORDS.map(|word| (word, 0)).into();
        node.leaks().iter().for_each(|it| *leaks.entry(it.leak.word()).or_default() += 1);
        Self {
            pools: node.pools(),
            journal: node.journal(),
            holds: node.hold_count(),
            claim_uses: node.claim_user_counts(),
            blocks: blocks.len(),
            fenced: blocks.iter().filter(|block| block.fence.is_some()).count(),
            leaks,
            leaks_repaired: node.repaired_leaks(),
            replayed: node.is_ready(),
        }
    }
}

/// The agent's metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    /// Held from setting the values to encoding them, so that nobody sees a mixture.
    whole: Mutex<()>,
    loop_alive: Gauge,
    replayed: Gauge,
    serving: Gauge,
    holds: Gauge,
    claim_uses: Numbers,
    blocks: Numbers,
    journal_records: Gauge,
    journal_waiting: Gauge,
    journal_broken: Gauge,
    pool_blocks: Numbers,
    pool_addresses: Numbers,
    pool_waiting: Numbers,
    pool_asked: Numbers,
    pool_refused: Numbers,
    leaks: Numbers,
    leaks_repaired: Counter,
    unreadable: Numbers,
    watches_failing: Gauge,
}

impl Metrics {
    pub(super) fn new(calls: &Calls, api_calls: &ApiCalls, parts: &[Arc<dyn Inspect>]) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            whole: Mutex::default(),
            loop_alive: Gauge::default(),
            replayed: Gauge::default(),
            serving: Gauge::default(),
            holds: Gauge::default(),
            claim_uses: Family::default(),
            blocks: Family::default(),
            journal_records: Gauge::default(),
            journal_waiting: Gauge::default(),
            journal_broken: Gauge::default(),
            pool_blocks: Family::default(),
            pool_addresses: Family::default(),
            pool_waiting: Family::default(),
            pool_asked: Family::default(),
            pool_refused: Family::default(),
            leaks: Family::default(),
            leaks_repaired: Counter::default(),
            unreadable: Family::default(),
            watches_failing: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        calls.register(registry);
        api_calls.register(registry);
        let whole = [
            ("tenure_agent_loop_alive", "Whether the node's loop answers", &metrics.loop_alive),
            ("tenure_agent_replayed", "Whether every hold is known", &metrics.replayed),
            ("tenure_agent_serving", "Whether the CNI plugin is answered", &metrics.serving),
            ("tenure_agent_holds", "Holders that have an address", &metrics.holds),
            ("tenure_agent_journal_records", "Records written since the start", &metrics.journal_records),
            ("tenure_agent_journal_waiting", "Records that are not committed yet", &metrics.journal_waiting),
            ("tenure_agent_journal_broken", "Whether the journal cannot be written", &metrics.journal_broken),
            (
                "tenure_agent_watches_failing",
                "Watches of the API server that fail, but not for a missing kind",
                &metrics.watches_failing,
            ),
        ];
        for (name, help, gauge) in whole {
            registry.register(name, help, gauge.clone());
        }
        let families = [
            ("tenure_agent_claim_uses", "Holders that have a claim's address, by state", &metrics.claim_uses),
            ("tenure_agent_blocks", "Blocks of this node by state", &metrics.blocks),
            (
                "tenure_agent_pool_blocks",
                "Blocks that addresses are assigned from, by pool",
                &metrics.pool_blocks,
            ),
            (
                "tenure_agent_pool_addresses",
                "Addresses of those blocks, by pool and state",
                &metrics.pool_addresses,
            ),
            ("tenure_agent_pool_waiting", "ADDs that wait for an address, by pool", &metrics.pool_waiting),
            (
                "tenure_agent_pool_blocks_asked",
                "Blocks that were requested and have not arrived yet, by pool",
                &metrics.pool_asked,
            ),
            (
                "tenure_agent_pool_refused",
                "Whether the last block request was refused, by pool",
                &metrics.pool_refused,
            ),
            (
                "tenure_agent_leaks",
                "Holds and links that seem to have leaked and are not repaired yet, by kind",
                &metrics.leaks,
            ),
            (
                "tenure_agent_undecodable_objects",
                "Objects that do not have the form of their kind, by watch",
                &metrics.unreadable,
            ),
        ];
        for (name, help, family) in families {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "tenure_agent_leaks_repaired",
            "Leaks that were confirmed and repaired since the start",
            metrics.leaks_repaired.clone(),
        );
        for part in parts {
            part.register(registry);
        }
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        let info = Family::<Vec<(&'static str, &'static str)>, Gauge>::default();
        info.get_or_create(&version).set(1);
        registry.register("tenure_agent_build", "The version of the agent", info);
        metrics
    }

    /// All metrics as text. If the node did not answer, they say only that of the node.
    pub(super) fn text(
        &self,
        seen: Option<&Seen>,
        parts: &[Arc<dyn Inspect>],
        objects: &ApiHealth,
        serving: bool,
    ) -> Result<String, std::fmt::Error> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.loop_alive.set(seen.is_some().into());
        self.serving.set(serving.into());
        let families = [
            &self.claim_uses,
            &self.blocks,
            &self.pool_blocks,
            &self.pool_addresses,
            &self.pool_waiting,
            &self.pool_asked,
            &self.pool_refused,
            &self.leaks,
            &self.unreadable,
        ];
        families.into_iter().for_each(Family::clear);
        let failing = |watch: &&WatchHealth| watch.failing.is_some() && !watch.lacks_kind;
        self.watches_failing.set(count(objects.watches.values().filter(failing).count()));
        for (watched, watch) in &objects.watches {
            let of_kind = vec![("kind", watched.to_string())];
            self.unreadable.get_or_create(&of_kind).set(float(watch.unreadable));
        }
        if let Some(seen) = seen {
            self.set(seen);
        }
        for part in parts {
            part.count();
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn set(&self, seen: &Seen) {
        self.replayed.set(seen.replayed.into());
        self.holds.set(count(seen.holds));
        let number = |family: &Numbers, state: &str, value| {
            family.get_or_create(&vec![("state", state.to_owned())]).set(value);
        };
        let (claim_uses, reached) = seen.claim_uses;
        number(&self.claim_uses, "reached", float(reached));
        number(&self.claim_uses, "not reached", float(claim_uses - reached));
        for (kind, count) in &seen.leaks {
            self.leaks.get_or_create(&vec![("kind", (*kind).to_owned())]).set(float(*count));
        }
        self.leaks_repaired.inner().store(seen.leaks_repaired, Ordering::Relaxed);
        number(&self.blocks, "owned", float(seen.blocks - seen.fenced));
        number(&self.blocks, "fenced", float(seen.fenced));
        let journal = &seen.journal;
        self.journal_records.set(journal.records.try_into().unwrap_or(i64::MAX));
        let waiting = journal.records.saturating_sub(journal.committed);
        self.journal_waiting.set(waiting.try_into().unwrap_or(i64::MAX));
        self.journal_broken.set(journal.broken.into());
        for pool in &seen.pools {
            let of_pool = vec![("pool", pool.name.clone())];
            self.pool_blocks.get_or_create(&of_pool).set(float(pool.blocks));
            self.pool_waiting.get_or_create(&of_pool).set(float(pool.waiting));
            self.pool_asked.get_or_create(&of_pool).set(float(pool.asked));
            self.pool_refused.get_or_create(&of_pool).set(u8::from(pool.trouble.is_some()).into());
            let counts = &pool.counts;
            let states = [
                ("held", counts.held),
                ("cooling", counts.cooling),
                ("reserved", counts.reserved),
                ("free", counts.free),
            ];
            for (state, value) in states {
                let labels = vec![("pool", pool.name.clone()), ("state", state.to_owned())];
                self.pool_addresses.get_or_create(&labels).set(wide(value));
            }
        }
    }
}

fn count(number: usize) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Metrics are floating-point numbers; large ones lose their last digits.
#[expect(clippy::cast_precision_loss, reason = "that is what metrics are")]
pub(crate) fn float(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "that is what metrics are")]
fn wide(number: u128) -> f64 {
    number as f64
}
