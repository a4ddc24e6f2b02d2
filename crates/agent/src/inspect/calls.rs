//! The plugin's calls: how many, with which code, how long they took, and the slowest ADDs of the last minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tenure_cni::Verb;
use tenure_handles::Timestamp;
use tenure_view::{Holder, SlowAdd};

type Labels = Vec<(&'static str, String)>;

/// How many of the slowest ADDs are kept.
const SLOWEST: usize = 16;
/// And for how long.
const KEPT_FOR: Duration = Duration::from_mins(5);

/// Counts the plugin's calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Calls {
    answered: Family<Labels, Counter>,
    took: Family<Labels, Histogram, fn() -> Histogram>,
    totals: Arc<Totals>,
}

/// The same for people, who look at a node's page and not at its metrics.
#[derive(Debug, Default)]
struct Totals {
    adds: AtomicU64,
    failed_adds: AtomicU64,
    dels: AtomicU64,
    failed_dels: AtomicU64,
    /// In no order, at most [`SLOWEST`].
    slowest: Mutex<Vec<SlowAdd>>,
}

impl Default for Calls {
    fn default() -> Self {
        // From a quarter of a millisecond to half a minute, which is longer than any runtime waits.
        let made: fn() -> Histogram = || Histogram::new(exponential_buckets(0.000_25, 2.0, 18));
        let took = Family::new_with_constructor(made);
        let calls = Self { answered: Family::default(), took, totals: Arc::default() };
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
        let (all, failed) = match verb {
            Verb::Add => (&self.totals.adds, &self.totals.failed_adds),
            Verb::Del => (&self.totals.dels, &self.totals.failed_dels),
            _ => return,
        };
        all.fetch_add(1, Ordering::Relaxed);
        failed.fetch_add(u64::from(code != 0), Ordering::Relaxed);
    }

    /// Keeps an ADD if it was one of the slowest. Whoever reads them at this moment is not waited for: then it is not kept.
    pub fn added(&self, now: Timestamp, code: u32, took: Duration, holder: impl FnOnce() -> Holder) {
        let Ok(mut slowest) = self.totals.slowest.try_lock() else { return };
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        retain_recent(&mut slowest, now);
        if slowest.len() >= SLOWEST {
            let fastest = slowest.iter().enumerate().min_by_key(|(_, it)| it.microseconds);
            match fastest {
                Some((at, it)) if it.microseconds < microseconds => _ = slowest.swap_remove(at),
                _ => return,
            }
        }
        slowest.push(SlowAdd { holder: holder(), microseconds, at: now.to_jiff(), code });
    }

    /// All of it, the slowest first.
    pub(super) fn summary(&self, now: Timestamp) -> (tenure_view::Calls, Vec<SlowAdd>) {
        let Totals { adds, failed_adds, dels, failed_dels, slowest } = &*self.totals;
        let [adds, failed_adds, dels, failed_dels] =
            [adds, failed_adds, dels, failed_dels].map(|it| it.load(Ordering::Relaxed));
        let mut slowest = slowest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        retain_recent(&mut slowest, now);
        slowest.sort_by_key(|it| std::cmp::Reverse(it.microseconds));
        (tenure_view::Calls { adds, failed_adds, dels, failed_dels }, slowest)
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

fn retain_recent(slowest: &mut Vec<SlowAdd>, now: Timestamp) {
    let oldest = now.to_jiff().as_second() - i64::try_from(KEPT_FOR.as_secs()).unwrap_or(i64::MAX);
    slowest.retain(|it| it.at.as_second() >= oldest);
}

fn labels(verb: Verb, code: u32) -> Labels {
    vec![("verb", verb.as_str().to_owned()), ("code", code.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_adds_of_the_last_minutes_are_kept_and_no_others() {
        let calls = Calls::default();
        let at = |second: u64| Timestamp::default().plus(Duration::from_secs(second));
        let holder = |name: u64| Holder { container: name.to_string(), ..Holder::default() };
        for name in 0..40 {
            calls.answered(Verb::Add, u32::from(name == 7), Duration::ZERO);
            calls.added(at(100 + name), 0, Duration::from_millis(name % 20), || holder(name));
        }
        calls.answered(Verb::Del, 0, Duration::ZERO);
        let (counts, slowest) = calls.summary(at(140));
        assert_eq!((counts.adds, counts.failed_adds, counts.dels, counts.failed_dels), (40, 1, 1, 0));
        let times: Vec<u64> = slowest.iter().map(|it| it.microseconds / 1000).collect();
        assert_eq!(times, [19, 19, 18, 18, 17, 17, 16, 16, 15, 15, 14, 14, 13, 13, 12, 12]);
        let later = calls.summary(at(425)).1;
        assert!(later.iter().all(|it| it.holder.container.parse::<u64>().unwrap() >= 25), "{later:?}");
        calls.added(at(1000), 0, Duration::from_millis(1), || holder(99));
        assert_eq!(calls.summary(at(1000)).1.len(), 1, "the others are old");
    }
}
