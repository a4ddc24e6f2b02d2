//! Objects by collection and key, with resource versions that only grow, and the recent events about them.
//!
//! ```text
//!  writers ── propose ──▶ pending (a version, checked against the newest proposal)
//!                            │ queue
//!                            ▼
//!                     one committer: a batch, one fsync
//!                            │ publish
//!                            ▼
//!  readers, watchers ◀── committed (objects and log, all of it on disk)
//! ```
//!
//! - A version is assigned under one short lock, in the order of the queue; no lock is held across an fsync.
//! - Readers see only what is on disk. A writer is answered after the same: concurrent writers share an fsync.
//! - Without a file there is no committer: a proposal is published at once, in the caller's thread, so that a
//!   simulated run replays.

mod collection;
mod committer;
mod disk;
mod key;
mod object;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};

use collection::Collection;
pub(crate) use collection::{History, Unreachable};
use disk::Disk;
pub use disk::OpenError;
pub(crate) use key::{CollectionName, Key, Scope};
pub(crate) use object::{Draft, Event, EventKind, Object, frame};

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk: a crash of the process or of the machine loses nothing that was acknowledged.
    #[default]
    Immediate,
    /// When the file has it, without waiting for the disk: a crash may lose the last writes, never mix them up.
    Deferred,
}

/// The store. Dropping it, or [`Store::close`], waits for the last batch and releases the file.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    committed: RwLock<Committed>,
    pending: Mutex<Pending>,
    /// Wakes the committer.
    work: Condvar,
    /// Sends the version up to which everything is committed.
    settled: watch::Sender<u64>,
    history: History,
}

/// The state on disk, in memory.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    version: u64,
    collections: BTreeMap<CollectionName, Collection>,
}

impl Committed {
    fn collection_mut(&mut self, name: &str) -> &mut Collection {
        if !self.collections.contains_key(name) {
            // Nothing was ever written to it: its log reaches back to the beginning.
            self.collections.insert(name.into(), Collection::new(0));
        }
        // Inserted above if it was missing, so the fallback is never used.
        self.collections.entry(name.into()).or_insert_with(|| Collection::new(0))
    }
}

/// Changes that nobody was told of yet.
#[derive(Debug)]
struct Pending {
    /// The version last assigned.
    version: u64,
    /// The newest proposal about a key, until it is committed.
    newest: HashMap<CollectionName, HashMap<Key, Arc<Event>>>,
    queue: Vec<Waiting>,
    phase: Phase,
}

#[derive(Debug)]
struct Waiting {
    collection: CollectionName,
    event: Arc<Event>,
    done: oneshot::Sender<Result<(), CommitError>>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// No file: proposals are published at once.
    Memory,
    /// The committer takes proposals.
    Running,
    /// No more proposals; with the reason.
    Ended(CommitError),
}

/// Why a write was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The disk failed; nothing can be written any more.
    #[error("writing to the store failed: {0}")]
    Disk(String),
}

/// A change that a writer proposes.
#[derive(Debug)]
pub(crate) struct Proposal {
    /// The collection.
    pub(crate) collection: CollectionName,
    /// The object.
    pub(crate) key: Key,
    /// The version of the object that the change is based on; `None` if it must not exist.
    pub(crate) expected: Option<u64>,
    /// The object, or for a deletion its last state.
    pub(crate) draft: Draft,
    /// Whether the object is deleted.
    pub(crate) delete: bool,
    /// Objects that must exist, and not be in deletion, for the change to be allowed.
    pub(crate) alive: Vec<(CollectionName, Key)>,
}

/// Why a proposal was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The object has changed since: read it again.
    Stale,
    /// One of the objects that must be alive is not.
    NotAlive,
    /// Nothing is written any more.
    Ended(CommitError),
}

/// A proposal on its way to the disk.
#[derive(Debug)]
pub(crate) struct Ticket {
    event: Arc<Event>,
    done: Option<oneshot::Receiver<Result<(), CommitError>>>,
}

impl Ticket {
    /// The change, once it is durable and visible.
    pub(crate) async fn settle(self) -> Result<Arc<Event>, CommitError> {
        if let Some(done) = self.done {
            done.await.unwrap_or(Err(CommitError::Closed))?;
        }
        Ok(self.event)
    }
}

/// The newest state of an object, which may not be on disk yet.
#[derive(Debug)]
pub(crate) struct Latest {
    /// The object.
    pub(crate) object: Option<Arc<Object>>,
    /// Once this version is committed, what was read here is durable.
    pub(crate) settled_at: u64,
}

/// Objects at one version.
#[derive(Debug)]
pub(crate) struct Listing {
    /// In key order.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The version at which this was so.
    pub(crate) version: u64,
}

impl Store {
    /// Opens or creates the file at `path`.
    pub(crate) fn open(path: &Path, durability: Durability, history: History) -> Result<Self, OpenError> {
        let (disk, committed) = Disk::open(path, durability, history)?;
        Self::run(disk, committed, history).map_err(|source| OpenError::Io { path: path.to_owned(), source })
    }

    fn run(disk: Disk, committed: Committed, history: History) -> std::io::Result<Self> {
        let store = Self::new(committed, Phase::Running, history);
        let shared = store.shared.clone();
        let thread = std::thread::Builder::new()
            .name("localapi-commit".to_owned())
            .spawn(move || committer::run(&shared, disk))?;
        *lock(&store.committer) = Some(thread);
        Ok(store)
    }

    /// A store without a file.
    pub(crate) fn temporary(history: History) -> Self {
        Self::new(Committed::default(), Phase::Memory, history)
    }

    fn new(committed: Committed, phase: Phase, history: History) -> Self {
        let version = committed.version;
        let pending = Pending { version, newest: HashMap::new(), queue: Vec::new(), phase };
        let shared = Shared {
            committed: RwLock::new(committed),
            pending: Mutex::new(pending),
            work: Condvar::new(),
            settled: watch::Sender::new(version),
            history,
        };
        Self { shared: Arc::new(shared), committer: Mutex::new(None) }
    }

    /// Accepts no more writes, waits for those in progress and releases the file. Reads continue to work.
    pub(crate) fn close(&self) {
        {
            let mut pending = lock(&self.shared.pending);
            if !matches!(pending.phase, Phase::Ended(_)) {
                pending.phase = Phase::Ended(CommitError::Closed);
            }
            self.shared.work.notify_all();
        }
        let thread = lock(&self.committer).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the committer of the local API ended badly");
        }
    }

    /// The newest committed version.
    pub(crate) fn version(&self) -> u64 {
        self.read().version
    }

    /// The committed object at `key`.
    pub(crate) fn get(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        self.read().collections.get(collection)?.get(key.as_str()).cloned()
    }

    /// The committed objects of `scope` from `start` on.
    pub(crate) fn list(&self, collection: &str, scope: &Scope, start: &str) -> Listing {
        let committed = self.read();
        let objects = committed
            .collections
            .get(collection)
            .map(|collection| collection.list(scope, start).cloned().collect())
            .unwrap_or_default();
        Listing { objects, version: committed.version }
    }

    /// The objects of `scope` from `start` on, as they were at `version`.
    pub(crate) fn list_at(
        &self,
        collection: &str,
        scope: &Scope,
        start: &str,
        version: u64,
    ) -> Result<Listing, Unreachable> {
        let committed = self.read();
        if version > committed.version {
            return Err(Unreachable::TooNew(committed.version));
        }
        let objects = match committed.collections.get(collection) {
            Some(collection) => collection.list_at(scope, start, version)?,
            None => Vec::new(),
        };
        Ok(Listing { objects, version })
    }

    /// The names of all collections that ever had an object.
    pub(crate) fn collections(&self) -> Vec<CollectionName> {
        self.read().collections.keys().cloned().collect()
    }

    /// Events of a collection after `version`, oldest first, at most `limit`, and the version that they
    /// reach: that of the last one, or the newest of all if there are no more.
    pub(crate) fn events_after(
        &self,
        collection: &str,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), Unreachable> {
        let committed = self.read();
        let events = match committed.collections.get(collection) {
            Some(collection) => collection.events_after(version, limit)?,
            None => Vec::new(),
        };
        let reached = match events.last() {
            Some(last) if events.len() == limit => last.version(),
            _ => committed.version.max(version),
        };
        Ok((events, reached))
    }

    /// Every event of every collection after `version`, oldest first, and the version that they reach.
    #[expect(clippy::type_complexity, reason = "a list of events with their collections, and a version")]
    pub(crate) fn changes_since(
        &self,
        version: u64,
    ) -> Result<(Vec<(CollectionName, Arc<Event>)>, u64), Unreachable> {
        let committed = self.read();
        let mut changes = Vec::new();
        for (name, collection) in &committed.collections {
            let events = collection.events_after(version, usize::MAX)?;
            changes.extend(events.into_iter().map(|event| (name.clone(), event)));
        }
        changes.sort_by_key(|(_, event)| event.version());
        Ok((changes, committed.version))
    }

    /// Receives the version of every event of a collection.
    pub(crate) fn subscribe(&self, collection: &str) -> watch::Receiver<u64> {
        if let Some(collection) = self.read().collections.get(collection) {
            return collection.subscribe();
        }
        let mut committed = self.shared.committed.write().unwrap_or_else(PoisonError::into_inner);
        committed.collection_mut(collection).subscribe()
    }

    /// Notified of every commit.
    pub(crate) fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.shared.settled.subscribe()
    }

    /// The object as the next writer must see it: proposed, if not committed.
    pub(crate) fn latest(&self, collection: &str, key: &Key) -> Latest {
        let pending = lock(&self.shared.pending);
        let object = self.shared.newest(&pending, collection, key);
        Latest { object, settled_at: pending.version }
    }

    /// Waits until `version` is committed, so that what was read by [`Store::latest`] can be sent to a
    /// client.
    pub(crate) async fn settled(&self, version: u64) -> Result<(), CommitError> {
        let mut settled = self.shared.settled.subscribe();
        loop {
            if *settled.borrow_and_update() >= version {
                return Ok(());
            }
            if let Phase::Ended(error @ CommitError::Disk(_)) = &lock(&self.shared.pending).phase {
                return Err(error.clone());
            }
            if settled.changed().await.is_err() {
                return Err(CommitError::Closed);
            }
        }
    }

    /// Queues a change for the disk, if it is still valid.
    pub(crate) fn propose(&self, proposal: Proposal) -> Result<Ticket, Refused> {
        let Proposal { collection, key, expected, draft, delete, alive } = proposal;
        let mut pending = lock(&self.shared.pending);
        if let Phase::Ended(error) = &pending.phase {
            return Err(Refused::Ended(error.clone()));
        }
        let previous = self.shared.newest(&pending, &collection, &key);
        if previous.as_ref().map(|object| object.version) != expected {
            return Err(Refused::Stale);
        }
        for (collection, key) in &alive {
            match self.shared.newest(&pending, collection, key) {
                Some(object) if !object.is_terminating() => {}
                _ => return Err(Refused::NotAlive),
            }
        }
        pending.version += 1;
        let kind = match (delete, &previous) {
            (true, _) => EventKind::Deleted,
            (false, Some(_)) => EventKind::Modified,
            (false, None) => EventKind::Added,
        };
        let object = Arc::new(draft.finish(key.clone(), pending.version));
        let event = Arc::new(Event::new(kind, object, previous));
        if matches!(pending.phase, Phase::Memory) {
            // Still under the lock: publishing follows the order of the versions.
            self.shared.publish(&[(collection, event.clone())]);
            return Ok(Ticket { event, done: None });
        }
        pending.newest.entry(collection.clone()).or_default().insert(key, event.clone());
        let (done, receiver) = oneshot::channel();
        pending.queue.push(Waiting { collection, event: event.clone(), done });
        self.shared.work.notify_one();
        Ok(Ticket { event, done: Some(receiver) })
    }

    fn read(&self) -> RwLockReadGuard<'_, Committed> {
        self.shared.committed.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn newest(&self, pending: &Pending, collection: &str, key: &Key) -> Option<Arc<Object>> {
        if let Some(event) = pending.newest.get(collection).and_then(|keys| keys.get(key)) {
            return event.present().cloned();
        }
        let committed = self.committed.read().unwrap_or_else(PoisonError::into_inner);
        committed.collections.get(collection)?.get(key.as_str()).cloned()
    }

    /// Makes events visible, and returns what the disk may forget from now on.
    fn publish(&self, events: &[(CollectionName, Arc<Event>)]) -> disk::Batch {
        let mut next = disk::Batch::default();
        let version = {
            let mut committed = self.committed.write().unwrap_or_else(PoisonError::into_inner);
            for (name, event) in events {
                committed.version = event.version();
                let collection = committed.collection_mut(name);
                let compacted = collection.compacted();
                next.forget.extend(collection.apply(event.clone(), self.history));
                if collection.compacted() > compacted {
                    next.compacted.insert(name.clone(), collection.compacted());
                }
            }
            committed.version
        };
        self.settled.send_replace(version);
        next
    }
}

/// A lock whose holder panicked is still usable: every critical section here leaves consistent states.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
