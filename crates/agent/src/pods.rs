//! This node's pods, as far as their metadata says what network they want: the claims that they refer to, the address that they
//! would like, and the Egresses that they use.
//!
//! Asking the API server for each pod would cost an ADD more than its address does. So the metadata of this node's pods are
//! watched, from the first ADD that needs any on, and what matters is kept. The kubelet learns of a pod in the same way, and
//! does much before it makes the pod's network, so the pod is known by then. Where the watch is behind, because it does not
//! work or has not heard of this very pod, the pod is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tenure_api::cloud::annotation;
use tenure_api::coil::EgressId;
use tenure_api::coil::egress::{AnnotationError, egresses_of, is_gateway};
use tenure_api::read::Read;
use tenure_claims::PodFacts;
use tenure_handles::Clock;
use tenure_watch::{ApiHealth, Cache, Connection, Heard, Identity, Seen, place};
use tenure_whereabouts::config::PREFERRED_IP;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::objects::watch::{Watching, watch};
use crate::objects::{lock, watched};
use crate::serve::PodName;

/// The annotation by which the kubelet marks pods that it has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(1);
/// How long a list is tried.
const LIST: Duration = Duration::from_secs(5);

/// This node's pods. Cheap to clone.
#[derive(Clone)]
pub struct Pods {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pods").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownPod {
    /// What it refers to.
    pub(crate) facts: Arc<PodFacts>,
    /// Its annotation that names the address it would like; empty if it has none.
    preferred: String,
    /// The Egresses that it uses, or why that cannot be read.
    pub(crate) egresses: Arc<Result<BTreeSet<EgressId>, AnnotationError>>,
    /// Whether it is a gateway of an Egress.
    pub(crate) gateway: bool,
    /// The address that it must have, if its annotations name one.
    pub(crate) address: Option<String>,
    /// Whether it is marked as moving out: its address stays when it ends.
    pub(crate) leaving: bool,
    /// Of a pod that the kubelet has from elsewhere, and only shows here: the UID that the kubelet knows it by.
    shown_for: Option<String>,
}

struct Shared {
    connection: Connection,
    node: String,
    /// Where the watch runs, whoever asks first.
    runtime: Handle,
    stop: CancellationToken,
    begun: OnceLock<()>,
    /// Who is told of changes.
    told: Mutex<Vec<Arc<Notify>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pods: Cache<Seen<KnownPod>>,
    /// Whether all that the API server has is among them, as far as anyone knows.
    works: bool,
}

/// What the watch says of a pod.
enum Sight {
    /// This.
    Known(KnownPod),
    /// It has not heard of a pod of this name.
    Nothing,
    /// It may be behind; this is what it said last.
    Behind(Option<KnownPod>),
}

impl Pods {
    /// The pods of the node of this name. Nothing is read before somebody asks. Needs a tokio runtime around it.
    pub fn new(client: Client, node: impl Into<String>, clock: impl Clock, stop: CancellationToken) -> Self {
        let node = node.into();
        let shared = Shared {
            connection: Connection::named(client, Arc::new(clock), &format!("pods of {node}")),
            node,
            runtime: Handle::current(),
            stop,
            begun: OnceLock::new(),
            told: Mutex::default(),
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.shared.node
    }

    /// The annotation of a pod that names the address it would like; empty if it has none. It is only a wish: what cannot be
    /// read is none.
    pub(crate) async fn wish_of(&self, pod: &PodName) -> String {
        let known = match self.shared.glance(pod) {
            Sight::Known(known) => Some(known),
            Sight::Nothing => None,
            Sight::Behind(_) => self.shared.read(pod).await.unwrap_or_default(),
        };
        let known = known.filter(|known| known.is(pod));
        known.map(|pod| pod.preferred).unwrap_or_default()
    }

    /// The pod of this name, which may be another one by now; nothing if there is none. Read where the watch has not heard of
    /// it, or is behind; where that fails, what the watch said last of this very pod is what is known. Says why nothing is
    /// known otherwise.
    pub(crate) async fn find(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        match self.shared.glance(pod) {
            Sight::Known(known) => Ok(Some(known)),
            Sight::Nothing | Sight::Behind(None) => self.shared.read(pod).await,
            Sight::Behind(Some(last)) => Ok(self.shared.read(pod).await.unwrap_or(Some(last))),
        }
    }

    /// The pod of this name, for those who would do without it: as [`Self::find`] says, but read only where the runtime says the UID,
    /// as kubelets' do. Who does not is no kubelet, and there need not be such a pod.
    pub(crate) async fn find_if_said(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        match self.shared.glance(pod) {
            Sight::Known(known) => Ok(Some(known)),
            Sight::Nothing | Sight::Behind(None) if pod.uid.is_empty() => Ok(None),
            Sight::Nothing | Sight::Behind(None) => self.shared.read(pod).await,
            Sight::Behind(Some(last)) => Ok(Some(last)),
        }
    }

    /// The pod of this name, as the watch said last. Read only if the watch is behind and has never heard of it: then the agent has just
    /// started.
    pub(crate) async fn last_known(&self, pod: &PodName) -> Option<KnownPod> {
        match self.shared.glance(pod) {
            Sight::Known(known) | Sight::Behind(Some(known)) => Some(known),
            Sight::Nothing => None,
            Sight::Behind(None) => self.shared.read(pod).await.ok().flatten(),
        }
    }

    /// The pod of this name, as the API server says now.
    pub(crate) async fn find_now(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        self.shared.read(pod).await
    }

    /// All pods of this node with their statuses, as the API server says now.
    pub(crate) async fn list_now(&self) -> Result<Vec<Pod>, String> {
        let pods: Api<Pod> = Api::all(self.shared.connection.client());
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.shared.node));
        let act = || format!("listing Pods of {}", self.shared.node);
        let listed = self.shared.connection.insist(LIST, act, || pods.list(&own)).await;
        listed.map(|pods| pods.items).map_err(|error| error.to_string())
    }

    /// Watches from now on, and tells of changes.
    pub(crate) fn tell(&self, changed: Arc<Notify>) {
        lock(&self.shared.told).push(changed);
        self.shared.begun.get_or_init(|| self.shared.begin());
    }

    /// All pods, by namespace and name; nothing while the watch is behind.
    pub(crate) fn all(&self) -> Option<BTreeMap<(String, String), KnownPod>> {
        let state = lock(&self.shared.state);
        let named = |(key, pod): (&str, &KnownPod)| {
            let (namespace, name) = key.split_once('/')?;
            Some(((namespace.to_owned(), name.to_owned()), pod.clone()))
        };
        state.works.then(|| state.pods.all_facts().filter_map(named).collect())
    }

    /// How the watch is, if there is one.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

impl KnownPod {
    pub(crate) fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let preferred = pod.annotations().get(PREFERRED_IP).filter(|wish| !wish.trim().is_empty());
        Self {
            facts: Arc::new(PodFacts::of(&pod.metadata)),
            preferred: preferred.cloned().unwrap_or_default(),
            egresses: Arc::new(egresses_of(pod.annotations())),
            gateway: is_gateway(pod.labels()),
            address: pod.annotations().get(annotation::ADDRESS).cloned(),
            leaving: pod.annotations().contains_key(annotation::MOVE_OUT),
            shown_for: pod.annotations().get(MIRROR).cloned(),
        }
    }

    /// Whether it is the pod that is meant; where nobody says which, any of its name is.
    pub(crate) fn is(&self, pod: &PodName) -> bool {
        pod.uid.is_empty() || self.has_uid(&pod.uid)
    }

    /// Whether it has this UID, or the kubelet knows it by it.
    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.facts.uid == uid || self.shown_for.as_deref() == Some(uid)
    }
}

impl Shared {
    /// Looks at what the watch said, and begins it if nobody has.
    fn glance(self: &Arc<Self>, pod: &PodName) -> Sight {
        self.begun.get_or_init(|| self.begin());
        let state = lock(&self.state);
        let known = state.pods.facts(&place(&pod.namespace, &pod.name));
        match known {
            Some(known) if state.works && known.is(pod) => Sight::Known(known.clone()),
            None if state.works => Sight::Nothing,
            known => Sight::Behind(known.filter(|known| known.is(pod)).cloned()),
        }
    }

    fn begin(self: &Arc<Self>) {
        self.connection.health().expect(watched::OWN_PODS);
        let pods: Api<Read<PartialObjectMeta<Pod>>> = Api::all(self.connection.client());
        let own = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let keep = |pod: &PartialObjectMeta<Pod>| Some(KnownPod::of(pod));
        let hear = |shared: &Arc<Self>, heard: Heard<KnownPod>| {
            let mut state = lock(&shared.state);
            let begins = matches!(heard, Heard::Begin | Heard::Listed(..));
            let changes = state.pods.hear(heard);
            let worked = state.works;
            state.works |= !begins;
            if !changes.is_empty() || worked != state.works {
                lock(&shared.told).iter().for_each(|told| told.notify_one());
            }
        };
        let watching = watch(Arc::clone(self), watched::OWN_PODS, pods, own, keep, hear);
        let stop = self.stop.clone();
        self.runtime.spawn(async move { stop.run_until_cancelled(watching).await });
    }

    /// Asks the API server for a pod.
    async fn read(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        let api: Api<Pod> = Api::namespaced(self.connection.client(), &pod.namespace);
        let act = || format!("reading Pod {}/{}", pod.namespace, pod.name);
        let call = lock(&self.state).pods.epoch();
        let found = self.connection.once(LIVE_READ, act, api.get_metadata_opt(&pod.name)).await;
        let Some(found) = found.map_err(|error| error.to_string())? else { return Ok(None) };
        let known = KnownPod::of(&found);
        let mut state = lock(&self.state);
        // Nobody would say when it goes, while the watch does not work.
        if state.works {
            let heard = Heard::Answered(call, Identity::placed(&found.metadata), Some(known.clone()));
            drop(state.pods.hear(heard));
        }
        drop(state);
        Ok(Some(known))
    }
}

impl Watching for Shared {
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn faltered(&self) {
        lock(&self.state).works = false;
    }
}
