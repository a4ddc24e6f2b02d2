//! The watch of this node's pods, and its cache. All handles ([`super::Pods`]) share it.
//!
//! A facet that is added after the watch began is missing from what was read before. So the watch begins again with an
//! empty cache, and whatever the earlier watch still reports is ignored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tenure_api::read::Read;
use tenure_handles::Clock;
use tenure_watch::{Cache, Connection, Heard, Identity, Seen, place};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::KnownPod;
use super::facets::{Facet, Facets, PodFacets};
use crate::objects::watch::{Watching, watch};
use crate::objects::{lock, watched};
use crate::serve::PodName;

/// The annotation by which the kubelet marks pods that it has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(1);

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) uid: String,
    pub(super) shown_for: Option<String>,
    pub(super) facets: PodFacets,
}

/// What the watch says of a pod.
pub(super) enum Sight<T> {
    /// This.
    Known(KnownPod<T>),
    /// It has not heard of a pod of this name.
    Nothing,
    /// It may be behind; this is the last that it said.
    Behind(Option<KnownPod<T>>),
}

/// The watch and its cache.
pub(super) struct Store {
    pub(super) connection: Connection,
    pub(super) node: String,
    /// Where the watch runs, whoever asks first.
    runtime: Handle,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    facets: Facets,
    pods: Cache<Seen<Entry>>,
    /// Whether the cache has all pods that the API server has, as far as the watch knows.
    works: bool,
    /// The watch; nothing before anybody asked. The number tells it from earlier ones.
    running: Option<(u64, CancellationToken)>,
    /// Whom to notify of changes.
    told: Vec<Arc<Notify>>,
}

impl Entry {
    fn of(pod: &PartialObjectMeta<Pod>, facets: &Facets) -> Self {
        Self {
            uid: pod.uid().unwrap_or_default(),
            shown_for: pod.annotations().get(MIRROR).cloned(),
            facets: facets.of(pod),
        }
    }
}

impl Store {
    pub(super) fn new(client: Client, node: String, clock: impl Clock, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            connection: Connection::named(client, Arc::new(clock), &format!("pods of {node}")),
            node,
            runtime: Handle::current(),
            stop,
            state: Mutex::default(),
        })
    }

    /// Keeps a facet of every pod from now on.
    pub(super) fn keep<T: Facet>(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.facets.add::<T>()
            && let Some((_, earlier)) = &state.running
        {
            earlier.cancel();
            (state.pods, state.works) = (Cache::default(), false);
            self.begin(&mut state);
        }
    }

    pub(super) fn field_selector(&self) -> String {
        format!("spec.nodeName={}", self.node)
    }

    pub(super) fn tell(self: &Arc<Self>, changed: Arc<Notify>) {
        let mut state = lock(&self.state);
        state.told.push(changed);
        self.begin_once(&mut state);
    }

    pub(super) fn all<T: Facet>(&self) -> Option<BTreeMap<(String, String), KnownPod<T>>> {
        let state = lock(&self.state);
        let named = |(key, pod): (&str, &Entry)| {
            let (namespace, name) = key.split_once('/')?;
            Some(((namespace.to_owned(), name.to_owned()), KnownPod::of(pod)?))
        };
        state.works.then(|| state.pods.all_facts().filter_map(named).collect())
    }

    /// Looks at what the watch said, and begins it if nobody has.
    pub(super) fn glance<T: Facet>(self: &Arc<Self>, pod: &PodName) -> Sight<T> {
        let mut state = lock(&self.state);
        self.begin_once(&mut state);
        let entry = state.pods.facts(&place(&pod.namespace, &pod.name));
        let known = entry.and_then(KnownPod::of).filter(|known| known.is(pod));
        match known {
            Some(known) if state.works => Sight::Known(known),
            None if state.works && entry.is_none() => Sight::Nothing,
            known => Sight::Behind(known),
        }
    }

    fn begin_once(self: &Arc<Self>, state: &mut State) {
        if state.running.is_none() {
            self.begin(state);
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State) {
        let number = state.running.as_ref().map_or(0, |(number, _)| number + 1);
        let stop = self.stop.child_token();
        state.running = Some((number, stop.clone()));
        self.connection.health().expect(watched::OWN_PODS);
        let pods: Api<Read<PartialObjectMeta<Pod>>> = Api::all(self.connection.client());
        let own = watcher::Config::default().fields(&self.field_selector());
        let facets = state.facets.clone();
        let keep = move |pod: &PartialObjectMeta<Pod>| Some(Entry::of(pod, &facets));
        let hear = move |store: &Arc<Self>, heard: Heard<Entry>| lock(&store.state).hear(number, heard);
        let watching = watch(Arc::clone(self), watched::OWN_PODS, pods, own, keep, hear);
        self.runtime.spawn(async move { stop.run_until_cancelled(watching).await });
    }

    /// Asks the API server for a pod.
    pub(super) async fn read(&self, pod: &PodName) -> Result<Option<Entry>, String> {
        let api: Api<Pod> = Api::namespaced(self.connection.client(), &pod.namespace);
        let act = || format!("reading Pod {}/{}", pod.namespace, pod.name);
        let (watch, call) = {
            let state = lock(&self.state);
            (state.watch(), state.pods.epoch())
        };
        let found = self.connection.once(LIVE_READ, act, api.get_metadata_opt(&pod.name)).await;
        let Some(found) = found.map_err(|error| error.to_string())? else { return Ok(None) };
        let mut state = lock(&self.state);
        let entry = Entry::of(&found, &state.facets);
        // While the watch does not work, nobody would report that the pod is gone.
        if state.works && state.watch() == watch {
            let heard = Heard::Answered(call, Identity::placed(&found.metadata), Some(entry.clone()));
            drop(state.pods.hear(heard));
        }
        drop(state);
        Ok(Some(entry))
    }
}

impl State {
    /// The number of the watch, if there is one.
    fn watch(&self) -> Option<u64> {
        self.running.as_ref().map(|(number, _)| *number)
    }

    /// Takes in what the watch of this number reports.
    fn hear(&mut self, number: u64, heard: Heard<Entry>) {
        if self.watch() != Some(number) {
            return;
        }
        let begins = matches!(heard, Heard::Begin | Heard::Listed(..));
        let changes = self.pods.hear(heard);
        let worked = self.works;
        self.works |= !begins;
        if !changes.is_empty() || worked != self.works {
            self.told.iter().for_each(|told| told.notify_one());
        }
    }
}

impl Watching for Store {
    const ALL_NAMESPACES: bool = true;

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn faltered(&self) {
        lock(&self.state).works = false;
    }
}
