//! The garbage collector: dependents of gone owners, namespaces and definitions that are being deleted, old
//! events.
//!
//! Every change wakes it, and a timer once a minute; it decides from what is on disk. An interruption loses
//! nothing: after a restart it checks everything once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;

use crate::core::{Core, seconds_of};
use crate::decode::Strictness;
use crate::definitions::CLEANUP;
use crate::meta;
use crate::owners::{Graph, KindPlace, Operation, Task};
use crate::registry::{DEFINITIONS, NAMESPACES, Registry};
use crate::status::Status;
use crate::store::{CollectionName, CommitError, Event, Key, Object, Scope};
use crate::write::{DeleteOptions, Propagation, WriteOptions, Writer};

/// Events take no part in ownership.
const UNCOLLECTED: &str = "events";

/// The delay after a failure before the next check, even if nothing changes.
const RETRY: Duration = Duration::from_secs(1);

/// How often old events are removed.
const EXPIRE_EVENTS_EVERY: Duration = Duration::from_mins(1);

/// How long events are kept after they were last seen.
const EVENT_LIFETIME: i64 = 60 * 60;

/// How many deletions are in progress at once, so that they share commits.
const AT_ONCE: usize = 64;

/// Works until the API is dropped or closed.
pub(crate) async fn run(core: Weak<Core>) {
    let Some(mut changes) = core.upgrade().map(|core| core.store.subscribe_all()) else { return };
    let mut collector: Option<GarbageCollector> = None;
    loop {
        let Some(strong) = core.upgrade() else { return };
        if *strong.closing().borrow() {
            return;
        }
        changes.borrow_and_update();
        let done = match &mut collector {
            Some(collector) => collector.round(&strong).await,
            none => none.insert(GarbageCollector::survey(&strong)).round(&strong).await,
        };
        drop(strong);
        let result = match done {
            Ok(Progress::Done) => {
                tokio::time::timeout(EXPIRE_EVENTS_EVERY, changes.changed()).await.unwrap_or(Ok(()))
            }
            Ok(Progress::Retry) => tokio::time::timeout(RETRY, changes.changed()).await.unwrap_or(Ok(())),
            Ok(Progress::Lost) => {
                collector = None;
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the local API's garbage collection ends");
                return;
            }
        };
        if result.is_err() {
            return;
        }
    }
}

/// The result of a round.
enum Progress {
    /// Everything possible is done.
    Done,
    /// Something failed that may succeed later.
    Retry,
    /// Too much happened meanwhile: check everything again.
    Lost,
}

struct GarbageCollector {
    graph: Graph,
    /// The graph contains every change up to this version.
    version: u64,
    /// Namespaces and definitions that are being deleted.
    leaving: BTreeMap<(&'static str, Key), Arc<Object>>,
    /// When old events were last removed, in seconds.
    events_expired: i64,
}

impl GarbageCollector {
    /// Reads everything.
    fn survey(core: &Core) -> Self {
        // Changes after this moment are applied again, which does no harm.
        let version = core.store.version();
        let mut collector =
            Self { graph: Graph::default(), version, leaving: BTreeMap::new(), events_expired: 0 };
        for collection in core.store.collections() {
            for object in core.store.list(&collection, &Scope::All, "").objects {
                collector.see(&collection, &object);
            }
        }
        collector
    }

    fn see(&mut self, collection: &CollectionName, object: &Arc<Object>) {
        if &**collection != UNCOLLECTED {
            self.graph.put(collection, object);
        }
        if let Some(collection) = [NAMESPACES, DEFINITIONS].into_iter().find(|name| *name == &**collection) {
            let key = (collection, object.key.clone());
            if object.is_terminating() {
                self.leaving.insert(key, object.clone());
            } else {
                self.leaving.remove(&key);
            }
        }
    }

    fn take_in(&mut self, collection: &CollectionName, event: &Event) {
        if let Some(object) = event.present() {
            self.see(collection, object);
        } else {
            self.graph.remove(event.object.uid());
            self.leaving.retain(|(name, key), _| *name != &**collection || *key != event.object.key);
        }
    }

    /// Works until nothing changes any more.
    async fn round(&mut self, core: &Arc<Core>) -> Result<Progress, CommitError> {
        loop {
            let Ok((events, version)) = core.store.changes_since(self.version) else {
                return Ok(Progress::Lost);
            };
            for (collection, event) in &events {
                self.take_in(collection, event);
            }
            self.version = version;
            let registry = core.registry();
            let tasks = self.graph.plan(|api_version, kind| {
                let resource = registry.of_kind(api_version, kind)?;
                Some(KindPlace { collection: resource.collection.clone(), namespaced: resource.namespaced })
            });
            let registry = &registry;
            let under_way: Vec<_> = tasks
                .iter()
                .map(|task| async move {
                    let status = carry_out(core, registry, task).await.err()?;
                    tracing::warn!(?task, message = status.message, "a task failed");
                    Some(task)
                })
                .collect();
            let failed: Vec<&Task> = futures::stream::iter(under_way)
                .buffer_unordered(AT_ONCE)
                .filter_map(std::future::ready)
                .collect()
                .await;
            for task in &failed {
                self.graph.suspect(&task.uid);
            }
            self.expire_events(core, registry).await;
            for object in self.leaving.values().cloned().collect::<Vec<_>>() {
                if object.value["kind"] == "Namespace" {
                    empty_namespace(core, registry, &object).await?;
                } else {
                    empty_definition(core, registry, &object).await?;
                }
            }
            if !failed.is_empty() {
                return Ok(Progress::Retry);
            }
            if core.store.version() == self.version {
                return Ok(Progress::Done);
            }
        }
    }
}

impl GarbageCollector {
    /// Removes events that were last seen long ago, at most once a minute.
    async fn expire_events(&mut self, core: &Arc<Core>, registry: &Registry) {
        let now = core.now_seconds();
        if now - self.events_expired < i64::try_from(EXPIRE_EVENTS_EVERY.as_secs()).unwrap_or(i64::MAX) {
            return;
        }
        self.events_expired = now;
        let mut old = core.store.list(UNCOLLECTED, &Scope::All, "").objects;
        old.retain(|event| now - last_seen(&event.value) > EVENT_LIFETIME);
        remove_all(core, registry, UNCOLLECTED, &old).await;
    }
}

/// When an event last happened, in seconds since the epoch.
fn last_seen(event: &Value) -> i64 {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    times.into_iter().filter_map(|time| seconds_of(time.as_str()?)).max().unwrap_or(0)
}

async fn carry_out(core: &Arc<Core>, registry: &Registry, task: &Task) -> Result<(), Status> {
    let (collection, key) = &task.place;
    let amended = match &task.operation {
        Operation::Delete(propagation) => {
            return delete(core, registry, collection, key, &task.uid, *propagation).await;
        }
        Operation::Disown(owners) => {
            let change = |value: &mut Value| {
                let before = meta::owners(value);
                let kept: Vec<Value> = before
                    .iter()
                    .filter(|owner| !owners.contains(owner["uid"].as_str().unwrap_or_default()))
                    .cloned()
                    .collect();
                let found = kept.len() < before.len();
                meta::set_owners(value, kept);
                found
            };
            core.amend(collection, key, &task.uid, change).await
        }
        Operation::Release(finalizer) => {
            core.amend(collection, key, &task.uid, |value| meta::remove_finalizer(value, finalizer)).await
        }
        Operation::Unblock => {
            let change = |value: &mut Value| {
                let mut owners = meta::owners(value).to_vec();
                let blocked = owners.iter().any(|owner| owner["blockOwnerDeletion"] == true);
                for owner in &mut owners {
                    owner["blockOwnerDeletion"] = Value::Bool(false);
                }
                meta::set_owners(value, owners);
                blocked
            };
            core.amend(collection, key, &task.uid, change).await
        }
    };
    amended.map(|_| ()).map_err(|error| crate::write::not_stored(&error))
}

async fn delete(
    core: &Arc<Core>,
    registry: &Registry,
    collection: &str,
    key: &Key,
    uid: &str,
    propagation: Propagation,
) -> Result<(), Status> {
    let Some(resource) = registry.of_collection(collection) else { return Ok(()) };
    let options = WriteOptions { dry_run: false, strictness: Strictness::Ignore };
    let writer = Writer { core, resource, options };
    let options = DeleteOptions {
        propagation: Some(propagation),
        uid: Some(uid.to_owned()),
        ..DeleteOptions::default()
    };
    match writer.delete(key.namespace(), key.name(), &options).await {
        // Gone, or replaced by another: nothing to do.
        Err(status) if status.reason != "NotFound" && status.reason != "Conflict" => Err(status),
        _ => Ok(()),
    }
}

/// Deletes the objects in a namespace, and removes the namespace when none is left.
async fn empty_namespace(core: &Arc<Core>, registry: &Registry, object: &Object) -> Result<(), CommitError> {
    let scope = Scope::Namespace(object.key.name().to_owned());
    let mut left = 0;
    for collection in core.store.collections() {
        let objects = core.store.list(&collection, &scope, "").objects;
        left += objects.len();
        remove_all(core, registry, &collection, &objects).await;
    }
    if left == 0 {
        let change = |value: &mut Value| {
            let Some(finalizers) = value["spec"]["finalizers"].as_array_mut() else { return false };
            let before = finalizers.len();
            finalizers.retain(|finalizer| finalizer != "kubernetes");
            let found = finalizers.len() < before;
            if finalizers.is_empty()
                && let Some(spec) = value["spec"].as_object_mut()
            {
                spec.remove("finalizers");
            }
            found
        };
        core.amend(NAMESPACES, &object.key, object.uid(), change).await?;
    }
    Ok(())
}

/// Deletes the objects of a definition, and removes the definition when none is left.
async fn empty_definition(core: &Arc<Core>, registry: &Registry, object: &Object) -> Result<(), CommitError> {
    if !meta::finalizers(&object.value).contains(&CLEANUP) {
        return Ok(());
    }
    // A definition is named after its collection.
    let collection = object.key.name();
    let objects = core.store.list(collection, &Scope::All, "").objects;
    if objects.is_empty() {
        core.amend(DEFINITIONS, &object.key, object.uid(), |value| meta::remove_finalizer(value, CLEANUP))
            .await?;
    } else {
        remove_all(core, registry, collection, &objects).await;
    }
    Ok(())
}

async fn remove_all(core: &Arc<Core>, registry: &Registry, collection: &str, objects: &[Arc<Object>]) {
    let present = objects.iter().filter(|object| !object.is_terminating());
    let under_way: Vec<_> = present
        .map(|object| async move {
            let deleted =
                delete(core, registry, collection, &object.key, object.uid(), Propagation::Background);
            if let Err(status) = deleted.await {
                tracing::warn!(key = ?object.key, message = status.message, "an object could not be deleted");
            }
        })
        .collect();
    futures::stream::iter(under_way).buffer_unordered(AT_ONCE).collect::<()>().await;
}
