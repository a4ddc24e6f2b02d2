//! Which address a pod would like: its annotation `whereabouts.cni.cncf.io/preferred-ip`.
//!
//! Asking the API server for each pod would cost an ADD more than its address does. So the metadata of this node's pods are
//! watched, from the first ADD of a network of this dialect on, and what has the annotation is kept. The kubelet learns of a
//! pod in the same way, and does much before it makes the pod's network, so the pod is known by then. While the watch does
//! not work, the pod is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tenure_whereabouts::config::PREFERRED_IP;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Options;

/// How long one read may take: a wish is not worth more.
const PATIENCE: Duration = Duration::from_secs(1);

/// What pods wish.
pub(super) struct Wishes {
    client: Client,
    node: String,
    outside_kubernetes: bool,
    stop: CancellationToken,
    watch: OnceLock<Arc<Mutex<Known>>>,
}

#[derive(Default)]
struct Known {
    /// Whether all pods are known.
    complete: bool,
    wishes: HashMap<(String, String), String>,
    /// What the list that is coming in has.
    listing: HashMap<(String, String), String>,
}

impl Wishes {
    pub(super) fn new(client: Client, options: &Options, stop: CancellationToken) -> Self {
        let (node, outside_kubernetes) = (options.node.clone(), options.outside_kubernetes);
        Self { client, node, outside_kubernetes, stop, watch: OnceLock::new() }
    }

    /// The annotation of a pod; empty if it has none.
    pub(super) async fn of(&self, namespace: &str, pod: &str) -> String {
        if self.outside_kubernetes || pod.is_empty() {
            return String::new();
        }
        let watched = self.watch.get_or_init(|| self.begin());
        {
            let known = lock(watched);
            if known.complete {
                let key = (namespace.to_owned(), pod.to_owned());
                return known.wishes.get(&key).cloned().unwrap_or_default();
            }
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match timeout(PATIENCE, pods.get_metadata_opt(pod)).await {
            Ok(Ok(Some(found))) => wish(&found).unwrap_or_default(),
            // It is only a wish.
            _ => String::new(),
        }
    }

    fn begin(&self) -> Arc<Mutex<Known>> {
        let known = Arc::<Mutex<Known>>::default();
        let pods: Api<PartialObjectMeta<Pod>> = Api::all(self.client.clone());
        let own = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let (heard, stop) = (Arc::clone(&known), self.stop.clone());
        tokio::spawn(async move {
            let events = watcher(pods, own).default_backoff();
            pin_mut!(events);
            while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
                match event {
                    Ok(event) => hear(&mut lock(&heard), event),
                    Err(error) => {
                        debug!(%error, "the watch of this node's pods fails");
                        lock(&heard).complete = false;
                    }
                }
            }
        });
        known
    }
}

fn hear(known: &mut Known, event: Event<PartialObjectMeta<Pod>>) {
    let key = |pod: &PartialObjectMeta<Pod>| (pod.namespace().unwrap_or_default(), pod.name_any());
    match event {
        Event::Init => known.listing = HashMap::new(),
        Event::InitApply(pod) => known.listing.extend(wish(&pod).map(|wish| (key(&pod), wish))),
        Event::InitDone => {
            known.wishes = std::mem::take(&mut known.listing);
            known.complete = true;
        }
        Event::Apply(pod) => {
            known.complete = true;
            match wish(&pod) {
                Some(wish) => known.wishes.insert(key(&pod), wish),
                None => known.wishes.remove(&key(&pod)),
            };
        }
        Event::Delete(pod) => {
            known.complete = true;
            known.wishes.remove(&key(&pod));
        }
    }
}

fn wish(pod: &PartialObjectMeta<Pod>) -> Option<String> {
    pod.annotations().get(PREFERRED_IP).filter(|wish| !wish.trim().is_empty()).cloned()
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
