//! An agent without kernel and API server, looked at.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use tenure_cni::Verb;
use tenure_handles::ManualClock;
use tenure_ipam::Subnet;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::drive::{Executor, NodeChannel};
use crate::journal::{Image, Record};
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Attach, Event, PoolFacts, Recorded, SeenBlock, SeenSlice, Settings, Wish};
use crate::objects::{WatchHealth, watched};

struct Committed(Handle, u64);

impl Executor for Committed {
    fn record(&mut self, records: Vec<Record>) {
        self.1 += records.len() as u64;
        self.0.tell(Event::Committed { up_to: self.1 });
    }

    fn carry_out(&mut self, _: Action) {}
}

struct Rig {
    node: Handle,
    inspector: Inspector,
    calls: Calls,
    clock: Arc<ManualClock>,
    stage: Arc<Mutex<Stage>>,
    objects: Arc<Mutex<ApiHealth>>,
    end: oneshot::Sender<()>,
    driven: JoinHandle<()>,
}

fn block(index: u8) -> SeenBlock {
    SeenBlock {
        name: format!("default-{index}"),
        uid: format!("uid-{index}"),
        node: "node1".into(),
        pool: "default".into(),
        subnet: Subnet::single(format!("10.0.{index}.0/29").parse().unwrap()),
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    }
}

fn rig() -> Rig {
    rig_of(Vec::new())
}

fn rig_of(parts: Vec<Arc<dyn Inspect>>) -> Rig {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let channel = NodeChannel::new();
    let node = channel.handle();
    let driver =
        channel.driver(Node::new(Settings::new("node1")), Arc::clone(&clock), Committed(node.clone(), 0));
    let (end, ended) = oneshot::channel::<()>();
    let driven = tokio::spawn(driver.run(async move { drop(ended.await) }));
    let stage = Arc::new(Mutex::new(Stage::Reading));
    let objects = Arc::new(Mutex::new(ApiHealth::default()));
    let (said, heard) = (Arc::clone(&stage), Arc::clone(&objects));
    let calls = Calls::default();
    let inspector = Inspector::new(Inspected {
        node: node.clone(),
        name: "node1".into(),
        clock: clock.clone(),
        calls: calls.clone(),
        api_calls: ApiCalls::default(),
        objects: Box::new(move || heard.lock().unwrap().clone()),
        stage: Box::new(move || *said.lock().unwrap()),
        parts,
        history: None,
        kernel: None,
    });
    Rig { node, inspector, calls, clock, stage, objects, end, driven }
}

impl Rig {
    /// Everything is read, and there is a block of eight addresses.
    fn serve(&self) {
        self.node.tell(Event::Journal(Image::default()));
        self.node.tell(Event::Kernel(Vec::new()));
        let facts = PoolFacts { block_bits: 3, ..PoolFacts::default() };
        self.node.tell(Event::PoolChanged { name: "default".into(), facts });
        self.node.tell(Event::BlockSeen(block(0)));
        self.node.tell(Event::ApiRead);
        *self.stage.lock().unwrap() = Stage::Serving;
    }

    async fn add(&self, container: &str) {
        let attach = Attach {
            key: HoldKey::new("k8s", container, "eth0").unwrap(),
            pool: "default".into(),
            pod: Pod { namespace: "ns".into(), name: container.into(), uid: String::new() },
            netns: String::new(),
            wiring: None,
            wish: Wish::default(),
            claim_use: None,
        };
        self.node.call(move |ticket| Event::Add { ticket, attach }).await.unwrap();
    }
}

#[tokio::test]
async fn it_is_ready_when_the_plugin_is_answered_and_says_how_far_it_is_before() {
    let rig = rig();
    let (ready, text) = rig.inspector.ready().await;
    assert!(!ready && text.starts_with("agent: reading journal, kernel and API server"), "{text}");
    assert_eq!(rig.inspector.live().await, (true, "ok\n".to_owned()));
    rig.serve();
    let (ready, text) = rig.inspector.ready().await;
    assert!(
        ready && text.contains("agent: answering the plugin\njournal: works\naddresses: assigned\n"),
        "{text}"
    );
    *rig.stage.lock().unwrap() = Stage::Stopping;
    assert!(!rig.inspector.ready().await.0);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_said_and_does_not_make_it_unready() {
    let rig = rig();
    rig.serve();
    let failing =
        WatchHealth { listed: true, failing: Some("connection refused".into()), ..WatchHealth::default() };
    *rig.objects.lock().unwrap() = ApiHealth {
        complete: true,
        last_answer: Some(rig.clock.now()),
        watches: BTreeMap::from([(watched::POOLS, failing)]),
    };
    rig.clock.advance(Duration::from_secs(40));
    let (ready, text) = rig.inspector.ready().await;
    assert!(ready, "{text}");
    assert!(
        text.ends_with("API server: answered 40 s ago\nwatch of AddressPools: connection refused\n"),
        "{text}"
    );
    let text = rig.inspector.metrics().await.unwrap();
    assert!(text.contains("tenure_agent_watches_failing 1\n"), "{text}");
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_makes_it_unready() {
    let rig = rig();
    rig.serve();
    // What was written before does not say that it can be written again.
    rig.node.look(|_| ()).await.unwrap();
    rig.node.tell(Event::JournalFailed { message: "disk full".into() });
    let (ready, text) = rig.inspector.ready().await;
    assert!(!ready && text.contains("journal: cannot be written"), "{text}");
}

#[tokio::test]
async fn a_loop_that_has_ended_is_not_alive() {
    let rig = rig();
    rig.serve();
    rig.end.send(()).unwrap();
    rig.driven.await.unwrap();
    assert!(!rig.inspector.live().await.0);
    assert!(!rig.inspector.ready().await.0);
    let text = rig.inspector.metrics().await.unwrap();
    assert!(text.contains("tenure_agent_loop_alive 0\n") && !text.contains("pool=\"default\""), "{text}");
    assert!(rig.inspector.view().await.is_err());
}

#[tokio::test]
async fn metrics_count_pools_calls_and_the_journal() {
    let rig = rig();
    rig.serve();
    rig.add("a").await;
    rig.calls.answered(Verb::Add, 0, Duration::from_micros(300));
    rig.calls.answered(Verb::Add, 11, Duration::from_secs(2));
    let text = rig.inspector.metrics().await.unwrap();
    for line in [
        "tenure_agent_calls_total{verb=\"ADD\",code=\"0\"} 1",
        "tenure_agent_calls_total{verb=\"ADD\",code=\"11\"} 1",
        "tenure_agent_calls_total{verb=\"DEL\",code=\"0\"} 0",
        "tenure_agent_call_seconds_count{verb=\"ADD\"} 2",
        "tenure_agent_call_seconds_bucket{le=\"0.0005\",verb=\"ADD\"} 1",
        "tenure_agent_pool_blocks{pool=\"default\"} 1.0",
        "tenure_agent_pool_addresses{pool=\"default\",state=\"held\"} 1.0",
        "tenure_agent_pool_addresses{pool=\"default\",state=\"free\"} 7.0",
        "tenure_agent_pool_waiting{pool=\"default\"} 0.0",
        "tenure_agent_blocks{state=\"owned\"} 1.0",
        "tenure_agent_holds 1",
        "tenure_agent_serving 1",
        "tenure_agent_loop_alive 1",
        "tenure_agent_journal_waiting 0",
        "tenure_agent_journal_broken 0",
        "tenure_agent_watches_failing 0",
        "tenure_agent_leaks{kind=\"no hold\"} 0.0",
        "tenure_agent_leaks_repaired_total 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line:?} is missing in {text}");
    }
}

#[tokio::test]
async fn the_node_is_told_as_json() {
    let rig = rig();
    rig.serve();
    rig.add("a").await;
    rig.clock.advance(Duration::from_secs(1));
    let answer = rig.inspector.pages().answer(&http::Method::GET, "/v1/node", None).await;
    assert_eq!(answer.status(), 200);
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let mut told: Value = serde_json::from_slice(&body).unwrap();
    let blocks = json!([{
        "name": "default-0", "uid": "uid-0", "pool": "default", "networks": ["10.0.0.0/29"], "usable": true,
        "addresses": {"capacity": 8, "held": 1, "cooling": 0, "reserved": 0, "free": 7},
    }]);
    let holds = json!([{
        "network": "k8s", "container": "a", "interface": "eth0", "pod": {"namespace": "ns", "name": "a"},
        "pool": "default", "block": "default-0", "addresses": ["10.0.0.0"], "since": "2027-01-15T08:00:00Z",
    }]);
    assert_eq!((told["blocks"].take(), told["holds"].take()), (blocks, holds));
    assert_eq!(
        (&told["node"], &told["ready"], &told["time"]),
        (&json!("node1"), &json!(true), &json!("2027-01-15T08:00:01Z"))
    );
    assert_eq!(told.get("kernel"), None, "nothing is said of a kernel that was not looked at");
}

#[tokio::test]
async fn looking_is_cheap_with_many_pods() {
    let rig = rig();
    rig.serve();
    for index in 1..40 {
        rig.node.tell(Event::BlockSeen(block(index)));
    }
    for number in 0..250 {
        rig.add(&format!("c{number}")).await;
    }
    let view = rig.inspector.view().await.unwrap();
    assert_eq!(view.holds.len(), 250);
    let text = rig.inspector.metrics().await.unwrap();
    assert!(text.len() < 32 << 10, "metrics do not grow with pods: {} bytes", text.len());
}

#[tokio::test]
async fn a_slice_is_seen_like_a_block_with_what_is_used_and_free_of_it() {
    let rig = rig();
    let facts = PoolFacts { block_bits: 3, sliced: true, ..PoolFacts::default() };
    rig.node.tell(Event::PoolChanged { name: "whereabouts/net".into(), facts });
    let slice = SeenBlock {
        name: "net-node1-10.9.0.0-29".into(),
        uid: "u.1/10.9.0.0/29".into(),
        pool: "whereabouts/net".into(),
        subnet: Subnet::single("10.9.0.0/29".parse().unwrap()),
        ..block(0)
    };
    let record = Recorded {
        address: "10.9.0.3".parse().unwrap(),
        container: "c1".into(),
        interface: "net1".into(),
        pod: Pod { namespace: "ns".into(), name: "web".into(), uid: String::new() },
    };
    let realm = "whereabouts/net".to_owned();
    rig.node.tell(Event::SliceSeen(SeenSlice { block: slice, realm, records: vec![record] }));
    rig.serve();
    let view = rig.inspector.view().await.unwrap();
    let found = view.blocks.iter().find(|it| it.name == "net-node1-10.9.0.0-29").unwrap();
    assert_eq!((found.pool.as_str(), found.usable), ("whereabouts/net", true));
    assert_eq!((found.addresses.held, found.addresses.free), (1, 7));
    let hold = view.holds.iter().find(|it| it.block == Some(found.name.clone())).unwrap();
    assert_eq!(hold.holder.to_string(), "ns/web");
    let metrics = rig.inspector.metrics().await.unwrap();
    for (state, number) in [("held", 1), ("free", 7)] {
        let line =
            format!("tenure_agent_pool_addresses{{pool=\"whereabouts/net\",state=\"{state}\"}} {number}.0");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn pods_and_addresses_are_told_to_nobody_whom_the_api_server_does_not_know() {
    let rig = rig();
    rig.serve();
    rig.add("a").await;
    let pages = rig.inspector.pages();
    let alone = rig.inspector.pages_for_others(pages.clone(), None);
    // An API server that never says anything good.
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        let refused = json!({"kind": "Status", "code": 403, "message": "no"}).to_string().into_bytes();
        http::Response::builder().status(403).body(kube::client::Body::from(refused))
    });
    let client = Client::new(service, "default");
    let guarded = rig.inspector.pages_for_others(pages.clone(), Some(client));
    let ask = async |pages: &Pages, path, token| {
        let answer = pages.answer(&http::Method::GET, path, token).await;
        let status = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let told = ask(&pages, "/v1/node", None).await;
    assert!(told.0 == 200 && told.1.contains("10.0.0.0"), "{told:?}");
    for (pages, token, expected) in
        [(&alone, None, 404), (&alone, Some("t"), 404), (&guarded, None, 401), (&guarded, Some("t"), 503)]
    {
        let (status, text) = ask(pages, "/v1/node", token).await;
        assert!(status == expected && !text.contains("10.0.0.0"), "{status} {text}");
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(ask(pages, path, None).await.0, 200, "{path}");
        }
    }
}

/// A part with a watch, a metric and something to show.
#[derive(Default)]
struct Counting(prometheus_client::metrics::counter::Counter);

impl Inspect for Counting {
    fn health(&self) -> Option<ApiHealth> {
        let failing = WatchHealth { failing: Some("forbidden".into()), ..WatchHealth::default() };
        Some(ApiHealth { watches: BTreeMap::from([("Examples", failing)]), ..ApiHealth::default() })
    }

    fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        registry.register("example_reads", "Reads", self.0.clone());
    }

    fn count(&self) {
        self.0.inc();
    }

    fn show(&self, node: &mut tenure_view::Node) {
        node.egress = Some(tenure_view::Egress { clients: 3, ..tenure_view::Egress::default() });
    }
}

#[tokio::test]
async fn a_part_brings_its_own_health_metrics_and_view() {
    let rig = rig_of(vec![Arc::new(Counting::default())]);
    rig.serve();
    let (ready, text) = rig.inspector.ready().await;
    assert!(ready && text.contains("watch of Examples: forbidden"), "{text}");
    rig.inspector.metrics().await.unwrap();
    let text = rig.inspector.metrics().await.unwrap();
    assert!(text.contains("example_reads_total 2"), "{text}");
    let view = rig.inspector.view().await.unwrap();
    assert_eq!(view.egress.unwrap().clients, 3);
    assert!(view.api.watches.iter().any(|it| it.kind == "Examples"), "{:?}", view.api);
}
