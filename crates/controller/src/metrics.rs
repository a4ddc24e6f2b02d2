//! Metrics in the text format that Prometheus reads. Only the leader counts objects, so that a sum over replicas counts
//! nothing twice.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use tenure_handles::Timestamp;

use crate::kind::Observation;
use crate::part::{Count, Part};
use crate::plan::Planner;
use crate::world::World;
use crate::write::Write;

pub(crate) type Labels = Vec<(&'static str, String)>;
pub(crate) type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;

/// A new metric, registered.
pub(crate) fn metric<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// The labels of one value.
pub(crate) fn labels<const N: usize>(values: [(&'static str, &str); N]) -> Labels {
    values.map(|(name, value)| (name, value.to_owned())).into()
}

/// Moves that are not finished: how many, and since when the oldest has been seen. A move counts from when this replica first
/// saw it.
#[derive(Debug)]
pub(crate) struct Moves {
    unfinished: Gauge,
    oldest: Gauge<f64, AtomicU64>,
    since: Mutex<HashMap<String, Timestamp>>,
}

impl Moves {
    /// Registered under these names: of how many there are, and of when the oldest began.
    pub(crate) fn registered(registry: &mut Registry, [unfinished, oldest]: [&str; 2]) -> Self {
        Self {
            unfinished: metric(registry, unfinished, "Moves that are not finished"),
            oldest: metric(
                registry,
                oldest,
                "When the leader first saw the oldest unfinished move, in seconds since 1970; 0 if there is none",
            ),
            since: Mutex::default(),
        }
    }

    /// These are all that are not finished now.
    pub(crate) fn are(&self, unfinished: impl IntoIterator<Item = String>, now: Timestamp) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = unfinished.into_iter().map(|it| (since.get(&it).copied().unwrap_or(now), it));
        *since = seen.map(|(since, it)| (it, since)).collect();
        self.unfinished.set(i64::try_from(since.len()).unwrap_or(i64::MAX));
        let oldest = since.values().min().map(|oldest| oldest.since(Timestamp::default()));
        self.oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }
}

/// The controller's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held while counting and while encoding, so that nobody sees half a count.
    whole: Mutex<()>,
    leader: Gauge,
    writes: Family<Labels, Counter>,
    unreadable: Family<Labels, Gauge>,
    overlooked: Gauge,
    parts: Vec<Box<dyn Count>>,
}

impl Metrics {
    /// The metrics of the controller itself and of these parts.
    pub(crate) fn of<'p>(parts: impl Iterator<Item = &'p dyn Part>) -> Self {
        let mut all = Registry::default();
        let registry = &mut all;
        Self {
            whole: Mutex::default(),
            leader: metric(registry, "tenure_controller_leader", "Whether this replica leads"),
            writes: metric(registry, "tenure_controller_writes", "Writes by operation and outcome"),
            unreadable: metric(
                registry,
                "tenure_controller_undecodable_objects",
                "Objects of a kind that exist and cannot be read; each has an event that says why",
            ),
            overlooked: metric(
                registry,
                "tenure_controller_overlooked_writes",
                "Writes that only the periodic full plan has found since this replica leads; each is a defect",
            ),
            parts: parts.map(|part| part.metrics(registry)).collect(),
            registry: all,
        }
    }

    /// Encodes all of them as text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a write.
    pub(crate) fn wrote(&self, verb: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&labels([("write", verb), ("outcome", outcome)])).inc();
    }

    /// Counts the answer to a write.
    pub(crate) fn answered(&self, write: &Write, observation: &Observation) {
        self.parts.iter().for_each(|part| part.answered(&**write, observation));
    }

    /// Counts what the leader knows. A replica that stands by counts nothing.
    pub(crate) fn count(&self, world: &World, leads: bool, planner: &Planner, now: Timestamp) {
        let suspects = planner.suspects();
        self.overlooked.set(i64::try_from(planner.overlooked()).unwrap_or(i64::MAX));
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.leader.set(leads.into());
        self.unreadable.clear();
        if leads {
            for (kind, count) in world.unreadable.count() {
                self.unreadable.get_or_create(&labels([("kind", kind)])).set(count);
            }
        }
        self.parts.iter().for_each(|part| part.count(world, leads, suspects, now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_move_counts_from_when_it_was_first_seen_until_it_is_finished() {
        let mut registry = Registry::default();
        let moves = Moves::registered(
            &mut registry,
            ["tenure_claim_moves", "tenure_claim_move_oldest_start_seconds"],
        );
        let at = |seconds| Timestamp::default().plus(Duration::from_secs(seconds));
        let told = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
        };
        for (now, unfinished, count, oldest) in [
            (10, &[][..], 0, 0),
            (20, &["a"], 1, 20),
            (30, &["a", "b"], 2, 20),
            (40, &["b"], 1, 30),
            (50, &[], 0, 0),
            (60, &["b"], 1, 60),
        ] {
            moves.are(unfinished.iter().map(|it| (*it).to_owned()), at(now));
            let expected =
                format!("tenure_claim_moves {count}\ntenure_claim_move_oldest_start_seconds {oldest}.0");
            assert_eq!(told(), expected, "at {now}");
        }
    }
}
