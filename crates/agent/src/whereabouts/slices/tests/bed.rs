//! An embedded API server that knows Whereabouts' kinds, and a node with its slices of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod as KubePod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_api::whereabouts::{GROUP, IPPool, NodeSlicePool};
use tenure_cni::Failure;
use tenure_handles::SeededEntropy;
use tenure_ipam::{Range, Usable};
use tenure_localapi::{LocalApi, Options as ServerOptions, ResponseBody};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule};
use tenure_whereabouts::slices::TAKEN;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::util::MapResponse;

use crate::drive::{Handle, NodeChannel};
use crate::journal::Image;
use crate::key::{HoldKey, Pod};
use crate::node::{Attach, Done, Event, Node, Settings, Wish};
use crate::testing::{self, Obedient, SOON};
pub(super) use crate::testing::{a_moment, until};
use crate::whereabouts::slices::{SOURCE, Slices, SlicesOptions};

pub(super) const NODE: &str = "node-1";
pub(super) const NAMESPACE: &str = "kube-system";

/// An API server.
pub(super) struct Bed {
    server: LocalApi,
    /// Without faults.
    client: Client,
    /// Between the agent and the server.
    pub(super) faults: Faults,
}

/// A node with its slices.
pub(super) struct Whole {
    pub(super) node: Handle,
    pub(super) slices: Slices,
    journal: Arc<Mutex<Image>>,
    _life: DropGuard,
}

pub(super) fn options() -> SlicesOptions {
    SlicesOptions {
        debounce: Duration::from_millis(50),
        patience: Duration::from_millis(300),
        call_patience: Duration::from_secs(1),
        look_again: Duration::from_millis(100),
        look_at_pods: Duration::from_mins(10),
        ..SlicesOptions::new(NODE, NAMESPACE)
    }
}

impl Bed {
    /// A server that knows the kinds.
    pub(super) async fn new(seed: u64) -> Self {
        let bed = Self::without_kinds(seed).await;
        bed.learn().await;
        bed
    }

    pub(super) async fn without_kinds(seed: u64) -> Self {
        let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(seed));
        let client = server.client();
        let bed = Self { server, client, faults: Faults::seeded(seed) };
        for name in [NAMESPACE, "shop"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let namespaces: Api<Namespace> = Api::all(bed.client.clone());
            drop(namespaces.create(&PostParams::default(), &namespace).await);
        }
        bed
    }

    pub(super) async fn learn(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in tenure_api::crds().into_iter().filter(|crd| crd.spec.group == GROUP) {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
    }

    pub(super) fn pools(&self) -> Api<NodeSlicePool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(super) fn records(&self) -> Api<IPPool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Cuts a range: the slices, each with its node. As somebody does who does not say when slices were taken away.
    pub(super) async fn cut(&self, name: &str, range: &str, slices: &[(&str, &str)]) {
        self.cut_with(name, range, slices, json!({})).await;
    }

    /// The same, as the controller does.
    pub(super) async fn cut_counted(&self, name: &str, range: &str, slices: &[(&str, &str)]) {
        self.cut_with(name, range, slices, json!({TAKEN: "1.1"})).await;
    }

    async fn cut_with(&self, name: &str, range: &str, slices: &[(&str, &str)], annotations: Value) {
        let size = slices.first().map_or("28", |(slice, _)| slice.split_once('/').unwrap().1);
        let pool = json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"range": range, "sliceSize": format!("/{size}")},
            "status": {"allocations": allocations(slices)},
        });
        let pool: NodeSlicePool = serde_json::from_value(pool).unwrap();
        self.pools().create(&PostParams::default(), &pool).await.unwrap();
        self.tell().await;
    }

    /// Tells the node of its slices, like the controller.
    pub(super) async fn tell(&self) {
        self.tell_node(NODE).await;
    }

    /// Tells another node of its slices.
    pub(super) async fn tell_node(&self, node: &str) {
        testing::tell(&self.client, NAMESPACE, node).await;
    }

    pub(super) async fn edit_pool(&self, name: &str, patch: Value) {
        self.pools().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Gives the slices of a range to other nodes, and tells this one.
    pub(super) async fn give(&self, name: &str, slices: &[(&str, &str)]) {
        self.give_untold(name, slices).await;
        self.tell().await;
    }

    /// Gives the slices of a range to other nodes.
    pub(super) async fn give_untold(&self, name: &str, slices: &[(&str, &str)]) {
        let patch = Patch::Merge(json!({"status": {"allocations": allocations(slices)}}));
        self.pools().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Cuts a larger range with the same slices.
    pub(super) async fn grow(&self, name: &str, range: &str) {
        let patch = Patch::Merge(json!({"spec": {"range": range}}));
        self.pools().patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.tell().await;
    }

    /// Says which network a range is of.
    pub(super) async fn name(&self, name: &str, network: &str) {
        let annotations = json!({tenure_whereabouts::slices::NETWORK: network});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.pools().patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.tell().await;
    }

    pub(super) async fn uncut(&self, name: &str) {
        self.uncut_untold(name).await;
        self.tell().await;
    }

    pub(super) async fn uncut_untold(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Puts an `IPPool` there as Whereabouts writes it: offset, container, pod.
    pub(super) async fn record(&self, name: &str, range: &str, held: &[(&str, &str, &str)]) -> IPPool {
        let allocations: BTreeMap<&str, Value> = held
            .iter()
            .map(|(offset, id, pod)| {
                (*offset, json!({"id": id, "podref": format!("shop/{pod}"), "ifname": "net1"}))
            })
            .collect();
        let pool = json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
            "metadata": {"name": name}, "spec": {"range": range, "allocations": allocations},
        });
        let pool: IPPool = serde_json::from_value(pool).unwrap();
        self.records().create(&PostParams::default(), &pool).await.unwrap()
    }

    pub(super) async fn edit(&self, name: &str, patch: Value) {
        self.records().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn remove(&self, name: &str) {
        self.records().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn pod(&self, name: &str) {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
        let pod: KubePod = serde_json::from_value(pod).unwrap();
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), "shop");
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    pub(super) async fn uid_of(&self, pod: &str) -> String {
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), "shop");
        pods.get(pod).await.unwrap().metadata.uid.unwrap()
    }

    /// What an `IPPool` says: offset and container.
    pub(super) async fn said(&self, name: &str) -> Option<Vec<String>> {
        let object = self.records().get_opt(name).await.unwrap()?;
        Some(object.spec.allocations.iter().map(|(offset, it)| format!("{offset} {}", it.id)).collect())
    }

    /// Waits until an `IPPool` says this; nothing: until it is gone.
    pub(super) async fn until_said(&self, name: &str, said: Option<&[&str]>) {
        let wanted: Option<Vec<String>> = said.map(|said| said.iter().map(|it| (*it).to_owned()).collect());
        let looking = async {
            while self.said(name).await != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let said_it = tokio::time::timeout(SOON, looking).await.is_ok();
        assert!(said_it, "{name} says {:?}, and not {wanted:?}", self.said(name).await);
    }

    pub(super) async fn names(&self) -> Vec<String> {
        let list = self.records().list(&ListParams::default()).await.unwrap();
        list.items.into_iter().filter_map(|it| it.metadata.name).collect()
    }

    /// Nothing reaches the server any more, and open watches end, until the faults are cleared.
    pub(super) fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    pub(super) fn start(&self, journal: Image) -> Whole {
        self.start_with(journal, options())
    }

    pub(super) fn start_with(&self, journal: Image, options: SlicesOptions) -> Whole {
        let client = self.faults.client(self.server.clone(), "default");
        Self::start_at(client, journal, options)
    }

    /// Counts the bytes that the agent gets from the server.
    pub(super) fn start_hearing(&self, journal: Image, heard: &Arc<AtomicU64>) -> Whole {
        let heard = Arc::clone(heard);
        let counted = move |response: http::Response<_>| {
            let heard = Arc::clone(&heard);
            response.map(|body: ResponseBody| {
                body.map_frame(move |frame| {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    heard.fetch_add(bytes, Ordering::Relaxed);
                    frame
                })
            })
        };
        let server = MapResponse::new(self.server.clone(), counted);
        Self::start_at(self.faults.client(server, "default"), journal, options())
    }

    fn start_at(client: Client, journal: Image, options: SlicesOptions) -> Whole {
        let channel = NodeChannel::new();
        let (node, stop) = (channel.handle(), CancellationToken::new());
        node.tell(Event::Journal(journal.clone()));
        node.tell(Event::Kernel(Vec::new()));
        node.tell(Event::ApiRead);
        let slices = Slices::start(client, options, RuntimeClock, node.clone(), stop.clone());
        let journal = Arc::new(Mutex::new(journal));
        let executor = Obedient {
            node: node.clone(),
            slices: slices.clone(),
            journal: Arc::clone(&journal),
            position: 0,
        };
        let settings = Settings { sources: vec![SOURCE], cooling: Duration::ZERO, ..Settings::new(NODE) };
        let driver = channel.driver(Node::new(settings), RuntimeClock, executor);
        let ended = stop.clone();
        tokio::spawn(async move { driver.run(ended.cancelled()).await });
        Whole { node, slices, journal, _life: stop.drop_guard() }
    }

    /// A node that has read everything.
    pub(super) async fn ready(&self) -> Whole {
        self.ready_after(Image::default()).await
    }

    pub(super) async fn ready_after(&self, journal: Image) -> Whole {
        let whole = self.start(journal);
        whole.ready().await;
        whole
    }
}

fn allocations(slices: &[(&str, &str)]) -> Value {
    let slice = |(slice, node): &(&str, &str)| json!({"nodeName": node, "sliceRange": slice});
    Value::Array(slices.iter().map(slice).collect())
}

impl Whole {
    pub(super) async fn ready(&self) {
        until("the node", async || self.node.look(Node::is_ready).await.unwrap().then_some(())).await;
    }

    /// What a crash leaves.
    pub(super) fn journal(&self) -> Image {
        self.journal.lock().unwrap().clone()
    }

    /// Adds a container of the pod of the same name to the first range, and says its address.
    pub(super) async fn add(&self, pool: &str, container: &str) -> Result<String, Failure> {
        self.add_part(pool, container, container, 0).await
    }

    pub(super) async fn add_part(
        &self,
        pool: &str,
        container: &str,
        pod: &str,
        part: u32,
    ) -> Result<String, Failure> {
        let slice = self.slices.slice(pool).await?;
        let within = Range::new(slice.cidr, Usable::WithoutEdges).unwrap();
        let attach = Attach {
            key: key(container).part(part),
            pool: slice.pool,
            pod: Pod { namespace: "shop".into(), name: pod.into(), uid: String::new() },
            netns: format!("/run/netns/{container}"),
            wiring: None,
            wish: Wish { within: Some(within), lowest: true, ..Wish::default() },
            claim_use: None,
        };
        match self.node.call(move |ticket| Event::Add { ticket, attach }).await? {
            Done::Added { addresses, .. } => Ok(addresses.to_string()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn del(&self, container: &str) -> usize {
        let key = key(container);
        match self.node.call(move |ticket| Event::Detach { ticket, key }).await.unwrap() {
            Done::Swept(ended) => ended,
            other => panic!("{other:?}"),
        }
    }

    /// Address and container of what is held.
    pub(super) async fn held(&self) -> Vec<String> {
        let slices = self.node.look(Node::slices).await.unwrap();
        let holds = slices.iter().flat_map(|slice| &slice.holds);
        holds.map(|hold| format!("{} {}", hold.address, hold.container())).collect()
    }
}

pub(super) fn key(container: &str) -> HoldKey {
    HoldKey::new("conf", container, "net1").unwrap()
}
