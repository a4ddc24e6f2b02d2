//! The file: every revision that is still needed, in one redb table.
//!
//! A revision is one change: its resource version, the key, and the object after it (empty for a deletion).
//! One write appends one revision. Reading the revisions in order gives the present objects and the recent
//! events, so nothing can be inconsistent. Revisions that the log no longer needs are removed with a later
//! write, and the table `forgotten` says up to which version a collection's log reaches.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use serde_json::Value;

use super::collection::{Collection, History};
use super::key::{CollectionName, Key};
use super::object::{Draft, Event, EventKind};
use super::{Committed, Durability};

const REVISIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("revisions");
const FORGOTTEN: TableDefinition<&str, u64> = TableDefinition::new("forgotten");
const FORMAT: TableDefinition<&str, u64> = TableDefinition::new("tenure-localapi");
const FORMAT_VERSION: u64 = 1;

/// The objects are in memory; the page cache is only for writing new revisions.
const CACHE_BYTES: usize = 8 << 20;

/// Without an fsync per write, one in this many commits still gets one, so that pages are freed.
const DEFERRED_COMMITS: u32 = 256;

/// Why a file could not be opened as a local API's store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error(
        "opening the local API's file {path}: it is already open; stop the other process, or close the other LocalApi"
    )]
    AlreadyOpen {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("opening the local API's file {path}: it is not one: {reason}")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        reason: String,
    },
    /// It was ours, and is damaged.
    #[error(
        "opening the local API's file {path}: it is damaged: {reason}; restore a copy, or move it away to start empty"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A later release wrote it.
    #[error(
        "opening the local API's file {path}: it has format {found}, this release knows formats up to {known}"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that can be read.
        known: u64,
    },
    /// The operating system refused.
    #[error("opening the local API's file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The objects in it are inconsistent.
    #[error("starting the local API from {path}: {reason}")]
    Start {
        /// The file.
        path: PathBuf,
        /// What is inconsistent.
        reason: String,
    },
}

/// The changes of one batch on disk.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// New events, by collection, in the order of their versions.
    pub(crate) events: Vec<(CollectionName, Arc<Event>)>,
    /// Revisions to remove.
    pub(crate) forget: Vec<u64>,
    /// Collections whose log now starts later.
    pub(crate) compacted: BTreeMap<CollectionName, u64>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Disk {
    database: redb::Database,
    durability: Durability,
    deferred: u32,
}

impl Disk {
    /// Opens or creates the file and reads everything in it.
    pub(crate) fn open(
        path: &Path,
        durability: Durability,
        history: History,
    ) -> Result<(Self, Committed), OpenError> {
        // redb checks what it reads, but was not written to survive every possible damage.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = open_or_create(path)?;
            // Everything is read anyway; this also verifies the checksums.
            if !database.check_integrity().map_err(|error| refine(path, error))? {
                tracing::warn!(path = %path.display(), "the local API's file was repaired");
            }
            let committed = load(&database, path, history)?;
            Ok((database, committed))
        }));
        let (database, committed) = match opened {
            Ok(result) => result?,
            Err(panic) => return Err(damaged(path, panic_text(&*panic))),
        };
        Ok((Self { database, durability, deferred: 0 }, committed))
    }

    /// An empty store on any storage, for tests of what may happen to one.
    #[cfg(test)]
    pub(crate) fn on(backend: impl redb::StorageBackend) -> Result<Self, redb::Error> {
        let database = redb::Database::builder().create_with_backend(backend)?;
        initialise(&database)?;
        Ok(Self { database, durability: Durability::Immediate, deferred: 0 })
    }

    /// Writes a batch; with [`Durability::Immediate`] it is on disk when this returns.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        let immediate = self.durability == Durability::Immediate || self.deferred >= DEFERRED_COMMITS;
        self.deferred = if immediate { 0 } else { self.deferred + 1 };
        transaction.set_durability(if immediate {
            redb::Durability::Immediate
        } else {
            redb::Durability::None
        })?;
        {
            let mut revisions = transaction.open_table(REVISIONS)?;
            for (collection, event) in &batch.events {
                revisions.insert(event.version(), encode(collection, event).as_slice())?;
            }
            for revision in &batch.forget {
                revisions.remove(revision)?;
            }
            if !batch.compacted.is_empty() {
                let mut forgotten = transaction.open_table(FORGOTTEN)?;
                for (collection, version) in &batch.compacted {
                    forgotten.insert(&**collection, version)?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Makes every write so far durable.
    pub(crate) fn flush(&mut self) -> Result<(), redb::Error> {
        if self.deferred > 0 {
            self.deferred = 0;
            self.database.begin_write()?.commit()?;
        }
        Ok(())
    }
}

fn open_or_create(path: &Path) -> Result<redb::Database, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let exists = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len() > 0,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(io(error)),
    };
    let mut builder = redb::Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    if exists {
        return builder.open(path).map_err(|error| refine(path, error));
    }
    // If a creation is killed half-way, it must not leave a file that cannot be opened: it is created under
    // another name.
    let mut nascent = path.as_os_str().to_owned();
    nascent.push(".new");
    let nascent = PathBuf::from(nascent);
    let database = match builder.create(&nascent) {
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(_) | redb::StorageError::Io(_))) => {
            std::fs::remove_file(&nascent).map_err(io)?;
            builder.create(&nascent).map_err(|error| refine(path, error))?
        }
        other => other.map_err(|error| refine(path, error))?,
    };
    initialise(&database).map_err(|error| damaged(path, error.to_string()))?;
    std::fs::rename(&nascent, path).map_err(io)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)?;
    Ok(database)
}

fn initialise(database: &redb::Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(FORMAT)?.insert("format", FORMAT_VERSION)?;
    transaction.open_table(REVISIONS)?;
    transaction.open_table(FORGOTTEN)?;
    transaction.commit()?;
    Ok(())
}

fn load(database: &redb::Database, path: &Path, history: History) -> Result<Committed, OpenError> {
    let transaction = database.begin_read().map_err(|error| damaged(path, error.to_string()))?;
    check_format(&transaction, path)?;
    read_revisions(&transaction, history).map_err(|reason| damaged(path, reason))
}

fn check_format(transaction: &redb::ReadTransaction, path: &Path) -> Result<(), OpenError> {
    let tables: Vec<String> = transaction
        .list_tables()
        .map_err(|error| damaged(path, error.to_string()))?
        .map(|table| table.name().to_owned())
        .collect();
    if !tables.iter().any(|table| table == FORMAT.name()) {
        let reason = format!("a redb database with the tables {tables:?}");
        return Err(OpenError::NotOurs { path: path.to_owned(), reason });
    }
    let format = transaction
        .open_table(FORMAT)
        .map_err(|error| error.to_string())
        .and_then(|table| table.get("format").map_err(|error| error.to_string()))
        .map_err(|reason| damaged(path, reason))?
        .map(|format| format.value());
    match format {
        Some(FORMAT_VERSION) => Ok(()),
        Some(found) => Err(OpenError::Newer { path: path.to_owned(), found, known: FORMAT_VERSION }),
        None => Err(damaged(path, "it names no format".to_owned())),
    }
}

fn read_revisions(transaction: &redb::ReadTransaction, history: History) -> Result<Committed, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut committed = Committed::default();
    let forgotten = transaction.open_table(FORGOTTEN).map_err(|error| text(&error))?;
    for entry in forgotten.iter().map_err(|error| text(&error))? {
        let (collection, version) = entry.map_err(|error| text(&error))?;
        committed.version = committed.version.max(version.value());
        committed.collections.insert(collection.value().into(), Collection::new(version.value()));
    }
    let revisions = transaction.open_table(REVISIONS).map_err(|error| text(&error))?;
    for entry in revisions.iter().map_err(|error| text(&error))? {
        let (version, bytes) = entry.map_err(|error| text(&error))?;
        let version = version.value();
        let revision = decode(bytes.value()).map_err(|reason| format!("revision {version}: {reason}"))?;
        let collection = committed.collection_mut(revision.collection);
        let Some(event) = revision.into_event(version, collection) else { continue };
        if version <= collection.compacted() {
            collection.apply_unlogged(&event);
        } else {
            // What no longer fits is removed from disk with the next write to this collection.
            collection.apply(Arc::new(event), History { events: usize::MAX, bytes: usize::MAX });
        }
        committed.version = committed.version.max(version);
    }
    tracing::debug!(version = committed.version, history = history.events, "read every revision");
    Ok(committed)
}

const PUT: u8 = 1;
const DELETE: u8 = 2;

struct Revision<'b> {
    kind: u8,
    collection: &'b str,
    key: &'b str,
    value: Option<Value>,
}

/// `kind`, then collection and key each with its length, then the object's JSON.
fn encode(collection: &str, event: &Event) -> Vec<u8> {
    let body = event.present().map(|object| &object.json);
    let key = event.object.key.as_str();
    let mut bytes = Vec::with_capacity(9 + collection.len() + key.len() + body.map_or(0, bytes::Bytes::len));
    bytes.push(if body.is_some() { PUT } else { DELETE });
    for text in [collection, key] {
        // Names are far shorter: validation allows 253 characters.
        bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    if let Some(body) = body {
        bytes.extend_from_slice(body);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Result<Revision<'_>, String> {
    let (&kind, rest) = bytes.split_first().ok_or("it is empty")?;
    let (collection, rest) = take_text(rest)?;
    let (key, rest) = take_text(rest)?;
    let value = match kind {
        PUT => Some(serde_json::from_slice(rest).map_err(|error| format!("its object is no JSON: {error}"))?),
        DELETE => None,
        other => return Err(format!("its kind is {other}; known are {PUT} and {DELETE}")),
    };
    Ok(Revision { kind, collection, key, value })
}

fn take_text(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("it ends inside a length")?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|error| error.to_string())?;
    let (text, rest) = rest.split_at_checked(length).ok_or("it ends inside a name")?;
    Ok((std::str::from_utf8(text).map_err(|error| error.to_string())?, rest))
}

impl Revision<'_> {
    /// The event of this revision; `None` for a deletion of something missing.
    fn into_event(self, version: u64, collection: &Collection) -> Option<Event> {
        let key = Key::from(self.key);
        let previous = collection.get(self.key).cloned();
        let (kind, value) = match (self.value, &previous) {
            (Some(value), None) => (EventKind::Added, value),
            (Some(value), Some(_)) => (EventKind::Modified, value),
            (None, Some(previous)) => (EventKind::Deleted, previous.value.clone()),
            (None, None) => return None,
        };
        debug_assert!(self.kind == PUT || kind == EventKind::Deleted);
        Some(Event::new(kind, Arc::new(Draft::new(value).finish(key, version)), previous))
    }
}

fn refine(path: &Path, error: redb::DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => OpenError::AlreadyOpen { path },
        redb::DatabaseError::Storage(redb::StorageError::Io(source)) => {
            if source.kind() == std::io::ErrorKind::InvalidData {
                OpenError::NotOurs { path, reason: source.to_string() }
            } else if source.kind() == std::io::ErrorKind::UnexpectedEof {
                OpenError::Damaged { path, reason: "it ends too early".to_owned() }
            } else {
                OpenError::Io { path, source }
            }
        }
        other => OpenError::Damaged { path, reason: other.to_string() },
    }
}

fn damaged(path: &Path, reason: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), reason }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "reading it failed".to_owned())
}
