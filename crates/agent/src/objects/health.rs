//! How the connection to the API server is, as it is known and not as it is hoped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_handles::{Clock, Timestamp};

/// A watch that fails says so at least this often; it says nothing when it works again and nothing happens.
const BROKEN: Duration = Duration::from_secs(15);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// All pools.
    Pools,
    /// The blocks of this node.
    OwnBlocks,
    /// The requests of this node.
    OwnRequests,
    /// The annotations of all namespaces.
    Namespaces,
    /// The object of this node.
    OwnNode,
    /// The blocks of all nodes.
    AllBlocks,
    /// The addresses of all nodes.
    AllNodes,
    /// All pools of slices.
    SlicePools,
    /// The records of this node's slices.
    OwnRecords,
    /// No watch, but the writes of those records.
    RecordWrites,
    /// The metadata of this node's pods.
    OwnPods,
    /// All claims.
    Claims,
    /// All networks that pods may name.
    Networks,
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pools => "AddressPools",
            Self::OwnBlocks => "AddressBlocks of this node",
            Self::OwnRequests => "BlockRequests of this node",
            Self::Namespaces => "Namespaces",
            Self::OwnNode => "Node of this node",
            Self::AllBlocks => "AddressBlocks of all nodes",
            Self::AllNodes => "Nodes",
            Self::SlicePools => "NodeSlicePools",
            Self::OwnRecords => "IPPools of this node",
            Self::RecordWrites => "written IPPools of this node",
            Self::OwnPods => "Pods of this node",
            Self::Claims => "IPAMClaims",
            Self::Networks => "NetworkAttachmentDefinitions",
        })
    }
}

/// How the connection to the API server is. Only [`complete`](Self::complete) matters for serving: what is owned is
/// handed out also while the API server is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectsHealth {
    /// Whether every first list has come in.
    pub complete: bool,
    /// When the API server last answered anything.
    pub last_answer: Option<Timestamp>,
    /// How each watch is.
    pub watches: BTreeMap<Watched, WatchHealth>,
}

/// How a watch is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchHealth {
    /// Whether its first list has come in.
    pub listed: bool,
    /// When it last brought anything.
    pub last_heard: Option<Timestamp>,
    /// Why it fails, if it does.
    pub failing: Option<String>,
    /// How many objects are there and cannot be read.
    pub unreadable: usize,
}

impl ObjectsHealth {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.complete &= other.complete;
        self.last_answer = self.last_answer.max(other.last_answer);
        self.watches.extend(other.watches);
        self
    }

    /// Whether all watches work, as far as anyone knows.
    pub fn works(&self) -> bool {
        self.complete && self.watches.values().all(|watch| watch.failing.is_none())
    }
}

/// Where what is known is gathered.
pub(crate) struct Gauge {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_answer: Option<Timestamp>,
    watches: BTreeMap<Watched, Watch>,
    /// The first lists that have not come in.
    missing: BTreeSet<Watched>,
}

#[derive(Default)]
struct Watch {
    last_heard: Option<Timestamp>,
    failed: Option<(Timestamp, String)>,
    unreadable: usize,
}

impl Gauge {
    /// Nothing of `watched` is known yet.
    pub(crate) fn new(clock: Arc<dyn Clock>, watched: &[Watched]) -> Self {
        let watches = watched.iter().map(|watched| (*watched, Watch::default())).collect();
        let missing = watched.iter().copied().collect();
        Self { clock, state: Mutex::new(State { last_answer: None, watches, missing }) }
    }

    /// One more watch begins.
    pub(crate) fn begin(&self, watched: Watched) {
        let mut state = self.state();
        state.watches.entry(watched).or_default();
        state.missing.insert(watched);
    }

    /// The API server answered a call.
    pub(crate) fn answered(&self) {
        self.state().last_answer = Some(self.clock.now());
    }

    /// A watch brought something.
    pub(crate) fn heard(&self, watched: Watched) {
        let now = self.clock.now();
        let mut state = self.state();
        state.last_answer = Some(now);
        let watch = state.watches.entry(watched).or_default();
        (watch.last_heard, watch.failed) = (Some(now), None);
    }

    /// So many objects of a watch cannot be read.
    pub(crate) fn unreadable(&self, watched: Watched, count: usize) {
        self.state().watches.entry(watched).or_default().unreadable = count;
    }

    /// A watch failed.
    pub(crate) fn failed(&self, watched: Watched, error: String) {
        let now = self.clock.now();
        self.state().watches.entry(watched).or_default().failed = Some((now, error));
    }

    /// A list of a watch has come in. Says yes once: when it was the last first one.
    pub(crate) fn listed(&self, watched: Watched) -> bool {
        let mut state = self.state();
        state.missing.remove(&watched) && state.missing.is_empty()
    }

    pub(crate) fn health(&self) -> ObjectsHealth {
        let (now, state) = (self.clock.now(), self.state());
        let watch = |(watched, watch): (&Watched, &Watch)| {
            let failing = watch.failed.as_ref().filter(|(at, _)| now.since(*at) < BROKEN);
            let listed = !state.missing.contains(watched);
            let failing = failing.map(|(_, error)| error.clone());
            (
                *watched,
                WatchHealth { listed, last_heard: watch.last_heard, failing, unreadable: watch.unreadable },
            )
        };
        ObjectsHealth {
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
        let gauge = Gauge::new(Arc::new(ManualClock::default()), &[Watched::Pools, Watched::OwnBlocks]);
        assert!(!gauge.listed(Watched::Pools));
        assert!(!gauge.listed(Watched::Pools));
        assert!(!gauge.health().complete);
        assert!(gauge.listed(Watched::OwnBlocks));
        assert!(!gauge.listed(Watched::OwnBlocks), "a later list is no first one");
        assert!(gauge.health().complete);
    }

    #[test]
    fn a_watch_that_fails_says_why_until_it_is_heard_again_or_silent_for_long() {
        let clock = Arc::new(ManualClock::default());
        let gauge = Gauge::new(clock.clone(), &[Watched::Pools]);
        gauge.listed(Watched::Pools);
        gauge.failed(Watched::Pools, "connection refused".into());
        let health = gauge.health();
        assert_eq!(health.watches[&Watched::Pools].failing.as_deref(), Some("connection refused"));
        assert!(!health.works() && health.complete && health.last_answer.is_none());
        gauge.heard(Watched::Pools);
        assert!(gauge.health().works() && gauge.health().last_answer.is_some());
        gauge.failed(Watched::Pools, "again".into());
        clock.advance(BROKEN);
        assert!(gauge.health().works());
    }
}
