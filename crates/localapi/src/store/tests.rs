//! The store by itself: order, visibility, restarts, damage.

use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use serde_json::json;

use super::*;

fn draft(name: &str, data: &str) -> Draft {
    Draft::new(
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name, "uid": name}, "data": data}),
    )
}

fn proposal(name: &str, expected: Option<u64>, data: &str) -> Proposal {
    Proposal {
        collection: "things".into(),
        key: Key::new("", name),
        expected,
        draft: draft(name, data),
        delete: false,
        alive: Vec::new(),
    }
}

async fn put(store: &Store, name: &str, data: &str) -> u64 {
    let expected = store.latest("things", &Key::new("", name)).object.map(|object| object.version);
    store.propose(proposal(name, expected, data)).unwrap().settle().await.unwrap().version()
}

async fn delete(store: &Store, name: &str) -> u64 {
    let object = store.latest("things", &Key::new("", name)).object.unwrap();
    let proposal = Proposal {
        delete: true,
        draft: Draft::new(object.value.clone()),
        ..proposal(name, Some(object.version), "")
    };
    store.propose(proposal).unwrap().settle().await.unwrap().version()
}

fn contents(store: &Store) -> Vec<(String, u64, String)> {
    let listing = store.list("things", &Scope::All, "");
    let one = |object: &Arc<Object>| {
        (object.key.name().to_owned(), object.version, object.value["data"].as_str().unwrap_or("").to_owned())
    };
    listing.objects.iter().map(one).collect()
}

#[tokio::test]
async fn a_write_is_there_after_a_restart_and_versions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let store = Store::open(&path, Durability::Immediate, History::default()).unwrap();
    put(&store, "a", "1").await;
    put(&store, "b", "2").await;
    put(&store, "a", "3").await;
    delete(&store, "b").await;
    let before = contents(&store);
    assert_eq!(before, [("a".to_owned(), 3, "3".to_owned())]);
    drop(store);

    let store = Store::open(&path, Durability::Immediate, History::default()).unwrap();
    assert_eq!(contents(&store), before);
    assert_eq!(store.version(), 4);
    let (events, reached) = store.events_after("things", 0, 100).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| (event.kind, event.version())).collect();
    let expected =
        [(EventKind::Added, 1), (EventKind::Added, 2), (EventKind::Modified, 3), (EventKind::Deleted, 4)];
    assert_eq!(kinds, expected);
    assert_eq!(events[3].object.value["data"], "2", "a deletion shows the last state");
    assert_eq!(events[3].object.value["metadata"]["resourceVersion"], "4");
    assert_eq!(reached, 4);
    assert_eq!(put(&store, "c", "").await, 5);
}

#[tokio::test]
async fn the_log_stays_bounded_on_disk_and_a_restart_keeps_what_is_left_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let history = History { events: 4, bytes: usize::MAX };
    let store = Store::open(&path, Durability::Immediate, history).unwrap();
    put(&store, "quiet", "x").await;
    for round in 0..20 {
        put(&store, "busy", &round.to_string()).await;
    }
    delete(&store, "busy").await;
    for round in 0..5 {
        put(&store, "other", &round.to_string()).await;
    }
    let before = contents(&store);
    drop(store);
    let store = Store::open(&path, Durability::Immediate, history).unwrap();
    assert_eq!(contents(&store), before);
    assert_eq!(before.len(), 2, "the quiet one is kept though its event is long forgotten: {before:?}");
    let version = store.version();
    assert_eq!(version, 27);
    assert!(matches!(store.events_after("things", version - 5, 10), Err(Unreachable::TooOld(_))));
    assert_eq!(store.events_after("things", version - 4, 10).unwrap().0.len(), 4);
    let revisions = {
        drop(store);
        let database = redb::Database::open(&path).unwrap();
        let transaction = redb::ReadableDatabase::begin_read(&database).unwrap();
        let table = transaction.open_table(redb::TableDefinition::<u64, &[u8]>::new("revisions")).unwrap();
        redb::ReadableTableMetadata::len(&table).unwrap()
    };
    assert!(revisions <= 6, "{revisions} revisions on disk for 2 objects and 4 events");
}

#[tokio::test]
async fn a_proposal_made_from_an_older_state_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let on_disk = Store::open(&path, Durability::Immediate, History::default()).unwrap();
    for store in [Store::temporary(History::default()), on_disk] {
        put(&store, "a", "1").await;
        let stale = store.propose(proposal("a", None, "2"));
        assert!(matches!(stale, Err(Refused::Stale)));
        let first = store.propose(proposal("a", Some(1), "2")).unwrap();
        assert!(matches!(store.propose(proposal("a", Some(1), "3")), Err(Refused::Stale)));
        assert_eq!(first.settle().await.unwrap().version(), 2);
    }
}

#[tokio::test]
async fn a_proposal_whose_namespace_is_gone_or_going_is_refused() {
    let store = Store::temporary(History::default());
    let alive = vec![("things".into(), Key::new("", "home"))];
    let guarded = |name: &str| Proposal { alive: alive.clone(), ..proposal(name, None, "") };
    assert!(matches!(store.propose(guarded("a")), Err(Refused::NotAlive)));
    let version = put(&store, "home", "").await;
    store.propose(guarded("a")).unwrap().settle().await.unwrap();
    let mut leaving = proposal("home", Some(version), "");
    leaving.draft = Draft::new(json!({"metadata": {"name": "home", "deletionTimestamp": "now"}}));
    store.propose(leaving).unwrap().settle().await.unwrap();
    assert!(matches!(store.propose(guarded("b")), Err(Refused::NotAlive)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_share_commits_and_every_version_is_used_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let store = Arc::new(Store::open(&path, Durability::Immediate, History::default()).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let store = store.clone();
        writers.spawn(async move {
            let mut versions = Vec::new();
            for _ in 0..20 {
                versions.push(put(&store, &format!("w{writer}"), "").await);
            }
            versions
        });
    }
    let mut versions: Vec<u64> = writers.join_all().await.into_iter().flatten().collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=320).collect::<Vec<_>>());
    assert_eq!(store.version(), 320);
}

#[tokio::test]
async fn a_closed_store_refuses_writes_and_frees_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let store = Store::open(&path, Durability::Deferred, History::default()).unwrap();
    put(&store, "a", "1").await;
    assert!(matches!(
        Store::open(&path, Durability::Immediate, History::default()),
        Err(OpenError::AlreadyOpen { .. })
    ));
    store.close();
    assert!(matches!(store.propose(proposal("b", None, "")), Err(Refused::Ended(CommitError::Closed))));
    assert_eq!(contents(&store).len(), 1, "reads go on");
    let again = Store::open(&path, Durability::Immediate, History::default()).unwrap();
    assert_eq!(contents(&again).len(), 1);
}

#[test]
fn foreign_and_damaged_files_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    std::fs::write(&path, "# a configuration file\n".repeat(1000)).unwrap();
    let error = Store::open(&path, Durability::Immediate, History::default()).unwrap_err();
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");

    std::fs::remove_file(&path).unwrap();
    let database = redb::Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(redb::TableDefinition::<u64, u64>::new("someone else's")).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Store::open(&path, Durability::Immediate, History::default()).unwrap_err();
    assert!(error.to_string().contains("someone else's"), "{error}");

    let error = Store::open(directory.path(), Durability::Immediate, History::default()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    let missing = directory.path().join("no/such/directory/api.redb");
    let error = Store::open(&missing, Durability::Immediate, History::default()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[tokio::test]
async fn a_creation_that_was_killed_half_way_does_not_stand_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    std::fs::write(directory.path().join("api.redb.new"), vec![0_u8; 8192]).unwrap();
    let store = Store::open(&path, Durability::Immediate, History::default()).unwrap();
    assert_eq!(put(&store, "a", "").await, 1);
}

/// A disk that works until it is told to fail.
#[derive(Debug)]
struct Fragile {
    inner: InMemoryBackend,
    broken: Arc<AtomicBool>,
}

impl Fragile {
    fn check(&self) -> std::io::Result<()> {
        if self.broken.load(Ordering::SeqCst) { Err(std::io::Error::other("no space left")) } else { Ok(()) }
    }
}

impl StorageBackend for Fragile {
    fn len(&self) -> std::io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check()?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.check()?;
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check()?;
        self.inner.write(offset, data)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_disk_fails_every_waiting_writer_is_told_and_readers_see_what_is_safe() {
    let broken = Arc::new(AtomicBool::new(false));
    let disk = Disk::on(Fragile { inner: InMemoryBackend::new(), broken: broken.clone() }).unwrap();
    let store = Arc::new(Store::run(disk, Committed::default(), History::default()).unwrap());
    put(&store, "safe", "1").await;
    broken.store(true, Ordering::SeqCst);
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            match store.propose(proposal(&format!("lost{writer}"), None, "")) {
                Ok(ticket) => ticket.settle().await.map(|_| ()),
                Err(Refused::Ended(error)) => Err(error),
                Err(other) => panic!("{other:?}"),
            }
        })
    });
    for outcome in futures::future::join_all(writers).await {
        assert!(matches!(outcome.unwrap(), Err(CommitError::Disk(_))));
    }
    let seen = store.latest("things", &Key::new("", "lost0"));
    assert!(seen.object.is_none(), "what was not stored is not there");
    assert!(store.settled(seen.settled_at).await.is_err(), "and nobody waits for it");
    assert_eq!(contents(&store), [("safe".to_owned(), 1, "1".to_owned())]);
    broken.store(false, Ordering::SeqCst);
    assert!(matches!(store.propose(proposal("late", None, "")), Err(Refused::Ended(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_sees_every_change_once_and_in_order_while_many_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.redb");
    let store = Arc::new(Store::open(&path, Durability::Immediate, History::default()).unwrap());
    let mut changed = store.subscribe("things");
    let follower = {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut cursor, mut seen) = (0, Vec::new());
            while seen.len() < 400 {
                changed.borrow_and_update();
                let (events, reached) = store.events_after("things", cursor, 7).unwrap();
                seen.extend(events.iter().map(|event| event.version()));
                cursor = reached;
                if events.is_empty() {
                    changed.changed().await.unwrap();
                }
            }
            seen
        })
    };
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..50 {
                put(&store, &format!("w{writer}"), &round.to_string()).await;
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    assert_eq!(follower.await.unwrap(), (1..=400).collect::<Vec<_>>());
}
