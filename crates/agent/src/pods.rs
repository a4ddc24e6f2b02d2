//! This node's pods, as far as their metadata says what addresses they want: the claims that they refer to, and the address
//! that they would like.
//!
//! Asking the API server for each pod would cost an ADD more than its address does. So the metadata of this node's pods are
//! watched, from the first ADD that needs any on, and what matters is kept. The kubelet learns of a pod in the same way, and
//! does much before it makes the pod's network, so the pod is known by then. Where the watch is behind, because it does not
//! work or has not heard of this very pod, the pod is read.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tenure_api::read::Read;
use tenure_claims::PodFacts;
use tenure_handles::Clock;
use tenure_watch::{ApiHealth, Cache, Connection, Heard, Identity, Seen, place};
use tenure_whereabouts::config::PREFERRED_IP;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::objects::watch::{Watching, watch};
use crate::objects::{lock, watched};
use crate::serve::PodName;

/// The annotation by which the kubelet marks pods that it has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(1);

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

    /// The pod of this name, as the API server says now.
    pub(crate) async fn find_now(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        self.shared.read(pod).await
    }

    /// How the watch is, if there is one.
    pub fn health(&self) -> ApiHealth {
        self.shared.connection.health().look()
    }
}

impl KnownPod {
    fn of(pod: &PartialObjectMeta<Pod>) -> Self {
        let preferred = pod.annotations().get(PREFERRED_IP).filter(|wish| !wish.trim().is_empty());
        Self {
            facts: Arc::new(PodFacts::of(&pod.metadata)),
            preferred: preferred.cloned().unwrap_or_default(),
            shown_for: pod.annotations().get(MIRROR).cloned(),
        }
    }

    /// Whether it is the pod that is meant; where nobody says which, any of its name is.
    pub(crate) fn is(&self, pod: &PodName) -> bool {
        pod.uid.is_empty() || pod.uid == self.facts.uid || self.shown_for.as_ref() == Some(&pod.uid)
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
            drop(state.pods.hear(heard));
            state.works |= !begins;
        };
        let watching = watch(Arc::clone(self), watched::OWN_PODS, pods, own, keep, hear);
        let stop = self.stop.clone();
        self.runtime.spawn(async move { stop.run_until_cancelled(watching).await });
    }

    /// Asks the API server for a pod.
    async fn read(&self, pod: &PodName) -> Result<Option<KnownPod>, String> {
        let api: Api<Pod> = Api::namespaced(self.connection.client(), &pod.namespace);
        let act = || format!("reading Pod {}/{}", pod.namespace, pod.name);
        let found = self.connection.once(LIVE_READ, act, api.get_metadata_opt(&pod.name)).await;
        let Some(found) = found.map_err(|error| error.to_string())? else { return Ok(None) };
        let known = KnownPod::of(&found);
        let mut state = lock(&self.state);
        // Nobody would say when it goes, while the watch does not work.
        if state.works {
            let heard = Heard::Applied(Identity::placed(&found.metadata), Some(known.clone()));
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
