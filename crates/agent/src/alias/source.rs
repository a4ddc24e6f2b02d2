//! This node's alias ranges: from its `NodeAliases`, its machine's metadata and its pods to blocks of the node, and from the node's
//! requests to the spec of the `NodeAliases`.
//!
//! ```text
//!   IPPools, NodeAliases ──watched──┐
//!   instance metadata ──long poll───┼──▶ state (decides) ──events──▶ Node
//!   markers of own pods ──watched───┘      │    ▲                     │
//!                                          ▼    └──── asks, returns ──┘
//!                                        write: one guarded write for all that changed
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tenure_api::claims::annotation::CLAIM;
use tenure_api::cloud::{AliasPool, NodeAliases, NodeAliasesSpec, NodeAliasesStatus, annotation};
use tenure_api::read::Read;
use tenure_cloud::gcp::{self, Metadata};
use tenure_handles::Clock;
use tenure_ipam::{Address, Cidr};
use tenure_watch::{ApiHealth, Cache, CallError, Connection, Heard, LOOK_FOR_KIND, Seen};
use tokio::sync::{Notify, watch as watch_channel};
use tokio_util::sync::CancellationToken;

use super::facts::KnownPool;
use super::marks::Marks;
use super::state::{PoolChoice, State, key_of};
use crate::drive::Handle;
use crate::key::Pod;
use crate::node::{Action, Node, Report};
use crate::objects::lock;
use crate::objects::watch::{Watching, watch};
use crate::part::Inspect;
use crate::pods::Pods;
use crate::sources::BlockSource;

/// All pools of alias ranges.
const ALIAS_POOLS: &str = "IPPools of alias ranges";
/// The alias ranges of this node.
const OWN_ALIASES: &str = "NodeAliases of this node";
/// Pods of this node that will ask for an address soon.
const EXPECTED_PODS: &str = "pending Pods of this node";

/// How long the metadata server may wait for a change.
const LONG_POLL: Duration = Duration::from_mins(1);
/// How long a refused request counts that the node does not repeat. It repeats those that it needs every minute.
const PATROL: Duration = Duration::from_mins(2);
/// The least time between two answers of the metadata server that say the same.
const SAME_AGAIN: Duration = Duration::from_millis(200);

/// How alias addresses are given to pods.
#[derive(Clone, Debug)]
pub struct AliasOptions {
    /// The pool.
    pub pool: PoolChoice,
    /// The host of the machine's metadata server.
    pub metadata: String,
    /// How long a write waits for more to write.
    pub debounce: Duration,
    /// How long a call to the API server is retried before waiting pods are told.
    pub patience: Duration,
}

impl Default for AliasOptions {
    fn default() -> Self {
        Self {
            pool: PoolChoice::Only,
            metadata: "metadata.google.internal".to_owned(),
            debounce: Duration::from_millis(50),
            patience: Duration::from_secs(5),
        }
    }
}

/// This node's alias ranges. Cheap to clone.
#[derive(Clone)]
pub struct Aliases {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Aliases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aliases").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// A pool that pods get addresses of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// Its name.
    pub(super) name: String,
    /// The node's name for it.
    pub(super) key: String,
    known: KnownPool,
}

impl Pool {
    /// The range of an address.
    pub(super) fn range_of(&self, address: Address) -> Option<Cidr> {
        self.known.range_of(address)
    }

    /// Whether its addresses can move.
    pub(super) fn moves(&self) -> bool {
        self.known.moves
    }
}

/// This node's object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownObject {
    spec: NodeAliasesSpec,
    status: Option<NodeAliasesStatus>,
    /// Changes with the spec, and not with the status.
    pub(super) generation: Option<i64>,
}

/// Shared by all parts.
pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) options: AliasOptions,
    pub(super) name: String,
    node: Handle,
    pods: Pods<Marks>,
    stop: CancellationToken,
    pools: Mutex<Cache<Seen<Result<KnownPool, String>>>>,
    pub(super) objects: Mutex<Cache<Seen<KnownObject>>>,
    /// Pods that will ask for any address.
    expected: Mutex<Cache<Seen<String>>>,
    pub(super) state: Mutex<State>,
    /// Signals that something has to be written.
    pub(super) dirty: Notify,
    /// Signals that other pods may be leaving with an alias range.
    marks: Arc<Notify>,
    /// Counts what is heard.
    heard: watch_channel::Sender<u64>,
}

impl Aliases {
    /// Begins to watch until `stop`, and tells the node of its alias ranges. After the existing ones it sends
    /// [`Event::SourceRead`](crate::node::Event::SourceRead) once. Needs a tokio runtime around it.
    pub fn start(
        client: Client,
        name: &str,
        options: AliasOptions,
        clock: impl Clock,
        (node, pods): (Handle, Pods),
        stop: CancellationToken,
    ) -> Self {
        let connection = Connection::named(client, Arc::new(clock), &format!("alias ranges of {name}"));
        connection.health().expect(ALIAS_POOLS);
        connection.health().expect(OWN_ALIASES);
        connection.health().expect(EXPECTED_PODS);
        let shared = Arc::new(Shared {
            connection,
            name: name.to_owned(),
            node,
            pods: pods.keep(),
            stop,
            pools: Mutex::default(),
            objects: Mutex::default(),
            expected: Mutex::default(),
            state: Mutex::new(State::new(name.to_owned(), options.pool.clone())),
            dirty: Notify::new(),
            marks: Arc::default(),
            heard: watch_channel::Sender::new(0),
            options,
        });
        shared.watch_all();
        shared.spawn(Arc::clone(&shared).follow_machine());
        shared.spawn(Arc::clone(&shared).follow_marks());
        shared.spawn(Arc::clone(&shared).write_behind());
        shared.spawn(Arc::clone(&shared).patrol());
        Self { shared }
    }

    /// The pool in use, or why there is none.
    pub(super) fn pool(&self) -> Result<Pool, String> {
        let state = lock(&self.shared.state);
        state.pool().map(|(name, known)| Pool {
            name: name.to_owned(),
            key: key_of(name),
            known: known.clone(),
        })
    }

    /// Why a pod may be waiting: for this address, or for any.
    pub(super) fn trouble(&self, address: Option<Address>) -> Option<String> {
        lock(&self.shared.state).trouble(address)
    }

    /// Waits until packets for an address that a claim has arrive here. If they do not in time, says why, if that is known.
    pub(super) async fn reached(&self, address: Address, within: Duration) -> Result<(), Option<String>> {
        let mut heard = self.shared.heard.subscribe();
        let reaches = || lock(&self.shared.state).reaches(address);
        let there = heard.wait_for(|_| reaches().is_ok());
        match tokio::time::timeout(within, there).await {
            Ok(_) => Ok(()),
            Err(_) => reaches(),
        }
    }

    /// A pod is marked as moving out: what it holds is kept for it. The node knows that before any later event.
    pub(super) async fn leaves(&self, uid: &str) {
        let mut holds = self.shared.holds().await;
        holds.retain(|(_, pod)| pod.uid == uid);
        self.shared.act(|state| state.leave(holds));
    }

    /// How watches are.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

impl BlockSource for Aliases {
    fn has(&self, pool: &str) -> bool {
        pool.starts_with(super::POOLS)
    }

    fn read_at_start(&self) -> Option<&'static str> {
        Some(super::SOURCE)
    }

    fn carry_out(&self, action: Action) {
        match action {
            Action::AskForBlock { ask, pool, urgency } => {
                tracing::info!(pool, ?urgency, "requesting an alias range");
                self.shared.act(|state| state.ask(ask));
            }
            Action::ReturnBlock { name, uid, .. } => {
                tracing::info!(block = name, "returning an alias range");
                self.shared.act(|state| state.give_back(name, uid));
            }
            Action::Report(Report::Fenced { block, fence, holds, .. }) => {
                tracing::info!(
                    block,
                    ?fence,
                    holds = holds.len(),
                    "an alias range assigns no more addresses"
                );
            }
            Action::Report(Report::PoolRefused { pool, message }) => {
                tracing::warn!(pool, message, "no alias range from this pool");
            }
            Action::Report(report) => tracing::info!(?report, "alias ranges"),
            // The controller does not mark alias ranges.
            other => tracing::error!(action = ?other, "this action does not concern alias ranges"),
        }
    }
}

impl Inspect for Aliases {
    fn health(&self) -> Option<ApiHealth> {
        Some(Self::health(self))
    }
}

impl Watching for Shared {
    const MAY_BE_MISSING: Option<Duration> = Some(LOOK_FOR_KIND);
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn all_listed(self: &Arc<Self>) {
        self.act(State::listed);
    }
}

impl Shared {
    fn watch_all(self: &Arc<Self>) {
        let client = self.connection.client();
        let pools: Api<Read<AliasPool>> = Api::all(client.clone());
        let keep = |pool: &AliasPool| Some(KnownPool::of(pool));
        let hear = |shared: &Arc<Self>, heard| shared.hear_pool(heard);
        let all = watcher::Config::default();
        self.spawn(watch(Arc::clone(self), ALIAS_POOLS, pools, all, keep, hear));

        // A pod is known here long before its ADD, so the cloud is asked once for pods that come together.
        let pods: Api<Read<PartialObjectMeta<core::Pod>>> = Api::all(client.clone());
        let keep = |pod: &PartialObjectMeta<core::Pod>| {
            let by_name = [annotation::ADDRESS, CLAIM].iter().any(|it| pod.annotations().contains_key(*it));
            pod.uid().filter(|_| !by_name && pod.metadata.deletion_timestamp.is_none())
        };
        let hear = |shared: &Arc<Self>, heard| shared.hear_expected(heard);
        let fields = format!("spec.nodeName={},spec.hostNetwork!=true,status.phase=Pending", self.name);
        let own = watcher::Config::default().fields(&fields);
        self.spawn(watch(Arc::clone(self), EXPECTED_PODS, pods, own, keep, hear));

        let objects: Api<Read<NodeAliases>> = Api::all(client);
        let keep = |object: &NodeAliases| Some(KnownObject::of(object));
        let hear = |shared: &Arc<Self>, heard| shared.hear_object(heard);
        let own = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        self.spawn(watch(Arc::clone(self), OWN_ALIASES, objects, own, keep, hear));
    }

    fn hear_pool(&self, heard: Heard<Result<KnownPool, String>>) {
        let mut pools = lock(&self.pools);
        for change in pools.hear(heard) {
            let (key, pool) = match change {
                tenure_watch::Change::Seen { key, value, .. } => (key, Some(value)),
                tenure_watch::Change::Gone { key, .. } => (key, None),
            };
            if let Some(Err(why)) = &pool {
                tracing::warn!(pool = key, why, "an alias pool cannot be used");
            }
            self.act(|state| state.pool_seen(&key, pool));
        }
    }

    fn hear_expected(&self, heard: Heard<String>) {
        let mut expected = lock(&self.expected);
        if !expected.hear(heard).is_empty() {
            let pods = expected.iter().map(|pod| pod.facts.clone()).collect();
            self.act(|state| state.expect(pods));
        }
    }

    pub(super) fn hear_object(&self, heard: Heard<KnownObject>) {
        let mut objects = lock(&self.objects);
        if !objects.hear(heard).is_empty() {
            let known = objects.facts(&self.name).map(|known| (known.spec.clone(), known.status.clone()));
            self.act(|state| state.object_seen(known));
        }
    }

    /// Changes what is known, and tells the node what follows, in order.
    pub(super) fn act(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        for event in state.take_events() {
            self.node.tell(event);
            // A mark that was heard of before the node knew the range was not noted.
            self.marks.notify_one();
        }
        if state.unwritten().is_some() {
            self.dirty.notify_one();
        }
        drop(state);
        self.heard.send_modify(|heard| *heard += 1);
    }

    /// Follows what the machine's host knows of its alias ranges.
    async fn follow_machine(self: Arc<Self>) {
        let metadata = Metadata::at(&self.options.metadata);
        let (mut known, mut backoff): (Option<gcp::Aliases>, _) = (None, self.connection.backoff());
        loop {
            // The node's start waits for the first answer, or for its absence.
            let wait = if known.is_some() { LONG_POLL } else { Duration::ZERO };
            match metadata.aliases(0, known.as_ref(), wait).await {
                Ok(aliases) => {
                    backoff.reset();
                    let same = known.as_ref().is_some_and(|known| known.etag == aliases.etag);
                    self.act(|state| state.machine_seen(Ok(aliases.ranges.clone())));
                    known = Some(aliases);
                    if same {
                        tokio::time::sleep(SAME_AGAIN).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the machine's alias ranges are not known at present");
                    self.act(|state| state.machine_seen(Err(error.to_string())));
                    backoff.wait().await;
                }
            }
        }
    }

    /// Follows which pods of this node are marked as moving out.
    async fn follow_marks(self: Arc<Self>) {
        self.pods.tell(Arc::clone(&self.marks));
        loop {
            self.marks.notified().await;
            self.mind_marks().await;
        }
    }

    async fn mind_marks(&self) {
        // A watch that is behind says nothing about who has ended.
        let Some(pods) = self.pods.all() else { return };
        let marked: BTreeMap<String, bool> =
            pods.values().map(|pod| (pod.uid.clone(), pod.facet.leaving)).collect();
        let any = marked.values().any(|marked| *marked);
        let holds = if any { self.holds().await } else { Vec::new() };
        self.act(|state| state.marks_seen(marked, holds));
    }

    /// Who holds which alias address.
    async fn holds(&self) -> Vec<(Address, Pod)> {
        let found = self.node.look(Node::holds).await.unwrap_or_default();
        let ours = found.into_iter().filter(|hold| hold.pool.starts_with(super::POOLS));
        let mut holds = Vec::new();
        for hold in ours {
            holds.extend(hold.addresses.iter().map(|address| (address, hold.pod.clone())));
        }
        holds
    }

    /// Forgets what nobody waits for any more.
    async fn patrol(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PATROL).await;
            self.act(State::patrol);
        }
    }

    pub(super) async fn insist<T, F>(
        &self,
        act: impl Fn() -> String,
        call: impl Fn() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        self.connection.insist(self.options.patience, act, call).await
    }

    /// Spawns a task that ends with the agent.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(task).await });
    }
}

impl KnownObject {
    pub(super) fn of(object: &NodeAliases) -> Self {
        let (spec, status) = (object.spec.clone(), object.status.clone());
        Self { spec, status, generation: object.metadata.generation }
    }
}
