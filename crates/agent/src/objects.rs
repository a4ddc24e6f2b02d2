//! All that the agent does with the API server.
//!
//! | module | owns |
//! |---|---|
//! | `watch` | a watch of one kind, over all its restarts |
//! | `mirror` | what a watch has shown, so that only changes come out, each object's in order |
//! | `facts` | from Kubernetes objects to what a node is told |
//! | `asks` | requests for blocks, from the wish to the deletion of the request |
//! | `returns` | giving blocks back |
//! | `resolver` | which pool a pod's addresses come from |
//! | `remote` | other nodes' blocks, for hosts without a routing daemon |
//! | `reports`, `notes` | what people should know, as log lines and as Kubernetes events |
//! | `health` | how each watch is |
//!
//! What is watched is what this node needs: pools, namespaces' annotations, and of blocks and requests its own. Nothing
//! here grows with the pods of the cluster.

mod facts;
mod health;
mod mirror;
mod remote;
mod resolver;
mod waits;

use std::sync::{Arc, Mutex};

use kube::Client;
use tenure_handles::{Clock, Entropy};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

pub use health::{ObjectsHealth, WatchHealth, Watched};
pub use remote::RemoteRoutes;
pub use resolver::Resolver;

use crate::node::{Action, Event, PoolFacts};
use health::Gauge;
use mirror::Mirror;
use remote::Remote;

/// What of the API server is needed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this node, as its `Node` object has it.
    pub node: String,
    /// Also watch the blocks of all nodes and the nodes' addresses: see [`Objects::remote_routes`].
    pub remote_blocks: bool,
    /// There is no Kubernetes: an ADD need not name a pod, and namespaces need not exist. Pods whose namespace names no
    /// pool get addresses of `default`.
    pub outside_kubernetes: bool,
}

impl Options {
    /// The usual ones, for a node of a cluster.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), remote_blocks: false, outside_kubernetes: false }
    }
}

/// All that the agent does with the API server. Cheap to clone.
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

struct Shared {
    client: Client,
    options: Options,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    tell: Box<dyn Fn(Event) + Send + Sync>,
    stop: CancellationToken,
    gauge: Gauge,
    pools: Arc<Mutex<Mirror<KnownPool>>>,
    namespaces: Arc<Mutex<Mirror<Option<String>>>>,
    remote: Remote,
}

impl Objects {
    /// Begins to watch, until `stop`. Tells `tell` of pools and blocks, each one's changes in order, and once, when all first
    /// lists are in, [`Event::ApiRead`]. Needs a tokio runtime around it. `tell` must not block.
    pub fn start(
        client: Client,
        options: Options,
        clock: impl Clock,
        entropy: impl Entropy,
        tell: impl Fn(Event) + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let watched = [
            Watched::Pools,
            Watched::OwnBlocks,
            Watched::OwnRequests,
            Watched::Namespaces,
            Watched::OwnNode,
            Watched::AllBlocks,
            Watched::AllNodes,
        ];
        let watched = if options.remote_blocks { &watched[..] } else { &watched[..5] };
        let shared = Shared {
            gauge: Gauge::new(Arc::clone(&clock), watched),
            client,
            remote: Remote::new(options.node.clone()),
            options,
            clock,
            entropy: Arc::new(entropy),
            tell: Box::new(tell),
            stop,
            pools: Arc::default(),
            namespaces: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Carries out [`Action::AskForBlock`], [`Action::ReturnBlock`] and [`Action::Report`]; others are not for the API
    /// server. Returns at once; what becomes of it is told as an event.
    pub fn carry_out(&self, action: Action) {
        tracing::debug!(?action, "not carried out");
    }

    /// Who knows which pool a pod's addresses come from.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(&self.shared)
    }

    /// How the watches are, and when the API server last answered. What is owned can be handed out also while it does not.
    pub fn health(&self) -> ObjectsHealth {
        self.shared.gauge.health()
    }

    /// The networks of other nodes' blocks by gateway: nothing until all are known, and for ever if
    /// [`Options::remote_blocks`] is off. Each change replaces the whole.
    pub fn remote_routes(&self) -> Receiver<Option<RemoteRoutes>> {
        self.shared.remote.routes()
    }
}
