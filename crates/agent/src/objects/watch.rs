//! A watch of one kind, over all its restarts.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Shared;
use super::health::Watched;
use super::mirror::{Heard, Identity};
use super::waits::Waits;

/// Watches until the agent stops. `keep` says what is kept of an object, and `hear` is given what is heard.
pub(super) async fn watch<K, V>(
    shared: Arc<Shared>,
    watched: Watched,
    api: Api<K>,
    selector: watcher::Config,
    keep: impl Fn(&K) -> Option<V> + Send,
    hear: impl Fn(&Arc<Shared>, Heard<V>) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, selector).backoff(Waits::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            // A list will be asked for; nobody has answered yet.
            Ok(Event::Init) => hear(&shared, Heard::Begin),
            Ok(event) => {
                shared.gauge.heard(watched);
                let listed = matches!(event, Event::InitDone);
                match event {
                    Event::Init => {}
                    Event::InitApply(object) => {
                        hear(&shared, Heard::Listed(Identity::of(&object), keep(&object)));
                    }
                    Event::InitDone => hear(&shared, Heard::Finish),
                    Event::Apply(object) => {
                        hear(&shared, Heard::Applied(Identity::of(&object), keep(&object)));
                    }
                    Event::Delete(object) => hear(&shared, Heard::Left(Identity::of(&object))),
                }
                if listed && shared.gauge.listed(watched) {
                    shared.all_listed();
                }
            }
            Err(error) => {
                tracing::warn!(%watched, %error, "watching failed; trying again");
                shared.gauge.failed(watched, error.to_string());
            }
        }
    }
}
