//! A node, the API server and a real controller together; only journal and kernel are simulated.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::ListParams;
use tenure_api::coil::AddressBlock;
use tenure_cni::Failure;
use tenure_controller::{Controller, Settings as ControllerSettings};
use tenure_handles::SeededEntropy;
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::bed::{Bed, NODE, until};
use crate::coil::{Asked, Resolve};
use crate::drive::{Executor, Handle, NodeChannel};
use crate::journal::{Image, Record};
use crate::key::{HoldKey, Pod};
use crate::node::{Action, Attach, Done, Event, Found, Link, Node, Settings, Wish};
use crate::objects::{Objects, ObjectsOptions};
use crate::serve::PodName;

struct Whole {
    node: Handle,
    objects: Objects,
    _life: DropGuard,
}

/// Commits and wires everything at once.
struct Obedient {
    node: Handle,
    objects: Objects,
    position: u64,
}

impl Executor for Obedient {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Wire(job) => self.node.tell(Event::Wired { job: job.job, link: Link::default() }),
            Action::Unwire { job, .. } => self.node.tell(Event::Unwired { job }),
            action @ (Action::AskForBlock { .. }
            | Action::ReturnBlock { .. }
            | Action::KeepBlock { .. }
            | Action::Report(_)) => {
                self.objects.carry_out(action);
            }
            _ => {}
        }
    }
}

fn settings() -> Settings {
    Settings { patience: Duration::from_secs(20), ..Settings::new(NODE) }
}

fn whole(bed: &Bed, settings: Settings, found: Vec<Found>) -> Whole {
    let channel = NodeChannel::new();
    let (node, stop) = (channel.handle(), CancellationToken::new());
    let tell = {
        let node = node.clone();
        move |event| node.tell(event)
    };
    let client = bed.faults.client(bed.server.clone(), "default");
    let entropy = SeededEntropy::new(5);
    let objects =
        Objects::start(client, ObjectsOptions::new(NODE), RuntimeClock, entropy, tell, stop.clone());
    let executor = Obedient { node: node.clone(), objects: objects.clone(), position: 0 };
    let driver = channel.driver(Node::new(settings), RuntimeClock, executor);
    node.tell(Event::Journal(Image::default()));
    node.tell(Event::Kernel(found));
    let ended = stop.clone();
    tokio::spawn(async move { driver.run(ended.cancelled()).await });
    Whole { node, objects, _life: stop.drop_guard() }
}

impl Whole {
    async fn ready(&self) {
        until("the node", async || self.node.look(Node::is_ready).await.unwrap().then_some(())).await;
    }

    async fn add(&self, container: &str, namespace: &str) -> Result<String, Failure> {
        let pod = PodName { namespace: namespace.into(), name: container.into(), uid: String::new() };
        let asked = Asked { pod: Some(pod), pool: None };
        let (pool, pod) = self.objects.resolver().resolve(asked).await?;
        let attach = attach(container, &pool, pod);
        match self.node.call(move |ticket| Event::Add { ticket, attach }).await? {
            Done::Added { addresses, .. } => Ok(addresses.to_string()),
            other => panic!("{other:?}"),
        }
    }

    async fn del(&self, container: &str) {
        let key = HoldKey::new("k8s", container, "eth0").unwrap();
        self.node.call(move |ticket| Event::Del { ticket, key, interface: false }).await.unwrap();
    }
}

fn attach(container: &str, pool: &str, pod: Pod) -> Attach {
    let key = HoldKey::new("k8s", container, "eth0").unwrap();
    let (netns, wish) = (String::new(), Wish::default());
    Attach { key, pool: pool.into(), pod, netns, wiring: None, wish, claim_use: None }
}

fn controller(bed: &Bed) -> DropGuard {
    let stop = CancellationToken::new();
    let controller = Controller::new(bed.client.clone(), RuntimeClock, ControllerSettings::new("test"));
    tokio::spawn(controller.run(stop.clone()));
    stop.drop_guard()
}

async fn block_names(bed: &Bed) -> Vec<String> {
    let list = bed.api::<AddressBlock>().list(&ListParams::default()).await.unwrap();
    list.items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn without_a_controller_an_add_fails_in_time_and_with_one_the_next_succeeds() {
    let bed = Bed::new(71).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.namespace("team", None).await;
    let whole = whole(&bed, Settings { patience: Duration::from_millis(500), ..settings() }, Vec::new());
    whole.ready().await;
    let refused = whole.add("a", "team").await.unwrap_err();
    assert_eq!(refused.code, 11, "{refused:?}");
    assert!(refused.message.contains("no block of AddressPool \"default\""), "{refused:?}");
    let _controller = controller(&bed);
    // The wish is still open: its block comes although no ADD waits for it any more.
    until("a block", async || (!block_names(&bed).await.is_empty()).then_some(())).await;
    let address = until("an address", async || whole.add("b", "team").await.ok()).await;
    assert_eq!(address, "10.1.0.0", "the first one of the block");
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_adds_at_once_on_an_empty_node_get_their_blocks_and_an_exhausted_pool_says_so() {
    let bed = Bed::new(72).await;
    bed.pool("default", 2, "10.1.0.0/25").await;
    bed.namespace("team", None).await;
    let _controller = controller(&bed);
    let whole = Arc::new(whole(&bed, settings(), Vec::new()));
    whole.ready().await;
    let adds = (0..100).map(|number| {
        let whole = Arc::clone(&whole);
        tokio::spawn(async move { whole.add(&format!("c{number}"), "team").await })
    });
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    for add in adds.collect::<Vec<_>>() {
        addresses.push(add.await.unwrap().unwrap().parse().unwrap());
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 100);
    bed.no_requests().await;
    for number in 100..128 {
        whole.add(&format!("c{number}"), "team").await.unwrap();
    }
    let refused = whole.add("one-too-many", "team").await.unwrap_err();
    assert!(refused.message.contains("no address left"), "{refused:?}");
    whole.del("c7").await;
    let again = whole.add("in-its-place", "team").await.unwrap();
    assert!(addresses.contains(&again.parse().unwrap()), "{again}");
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn an_annotated_namespace_gets_addresses_of_its_own_pool() {
    let bed = Bed::new(73).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.pool("public", 0, "192.0.2.0/28").await;
    bed.namespace("team", None).await;
    bed.namespace("web", Some("public")).await;
    bed.namespace("lost", Some("nowhere")).await;
    let _controller = controller(&bed);
    let whole = whole(&bed, settings(), Vec::new());
    whole.ready().await;
    assert_eq!(whole.add("a", "team").await.unwrap(), "10.1.0.0");
    assert_eq!(whole.add("b", "web").await.unwrap(), "192.0.2.0");
    let refused = whole.add("c", "lost").await.unwrap_err();
    for part in ["\"nowhere\"", "\"lost\""] {
        assert!(refused.message.contains(part), "{refused:?}");
    }
    assert!(refused.details.contains("coil.cybozu.com/pool"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_what_is_used_stays_and_empty_blocks_of_all_pools_go_back() {
    let bed = Bed::new(74).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.pool("other", 2, "10.1.1.0/24").await;
    bed.namespace("team", None).await;
    for (pool, index) in [("default", 0), ("default", 1)] {
        bed.block(pool, index, NODE).await;
    }
    let mut other = super::bed::block("other", 0, NODE);
    other["ipv4"] = serde_json::json!("10.1.1.0/30");
    bed.create::<AddressBlock>(other).await;
    let found = Found {
        key: HoldKey::new("k8s", "survivor", "eth0").unwrap(),
        pod: Pod::default(),
        addresses: vec!["10.1.0.4".parse().unwrap()],
    };
    let settings = Settings { rest: Duration::ZERO, keep: 0, low_water_most: 1, ..settings() };
    let whole = whole(&bed, settings, vec![found]);
    whole.ready().await;
    until("the empty ones to go", async || (block_names(&bed).await == ["default-1"]).then_some(())).await;
    let _controller = controller(&bed);
    assert_eq!(whole.add("next", "team").await.unwrap(), "10.1.0.5", "which skips what is used");
}

#[tokio::test(start_paused = true)]
async fn on_a_bad_connection_every_add_gets_its_address_in_the_end_and_no_request_is_left() {
    let bed = Bed::new(75).await;
    bed.pool("default", 1, "10.1.0.0/24").await;
    bed.namespace("team", None).await;
    let _controller = controller(&bed);
    let struck = [
        bed.faults.add(Rule::lose_answer().on(Calls::writes()).percent(20)),
        bed.faults.add(Rule::lose_request().on(Calls::writes()).percent(20)),
        bed.faults.add(Rule::fail(http::StatusCode::INTERNAL_SERVER_ERROR).on(Calls::writes()).percent(10)),
    ];
    let whole = whole(&bed, settings(), Vec::new());
    whole.ready().await;
    let mut addresses = Vec::new();
    for number in 0..40 {
        if number % 8 == 7 {
            bed.faults.cut_watches(&Calls::all());
        }
        addresses.push(whole.add(&format!("c{number}"), "team").await.unwrap());
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 40);
    assert!(
        struck.iter().all(|rule| bed.faults.struck(*rule) > 0),
        "a fault that never happened proves nothing"
    );
    bed.faults.clear();
    bed.no_requests().await;
}

#[tokio::test(start_paused = true)]
async fn a_block_costs_three_writes() {
    let bed = Bed::new(76).await;
    bed.pool("default", 2, "10.1.0.0/24").await;
    bed.namespace("team", None).await;
    let of_controller = Faults::seeded(76);
    let client = of_controller.client(bed.server.clone(), "default");
    let stop = CancellationToken::new();
    let controller = Controller::new(client, RuntimeClock, ControllerSettings::new("test"));
    tokio::spawn(controller.run(stop.clone()));
    let _controller = stop.drop_guard();
    let whole = whole(&bed, settings(), Vec::new());
    whole.ready().await;
    whole.add("a", "team").await.unwrap();
    until("a block", async || (!block_names(&bed).await.is_empty()).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bed.no_requests().await;
    let blocks = block_names(&bed).await.len() as u64;
    let asked = |of: &Faults, calls: Calls| of.tally(&calls).asked;
    let by_agent = asked(&bed.faults, Calls::writes().to("blockrequests"));
    let by_controller =
        ["addressblocks", "blockrequests"].map(|kind| asked(&of_controller, Calls::writes().to(kind)));
    assert_eq!((by_agent, by_controller), (2 * blocks, [blocks, 0]), "of {blocks} blocks");
}
