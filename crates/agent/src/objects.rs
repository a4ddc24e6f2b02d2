//! The agent's use of the API server.
//!
//! | module | owns |
//! |---|---|
//! | `watch`, `watched` | a watch of one kind: what is kept of its objects, and its name |
//! | `facts` | translates Kubernetes objects into the node's events |
//! | `asks` | block requests, from the node's wish to the deletion of the request |
//! | `returns`, `keeps` | returning blocks, and keeping those that somebody wants to release |
//! | `resolver` | which pool a pod's addresses come from |
//! | `remote` | other nodes' blocks and claims, for hosts without a routing daemon |
//! | `reports` | reports to people, as log lines and as Kubernetes events |
//!
//! The agent watches only what this node needs: pools, namespaces' annotations, and its own blocks. It reads its own requests. Nothing
//! here grows with the pods of the cluster.

mod asks;
mod facts;
mod keeps;
mod remote;
mod reports;
mod resolver;
mod returns;
pub(crate) mod watch;
pub mod watched;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tenure_api::coil::{AddressBlock, AddressPool, blocks_of_node};
use tenure_api::read::Read;
use tenure_handles::{Clock, Entropy};
use tenure_watch::{Cache, CallError, Change, Connection, Heard, Note, Publisher, Seen};
use tokio::sync::watch::Receiver;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

pub(crate) use remote::RemoteClaim;
pub use remote::{RemoteRoutes, with_lingering};
pub use resolver::Resolver;
pub use tenure_watch::{ApiHealth, WatchHealth};

use crate::node::{Action, Event, PoolFacts, SeenBlock};
use crate::sources::BlockSource;
use asks::Asks;
use remote::{NodeAddresses, Remote, RemoteBlock};
use watch::{Watching, watch};

/// The limit of events per agent and minute: there are many agents, and events are only help for people.
const EVENTS_A_MINUTE: usize = 40;

/// How the API server is used.
#[derive(Clone, Debug)]
pub struct ObjectsOptions {
    /// The name of this node, as its `Node` object has it.
    pub node: String,
    /// Also watch all nodes' blocks and addresses: see [`Objects::remote_routes`].
    pub remote_blocks: bool,
    /// Somebody reports which claims are on which node, and their addresses belong to these routes.
    pub remote_claims: bool,
    /// There is no Kubernetes: an ADD need not name a pod, and namespaces need not exist. Pods whose namespace names no pool
    /// get addresses from `default`.
    pub outside_kubernetes: bool,
    /// How long a call to the API server is retried: longer than a failover of the API server, shorter than a pod waits for its
    /// address.
    pub patience: Duration,
}

impl ObjectsOptions {
    /// The defaults for a node of a cluster.
    pub fn new(node: impl Into<String>) -> Self {
        let patience = Duration::from_secs(5);
        let node = node.into();
        Self { node, remote_blocks: false, remote_claims: false, outside_kubernetes: false, patience }
    }
}

/// The agent's use of the API server. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// A pool, or why it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownPool {
    Valid(PoolFacts),
    Invalid(String),
}

/// A block of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnBlock {
    /// What the node needs of it; `None` if it is invalid.
    seen: Option<SeenBlock>,
    /// The UID of the request that it answers.
    request: Option<String>,
}

/// What all parts share.
struct Shared {
    connection: Connection,
    options: ObjectsOptions,
    clock: Arc<dyn Clock>,
    tell: Box<dyn Fn(Event) + Send + Sync>,
    stop: CancellationToken,
    notes: mpsc::Sender<Note>,
    pools: Arc<Mutex<Cache<Seen<KnownPool>>>>,
    /// The pool that each namespace names, if it names one.
    namespaces: Arc<Mutex<Cache<Seen<Option<String>>>>>,
    own_blocks: Mutex<Cache<Seen<OwnBlock>>>,
    /// There may be requests of this node that nobody here knows.
    list_requests: Notify,
    /// Only the UID of this node's object matters.
    own_node: Mutex<Cache<Seen<()>>>,
    remote: Remote,
    asks: Mutex<Asks>,
}

impl Objects {
    /// Starts watching, until `stop`. Passes changes of pools and blocks to `tell`, those of one object in order, and
    /// [`Event::ApiRead`] once after all first lists. Needs a tokio runtime. `tell` must not block.
    pub fn start(
        client: Client,
        options: ObjectsOptions,
        clock: impl Clock,
        entropy: impl Entropy,
        tell: impl Fn(Event) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let (notes, noted) = mpsc::channel(256);
        let connection = Connection::new(client, Arc::clone(&clock), Arc::new(entropy));
        options.watched().iter().for_each(|watched| connection.health().expect(watched));
        let shared = Arc::new(Shared {
            connection,
            remote: Remote::new(options.node.clone()),
            options,
            clock,
            tell: Box::new(tell),
            stop,
            notes,
            pools: Arc::default(),
            namespaces: Arc::default(),
            own_blocks: Mutex::default(),
            list_requests: Notify::new(),
            own_node: Mutex::default(),
            asks: Mutex::default(),
        });
        shared.watch_all();
        shared.spawn(Arc::clone(&shared).list_requests());
        let node = &shared.options.node;
        let publisher = Publisher {
            component: "tenured",
            instance: node.clone(),
            host: Some(node.clone()),
            at_most: EVENTS_A_MINUTE,
        };
        shared.spawn(publisher.publish(shared.connection.clone(), Arc::clone(&shared.clock), noted));
        Self { shared }
    }

    /// Performs [`Action::AskForBlock`], [`Action::ReturnBlock`], [`Action::KeepBlock`] and [`Action::Report`]; others do not
    /// concern the API server. Returns at once; the result follows as an event.
    pub fn carry_out(&self, action: Action) {
        match action {
            Action::AskForBlock { ask, pool, urgency } => self.shared.ask(ask, pool, urgency),
            Action::ReturnBlock { name, uid, .. } => {
                self.shared.spawn(Arc::clone(&self.shared).give_back(name, uid));
            }
            Action::KeepBlock { name, uid, .. } => {
                self.shared.spawn(Arc::clone(&self.shared).keep(name, uid));
            }
            Action::Report(report) => self.shared.report(&report),
            other => tracing::error!(action = ?other, "this action does not concern the API server"),
        }
    }

    /// Publishes an event on a pod.
    pub(crate) fn warn_pod(&self, pod: &crate::key::Pod, reason: &'static str, message: String) {
        self.shared.warn_pod(pod, reason, message);
    }

    /// The resolver of pods' pools.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(&self.shared)
    }

    /// The state of the watches, and when the API server last answered. Owned blocks serve pods without it.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }

    /// The networks of other nodes' blocks, and the addresses of claims that pods of other nodes have, by gateway. Empty until
    /// all are known, and always if [`ObjectsOptions::remote_blocks`] is off. Each change replaces the whole.
    pub fn remote_routes(&self) -> Receiver<Option<RemoteRoutes>> {
        self.shared.remote.routes()
    }

    /// Which pod has a claim, if any, for [`Objects::remote_routes`].
    pub(crate) fn claim_seen(&self, uid: &str, claim: Option<RemoteClaim>) {
        self.shared.remote.claim_seen(uid, claim);
    }

    /// A claim's object is gone; its pod keeps its addresses.
    pub(crate) fn claim_gone(&self, uid: &str) {
        self.shared.remote.claim_gone(uid);
    }

    /// All claims are known.
    pub(crate) fn claims_listed(&self) {
        self.shared.remote.claims_listed();
    }
}

impl BlockSource for Objects {
    /// Whatever no other source has.
    fn has(&self, _: &str) -> bool {
        true
    }

    fn carry_out(&self, action: Action) {
        Self::carry_out(self, action);
    }
}

impl ObjectsOptions {
    fn watched(&self) -> &'static [&'static str] {
        const ALL: [&str; 7] = [
            watched::POOLS,
            watched::OWN_BLOCKS,
            watched::OWN_REQUESTS,
            watched::NAMESPACES,
            watched::OWN_NODE,
            watched::ALL_BLOCKS,
            watched::ALL_NODES,
        ];
        let own = ALL.len() - 2;
        if self.remote_blocks { &ALL } else { &ALL[..own] }
    }
}

impl Watching for Shared {
    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn all_listed(self: &Arc<Self>) {
        (self.tell)(Event::ApiRead);
    }
}

impl Shared {
    fn watch_all(self: &Arc<Self>) {
        let (client, node) = (self.connection.client(), &self.options.node);
        let all = watcher::Config::default;
        let pools: Api<Read<AddressPool>> = Api::all(client.clone());
        let keep = |pool: &AddressPool| {
            let known = facts::pool(pool).map_or_else(KnownPool::Invalid, KnownPool::Valid);
            Some(known)
        };
        let hear = |shared: &Arc<Self>, heard| shared.hear_pool(heard);
        self.spawn(watch(Arc::clone(self), watched::POOLS, pools, all(), keep, hear));

        let blocks: Api<Read<AddressBlock>> = Api::all(client.clone());
        let shared = Arc::clone(self);
        let keep = move |block: &AddressBlock| shared.own_block(block);
        let hear = |shared: &Arc<Self>, heard| shared.hear_block(heard);
        let own = all().labels(&blocks_of_node(node));
        self.spawn(watch(Arc::clone(self), watched::OWN_BLOCKS, blocks, own, keep, hear));

        let namespaces: Api<Read<PartialObjectMeta<Namespace>>> = Api::all(client.clone());
        let keep = |namespace: &PartialObjectMeta<Namespace>| Some(resolver::pool_of(namespace));
        let hear = |shared: &Arc<Self>, heard| drop(lock(&shared.namespaces).hear(heard));
        self.spawn(watch(Arc::clone(self), watched::NAMESPACES, namespaces, all(), keep, hear));

        let nodes: Api<Read<PartialObjectMeta<Node>>> = Api::all(client.clone());
        let keep = |_: &PartialObjectMeta<Node>| Some(());
        let hear = |shared: &Arc<Self>, heard| drop(lock(&shared.own_node).hear(heard));
        let own = all().fields(&format!("metadata.name={node}"));
        self.spawn(watch(Arc::clone(self), watched::OWN_NODE, nodes, own, keep, hear));

        if self.options.remote_blocks {
            self.watch_others();
        }
    }

    fn watch_others(self: &Arc<Self>) {
        let blocks: Api<Read<AddressBlock>> = Api::all(self.connection.client());
        let keep = RemoteBlock::of;
        let hear = |shared: &Arc<Self>, heard| {
            drop(lock(&shared.remote.blocks).hear(heard));
            shared.remote.look();
        };
        let all = watcher::Config::default;
        self.spawn(watch(Arc::clone(self), watched::ALL_BLOCKS, blocks, all(), keep, hear));

        let nodes: Api<Read<Node>> = Api::all(self.connection.client());
        let keep = |node: &Node| Some(NodeAddresses::of(node));
        let hear = |shared: &Arc<Self>, heard| {
            drop(lock(&shared.remote.nodes).hear(heard));
            shared.remote.look();
        };
        self.spawn(watch(Arc::clone(self), watched::ALL_NODES, nodes, all(), keep, hear));

        let shared = Arc::clone(self);
        self.spawn(async move { shared.remote.keep(shared.options.remote_claims).await });
    }

    fn hear_pool(&self, heard: Heard<KnownPool>) {
        // Sent under the lock, to keep the order in which it was received.
        let mut pools = lock(&self.pools);
        for change in pools.hear(heard) {
            (self.tell)(match change {
                Change::Seen { key: name, value: KnownPool::Valid(facts), .. } => {
                    Event::PoolChanged { name, facts }
                }
                Change::Seen { key: name, value: KnownPool::Invalid(why), .. } => {
                    tracing::warn!(pool = name, why, "a pool cannot be used");
                    Event::PoolGone { name }
                }
                Change::Gone { key: name, .. } => Event::PoolGone { name },
            });
        }
    }

    fn hear_block(self: &Arc<Self>, heard: Heard<OwnBlock>) {
        let mut answers = Vec::new();
        let mut blocks = lock(&self.own_blocks);
        let listed_again = matches!(heard, Heard::Finish) && blocks.is_complete();
        let is_new = match &heard {
            Heard::Applied(block, _) | Heard::Answered(_, block, _) => {
                blocks.uid(&block.key) != Some(&block.uid)
            }
            _ => false,
        };
        for change in blocks.hear(heard) {
            (self.tell)(match change {
                Change::Seen { key: name, uid, value: OwnBlock { seen, request } } => {
                    answers.extend(request.map(|request| (request, name.clone())));
                    seen.map_or(Event::BlockGone { name, uid }, Event::BlockSeen)
                }
                Change::Gone { key: name, uid } => Event::BlockGone { name, uid },
            });
        }
        drop(blocks);
        let mut look = listed_again;
        for (request, block) in answers {
            self.block_answers(&request, &block);
            look |= is_new && !self.asks().may_have(&request);
        }
        if look {
            self.list_requests.notify_one();
        }
    }

    /// What is kept of a block, if it is this node's.
    fn own_block(&self, block: &AddressBlock) -> Option<OwnBlock> {
        if block.node() != Some(&self.options.node) {
            return None;
        }
        let seen = facts::block(block);
        if let Err(why) = &seen {
            tracing::warn!(block = block.name_any(), why, "a block of this node is invalid");
        }
        Some(OwnBlock { seen: seen.ok(), request: block.request_uid().map(str::to_owned) })
    }

    /// Makes a call, and retries transient failures until [`ObjectsOptions::patience`] is over.
    async fn insist<T, F>(&self, act: impl Fn() -> String, call: impl Fn() -> F) -> Result<T, CallError>
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

    fn asks(&self) -> MutexGuard<'_, Asks> {
        lock(&self.asks)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
