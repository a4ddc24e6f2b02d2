//! What is known of the system at present, kept up to date by watches and by agents' answers, and who is told when it changes. `tenure
//! ui`, `watch` and `top` share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use jiff::Timestamp;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{Egress, EgressClients};
use tenure_view::Node;
use tenure_watch::Health;
use tokio::sync::{mpsc, watch};

use super::index::Index;
use super::pieces;
use crate::check::Findings;
use crate::snapshot::{self, Snapshot};
use crate::watch::news::{self, News};

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

/// Events that nobody has read yet; more are counted and left out.
const UNREAD: usize = 16_384;

/// The present state.
pub(crate) struct State {
    pub(crate) snapshot: Snapshot,
    pub(crate) claims: Vec<IPAMClaim>,
    pub(super) egresses: Vec<Egress>,
    pub(super) clients: Vec<EgressClients>,
    pub(super) nodes: Vec<super::feed::NodeName>,
    pub(super) index: Index,
    /// The differences that `check` found twice.
    pub(crate) findings: Option<Findings>,
    /// When it last compared.
    pub(super) checked: Option<Timestamp>,
    versions: [u64; TOPICS],
}

/// The state, and what its watchers share.
pub(crate) struct Shared {
    state: RwLock<State>,
    changed: watch::Sender<u64>,
    /// How many pages are open.
    pub(super) viewers: watch::Sender<usize>,
    /// Nodes whose agents are to be asked soon, because something changed there.
    hurried: Mutex<BTreeSet<String>>,
    /// The health of the watches.
    pub(crate) health: Arc<Health>,
    /// Whether everything is listed, and every agent was asked once.
    pub(crate) asked: watch::Sender<bool>,
    /// Who reads events, if anybody does.
    reader: OnceLock<mpsc::Sender<News>>,
    /// Events that were left out because nobody read them.
    pub(crate) lost: AtomicU64,
}

/// Somebody who looks; while there is one, agents are asked.
pub(crate) struct Viewer(Arc<Shared>);

impl Viewer {
    /// One more.
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
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
            asked: watch::Sender::new(false),
            reader: OnceLock::new(),
            lost: AtomicU64::new(0),
        }
    }

    /// Reads the state.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
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
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Events from now on, for one reader.
    pub(crate) fn listen(&self) -> mpsc::Receiver<News> {
        let (tell, told) = mpsc::channel(UNREAD);
        // A second reader would get nothing; there is none.
        let _ = self.reader.set(tell);
        told
    }

    /// Tells the reader, if there is one, and waits for nobody.
    pub(super) fn tell(&self, news: Vec<News>) {
        let Some(reader) = self.reader.get() else { return };
        for it in news {
            if reader.try_send(it).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
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

    /// What agents answered: the events in it.
    pub(super) fn told(&mut self, answers: BTreeMap<String, Result<Node, String>>) -> Vec<News> {
        let (mut changed, mut news) = (false, Vec::new());
        for (node, answer) in answers {
            let pieces = answer.as_ref().map(|told| pieces::of_agent(&node, told)).unwrap_or_default();
            self.index.say(("agent", node.clone()), pieces);
            changed |= self.snapshot.agents.get(&node) != Some(&answer);
            news::of_agent(&node, self.snapshot.agents.get(&node), &answer, &mut news);
            self.snapshot.agents.insert(node, answer);
        }
        if changed {
            self.touch(&[Topic::Pools, Topic::Nodes]);
        }
        news
    }

    /// Agents of other nodes are gone.
    pub(super) fn only_agents_of(&mut self, nodes: &BTreeSet<String>) {
        self.snapshot.agents.retain(|node, _| nodes.contains(node));
        self.index.keep_only("agent", nodes);
    }
}
