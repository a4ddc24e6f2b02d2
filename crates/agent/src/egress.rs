//! Egress on a node: its client pods get rules, routes and tunnels to the gateways of their Egresses, and its gateway pods
//! what they may not make themselves.
//!
//! ```text
//!   this node's Pods ───▶ (crate::pods) annotations ─┐
//!   Egresses, Services ─▶ gateways: where they lead ─┼─▶ plan ──▶ kernel: the thread that makes it so
//!   attachments ────────▶ namespace and addresses ───┘      └───▶ clients: EgressClients, which gateways read
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `gateways` | what is known of Egresses and their Services |
//! | `attachments` | which interfaces of pods are on this node |
//! | `plan` | from a pod's annotations to what its namespace should have, without I/O |
//! | `kernel` | the thread that enters namespaces |
//! | `clients` | writes which pods of this node use which Egress |
//! | `reconcile` | follows changes, and repairs |
//! | `inspect` | what people see of it |
//! | `chained` | the dialect for nodes whose addresses another plugin gives |
//!
//! What it promises: an ADD is answered after its pod's egress is in place, and does not wait for the API server if the watches
//! work. What changes later reaches running pods, each by itself: one that cannot be changed holds up no other. Egress of a pod
//! whose annotations are not known is left as it is.

mod attachments;
mod chained;
mod clients;
mod gateways;
mod inspect;
mod kernel;
mod plan;
mod reconcile;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tenure_cni::{Code, Failure};
use tenure_handles::Clock;
use tenure_linux::egress::ClientPlan;
use tenure_watch::{ApiHealth, Connection};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use attachments::Attachment;
pub(crate) use attachments::{Attachments, Records};
pub(crate) use chained::EgressOnly;
pub(crate) use inspect::EgressInspector;
pub use kernel::DatapathChoice;

use crate::objects::{Objects, lock};
use crate::pods::Pods;
use crate::serve::PodName;
use gateways::Gateways;
use kernel::{Job, Kernel};
use plan::EgressUse;
use reconcile::Applied;

/// The interface that a pod's egress goes through: the one that runtimes call the pod's own.
pub(crate) const INTERFACE: &str = "eth0";

/// How egress is done on a node.
#[derive(Clone, Debug)]
pub struct EgressOptions {
    /// Which datapath.
    pub datapath: DatapathChoice,
    /// Whether another plugin gives pods their addresses, and configurations are chained after it.
    pub chained: bool,
    /// How often everything is verified.
    pub verify: Duration,
}

impl Default for EgressOptions {
    fn default() -> Self {
        Self { datapath: DatapathChoice::Auto, chained: false, verify: Duration::from_secs(30) }
    }
}

/// What people see of a node's egress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressState {
    /// `kernel` or `bpf`; empty if there is none, or none is known yet.
    pub datapath: String,
    /// Why it is this one, or why there is none.
    pub reason: String,
    /// Pods whose egress is in place.
    pub clients: usize,
    /// Gateways that were prepared.
    pub gateways: usize,
    /// Pods whose egress could not be put in place.
    pub failing: usize,
}

/// Egress of a node. Cheap to clone.
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// What all parts share.
struct Shared {
    connection: Connection,
    clock: Arc<dyn Clock>,
    options: EgressOptions,
    pods: Pods<EgressUse>,
    /// Who tells people.
    objects: Objects,
    attachments: Attachments,
    gateways: Gateways,
    kernel: Kernel,
    applied: Mutex<Applied>,
    /// Who changes a namespace has it, until what was applied is noted: the order of notes is that of changes.
    turn: tokio::sync::Mutex<()>,
    /// Something has changed.
    changed: Arc<Notify>,
    stop: CancellationToken,
}

/// What a pod's namespace is to have, as soon as its addresses are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The ways out, in order.
    egresses: Vec<tenure_linux::egress::Egress>,
    /// Whether the pod is a gateway.
    gateway: bool,
}

impl Wanted {
    /// Whether the pod is neither a client nor a gateway.
    pub(crate) fn is_nothing(&self) -> bool {
        self.egresses.is_empty() && !self.gateway
    }

    /// What makes it so. A gateway's namespace is its own, but for what it may not make: a gateway is no client.
    fn job(&self, attachment: &Attachment) -> Job {
        if self.gateway { Job::prepare(attachment) } else { Job::client(attachment, self.plan(attachment)) }
    }

    fn plan(&self, attachment: &Attachment) -> ClientPlan {
        let mut plan = ClientPlan::new(&attachment.interface, attachment.addresses.clone());
        plan.egresses.clone_from(&self.egresses);
        plan
    }
}

impl Egress {
    /// Begins to follow this node's pods, until `stop`. Needs a tokio runtime around it.
    pub(crate) fn start(
        client: Client,
        options: EgressOptions,
        (clock, host): (impl Clock, Option<PathBuf>),
        (pods, objects, attachments): (Pods, Objects, Attachments),
        stop: CancellationToken,
    ) -> std::io::Result<Self> {
        let changed = Arc::new(Notify::new());
        let name = format!("egress of {}", pods.node());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let connection = Connection::named(client, Arc::clone(&clock), &name);
        let shared = Arc::new(Shared {
            gateways: Gateways::new(connection.clone(), Arc::clone(&changed), stop.clone()),
            kernel: Kernel::start(options.datapath, host)?,
            connection,
            clock,
            options,
            pods: pods.keep(),
            objects,
            attachments,
            applied: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed,
            stop,
        });
        shared.pods.tell(Arc::clone(&shared.changed));
        let (desired, wanted) = tokio::sync::watch::channel(None);
        let writer = clients::Writer::new(shared.connection.clone(), shared.pods.node());
        let stop = shared.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(Box::pin(writer.run(wanted))).await });
        let (stop, reconciler) = (shared.stop.clone(), Arc::clone(&shared));
        tokio::spawn(async move { stop.run_until_cancelled(Box::pin(reconciler.reconcile(desired))).await });
        Ok(Self { shared })
    }

    /// What the pod of an ADD is to have: nothing if it has no annotation of an Egress and is no gateway. Refuses what cannot be
    /// read, and Egresses that are not there.
    pub(crate) async fn wanted(&self, pod: Option<&PodName>) -> Result<Wanted, Failure> {
        let Some(pod) = pod else { return Ok(Wanted::default()) };
        let known = match self.shared.pods.find_if_said(pod).await {
            Ok(known) => known.filter(|known| known.is(pod)),
            Err(problem) => {
                // Who cannot be asked about is served like others; the pod's egress follows as soon as it is known.
                warn!(pod.namespace, pod.name, problem, "cannot find out whether a pod uses egress");
                None
            }
        };
        let Some(known) = known else { return Ok(Wanted::default()) };
        let ids = match &known.facet.egresses {
            Ok(ids) => ids,
            Err(error) => return Err(Failure::new(Code::InvalidConfig, error.to_string())),
        };
        if known.facet.gateway {
            return Ok(Wanted { gateway: true, ..Wanted::default() });
        }
        let egresses = self.shared.gateways.find(ids).await?;
        Ok(Wanted { egresses, gateway: false })
    }

    /// Makes it so for an interface that was just made.
    pub(crate) async fn attach(&self, attachment: Attachment, wanted: &Wanted) -> Result<(), Failure> {
        if attachment.interface != INTERFACE {
            return Ok(());
        }
        if wanted.is_nothing() {
            if !lock(&self.shared.applied).put_nothing(&attachment) {
                self.shared.changed.notify_one();
            }
            return Ok(());
        }
        let _turn = self.shared.turn.lock().await;
        self.shared.kernel.run(wanted.job(&attachment)).await.map_err(refused)?;
        lock(&self.shared.applied).put(&attachment, wanted.clone());
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Says what differs from what an ADD would make.
    pub(crate) async fn check(&self, attachment: &Attachment, wanted: &Wanted) -> Result<(), Failure> {
        if attachment.interface != INTERFACE || wanted.egresses.is_empty() {
            return Ok(());
        }
        let job = Job::check(attachment, wanted.plan(attachment));
        let differences = self.shared.kernel.run(job).await.map_err(refused)?;
        match differences.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!("the pod's egress is not as it should be: {first}");
                Err(Failure::new(Code::Internal, message)
                    .detail("the agent repairs it within 30 s; its log says why it cannot"))
            }
        }
    }

    /// An interface is gone.
    pub(crate) fn detached(&self, container: &str, interface: &str) {
        if lock(&self.shared.applied).forget(container, interface) {
            self.shared.changed.notify_one();
        }
    }

    /// Whether another plugin gives pods their addresses.
    pub(crate) fn is_chained(&self) -> bool {
        self.shared.options.chained
    }

    /// What people see of it.
    pub fn state(&self) -> EgressState {
        let (datapath, reason) = self.shared.kernel.datapath();
        let applied = lock(&self.shared.applied);
        let (clients, gateways, failing) = applied.counts();
        EgressState { datapath, reason, clients, gateways, failing }
    }

    /// How its watches are.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

/// An error of the kernel, as the runtime reads it.
fn refused(problem: kernel::Problem) -> Failure {
    let code = if problem.retry { Code::TryAgainLater } else { Code::Internal };
    Failure::new(code, problem.message)
}

/// Addresses of one interface, at most one of each family, as egress takes them.
pub(crate) fn one_of_each(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(address.is_ipv4())).collect()
}
