//! Ledgers on an embedded API server, with faults between: what Whereabouts gets wrong, and what a node must survive.

use std::collections::BTreeSet;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tenure_api::whereabouts::{GROUP, OverlappingRangeIPReservation};
use tenure_handles::SeededEntropy;
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};
use tenure_whereabouts::config::Arguments;
use tokio_util::sync::DropGuard;

use super::*;

const NAMESPACE: &str = "kube-system";

/// An API server, and what lies between it and nodes.
struct Bed {
    server: LocalApi,
    client: Client,
    faults: Faults,
    directory: tempfile::TempDir,
}

/// A node's ledgers.
struct Node {
    ledgers: Ledgers,
    _life: DropGuard,
}

impl Bed {
    async fn new() -> Self {
        let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(5));
        let client = server.client();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        drop(namespaces.create(&PostParams::default(), &namespace).await);
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in tenure_api::crds().into_iter().filter(|it| it.spec.group == GROUP) {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        Self { server, client, faults: Faults::seeded(7), directory: tempfile::tempdir().unwrap() }
    }

    fn node(&self, name: &str) -> Node {
        self.node_with(name, |options| options)
    }

    fn node_with(&self, name: &str, change: impl FnOnce(LedgersOptions) -> LedgersOptions) -> Node {
        let stop = CancellationToken::new();
        let options = LedgersOptions {
            patience: Duration::from_millis(400),
            ..LedgersOptions::new(name, self.directory.path().join(name))
        };
        let client = self.faults.client(self.server.clone(), NAMESPACE);
        let ledgers = Ledgers::new(client, change(options), RuntimeClock, stop.clone());
        Node { ledgers, _life: stop.drop_guard() }
    }

    async fn records(&self) -> Vec<(String, String, String)> {
        let pools: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let listed = pools.list(&ListParams::default()).await.unwrap().items;
        let of = |pool: IPPool| {
            let name = pool.metadata.name.unwrap_or_default();
            pool.spec.allocations.into_iter().map(move |(key, record)| (name.clone(), key, record.podref))
        };
        listed.into_iter().flat_map(of).collect()
    }

    async fn reservations(&self) -> Vec<String> {
        let reservations: Api<OverlappingRangeIPReservation> =
            Api::namespaced(self.client.clone(), NAMESPACE);
        let listed = reservations.list(&ListParams::default()).await.unwrap().items;
        listed.into_iter().filter_map(|it| it.metadata.name).collect()
    }

    async fn put(&self, pool: &Value) {
        let pools: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
        pools.create(&PostParams::default(), &serde_json::from_value(pool.clone()).unwrap()).await.unwrap();
    }

    fn asked(&self, verb: Verb) -> u64 {
        self.faults.tally(&Calls::of(verb)).asked
    }
}

impl Node {
    async fn add(&self, config: &Config, pod: &str) -> Result<Vec<String>, Failure> {
        self.add_as(config, pod, &format!("id-{pod}"), "net1").await
    }

    async fn add_as(
        &self,
        config: &Config,
        pod: &str,
        id: &str,
        ifname: &str,
    ) -> Result<Vec<String>, Failure> {
        let held = self.ledgers.hold(&who(pod, id, ifname), config, &[]).await?;
        Ok(held.iter().map(ToString::to_string).collect())
    }

    async fn del(&self, config: &Config, pod: &str) -> Result<Vec<Address>, Failure> {
        let pools = config.ranges.iter().map(|it| PoolId::shared(&config.network, it.cidr())).collect();
        let who = who(pod, &format!("id-{pod}"), "net1");
        self.ledgers.release(&config.name, &config.network, &who, pools).await
    }
}

fn who(pod: &str, id: &str, ifname: &str) -> Who {
    let (podref, uid) = (format!("ns/{pod}"), format!("uid-{pod}"));
    Who { id: id.to_owned(), podref, uid, ifname: ifname.to_owned() }
}

fn config(ipam: &Value) -> Config {
    let mut network = json!({"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "ipam": ipam});
    network["ipam"]["type"] = json!("whereabouts");
    Config::load(&network, None, &Arguments::default()).unwrap()
}

fn whereabouts_pool(name: &str, range: &str, records: &Value) -> Value {
    json!({
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name},
        "spec": {"range": range, "allocations": records}
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once_are_a_handful_of_writes_and_no_list() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/16"})));
    assert_eq!(node.add(&config, "first").await.unwrap(), ["10.0.0.1"]);
    bed.faults.reset_tallies();
    let adds = (0..100).map(|n| {
        let (node, config) = (&node, &config);
        async move { node.add(config, &format!("p{n}")).await.unwrap().remove(0) }
    });
    let given: BTreeSet<String> = futures::future::join_all(adds).await.into_iter().collect();
    assert_eq!(given.len(), 100);
    assert!(bed.asked(Verb::Patch) <= 10, "{} writes", bed.asked(Verb::Patch));
    assert_eq!((bed.asked(Verb::List), bed.asked(Verb::Get), bed.asked(Verb::Create)), (0, 0, 0));
    assert_eq!(bed.records().await.len(), 101);
    let pools: Api<IPPool> = Api::namespaced(bed.client.clone(), NAMESPACE);
    assert_eq!(pools.get("10.0.0.0-16").await.unwrap().spec.allocations.len(), 101);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_ask_at_once_never_share_an_address_and_none_is_lost() {
    let bed = Bed::new().await;
    let config = config(&json!({"range": "10.0.0.0/22", "ipRanges": [{"range": "fd00::/118"}]}));
    // All of them wait for one another, also where the machine is busy.
    let patient = |options| LedgersOptions { patience: Duration::from_secs(30), ..options };
    let nodes: Vec<Node> = (0..4).map(|n| bed.node_with(&format!("node-{n}"), patient)).collect();
    bed.faults.add(Rule::delay(Duration::ZERO..=Duration::from_millis(5)).on(Calls::writes()));
    bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Patch)).percent(10));
    let adds = (0..240).map(|n: usize| {
        let (node, config) = (&nodes[n % nodes.len()], &config);
        async move { node.add(config, &format!("p{n}")).await.unwrap() }
    });
    let given: Vec<Vec<String>> = futures::future::join_all(adds).await;
    let different: BTreeSet<&String> = given.iter().flatten().collect();
    assert_eq!(different.len(), 480);
    assert_eq!(bed.records().await.len(), 480);
    let dels = (0..240).map(|n: usize| {
        let (node, config) = (&nodes[n % nodes.len()], &config);
        async move { node.del(config, &format!("p{n}")).await.unwrap() }
    });
    futures::future::join_all(dels).await;
    assert_eq!(bed.records().await, []);
}

#[tokio::test(start_paused = true)]
async fn an_add_whose_write_fails_is_refused_and_leaves_neither_record_nor_reservation() {
    let bed = Bed::new().await;
    let (node, wide) = (bed.node("a"), config(&json!({"range": "10.0.0.0/24"})));
    let narrow = config(&json!({"range": "10.0.0.0/28"}));
    node.add(&wide, "first").await.unwrap();
    assert_eq!(node.add(&narrow, "second").await.unwrap(), ["10.0.0.2"]);
    let rule = bed.faults.add(Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(Calls::of(Verb::Patch)));
    let failure = node.add(&narrow, "third").await.unwrap_err();
    assert_eq!(failure.code, 11);
    assert!(failure.message.contains("500") && failure.message.contains("ns/third"), "{failure}");
    bed.faults.remove(rule);
    // What was left of it goes with the next that is done.
    assert_eq!(node.add(&narrow, "fourth").await.unwrap().len(), 1);
    assert_eq!(bed.records().await.len(), 3);
    let mut reserved = bed.reservations().await;
    reserved.retain(|name| name != "10.0.0.2");
    assert!(reserved.len() <= 1, "{reserved:?}");
    node.del(&narrow, "fourth").await.unwrap();
    assert_eq!(bed.reservations().await, ["10.0.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_range_that_is_full_leaves_nothing_of_the_first() {
    let bed = Bed::new().await;
    let node = bed.node("a");
    let full = config(&json!({"range": "fd00::/126"}));
    for pod in ["x", "y"] {
        node.add(&full, pod).await.unwrap();
    }
    let dual = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/126"}]}));
    let failure = node.add(&dual, "a").await.unwrap_err();
    assert!(failure.message.contains("fd00"), "{failure}");
    assert!(bed.records().await.iter().all(|(pool, ..)| pool != "10.0.0.0-24"));
    assert_eq!(node.ledgers.attachments("n").len(), 2, "nothing is remembered of it");
}

#[tokio::test(start_paused = true)]
async fn a_del_releases_the_second_address_also_when_the_first_is_gone() {
    let bed = Bed::new().await;
    let node = bed.node("a");
    let dual = config(&json!({"range": "10.0.0.0/24", "ipRanges": [{"range": "fd00::/120"}]}));
    node.add(&dual, "a").await.unwrap();
    let v4 = config(&json!({"range": "10.0.0.0/24"}));
    let stale = whereabouts_pool("10.0.0.0-24", "10.0.0.0/24", &json!({}));
    let pools: Api<IPPool> = Api::namespaced(bed.client.clone(), NAMESPACE);
    pools.delete("10.0.0.0-24", &kube::api::DeleteParams::default()).await.unwrap();
    bed.put(&stale).await;
    node.del(&dual, "a").await.unwrap();
    assert_eq!(bed.records().await, []);
    assert_eq!(node.del(&v4, "a").await.unwrap(), [], "once more is a success");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_whereabouts_filled_is_adopted_and_drained() {
    let bed = Bed::new().await;
    let records = json!({
        "1": {"id": "id-a", "podref": "ns/a", "ifname": "net1"},
        "2": {"id": "id-b", "podref": "ns/b"},
        "18446463705355360228": {"id": "insane", "podref": "ns/x", "ifname": "net1"},
        "3": {"id": "id-c", "podref": "ns/c", "ifname": "net1"},
    });
    bed.put(&whereabouts_pool("192.168.2.0-24", "192.168.2.0/24", &records)).await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "192.168.2.0/24"})));
    assert_eq!(node.add(&config, "a").await.unwrap(), ["192.168.2.1"], "what it has");
    assert_eq!(node.add(&config, "b").await.unwrap(), ["192.168.2.2"], "also without an interface");
    assert_eq!(node.add(&config, "d").await.unwrap(), ["192.168.2.4"]);
    for pod in ["a", "b", "c", "d"] {
        assert_eq!(node.del(&config, pod).await.unwrap().len(), 1, "{pod}");
    }
    let left: Vec<_> = bed.records().await.into_iter().map(|(_, key, _)| key).collect();
    assert_eq!(left, ["18446463705355360228"]);
}

#[tokio::test(start_paused = true)]
async fn ranges_that_overlap_on_two_nodes_share_no_address() {
    let bed = Bed::new().await;
    let (one, other) = (bed.node("a"), bed.node("b"));
    let (wide, narrow) = (config(&json!({"range": "10.0.0.0/24"})), config(&json!({"range": "10.0.0.0/28"})));
    assert_eq!(one.add(&wide, "p1").await.unwrap(), ["10.0.0.1"]);
    assert_eq!(other.add(&narrow, "p2").await.unwrap(), ["10.0.0.2"]);
    let third = one.add(&wide, "p3").await.unwrap();
    assert!(!["10.0.0.1", "10.0.0.2"].contains(&third[0].as_str()), "{third:?}");
    // The same pod's other interface, which Whereabouts gives the same address.
    let again = other.add_as(&narrow, "p1", "id-p1", "net2").await.unwrap();
    assert!(again != ["10.0.0.1"] && again != third, "{again:?}");
    let mut holders: Vec<String> = bed.records().await.into_iter().map(|(_, key, _)| key).collect();
    holders.sort();
    holders.dedup();
    assert_eq!(holders.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_refused_for_what_another_node_has_freed() {
    let bed = Bed::new().await;
    let (one, other) = (bed.node("a"), bed.node("b"));
    let config = config(&json!({"range": "10.0.0.0/30"}));
    one.add(&config, "p1").await.unwrap();
    other.add(&config, "p2").await.unwrap();
    let failure = one.add(&config, "p3").await.unwrap_err();
    assert!(failure.code == 11 && failure.message.contains("could not allocate"), "{failure}");
    other.del(&config, "p2").await.unwrap();
    assert_eq!(one.add(&config, "p3").await.unwrap(), ["10.0.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn a_lone_caller_gets_the_lowest_also_when_another_node_freed_it() {
    let bed = Bed::new().await;
    let quick = |options| LedgersOptions { cooling: Duration::ZERO, ..options };
    let (one, other) = (bed.node_with("a", quick), bed.node_with("b", quick));
    let config = config(&json!({"range": "10.0.0.0/24"}));
    assert_eq!(one.add(&config, "p1").await.unwrap(), ["10.0.0.1"]);
    assert_eq!(other.add(&config, "p2").await.unwrap(), ["10.0.0.2"]);
    assert_eq!(other.add(&config, "p3").await.unwrap(), ["10.0.0.3"]);
    one.del(&config, "p1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(other.add(&config, "p4").await.unwrap(), ["10.0.0.1"]);
    other.del(&config, "p4").await.unwrap();
    assert_eq!(other.add(&config, "p5").await.unwrap(), ["10.0.0.1"], "nothing rests");
}

#[tokio::test(start_paused = true)]
async fn a_freed_address_rests_and_gives_way() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/29"})));
    node.add(&config, "a").await.unwrap();
    node.del(&config, "a").await.unwrap();
    let mut given = Vec::new();
    for pod in ["b", "c", "d", "e", "f", "g"] {
        given.extend(node.add(&config, pod).await.unwrap());
    }
    assert_eq!(given, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_nobody_waits_long_and_status_says_so() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/24"})));
    node.add(&config, "a").await.unwrap();
    assert_eq!(node.ledgers.trouble().await, None);
    let rule = bed.faults.add(Rule::lose_request().on(Calls::all()));
    for act in [node.add(&config, "b").await.err(), node.del(&config, "a").await.err()] {
        assert_eq!(act.map(|failure| failure.code), Some(11));
    }
    assert!(node.ledgers.trouble().await.is_some());
    bed.faults.remove(rule);
    assert_eq!(node.ledgers.trouble().await, None);
    assert_eq!(node.del(&config, "a").await.unwrap().len(), 1);
    assert_eq!(bed.records().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_found_and_not_made_again() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/24"})));
    node.add(&config, "a").await.unwrap();
    bed.faults.add(Rule::lose_answer().on(Calls::of(Verb::Patch)).times(1));
    assert_eq!(node.add(&config, "b").await.unwrap(), ["10.0.0.2"]);
    assert_eq!(bed.records().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_check_looks_at_the_objects() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/24"})));
    node.add(&config, "a").await.unwrap();
    let (own, given) = (who("a", "id-a", "net1"), ["10.0.0.1".parse().unwrap()]);
    node.ledgers.check(&own, &config, &given).await.unwrap();
    let another = who("a", "another", "net1");
    assert!(node.ledgers.check(&another, &config, &given).await.is_err(), "it is another container's");
    assert!(node.ledgers.check(&own, &config, &["10.0.0.9".parse().unwrap()]).await.is_err());
    let other = bed.node("b");
    other.del(&config, "a").await.unwrap();
    let failure = node.ledgers.check(&own, &config, &given).await.unwrap_err();
    assert!(failure.message.contains("10.0.0.1"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_filled_over_many_objects_to_its_last_address() {
    let bed = Bed::new().await;
    let (node, config) = (bed.node("a"), config(&json!({"range": "10.0.0.0/22"})));
    let adds = (0..1_022).map(|n| {
        let (node, config) = (&node, &config);
        async move { node.add(config, &format!("p{n}")).await.unwrap().remove(0) }
    });
    let given: BTreeSet<String> = futures::future::join_all(adds).await.into_iter().collect();
    assert_eq!(given.len(), 1_022);
    assert!(node.add(&config, "more").await.is_err());
    let objects: BTreeSet<String> = bed.records().await.into_iter().map(|(pool, ..)| pool).collect();
    let expected = ["10.0.0.0-22", "10.0.0.0-22.1", "10.0.0.0-22.2", "10.0.0.0-22.3"];
    assert_eq!(objects.into_iter().collect::<Vec<_>>(), expected);
}
