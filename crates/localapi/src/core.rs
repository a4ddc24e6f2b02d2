//! What all requests share: the store, the registry of resources, the clock and randomness.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::{Value, json};
use tenure_handles::{Clock, Entropy};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::registry::{DEFINITIONS, NAMESPACES, Registry};
use crate::store::{CommitError, Draft, Event, History, Key, Proposal, Refused, Scope, Store};
use crate::{definitions, garbage_collector, kinds, meta};

/// The namespaces that every cluster has.
const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The state shared by all clones of a local API.
pub(crate) struct Core {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    registry: RwLock<Arc<Registry>>,
    registry_changes: watch::Sender<u64>,
    closing: watch::Sender<bool>,
    collector: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("version", &self.store.version()).finish_non_exhaustive()
    }
}

impl Core {
    /// The state on top of a store. Waits for the disk when the store is new.
    pub(crate) fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, CommitError> {
        let core = Self::on(store, clock, entropy);
        core.make_first_namespaces()?;
        Ok(core)
    }

    /// The state on top of an empty store in memory, where nothing can fail.
    pub(crate) fn temporary(history: History, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let core = Self::on(Store::temporary(history), clock, entropy);
        if let Err(error) = core.make_first_namespaces() {
            tracing::error!(%error, "a store in memory refused its first objects");
        }
        core
    }

    fn on(store: Store, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let definitions = store.list(DEFINITIONS, &Scope::All, "").objects;
        let registry = Registry::build(&definitions, None);
        Self {
            store: Arc::new(store),
            clock,
            entropy,
            registry: RwLock::new(Arc::new(registry)),
            registry_changes: watch::Sender::new(0),
            closing: watch::Sender::new(false),
            collector: Mutex::new(None),
        }
    }

    fn make_first_namespaces(&self) -> Result<(), CommitError> {
        let mut tickets = Vec::new();
        for name in FIRST_NAMESPACES {
            let key = Key::new("", name);
            if self.store.latest(NAMESPACES, &key).object.is_some() {
                continue;
            }
            let mut value = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name, "uid": self.entropy.uuid(), "creationTimestamp": self.now(), "labels": {},
                },
                "spec": {},
            });
            if let Some(builtin) = kinds::BUILTINS.iter().find(|builtin| builtin.plural == NAMESPACES) {
                kinds::prepare_create(builtin, &mut value);
            }
            let proposal = Proposal {
                collection: NAMESPACES.into(),
                key,
                expected: None,
                draft: Draft::new(value),
                delete: false,
                alive: Vec::new(),
            };
            match self.store.propose(proposal) {
                Ok(ticket) => tickets.push(ticket),
                Err(Refused::Ended(error)) => return Err(error),
                // Nobody else has the store yet.
                Err(Refused::Stale | Refused::NotAlive) => {}
            }
        }
        // One commit for all of them; it happens on the committer's thread.
        for ticket in tickets {
            futures::executor::block_on(ticket.settle())?;
        }
        Ok(())
    }

    /// The current resources.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notified whenever the registry changes.
    pub(crate) fn registry_changes(&self) -> watch::Receiver<u64> {
        self.registry_changes.subscribe()
    }

    /// True once the API is closing.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Ends watches, accepts no more writes, releases the file.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        let collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(collector) = collector {
            collector.abort();
        }
        self.store.close();
    }

    /// Proposes a change, waits until it is on disk, and applies its effects.
    pub(crate) async fn commit(&self, proposal: Proposal) -> Result<Arc<Event>, Refused> {
        let concerns_definitions = &*proposal.collection == DEFINITIONS;
        let event = self.store.propose(proposal)?.settle().await.map_err(Refused::Ended)?;
        if concerns_definitions {
            self.refresh_registry();
        }
        Ok(event)
    }

    fn refresh_registry(&self) {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that an older state can never replace a newer one.
        let listing = self.store.list(DEFINITIONS, &Scope::All, "");
        *registry = Arc::new(Registry::build(&listing.objects, Some(&registry)));
        self.registry_changes.send_replace(listing.version);
    }

    /// Sets the status of a definition that is about to be stored.
    pub(crate) fn prepare_definition(&self, value: &mut Value, old: Option<&Value>) {
        let listing = self.store.list(DEFINITIONS, &Scope::All, "");
        let others = listing.objects.iter().map(|object| &object.value);
        definitions::settle(value, old, others, &self.now());
    }

    /// Changes an object for the server itself: no validation, no conflicts. `change` returns whether there
    /// is anything to do. The object is removed if its deletion only waited for this.
    pub(crate) async fn amend(
        &self,
        collection: &str,
        key: &Key,
        uid: &str,
        change: impl Fn(&mut Value) -> bool,
    ) -> Result<bool, CommitError> {
        loop {
            let Some(existing) = self.store.latest(collection, key).object else { return Ok(false) };
            let mut value = existing.value.clone();
            if existing.uid() != uid || !change(&mut value) {
                return Ok(false);
            }
            let held = value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            let grace = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let delete = meta::is_terminating(&value)
                && meta::finalizers(&value).is_empty()
                && !(collection == NAMESPACES && held)
                && grace == 0;
            let proposal = Proposal {
                collection: collection.into(),
                key: key.clone(),
                expected: Some(existing.version),
                draft: Draft::new(if delete { existing.value.clone() } else { value }),
                delete,
                alive: Vec::new(),
            };
            match self.commit(proposal).await {
                Ok(_) => return Ok(true),
                Err(Refused::Stale | Refused::NotAlive) => {}
                Err(Refused::Ended(error)) => return Err(error),
            }
        }
    }

    /// Makes sure that the garbage collector runs.
    pub(crate) fn ensure_garbage_collector(self: &Arc<Self>) {
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        if collector.as_ref().is_some_and(|task| !task.is_finished()) || *self.closing.borrow() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            *collector = Some(runtime.spawn(garbage_collector::run(Arc::downgrade(self))));
        }
    }

    /// The present time in the format of objects: whole seconds.
    pub(crate) fn now(&self) -> String {
        time_of(self.now_seconds())
    }

    /// The present time in seconds since the epoch.
    pub(crate) fn now_seconds(&self) -> i64 {
        i64::try_from(self.clock.now().as_millis() / 1000).unwrap_or(i64::MAX)
    }

    /// The present time, for ages.
    pub(crate) fn moment(&self) -> jiff::Timestamp {
        self.clock.now().to_jiff()
    }

    /// A random number from 0 to 1.
    pub(crate) fn fraction(&self) -> f64 {
        f64::from(u32::try_from(self.entropy.next_u64() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

/// A time in the format of objects.
pub(crate) fn time_of(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// The seconds since the epoch of a time in the format of objects.
pub(crate) fn seconds_of(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}
