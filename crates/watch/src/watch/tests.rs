//! Watches of an embedded API server that is away, forgets, refuses, or is set back. The clock is tokio's, paused.

use std::sync::{Arc, Mutex};

use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Status;
use serde_json::json;
use tenure_handles::{ManualClock, SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};
use tokio::time::timeout;

use super::*;
use crate::cache::{Cache, Identity};

/// What a watch has shown.
#[derive(Default)]
struct Shown {
    cache: Cache<Node>,
    lacks: Vec<bool>,
    readable: Vec<String>,
    all_listed: u32,
    failed: u32,
}

struct Test(Arc<Mutex<Shown>>);

impl Listener<Node> for Test {
    fn hear(&mut self, event: Event<Read<Node>>) -> bool {
        let cache = &mut self.0.lock().unwrap().cache;
        match event {
            Event::Init => cache.begin(),
            Event::InitApply(read) => read.is().into_iter().for_each(|node| cache.list(node)),
            Event::InitDone => cache.finish(),
            Event::Apply(read) => read.is().into_iter().for_each(|node| cache.apply(node)),
            Event::Delete(read) => {
                let Identity { key, uid, .. } = Identity::named(read.meta());
                cache.remove(&key, &uid);
            }
        }
        true
    }

    fn readable(&mut self, name: String) {
        self.0.lock().unwrap().readable.push(name);
    }

    fn lacks_kind(&mut self, lacks: bool) {
        self.0.lock().unwrap().lacks.push(lacks);
    }

    fn failed(&mut self) {
        self.0.lock().unwrap().failed += 1;
    }

    fn all_listed(&mut self) {
        self.0.lock().unwrap().all_listed += 1;
    }
}

/// A watch of nodes.
struct Bed {
    faults: Faults,
    connection: Connection,
    shown: Arc<Mutex<Shown>>,
    server: Arc<Mutex<LocalApi>>,
}

fn server(seed: u64) -> LocalApi {
    LocalApi::temporary(SystemClock, SeededEntropy::new(seed))
}

impl Bed {
    fn new() -> Self {
        let (faults, server) = (Faults::seeded(1), Arc::new(Mutex::new(server(1))));
        let current = Arc::clone(&server);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let mut server = current.lock().unwrap().clone();
            tower::Service::call(&mut server, request)
        });
        let client = faults.client(service, "default");
        let entropy = Arc::new(SeededEntropy::new(3));
        let connection = Connection::new(client, Arc::new(ManualClock::default()), entropy);
        connection.health().expect("Nodes");
        Self { faults, connection, shown: Arc::default(), server }
    }

    fn client(&self) -> Client {
        self.server.lock().unwrap().client()
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client())
    }

    async fn make(&self, name: &str) {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.nodes().create(&PostParams::default(), &node).await.unwrap();
    }

    async fn label(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"label": value}}}));
        self.nodes().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    fn watch(&self) {
        let (connection, listener) = (self.connection.clone(), Test(Arc::clone(&self.shown)));
        tokio::spawn(async move {
            let nodes = Api::all(connection.client());
            connection.watch("Nodes", nodes, watcher::Config::default(), Some(LOOK_FOR_KIND), listener).await;
        });
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Shown) -> bool) {
        let waiting = async {
            while !is_so(&self.shown.lock().unwrap()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(Duration::from_mins(10), waiting).await.is_ok(), "{what}");
    }

    fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    fn asked(&self) -> u64 {
        self.faults.tally(&Calls::all()).asked
    }
}

fn names(shown: &Shown) -> Vec<&str> {
    shown.cache.iter().filter_map(|node| node.metadata.name.as_deref()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_more_and_more_seldom_and_nobody_says_that_it_answers() {
    let bed = Bed::new();
    bed.away();
    bed.watch();
    // At the latest after 0, 50, 150, 350 and 750 ms; at the earliest after half of that.
    sleep(Duration::from_millis(1_200)).await;
    assert!((5..=6).contains(&bed.asked()), "{}", bed.asked());
    sleep(Duration::from_mins(10)).await;
    let seldom = bed.asked();
    sleep(Duration::from_mins(10)).await;
    assert!((60..=120).contains(&(bed.asked() - seldom)), "{}", bed.asked() - seldom);
    let health = bed.connection.health().look();
    assert!(health.last_answer.is_none() && !health.works() && !health.complete, "{health:?}");
    assert!(health.watches["Nodes"].failing.is_some(), "{health:?}");
    bed.faults.clear();
    bed.until("the first list", |shown| shown.all_listed == 1).await;
    assert!(bed.connection.health().look().works());
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_nothing_was_seen_is_taken_for_missing_at_the_first_answer() {
    let bed = Bed::new();
    bed.faults.add(Rule::fail(StatusCode::NOT_FOUND).on(Calls::of(Verb::List).to("nodes")));
    bed.watch();
    bed.until("the lack", |shown| shown.lacks == [true] && shown.all_listed == 1).await;
    assert_eq!(bed.asked(), 1);
    sleep(Duration::from_mins(1)).await;
    let health = bed.connection.health().look();
    assert!(health.works() && health.watches["Nodes"].lacks_kind, "{health:?}");
    assert!((31..=61).contains(&bed.asked()), "it is looked for every two seconds: {}", bed.asked());
    bed.make("a").await;
    bed.faults.clear();
    bed.until("the kind", |shown| shown.lacks == [true, false] && names(shown) == ["a"]).await;
    assert_eq!(bed.shown.lock().unwrap().failed, 0, "nobody has to mend that");
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_objects_were_seen_is_taken_for_missing_after_four_answers() {
    let bed = Bed::new();
    bed.make("a").await;
    bed.watch();
    bed.until("the object", |shown| names(shown) == ["a"]).await;
    let missing = || Rule::fail(StatusCode::NOT_FOUND).on(Calls::all().to("nodes"));
    let refused = bed.faults.add(missing().times(3));
    bed.faults.cut_watches(&Calls::all());
    bed.until("the list after", |_| bed.faults.struck(refused) == 3).await;
    bed.make("b").await;
    bed.until("the other object", |shown| names(shown) == ["a", "b"]).await;
    assert!(bed.shown.lock().unwrap().lacks.is_empty(), "a server that starts may not know all kinds yet");
    let refused = bed.faults.add(missing());
    bed.faults.cut_watches(&Calls::all());
    bed.until("the lack", |shown| shown.lacks == [true]).await;
    assert_eq!(bed.faults.struck(refused), 4);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_go_on_hears_what_a_restored_database_says() {
    let bed = Bed::new();
    for name in ["older", "deleted"] {
        bed.make(name).await;
    }
    bed.watch();
    bed.until("the first list", |shown| names(shown) == ["deleted", "older"]).await;
    bed.nodes().delete("deleted", &DeleteParams::default()).await.unwrap();
    bed.make("later").await;
    for number in 0..100 {
        bed.label("older", &format!("changed-{number}")).await;
    }
    bed.until("all changes", |shown| {
        let older = shown.cache.get("older").and_then(|node| node.metadata.labels.clone());
        older.is_some_and(|labels| labels["label"] == "changed-99") && names(shown) == ["later", "older"]
    })
    .await;
    bed.away();
    bed.until("the watch to fail", |shown| shown.failed > 1).await;
    // The same objects as at the time of the backup, at lower versions than were seen.
    let before = bed.server.lock().unwrap().resource_version();
    *bed.server.lock().unwrap() = server(2);
    for name in ["older", "deleted"] {
        bed.make(name).await;
    }
    bed.faults.clear();
    bed.until("the list", |shown| names(shown) == ["deleted", "older"]).await;
    bed.make("new").await;
    bed.label("older", "anew").await;
    bed.until("what happens since", |shown| {
        let older = shown.cache.get("older").and_then(|node| node.metadata.labels.clone());
        names(shown) == ["deleted", "new", "older"] && older.is_some_and(|labels| labels["label"] == "anew")
    })
    .await;
    assert!(bed.server.lock().unwrap().resource_version() < before);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_sees_that_the_api_server_was_away_all_is_listed_within_two_hours() {
    let bed = Bed::new();
    bed.make("a").await;
    bed.watch();
    bed.until("the first list", |shown| names(shown) == ["a"]).await;
    for number in 0..100 {
        bed.label("a", &number.to_string()).await;
    }
    sleep(Duration::from_secs(1)).await;
    *bed.server.lock().unwrap() = server(2);
    bed.faults.cut_watches(&Calls::all());
    bed.make("b").await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(
        names(&bed.shown.lock().unwrap()),
        ["a"],
        "the server goes on where it does not know to begin"
    );
    sleep(Duration::from_mins(90)).await;
    assert_eq!(names(&bed.shown.lock().unwrap()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_counted_until_it_can_be_or_is_gone() {
    let mut unreadable = Unreadable::default();
    let read = |json| serde_json::from_value::<Read<Node>>(json).unwrap();
    let bad = || read(json!({"metadata": {"name": "bad", "uid": "1"}, "spec": 7}));
    let good = || read(json!({"metadata": {"name": "bad", "uid": "1"}}));
    assert!(unreadable.hear(&Event::Apply(bad())).is_empty() && unreadable.len() == 1);
    assert_eq!(unreadable.hear(&Event::Apply(good())), ["bad"]);
    assert_eq!(unreadable.len(), 0);
    unreadable.hear(&Event::Apply(bad()));
    assert_eq!(unreadable.hear(&Event::Delete(bad())), ["bad"]);
    unreadable.hear(&Event::Apply(bad()));
    unreadable.hear::<Node>(&Event::Init);
    assert_eq!(unreadable.hear::<Node>(&Event::InitDone), ["bad"]);
    assert_eq!(unreadable.len(), 0);
}

#[test]
fn after_a_restart_of_the_api_server_nobody_waits_as_long_as_while_it_was_away() {
    let mut backoff = Backoff::new(Arc::new(SeededEntropy::new(1)));
    let away = watcher::Error::NoResourceVersion;
    let last = (0..6).fold(Duration::ZERO, |_, _| wait_after(&away, &mut backoff));
    assert!(last >= Duration::from_millis(800), "{last:?}");
    let status = Status::failure("too old resource version", "Expired").with_code(GONE);
    let expired = wait_after(&watcher::Error::WatchError(status.boxed()), &mut backoff);
    assert!(expired <= Duration::from_millis(50), "{expired:?}");
}

#[test]
fn who_is_asked_to_come_back_later_does() {
    let mut backoff = Backoff::new(Arc::new(SeededEntropy::new(1)));
    let busy = watcher::Error::InitialListFailed(crate::calls::tests::refused(429, 17));
    assert_eq!(wait_after(&busy, &mut backoff), Duration::from_secs(17));
}
