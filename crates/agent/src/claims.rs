//! Claims, as far as a node needs them: which claim an interface of a pod is to have, and who has each claim now.
//!
//! ```text
//!   NetworkAttachmentDefinitions ──▶ networks: which opt in at the level of a list
//!   this node's Pods ─────────────▶ (crate::pods) what an interface refers to ─┐
//!   IPAMClaims ───────────────────▶ known: addresses, proof, slots ────────────┴─▶ claim user ──▶ an ADD
//!                                     └──▶ the Node: who has each claim now; routes to claims on other nodes
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `networks` | the names of definitions' networks, and which opt in where a plugin does not see it |
//! | `known` | the claims: told to the node as they change |
//! | `proof` | what the record proves: addresses, and the pods that were given them |
//! | `claim_use` | from a pod's interface to the claim's addresses: waits for what is to come |
//! | `source` | what an interface is to have, for dialects that take claims |
//! | `unlet` | refuses pods that refer to a claim on a network that does not opt in |
//! | `machine` | whether a claim will come for a launcher pod's own interface |
//! | `refusal` | what those are told who do not get what they refer to |
//!
//! What it promises: no write, and on the way of an ADD no read of claims at all, nor of records as a rule. Who refers to a claim gets that claim's addresses
//! or a refusal, never a fresh address. On a network that does not opt in, that takes a look at what the watch of this node's pods
//! says; what cannot be known there hinders nobody.
//!
//! Networks are watched from the start. Claims are watched when there is a reason, which is said: claim users of before a restart,
//! routes to claims on other nodes, or the first ADD that refers to one. The kinds may be missing: then no network opts in by
//! its list, and no claim is there, until they appear.

mod claim_use;
mod known;
mod machine;
mod networks;
mod proof;
mod refusal;
mod source;
mod unlet;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tenure_api::claims::IPAMClaim;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_api::read::Read;
use tenure_claims::{ClaimFacts, PodFacts};
use tenure_cni::{Code, Failure, NetworkConfig};
use tenure_handles::Clock;
use tenure_watch::{ApiHealth, Connection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::drive::Handle;
use crate::objects::watch::{Watching, watch};
use crate::objects::{Objects, lock};
use crate::part::Inspect;
use crate::pods::{Facet, Pods};
use known::Known;
use networks::{Definition, Networks};
use proof::Proofs;

pub(crate) use claim_use::Interface;
pub(crate) use refusal::failure;
pub(crate) use source::{Claimed, addresses_of, lacks, not_of};

/// All claims.
const CLAIMS: &str = "IPAMClaims";
/// All networks that pods may name.
const NETWORKS: &str = "NetworkAttachmentDefinitions";

/// How claims are looked for.
#[derive(Clone, Debug)]
pub struct ClaimsOptions {
    /// How long an ADD waits for a claim, for its addresses and for leave to use it: longer than a controller takes, shorter
    /// than a runtime waits.
    pub patience: Duration,
    /// How long a start waits for the first list of networks. Without it, a network that opts in by its list would give an
    /// ordinary address.
    pub start_patience: Duration,
    /// The cluster's own network, if it was set up here to let addresses outlive pods. That counts whatever configuration a caller
    /// passes: Multus keeps a copy of the one of before.
    pub cluster_network: Option<String>,
    /// The name of the cluster's own network, whether it lets addresses outlive pods or not: no definition speaks for it.
    pub default_network: String,
    /// The namespace of Whereabouts' kinds, where records of claims may be.
    pub namespace: String,
}

impl Default for ClaimsOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(4),
            start_patience: Duration::from_secs(5),
            cluster_network: None,
            default_network: "tenure".to_owned(),
            namespace: "kube-system".to_owned(),
        }
    }
}

/// Why claims are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The journal has claim users, and who has their claims may be another by now.
    ClaimUses,
    /// Claims on other nodes are routed.
    Routes,
    /// A pod refers to one.
    Reference,
}

/// How a network opts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptIn {
    /// Its configuration says so, or how it was set up here: the administrator's word for all of its pods.
    Itself,
    /// A definition of a network of this name says so, whoever made it: it counts for pods that name this definition.
    ByList,
}

/// Claims as a node sees them. Cheap to clone.
#[derive(Clone)]
pub struct Claims {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claims").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// What pods refer to.
impl Facet for PodFacts {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        Self::of(&pod.metadata)
    }
}

/// What all parts share.
struct Shared {
    connection: Connection,
    options: ClaimsOptions,
    node: Handle,
    pods: Pods<PodFacts>,
    /// Who routes claims on other nodes, if anybody does.
    routes: Option<Objects>,
    /// Where watches run, whoever asks first.
    runtime: tokio::runtime::Handle,
    stop: CancellationToken,
    begun: OnceLock<()>,
    known: Mutex<Known>,
    networks: Mutex<Networks>,
    proofs: Mutex<Proofs>,
    /// Counts what is heard of claims and networks.
    heard: watch::Sender<u64>,
}

impl Claims {
    /// Begins to watch networks, until `stop`; with `routes`, also claims, and tells it which are on other nodes. The node is
    /// told who has which claim. Needs a tokio runtime around it.
    pub fn start(
        client: Client,
        options: ClaimsOptions,
        clock: impl Clock,
        (node, pods, routes): (Handle, Pods, Option<Objects>),
        stop: CancellationToken,
    ) -> Self {
        let routed = routes.is_some();
        let name = format!("claims of {}", pods.node());
        let connection = Connection::named(client, Arc::new(clock), &name);
        connection.health().expect(NETWORKS);
        let shared = Arc::new(Shared {
            connection,
            options,
            node,
            pods: pods.keep(),
            routes,
            runtime: tokio::runtime::Handle::current(),
            stop,
            begun: OnceLock::new(),
            known: Mutex::default(),
            networks: Mutex::default(),
            proofs: Mutex::default(),
            heard: watch::Sender::new(0),
        });
        shared.watch_networks();
        let claims = Self { shared };
        if routed {
            claims.watch(Reason::Routes);
        }
        claims
    }

    /// Begins to watch claims, unless they are watched.
    pub(crate) fn watch(&self, reason: Reason) {
        self.shared.begun.get_or_init(|| self.shared.watch_claims(reason));
    }

    /// Whether a network opts in: by what its configuration says, by how it was set up here, or by its list. Looks at nothing else.
    pub(crate) fn opt_in(&self, network: &NetworkConfig) -> Result<Option<OptIn>, Failure> {
        match tenure_claims::opt_in::opt_in(&network.json) {
            Ok(true) => Ok(Some(OptIn::Itself)),
            Ok(false) if self.shared.options.cluster_network.as_ref() == Some(&network.name) => {
                Ok(Some(OptIn::Itself))
            }
            // Its name is the cluster's: a definition that has it, too, changes nothing for its pods.
            Ok(false) if network.name == self.shared.options.default_network => Ok(None),
            Ok(false) => Ok(lock(&self.shared.networks).has(&network.name).then_some(OptIn::ByList)),
            Err(error) => Err(Failure::new(Code::InvalidConfig, error.to_string())),
        }
    }

    /// Waits for the first list of networks, with patience, and says if it did not come.
    pub(crate) async fn ready(&self) {
        let mut heard = self.shared.heard.subscribe();
        let listed = heard.wait_for(|_| lock(&self.shared.networks).is_listed());
        if tokio::time::timeout(self.shared.options.start_patience, listed).await.is_err() {
            warn!(
                "cannot read NetworkAttachmentDefinitions yet; until then, networks that say \"allowPersistentIPs\" in a list only \
                 refuse pods that refer to a claim"
            );
        }
    }

    /// How the watches are that there are, also that of this node's pods.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look().and(self.shared.pods.health())
    }
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::ClaimUses => "pods of before the start use some",
            Self::Routes => "those of other nodes are routed",
            Self::Reference => "a pod refers to one",
        }
    }
}

impl Inspect for Claims {
    fn health(&self) -> Option<ApiHealth> {
        Some(Self::health(self))
    }
}

impl Watching for Shared {
    /// Every node looks, and few clusters have claims.
    const MAY_BE_MISSING: Option<Duration> = Some(Duration::from_secs(10));
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Shared {
    fn watch_networks(self: &Arc<Self>) {
        let networks: Api<Read<NetworkAttachmentDefinition>> = Api::all(self.connection.client());
        let keep = |it: &NetworkAttachmentDefinition| Some(Definition::of(it));
        let hear = |shared: &Arc<Self>, heard| {
            lock(&shared.networks).hear(heard);
            shared.tell_waiting();
        };
        let all = watcher::Config::default();
        self.spawn(watch(Arc::clone(self), NETWORKS, networks, all, keep, hear));
    }

    fn watch_claims(self: &Arc<Self>, reason: Reason) {
        info!(reason = reason.as_str(), "watching IPAMClaims from now on");
        self.connection.health().expect(CLAIMS);
        let claims: Api<Read<IPAMClaim>> = Api::all(self.connection.client());
        let keep = |claim: &IPAMClaim| Some(ClaimFacts::of(claim));
        let hear = |shared: &Arc<Self>, heard| shared.hear_claim(heard);
        let all = watcher::Config::default();
        self.spawn(watch(Arc::clone(self), CLAIMS, claims, all, keep, hear));
    }

    /// Those who wait look again.
    fn tell_waiting(&self) {
        self.heard.send_modify(|heard| *heard += 1);
    }

    /// Runs something beside the rest, until it or the agent ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.runtime.spawn(async move { stop.run_until_cancelled(task).await });
    }
}

#[cfg(test)]
mod tests;
