//! A watch of one kind ([`tenure_watch`]) that keeps what `keep` returns of each object.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tenure_api::read::Read;
use tenure_watch::{Connection, Heard, Identity, Listener};

/// Who watches.
pub(crate) trait Watching: Send + Sync + 'static {
    /// How often to look for kinds that the server does not know, if that is allowed.
    const MAY_BE_MISSING: Option<Duration> = None;
    /// Whether it watches all namespaces: then keys are namespace and name.
    const ALL_NAMESPACES: bool = false;

    /// The way to the API server.
    fn connection(&self) -> &Connection;

    /// All first lists are complete.
    fn all_listed(self: &Arc<Self>) {}

    /// A watch is broken at present, so its cache may be behind.
    fn faltered(&self) {}
}

/// Watches until the agent stops. `keep` returns what is kept of an object, and `hear` gets the events.
///
/// An object that does not have the shape of its kind still exists, so its last readable version stays; the controller
/// publishes an event on it.
pub(crate) async fn watch<K, V, S: Watching>(
    shared: Arc<S>,
    watched: &'static str,
    api: Api<Read<K>>,
    selector: watcher::Config,
    keep: impl Fn(&K) -> Option<V> + Send,
    hear: impl Fn(&Arc<S>, Heard<V>) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    V: Send,
{
    let connection = shared.connection().clone();
    let listener = Keeping { shared, watched, keep, hear, kept: PhantomData };
    connection.watch(watched, api, selector, S::MAY_BE_MISSING, listener).await;
}

struct Keeping<S, V, F, H> {
    shared: Arc<S>,
    watched: &'static str,
    keep: F,
    hear: H,
    kept: PhantomData<V>,
}

impl<K, V, S, F, H> Listener<K> for Keeping<S, V, F, H>
where
    K: Resource<DynamicType = ()>,
    V: Send,
    S: Watching,
    F: Fn(&K) -> Option<V> + Send,
    H: Fn(&Arc<S>, Heard<V>) + Send,
{
    fn hear(&mut self, event: Event<Read<K>>) -> bool {
        if let Event::InitApply(Read::Unreadable(it)) | Event::Apply(Read::Unreadable(it)) = &event {
            let watched = self.watched;
            tracing::warn!(watched, object = %it, "an object cannot be read; it counts as what was last read of it");
        }
        let identity = if S::ALL_NAMESPACES { Identity::placed } else { Identity::named };
        (self.hear)(&self.shared, Heard::of(event, identity, &self.keep));
        true
    }

    /// The kind is missing, so there are no objects of it.
    fn lacks_kind(&mut self, lacks: bool) {
        if lacks {
            (self.hear)(&self.shared, Heard::Begin);
            (self.hear)(&self.shared, Heard::Finish);
        }
    }

    fn failed(&mut self) {
        self.shared.faltered();
    }

    fn all_listed(&mut self) {
        self.shared.all_listed();
    }
}
