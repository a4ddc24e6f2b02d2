//! Alias addresses by a whole controller, on the embedded API server and the test bed's fake of Google's cloud.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bed::*;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases, NodeAliasesStatus, condition};
use tenure_cloud::gcp::{Endpoints, Gcp, Metadata, SecondaryRange, TokenSource, Tokens};
use tenure_cloud::{Cloud, CloudError, Options, Progress};
use tenure_controller::{CloudSettings, Clouds, Settings};
use tenure_controller_testbed as bed;
use tenure_handles::SystemClock;
use tenure_localapi::LocalApi;
use tenure_testbed::compute::{Call, FakeCloud, PROJECT, Settings as FakeSettings};

const ZONE: &str = "europe-west4-a";
const POOL: &str = "live";
const REQUEST: &str = "7d2f4a16-9d3e-4c55-8b52-1a2b3c4d5e6f";

/// The fake, as the controller reaches it.
struct Reached {
    endpoints: Endpoints,
    metadata: Metadata,
}

impl Clouds for Reached {
    fn cloud(&self, project: &str) -> Result<Arc<dyn Cloud>, CloudError> {
        let tokens = Tokens::new(TokenSource::Metadata(self.metadata.clone()), Arc::new(SystemClock));
        Ok(Arc::new(Gcp::new(project, self.endpoints.clone(), tokens)?))
    }
}

struct Bed {
    api: LocalApi,
    client: Client,
    cloud: FakeCloud,
    settings: CloudSettings,
}

impl Bed {
    /// A cloud with a secondary range 10.111.0.0/16, and an API server with a pool of it.
    async fn new(seed: u64, fake: FakeSettings, pool: Value) -> Self {
        let api = server(seed).await;
        let client = api.client();
        let cloud = FakeCloud::start(fake).await.unwrap();
        cloud.add_subnet("europe-west4", "default", "10.0.0.0/24").unwrap();
        cloud.add_instance(ZONE, "helper", "default");
        let metadata = Metadata::at(&cloud.metadata(ZONE, "helper").await.unwrap());
        let endpoints = Endpoints { compute: cloud.compute(), connectivity: cloud.connectivity() };
        let clouds = Reached { endpoints: endpoints.clone(), metadata: metadata.clone() };
        let tokens = Tokens::new(TokenSource::Metadata(metadata), Arc::new(SystemClock));
        let gcp = Gcp::new(PROJECT, endpoints, tokens).unwrap();
        let range = SecondaryRange {
            range_name: "live".to_owned(),
            ip_cidr_range: "10.111.0.0/16".to_owned(),
            ..SecondaryRange::default()
        };
        let subnet = gcp.subnetwork("europe-west4", "default").await.unwrap();
        let ticket =
            gcp.add_secondary_range("europe-west4", "default", &subnet, range, REQUEST).await.unwrap();
        until("the range", async || {
            let progress = gcp.subnetwork_change("europe-west4", &ticket).await.unwrap();
            (progress == Progress::Done).then_some(())
        })
        .await;
        let options = Options {
            poll: Duration::from_millis(20),
            rest: Duration::from_millis(20),
            longest_rest: Duration::from_millis(200),
            ..Options::default()
        };
        let settings = CloudSettings { options, ..CloudSettings::new(Arc::new(clouds)) };
        let bed = Self { api, client, cloud, settings };
        bed.pool(pool).await;
        bed
    }

    fn controller(&self, identity: &str) -> Running {
        let cloud = Some(self.settings.clone());
        let settings = Settings { cloud, missing_node_rest: Duration::from_secs(1), ..settings(identity) };
        start_with(self.client.clone(), settings)
    }

    fn nodes(&self) -> Api<NodeAliases> {
        Api::all(self.client.clone())
    }

    fn ledgers(&self) -> Api<IPLedger> {
        Api::all(self.client.clone())
    }

    async fn pool(&self, more: Value) {
        let mut spec = json!({
            "cidr": "10.111.0.0/16",
            "subnet": format!("projects/{PROJECT}/regions/europe-west4/subnetworks/default"),
            "cooling": "0s",
        });
        merge(&mut spec, more);
        let pool = AliasPool::new(POOL, serde_json::from_value(spec).unwrap());
        Api::all(self.client.clone()).create(&PostParams::default(), &pool).await.unwrap();
    }

    /// A machine, its node, and what its agent wants.
    async fn machine(&self, name: &str, wanted: i32) {
        self.cloud.add_instance(ZONE, name, "default");
        let node = json!({
            "metadata": {"name": name}, "spec": {"providerID": format!("gce://{PROJECT}/{ZONE}/{name}")},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let spec = serde_json::from_value(json!({"pool": POOL, "wanted": wanted})).unwrap();
        self.nodes().create(&PostParams::default(), &NodeAliases::new(name, spec)).await.unwrap();
    }

    /// What the agent of a node says.
    async fn say(&self, node: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until a node's status is as it should be.
    async fn status(&self, node: &str, is: impl Fn(&NodeAliasesStatus) -> bool) -> NodeAliasesStatus {
        until(&format!("the status of {node}"), async || {
            let found = self.nodes().get(node).await.unwrap().status?;
            is(&found).then_some(found)
        })
        .await
    }

    async fn attached(&self, node: &str, count: i32) -> NodeAliasesStatus {
        self.status(node, |status| status.attached == count).await
    }

    async fn pod(&self, name: &str, namespace: &str, node: &str, annotations: Value) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods(namespace).create(&PostParams::default(), &pod).await.unwrap()
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn updates(&self) -> usize {
        self.cloud.accepted(Call::UpdateInterface)
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

fn slow() -> FakeSettings {
    FakeSettings { update: Duration::from_millis(300)..Duration::from_millis(400), ..FakeSettings::default() }
}

#[tokio::test]
async fn a_hundred_ranges_cost_two_updates_and_what_is_given_back_leaves_the_machine() {
    let bed = Bed::new(71, slow(), json!({})).await;
    let controller = bed.controller("a");
    bed.machine("a", 100).await;
    bed.cloud.set_aliases(ZONE, "a", &[]).unwrap();
    let status = bed.attached("a", 100).await;
    assert!(bed.updates() <= 2, "{}", bed.updates());
    assert_eq!(bed.cloud.aliases(ZONE, "a"), status.aliases.keys().cloned().collect::<BTreeSet<_>>());
    let ledgers = bed.ledgers().list(&ListParams::default()).await.unwrap();
    assert_eq!(ledgers.items.len(), 1);

    // An old grant means nothing; the present ones go back.
    let some: Vec<&String> = status.aliases.keys().take(40).collect();
    bed.say("a", json!({"wanted": 60, "returned": {some[0]: "an old one"}})).await;
    let returned: Value =
        some[1..].iter().map(|range| ((*range).clone(), json!(status.aliases[*range].grant))).collect();
    bed.say("a", json!({"returned": returned})).await;
    let status = bed.status("a", |status| status.aliases.len() == 61).await;
    assert!(status.aliases.contains_key(some[0]), "an old grant means nothing");
    until("the aliases to leave", async || (bed.cloud.aliases(ZONE, "a").len() == 61).then_some(())).await;
    until("the records to go", async || {
        let ledger = bed.ledgers().get("live-0").await.unwrap();
        (ledger.spec.records.len() == 61).then_some(())
    })
    .await;
    let pools: Api<AliasPool> = Api::all(bed.client.clone());
    until("the pool to say so", async || {
        let status = pools.get(POOL).await.unwrap().status?;
        ((status.capacity, status.allocated, status.available) == (65_534, 61, 65_473)).then_some(())
    })
    .await;
    assert!(controller.metrics.text().unwrap().contains("tenure_controller_overlooked_writes 0"));
    controller.stop().await;
    drop(bed.api);
}

/// A pod of a node is about to leave with an address.
async fn mark(bed: &Bed, node: &str, name: &str, range: &str) -> (String, Value) {
    let pod = bed.pod(name, "default", node, json!({"live.cast.ai/move-out-ip": "true"})).await;
    let address = range.trim_end_matches("/32").to_owned();
    (address, json!({"namespace": "default", "pod": name, "uid": pod.metadata.uid.unwrap()}))
}

#[tokio::test]
async fn ten_moves_cost_two_updates_and_a_forged_one_moves_nothing() {
    let bed = Bed::new(72, slow(), json!({})).await;
    let controller = bed.controller("a");
    bed.machine("a", 10).await;
    bed.machine("b", 0).await;
    let status = bed.attached("a", 10).await;
    let mut leaving = serde_json::Map::new();
    for (number, range) in status.aliases.keys().enumerate() {
        let (address, pod) = mark(&bed, "a", &format!("s{number}"), range).await;
        leaving.insert(address, pod);
    }
    // Nothing moves before the node says that its pods leave, and nothing ever for somebody of another namespace.
    let first = leaving.keys().next().unwrap().clone();
    bed.pod("thief", "kube-system", "b", json!({"live.cast.ai/ip": first})).await;
    for (number, address) in leaving.keys().enumerate() {
        let annotations = json!({"live.cast.ai/ip": address, "live.cast.ai/original-instance": "a"});
        bed.pod(&format!("d{number}"), "default", "b", annotations).await;
    }
    let events: Api<Event> = Api::namespaced(bed.client.clone(), "kube-system");
    let event = until("an event", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().find(|it| it.reason.as_deref() == Some("AddressRefused"))
    })
    .await;
    assert_eq!(event.involved_object.name.as_deref(), Some("thief"));
    let message = event.message.unwrap();
    assert!(message.contains("no pod of namespace \"kube-system\" that is marked"), "{message}");
    assert!(bed.nodes().get("b").await.unwrap().status.unwrap().aliases.is_empty());

    let before = bed.updates();
    bed.say("a", json!({"leaving": leaving, "wanted": 0})).await;
    let moved = bed.attached("b", 10).await;
    assert!(moved.aliases.values().all(|alias| alias.pod.is_some()));
    assert_eq!(bed.updates() - before, 2);
    let default: BTreeSet<String> = bed
        .pods("default")
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter_map(|it| it.metadata.uid)
        .collect();
    assert!(moved.aliases.values().all(|alias| alias.pod.as_ref().is_some_and(|uid| default.contains(uid))));
    assert!(bed.cloud.aliases(ZONE, "a").is_empty());
    assert!(bed.nodes().get("a").await.unwrap().status.unwrap().aliases.is_empty());
    assert!(controller.metrics.text().unwrap().contains("tenure_controller_overlooked_writes 0"));
    controller.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_full_is_said_and_one_that_is_gone_gives_its_addresses_back() {
    let bed = Bed::new(73, FakeSettings::default(), json!({"cidr": "10.111.0.0/24"})).await;
    let controller = bed.controller("a");
    bed.machine("a", 151).await;
    let status = bed.status("a", |status| status.attached >= 149 && status.problem.is_some()).await;
    let problem = status.problem.unwrap();
    assert!(
        problem.contains("151 alias ranges are wanted") && problem.contains("takes 150 at most"),
        "{problem}"
    );
    bed.machine("b", 120).await;
    let status = bed.status("b", |status| status.attached >= 104 && status.problem.is_some()).await;
    let problem = status.problem.unwrap();
    assert!(problem.starts_with("no address of IPPool \"live\" is free"), "{problem}");

    // Another leader finds everything as it is.
    let updates = bed.updates();
    controller.stop().await;
    let controller = bed.controller("b");
    bed.cloud.delete_instance(ZONE, "a");
    delete_node(&bed.client, "a").await;
    let status = bed.attached("b", 120).await;
    assert_eq!(status.problem, None);
    assert!(bed.updates() > updates);
    controller.stop().await;
}

#[tokio::test]
async fn without_a_cloud_nobody_looks_after_alias_pools() {
    let bed = Bed::new(74, FakeSettings::default(), json!({})).await;
    let controller = start(bed.client.clone(), "a");
    bed.machine("a", 1).await;
    pool(&bed.client, "default", 5, "10.2.0.0/16").await;
    ask(&bed.client, "r", "a", "default").await;
    answer(&bed.client, "r").await.unwrap();
    assert!(bed.nodes().get("a").await.unwrap().status.is_none());
    assert!(bed.ledgers().list(&ListParams::default()).await.unwrap().items.is_empty());
    controller.stop().await;
}

#[tokio::test]
async fn a_deleted_pool_goes_with_its_ledgers_after_its_last_alias_has_left_the_machine() {
    let bed = Bed::new(75, FakeSettings::default(), json!({})).await;
    let controller = bed.controller("a");
    bed.machine("a", 2).await;
    let status = bed.attached("a", 2).await;
    let pools: Api<AliasPool> = Api::all(bed.client.clone());
    // In the foreground, what the pool owns is deleted first.
    pools.delete(POOL, &DeleteParams::foreground()).await.unwrap();
    bed.ledgers().delete("live-0", &DeleteParams::default()).await.unwrap();
    let message = until("the pool to say who has what", async || {
        let status = pools.get(POOL).await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|it| it.type_ == condition::READY)?;
        (ready.reason == "Deleting").then_some(ready.message)
    })
    .await;
    for range in status.aliases.keys() {
        assert!(message.contains(&format!("{range} (node \"a\")")), "{message}");
    }
    assert_eq!(bed.cloud.aliases(ZONE, "a").len(), 2);
    let returned: Value =
        status.aliases.iter().map(|(range, alias)| (range.clone(), json!(alias.grant))).collect();
    bed.say("a", json!({"wanted": 0, "returned": returned})).await;
    until("the pool to go", async || {
        // The garbage collector of a cluster ends a deletion in the foreground.
        let left = pools.get_opt(POOL).await.unwrap();
        left.is_none_or(|pool| pool.finalizers().iter().all(|it| it == "foregroundDeletion")).then_some(())
    })
    .await;
    assert!(bed.ledgers().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(bed.cloud.aliases(ZONE, "a").is_empty());
    controller.stop().await;
}
