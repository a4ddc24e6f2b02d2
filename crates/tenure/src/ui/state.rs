//! What is known of the system at present, kept up to date by watches and by agents' answers, and who is told when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use jiff::Timestamp;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{Egress, EgressClients};
use tenure_view::Node;
use tenure_watch::Health;
use tokio::sync::watch;

use super::index::Index;
use super::pieces;
use crate::check::Findings;
use crate::snapshot::{self, Snapshot};

/// What a page is about. A page is written again only if its topic changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Pools,
    Nodes,
    Claims,
    Egresses,
    NodeAddresses,
    Aliases,
    Findings,
}

/// How many topics there are.
const TOPICS: usize = 7;

/// The present state.
pub(super) struct State {
    pub(super) snapshot: Snapshot,
    pub(super) claims: Vec<IPAMClaim>,
    pub(super) egresses: Vec<Egress>,
    pub(super) clients: Vec<EgressClients>,
    pub(super) nodes: Vec<super::feed::NodeName>,
    pub(super) index: Index,
    /// The differences that `check` found twice.
    pub(super) findings: Option<Findings>,
    /// When it last compared.
    pub(super) checked: Option<Timestamp>,
    versions: [u64; TOPICS],
}

/// The state, and what its watchers share.
pub(super) struct Shared {
    state: RwLock<State>,
    changed: watch::Sender<u64>,
    /// How many pages are open.
    pub(super) viewers: watch::Sender<usize>,
    /// Nodes whose agents are to be asked soon, because something changed there.
    hurried: Mutex<BTreeSet<String>>,
    /// The health of the watches.
    pub(super) health: Arc<Health>,
}

/// An open page; while there is one, agents are asked.
pub(super) struct Viewer(Arc<Shared>);

impl Viewer {
    /// One more.
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        shared.viewers.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Shared {
    /// Nothing is known yet.
    pub(super) fn new(health: Arc<Health>) -> Self {
        let state = State {
            snapshot: Snapshot::empty(snapshot::now()),
            claims: Vec::new(),
            egresses: Vec::new(),
            clients: Vec::new(),
            nodes: Vec::new(),
            index: Index::default(),
            findings: None,
            checked: None,
            versions: [0; TOPICS],
        };
        Self {
            state: RwLock::new(state),
            changed: watch::Sender::new(0),
            viewers: watch::Sender::new(0),
            hurried: Mutex::default(),
            health,
        }
    }

    /// Reads the state.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells those that wait for changes.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.snapshot.now = snapshot::now();
        let done = change(&mut state);
        drop(state);
        self.changed.send_modify(|version| *version += 1);
        done
    }

    /// Asks for the agent of a node soon.
    pub(super) fn hurry(&self, node: &str) {
        self.hurried.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned());
    }

    /// The nodes whose agents are to be asked soon, once.
    pub(super) fn take_hurried(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.hurried.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of changes from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl State {
    /// Something about a topic changed.
    pub(super) fn touch(&mut self, topics: &[Topic]) {
        for topic in topics {
            self.versions[*topic as usize] += 1;
        }
    }

    /// The version of a topic.
    pub(super) fn version(&self, topic: Topic) -> u64 {
        self.versions[topic as usize]
    }

    /// What agents answered.
    pub(super) fn told(&mut self, answers: BTreeMap<String, Result<Node, String>>) {
        let mut changed = false;
        for (node, answer) in answers {
            let pieces = answer.as_ref().map(|told| pieces::of_agent(&node, told)).unwrap_or_default();
            self.index.say(("agent", node.clone()), pieces);
            changed |= self.snapshot.agents.get(&node) != Some(&answer);
            self.snapshot.agents.insert(node, answer);
        }
        if changed {
            self.touch(&[Topic::Pools, Topic::Nodes]);
        }
    }

    /// Agents of other nodes are gone.
    pub(super) fn only_agents_of(&mut self, nodes: &BTreeSet<String>) {
        self.snapshot.agents.retain(|node, _| nodes.contains(node));
        self.index.keep_only("agent", nodes);
    }
}
