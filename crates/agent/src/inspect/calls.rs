//! The plugin's calls: how many, with which code, and how long they took.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tenure_cni::Verb;

type Labels = Vec<(&'static str, String)>;

/// Counts the plugin's calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Calls {
    answered: Family<Labels, Counter>,
    took: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Default for Calls {
    fn default() -> Self {
        // From a quarter of a millisecond to half a minute, which is longer than any runtime waits.
        let made: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_25, 2.0, 18));
        let calls = Self { answered: Family::default(), took: Family::new_with_constructor(made) };
        for verb in [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc] {
            // A rate needs a zero to start from.
            drop(calls.answered.get_or_create(&labels(verb, 0)));
            drop(calls.took.get_or_create(&vec![("verb", verb.as_str().to_owned())]));
        }
        calls
    }
}

impl Calls {
    /// Counts a call that was answered with this code; 0 means success.
    pub fn answered(&self, verb: Verb, code: u32, took: Duration) {
        self.answered.get_or_create(&labels(verb, code)).inc();
        self.took.get_or_create(&vec![("verb", verb.as_str().to_owned())]).observe(took.as_secs_f64());
    }

    /// How often a verb was answered with this code.
    pub fn count(&self, verb: Verb, code: u32) -> u64 {
        self.answered.get(&labels(verb, code)).map_or(0, |counter| counter.get())
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenure_agent_calls",
            "CNI calls by verb and by CNI error code, which is 0 for a success",
            self.answered.clone(),
        );
        registry.register(
            "tenure_agent_call_seconds",
            "How long CNI calls took inside the agent, by verb",
            self.took.clone(),
        );
    }
}

fn labels(verb: Verb, code: u32) -> Labels {
    vec![("verb", verb.as_str().to_owned()), ("code", code.to_string())]
}
