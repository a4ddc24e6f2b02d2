//! This node's slices of Whereabouts' ranges: from the slices' own `IPPool`s to blocks of the node, and from the node's holds back to
//! the `IPPool`s.
//!
//! ```text
//!   own IPPools ──watched──▶ known ──claims, reads, tells──▶ Node ──read, a while after a change──▶ own IPPools
//!                             take: the slice's own IPPool (claimed, adopted), the whole range's (reserved)
//! ```
//!
//! `NodeSlicePool`s have the slices of all nodes. No node watches them: the controller tells each node of its slices in the slices' own
//! `IPPool`s ([`tenure_whereabouts::slices::Given`]), so what a node hears does not grow with the cluster. Whose a slice is decides the
//! `NodeSlicePool`, which a node asks when it takes the slice.
//!
//! | module | owns |
//! |---|---|
//! | `known` | which slices are this node's; the node learns at once of one that no longer is |
//! | `why` | why there is no slice, for the errors of ADDs |
//! | `claim` | makes a slice's object name its owner before anything is assigned from it |
//! | `take` | reads what must be known before anything is assigned from a slice, and addresses that come back later |
//! | `write` | the slices' records, written asynchronously: exact again soon after the last change |
//! | `pods` | holds that only the API can confirm |
//!
//! What it promises: an ADD and a DEL make no call to the API server. The node's holds are the truth; their records are made
//! equal to them, even if somebody edited or deleted them, and however long the API server was down. Invalid records stay. If
//! the kinds are missing, nothing is sliced until they appear. A slice that cannot be taken, because of a quota, a webhook or a
//! missing right, delays only the pods of its own network, and their errors say why.

mod claim;
mod known;
mod pods;
mod take;
mod why;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, Client};
use tenure_api::read::Read;
use tenure_api::whereabouts::{IPPool, label};
use tenure_cni::Failure;
use tenure_handles::Clock;
use tenure_ipam::Cidr;
use tenure_watch::{ApiHealth, Cache, CallError, Connection, LOOK_FOR_KIND, Seen};
use tokio::sync::{Notify, RwLock, watch};
use tokio_util::sync::CancellationToken;

use crate::drive::Handle;
use crate::node::{Action, Event};
use crate::objects::lock;
use crate::objects::watch::{Watching, watch};
use crate::part::Inspect;
use crate::sources::BlockSource;
use known::{GivenSlice, Taken, Unsaid};
use why::Explained;

/// What the node's pools of slices are called: this, and the name of the `NodeSlicePool`. No `AddressPool` has a slash.
pub const POOLS: &str = "whereabouts/";

/// The records of this node's slices.
const OWN_RECORDS: &str = "IPPools of this node";
/// No watch, but the writes of those records.
const RECORD_WRITES: &str = "written IPPools of this node";

/// What the node waits for at a start.
pub const SOURCE: &str = "its slices from the API server";

/// The options for slices.
#[derive(Clone, Debug)]
pub struct SlicesOptions {
    /// The name of this node, as slices name it.
    pub node: String,
    /// The namespace of `NodeSlicePool`s and `IPPool`s.
    pub namespace: String,
    /// How long after a change the record of a slice is written: one write covers all changes until then.
    pub debounce: Duration,
    /// How long an ADD waits for a slice that does not exist yet, in case the watch is behind.
    pub patience: Duration,
    /// How long a call to the API server is retried before it is planned again from the current state.
    pub call_patience: Duration,
    /// How often the whole range's records are read while they reserve addresses of a slice, and how long it stays explained why
    /// there is no slice.
    pub look_again: Duration,
    /// How often the pods are checked for holds that can be confirmed in no other way. After two negative
    /// checks they are released.
    pub look_at_pods: Duration,
}

impl SlicesOptions {
    /// The defaults.
    pub fn new(node: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            namespace: namespace.into(),
            debounce: Duration::from_secs(1),
            patience: Duration::from_secs(2),
            call_patience: Duration::from_secs(5),
            look_again: Duration::from_secs(10),
            look_at_pods: Duration::from_mins(1),
        }
    }
}

/// A slice of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The node's pool: what an ADD names.
    pub pool: String,
    /// The slice.
    pub cidr: Cidr,
    /// `network_name`, as the `NodeSlicePool` has it; empty for the network without one.
    pub network: String,
}

/// This node's slices. Cheap to clone.
#[derive(Clone)]
pub struct Slices {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Slices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slices").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// Shared by all parts.
struct Shared {
    connection: Connection,
    options: SlicesOptions,
    clock: Arc<dyn Clock>,
    node: Handle,
    stop: CancellationToken,
    state: Mutex<State>,
    /// Signals that slices came or went.
    changed: watch::Sender<u64>,
    /// Signals that something may have to be written.
    dirty: Notify,
    /// The writer has it exclusively. Taking a slice shares it, from claiming the object until the node is
    /// told.
    writing: RwLock<()>,
    /// Why there are no slices.
    explained: Explained,
}

/// What is known.
#[derive(Default)]
struct State {
    /// By the name of the `NodeSlicePool`: slices that this node's `IPPool`s say are its own.
    given: BTreeMap<String, GivenSlice>,
    /// By the name of the `IPPool`: what the `NodeSlicePool` says of those that say nothing.
    unsaid: BTreeMap<String, Unsaid>,
    /// By the name of the `NodeSlicePool`: slices that the node was told of.
    taken: BTreeMap<String, Taken>,
    /// This node's `IPPool`s.
    records: Cache<Seen<IPPool>>,
    /// By the name of the `NodeSlicePool`: slices that could not be taken so far, and why. Nothing else waits for them.
    aside: BTreeMap<String, String>,
    /// Names of `IPPool`s that this process has made equal to the node's holds, or is about to.
    managed: BTreeSet<String>,
    /// Whether the first lists are in.
    listed: bool,
    /// Whether the node was told that they are.
    told: bool,
    /// The number of the last slice taken: part of its UID.
    last_taken: u64,
}

impl Slices {
    /// Begins to watch until `stop`, and tells the node of its slices. After the existing ones it sends
    /// [`Event::SourceRead`] once, for which a node waits that has [`SOURCE`] in its
    /// [`Settings::sources`](crate::node::Settings::sources). The caller must pass the node its journal: this asks the node which slices it had. Needs a
    /// tokio runtime around it.
    pub fn start(
        client: Client,
        options: SlicesOptions,
        clock: impl Clock,
        node: Handle,
        stop: CancellationToken,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let connection =
            Connection::named(client, Arc::clone(&clock), &format!("slices of {}", options.node));
        connection.health().expect(OWN_RECORDS);
        let shared = Arc::new(Shared {
            connection,
            options,
            clock,
            node,
            stop,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            dirty: Notify::new(),
            writing: RwLock::default(),
            explained: Explained::default(),
        });
        shared.watch_all();
        shared.spawn(Arc::clone(&shared).write_behind());
        shared.spawn(Arc::clone(&shared).look_again());
        shared.spawn(Arc::clone(&shared).look_at_pods());
        Self { shared }
    }

    /// This node's slice of a `NodeSlicePool`, or why there is none. Waits briefly if the watch is behind.
    pub async fn slice(&self, node_slice_pool: &str) -> Result<Slice, Failure> {
        let mut changed = self.shared.changed.subscribe();
        let found = async {
            loop {
                if let Some(slice) = self.shared.taken_slice(node_slice_pool) {
                    return slice;
                }
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(self.shared.options.patience, found).await {
            Ok(found) => Ok(found),
            Err(_) => Err(self.shared.no_slice(node_slice_pool).await),
        }
    }

    /// How watches and writes are. What is owned is handed out also while they do not work.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

impl BlockSource for Slices {
    /// Nobody asks for a slice or returns one: they are divided before anyone needs them. What concerns people is reported like that of other
    /// pools.
    fn has(&self, _: &str) -> bool {
        false
    }

    fn carry_out(&self, action: Action) {
        tracing::error!(?action, "this action does not concern slices");
    }

    fn read_at_start(&self) -> Option<&'static str> {
        Some(SOURCE)
    }

    fn recorded(&self, block_uid: &str) {
        if take::is_uid_of_slice(block_uid) {
            self.shared.dirty.notify_one();
        }
    }
}

impl Inspect for Slices {
    fn health(&self) -> Option<ApiHealth> {
        Some(Self::health(self))
    }
}

impl Watching for Shared {
    const MAY_BE_MISSING: Option<Duration> = Some(LOOK_FOR_KIND);

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn all_listed(self: &Arc<Self>) {
        lock(&self.state).listed = true;
        self.tell_leftovers();
        self.tell_if_all_read();
    }
}

impl Shared {
    fn watch_all(self: &Arc<Self>) {
        let own = watcher::Config::default().labels(&format!("{}={}", label::NODE, self.options.node));
        let keep = |record: &IPPool| Some(record.clone());
        let hear = |shared: &Arc<Self>, heard| shared.hear_record(heard);
        self.spawn(watch(Arc::clone(self), OWN_RECORDS, self.api::<Read<IPPool>>(), own, keep, hear));
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.connection.client(), &self.options.namespace)
    }

    /// Makes a call for as long as it is insisted on.
    async fn insist<T, F>(&self, act: impl Fn() -> String, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        self.connection.insist(self.options.call_patience, act, call).await
    }

    /// Runs a background task until it or the agent ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(task).await });
    }

    fn taken_slice(&self, name: &str) -> Option<Slice> {
        let state = lock(&self.state);
        let taken = state.taken.get(name)?;
        let (cidr, network) = (taken.id.range, taken.id.network.clone());
        Some(Slice { pool: pool_of(name), cidr, network })
    }

    /// The node assigns nothing before its holds are known: tells it as soon as they are. The holds in a
    /// slice that cannot be taken are unknown, and nothing is assigned from it; the others do not wait for
    /// that.
    fn tell_if_all_read(&self) {
        let mut state = lock(&self.state);
        let known = |name: &str| state.taken.contains_key(name) || state.aside.contains_key(name);
        let waits = state.given.keys().any(|name| !known(name))
            || state.unsaid.values().any(|answer| matches!(answer, Unsaid::Asked));
        if state.listed && !waits && !state.told {
            state.told = true;
            self.node.tell(Event::SourceRead { source: SOURCE });
            self.dirty.notify_one();
        }
    }
}

/// The node's pool of the slices of a `NodeSlicePool`.
fn pool_of(name: &str) -> String {
    format!("{POOLS}{name}")
}

/// The realm of a network's addresses.
fn realm_of(network: &str) -> String {
    format!("{POOLS}{network}")
}

#[cfg(test)]
mod tests;
