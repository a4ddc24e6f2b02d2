//! The health of a connection to the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_handles::{Clock, Timestamp};

/// A failing watch reports each failed try. One that works again may stay silent, so a failure expires this long after the next
/// try is due.
const TRIED: Duration = Duration::from_secs(5);

/// The health of a connection to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiHealth {
    /// Whether all expected first lists are complete.
    pub complete: bool,
    /// When the API server last answered anything.
    pub last_answer: Option<Timestamp>,
    /// The health of each watch.
    pub watches: BTreeMap<&'static str, WatchHealth>,
}

/// The health of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchHealth {
    /// Whether its first list is complete.
    pub listed: bool,
    /// When it last received anything.
    pub last_heard: Option<Timestamp>,
    /// Why it fails, if it does.
    pub failing: Option<String>,
    /// Whether its kind is not defined in the cluster. That is no failure.
    pub lacks_kind: bool,
    /// The number of objects that cannot be parsed.
    pub unreadable: usize,
}

impl ApiHealth {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.complete &= other.complete;
        self.last_answer = self.last_answer.max(other.last_answer);
        self.watches.extend(other.watches);
        self
    }

    /// Whether all first lists are complete and no watch is known to fail.
    pub fn works(&self) -> bool {
        self.complete && self.watches.values().all(|watch| watch.failing.is_none())
    }
}

/// Collects the health of one connection.
pub struct Health {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_answer: Option<Timestamp>,
    watches: BTreeMap<&'static str, Watch>,
    /// Watches whose first list is not complete.
    missing: BTreeSet<&'static str>,
}

#[derive(Default)]
struct Watch {
    last_heard: Option<Timestamp>,
    /// Until when it counts as failing, unless it receives something before.
    failing: Option<(Timestamp, String)>,
    lacks_kind: bool,
    unreadable: usize,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Nothing is known yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// [`ApiHealth::complete`] waits for the first list of this watch.
    pub fn expect(&self, watch: &'static str) {
        let mut state = self.state();
        state.watches.entry(watch).or_default();
        state.missing.insert(watch);
    }

    /// The API server answered a call.
    pub fn answered(&self) {
        self.state().last_answer = Some(self.clock.now());
    }

    /// A watch received something.
    pub fn heard(&self, watch: &'static str) {
        self.hear(watch, false);
    }

    /// The API server answers that it does not know the kind.
    pub fn lacks_kind(&self, watch: &'static str) {
        self.hear(watch, true);
    }

    fn hear(&self, watch: &'static str, lacks_kind: bool) {
        let now = self.clock.now();
        let mut state = self.state();
        state.last_answer = Some(now);
        let watch = state.watches.entry(watch).or_default();
        (watch.last_heard, watch.failing, watch.lacks_kind) = (Some(now), None, lacks_kind);
    }

    /// This many objects of a watch cannot be parsed.
    pub fn unreadable(&self, watch: &'static str, count: usize) {
        self.state().watches.entry(watch).or_default().unreadable = count;
    }

    /// A watch failed and tries again after `wait`.
    pub fn failed(&self, watch: &'static str, error: String, wait: Duration) {
        let until = self.clock.now().plus(wait + TRIED);
        self.state().watches.entry(watch).or_default().failing = Some((until, error));
    }

    /// A list is complete. Returns true once: for the last expected first list.
    pub fn listed(&self, watch: &'static str) -> bool {
        let mut state = self.state();
        state.missing.remove(watch) && state.missing.is_empty()
    }

    /// The watch has ended.
    pub fn ended(&self, watch: &'static str) {
        self.state().watches.remove(watch);
    }

    /// The current health.
    pub fn look(&self) -> ApiHealth {
        let (now, state) = (self.clock.now(), self.state());
        let watch = |(name, watch): (&&'static str, &Watch)| {
            let failing = watch.failing.as_ref().filter(|(until, _)| now < *until);
            let health = WatchHealth {
                listed: !state.missing.contains(name),
                last_heard: watch.last_heard,
                failing: failing.map(|(_, error)| error.clone()),
                lacks_kind: watch.lacks_kind,
                unreadable: watch.unreadable,
            };
            (*name, health)
        };
        ApiHealth {
            complete: state.missing.is_empty(),
            last_answer: state.last_answer,
            watches: state.watches.iter().map(watch).collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tenure_handles::ManualClock;

    use super::*;

    #[test]
    fn the_last_first_list_is_told_once() {
        let health = Health::new(Arc::new(ManualClock::default()));
        health.expect("pools");
        health.expect("blocks");
        assert!(!health.listed("pools"));
        assert!(!health.listed("pools"));
        assert!(!health.look().complete);
        assert!(health.listed("blocks"));
        assert!(!health.listed("blocks"), "a later list is no first one");
        assert!(health.look().complete);
    }

    #[test]
    fn a_watch_that_fails_says_why_until_it_is_heard_again_or_silent_for_long() {
        let clock = Arc::new(ManualClock::default());
        let health = Health::new(clock.clone());
        health.failed("pools", "connection refused".into(), Duration::from_secs(10));
        let known = health.look();
        assert_eq!(known.watches["pools"].failing.as_deref(), Some("connection refused"));
        assert!(!known.works() && known.complete && known.last_answer.is_none());
        health.heard("pools");
        assert!(health.look().works() && health.look().last_answer.is_some());
        health.failed("pools", "again".into(), Duration::from_mins(1));
        clock.advance(Duration::from_mins(1));
        assert!(!health.look().works(), "it was asked to wait so long");
        clock.advance(TRIED);
        assert!(health.look().works());
    }

    #[test]
    fn a_kind_that_is_not_defined_is_no_failure() {
        let health = Health::new(Arc::new(ManualClock::default()));
        health.failed("claims", "connection refused".into(), Duration::from_secs(10));
        health.lacks_kind("claims");
        assert!(health.look().works() && health.look().watches["claims"].lacks_kind);
        health.heard("claims");
        assert!(!health.look().watches["claims"].lacks_kind);
    }
}
