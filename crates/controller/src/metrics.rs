//! Metrics in the text format that Prometheus reads. What is counted of objects is counted by the leader alone, so that a sum
//! over replicas counts nothing twice.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_handles::Timestamp;

use crate::kind::Observation;
use crate::part::{Count, Part};
use crate::plan::Planner;
use crate::world::World;
use crate::write::Write;

pub(crate) type Labels = Vec<(&'static str, String)>;
pub(crate) type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;

/// The controller's metrics.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Registry,
    /// Held while counting and while telling, so that nobody sees half a count.
    whole: Mutex<()>,
    leader: Gauge,
    writes: Family<Labels, Counter>,
    unreadable: Family<Labels, Gauge>,
    overlooked: Gauge,
    parts: Vec<Box<dyn Count>>,
}

impl Metrics {
    /// Those of the controller itself, and of these parts.
    pub(crate) fn of<'p>(parts: impl Iterator<Item = &'p dyn Part>) -> Self {
        let mut metrics = Self::default();
        let registry = &mut metrics.registry;
        registry.register("tenure_controller_leader", "Whether this replica leads", metrics.leader.clone());
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
        registry.register(
            "tenure_controller_overlooked_writes",
            "Writes that only the periodic plan of everything has found since this replica leads; each is a defect",
            metrics.overlooked.clone(),
        );
        metrics.parts = parts.map(|part| part.metrics(registry)).collect();
        metrics
    }

    /// All of them, as text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a write.
    pub(crate) fn wrote(&self, verb: &'static str, outcome: &'static str) {
        let labels = vec![("write", verb.to_owned()), ("outcome", outcome.to_owned())];
        self.writes.get_or_create(&labels).inc();
    }

    /// A write was answered, and this was observed.
    pub(crate) fn answered(&self, write: &Write, observation: &Observation) {
        self.parts.iter().for_each(|part| part.answered(&**write, observation));
    }

    /// Counts what the leader knows; one that stands by counts nothing.
    pub(crate) fn count(&self, world: &World, leads: bool, planner: &Planner, now: Timestamp) {
        let suspects = planner.suspects();
        self.overlooked.set(i64::try_from(planner.overlooked()).unwrap_or(i64::MAX));
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.leader.set(leads.into());
        self.unreadable.clear();
        if leads {
            for (kind, count) in world.unreadable.count() {
                self.unreadable.get_or_create(&vec![("kind", kind.to_owned())]).set(count);
            }
        }
        self.parts.iter().for_each(|part| part.count(world, leads, suspects, now));
    }
}
