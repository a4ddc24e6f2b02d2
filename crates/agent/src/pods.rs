//! This node's pods, and what dialects keep of their metadata.
//!
//! An API call for each pod would cost an ADD more than its address does. So the agent watches the metadata of this node's pods,
//! from the first ADD that needs any, and keeps what dialects have asked for ([`Pods::keep`]). The kubelet learns of a pod in the same
//! way, and does much before it sets up the pod's network, so the pod is known by then. If the watch is behind, because it
//! does not work or has not heard of this very pod, the agent reads the pod.

mod facets;
mod store;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tenure_handles::Clock;
use tenure_watch::ApiHealth;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::serve::PodName;
pub use facets::Facet;
use store::{Entry, Sight, Store};

/// How long a list is tried.
const LIST: Duration = Duration::from_secs(5);

/// This node's pods, each with the facet `T`. Cheap to clone.
pub struct Pods<T = ()> {
    store: Arc<Store>,
    facet: PhantomData<fn() -> T>,
}

impl<T> Clone for Pods<T> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), facet: PhantomData }
    }
}

impl<T> std::fmt::Debug for Pods<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pods").field("node", &self.store.node).finish_non_exhaustive()
    }
}

/// A pod, and what a dialect keeps of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPod<T> {
    /// Its UID.
    pub uid: String,
    /// Of a pod that the kubelet has from a file, and only shows here: the UID that the kubelet knows it by.
    shown_for: Option<String>,
    /// What the dialect keeps.
    pub facet: Arc<T>,
}

impl Pods {
    /// The pods of the node of this name. The watch begins when somebody asks. Needs a tokio runtime around it.
    pub fn new(client: Client, node: impl Into<String>, clock: impl Clock, stop: CancellationToken) -> Self {
        let store = Store::new(client, node.into(), clock, stop);
        store.keep::<()>();
        Self { store, facet: PhantomData }
    }

    /// The same pods with a facet of another type, which is kept of each from now on. If the watch has begun, it begins again: parts
    /// should call this when they start.
    pub fn keep<T: Facet>(self) -> Pods<T> {
        self.store.keep::<T>();
        Pods { store: self.store, facet: PhantomData }
    }

    /// All pods of this node with their statuses, as the API server says now.
    pub(crate) async fn list_now(&self) -> Result<Vec<Pod>, String> {
        let pods: Api<Pod> = Api::all(self.store.connection.client());
        let own = ListParams::default().fields(&self.store.field_selector());
        let act = || format!("listing Pods of {}", self.store.node);
        let listed = self.store.connection.insist(LIST, act, || pods.list(&own)).await;
        listed.map(|pods| pods.items).map_err(|error| error.to_string())
    }
}

impl<T: Facet> Pods<T> {
    /// The node's name.
    pub fn node(&self) -> &str {
        &self.store.node
    }

    /// The pod of this name, which may be another one by now; nothing if there is none. If the watch has not heard of it or is behind,
    /// this reads it; if that fails, the last state that the watch reported of this very pod counts. The error says why
    /// nothing is known.
    pub async fn find(&self, pod: &PodName) -> Result<Option<KnownPod<T>>, String> {
        match self.store.glance(pod) {
            Sight::Known(known) => Ok(Some(known)),
            Sight::Nothing | Sight::Behind(None) => self.find_now(pod).await,
            Sight::Behind(Some(last)) => Ok(self.find_now(pod).await.unwrap_or(Some(last))),
        }
    }

    /// As [`Self::find`], for callers that can do without the pod: reads it only if the runtime passes the UID, as kubelets do.
    /// Any other caller is no kubelet, and there need not be such a pod.
    pub async fn find_if_said(&self, pod: &PodName) -> Result<Option<KnownPod<T>>, String> {
        match self.store.glance(pod) {
            Sight::Known(known) => Ok(Some(known)),
            Sight::Nothing | Sight::Behind(None) if pod.uid.is_empty() => Ok(None),
            Sight::Nothing | Sight::Behind(None) => self.find_now(pod).await,
            Sight::Behind(Some(last)) => Ok(Some(last)),
        }
    }

    /// This very pod, for callers to which it is only a wish: reads it only if the watch is behind. What cannot be read is not known.
    pub async fn find_if_known(&self, pod: &PodName) -> Option<KnownPod<T>> {
        let found = match self.store.glance(pod) {
            Sight::Known(known) => Some(known),
            Sight::Nothing => None,
            Sight::Behind(_) => self.find_now(pod).await.unwrap_or_default(),
        };
        found.filter(|found| found.is(pod))
    }

    /// The pod of this name, as the watch said last. Reads it only if the watch is behind and has never heard of it: then the
    /// agent has just started.
    pub async fn last_known(&self, pod: &PodName) -> Option<KnownPod<T>> {
        match self.store.glance(pod) {
            Sight::Known(known) | Sight::Behind(Some(known)) => Some(known),
            Sight::Nothing => None,
            Sight::Behind(None) => self.find_now(pod).await.ok().flatten(),
        }
    }

    /// The pod of this name, as the API server says now.
    pub async fn find_now(&self, pod: &PodName) -> Result<Option<KnownPod<T>>, String> {
        Ok(self.store.read(pod).await?.as_ref().and_then(KnownPod::of))
    }

    /// Notifies of changes, and begins the watch if nobody has.
    pub fn tell(&self, changed: Arc<Notify>) {
        self.store.tell(changed);
    }

    /// All pods, by namespace and name; nothing while the watch is behind.
    pub fn all(&self) -> Option<BTreeMap<(String, String), KnownPod<T>>> {
        self.store.all()
    }

    /// How the watch is, if there is one.
    pub fn health(&self) -> ApiHealth {
        self.store.connection.health().look()
    }
}

impl<T: Facet> KnownPod<T> {
    /// What is kept of a pod, if this facet is.
    fn of(entry: &Entry) -> Option<Self> {
        let facet = entry.facets.get()?;
        Some(Self { uid: entry.uid.clone(), shown_for: entry.shown_for.clone(), facet })
    }

    /// What would be kept of this pod.
    #[cfg(test)]
    pub(crate) fn read(pod: &kube::api::PartialObjectMeta<Pod>) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        Self { uid, shown_for: None, facet: Arc::new(T::of(pod)) }
    }

    /// Whether it is the pod that is meant; if the caller does not say which, any pod of its name is.
    pub fn is(&self, pod: &PodName) -> bool {
        pod.uid.is_empty() || self.has_uid(&pod.uid)
    }

    /// Whether it has this UID, or the kubelet knows it by it.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.uid == uid || self.shown_for.as_deref() == Some(uid)
    }
}

#[cfg(test)]
mod tests;
