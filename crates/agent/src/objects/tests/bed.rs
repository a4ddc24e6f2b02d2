//! An embedded API server with our kinds, and an agent's `Objects` whose events are recorded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, BlockRequestStatus};
use tenure_handles::{Clock, ManualClock, SeededEntropy};
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule, Verb};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::node::{Action, AskId, Event, Urgency};
use crate::objects::{Objects, ObjectsOptions};
pub(super) use crate::testing::{a_moment, until};

/// The node that is under test.
pub(super) const NODE: &str = "node-1";

/// An API server.
pub(super) struct Bed {
    pub(super) server: LocalApi,
    /// Without faults.
    pub(super) client: Client,
    /// The client of the agent, with faults.
    pub(super) faults: Faults,
}

/// The agent's side.
pub(super) struct Agent {
    pub(super) objects: Objects,
    pub(super) told: Arc<Mutex<Vec<Event>>>,
    _life: DropGuard,
}

impl Bed {
    pub(super) async fn new(seed: u64) -> Self {
        Self::with_history(seed, 4096).await
    }

    /// A server that remembers this many events of each kind for watches that start in the past.
    pub(super) async fn with_history(seed: u64, events: usize) -> Self {
        let entropy = SeededEntropy::new(seed);
        let server = ServerOptions::default().history(events).temporary(RuntimeClock, entropy);
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in tenure_api::crds().into_iter().filter(|crd| crd.spec.group == tenure_api::coil::GROUP) {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        let bed = Self { server, client, faults: Faults::seeded(seed) };
        bed.node(NODE, &[]).await;
        bed
    }

    pub(super) fn api<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Creates an object from JSON.
    pub(super) async fn create<K>(&self, json: Value) -> K
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(json).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(super) async fn merge<K>(&self, name: &str, json: Value) -> K
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(json)).await.unwrap()
    }

    pub(super) async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn node(&self, name: &str, addresses: &[&str]) -> Node {
        let node: Node = self.create(json!({"metadata": {"name": name}})).await;
        if !addresses.is_empty() {
            let addresses: Vec<Value> =
                addresses.iter().map(|it| json!({"type": "InternalIP", "address": it})).collect();
            let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
            let nodes: Api<Node> = self.api();
            nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        }
        node
    }

    pub(super) async fn pool(&self, name: &str, bits: i32, subnet: &str) -> AddressPool {
        let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": subnet}]});
        self.create(json!({"metadata": {"name": name}, "spec": spec})).await
    }

    pub(super) async fn namespace(&self, name: &str, pool: Option<&str>) {
        let annotations = pool.map(|pool| json!({"coil.cybozu.com/pool": pool})).unwrap_or(json!({}));
        let _: Namespace = self.create(json!({"metadata": {"name": name, "annotations": annotations}})).await;
    }

    /// A block of four addresses, with our finalizer.
    pub(super) async fn block(&self, pool: &str, index: u8, node: &str) -> AddressBlock {
        self.create(block(pool, index, node)).await
    }

    /// All requests.
    pub(super) async fn requests(&self) -> Vec<BlockRequest> {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits for a request of this node, and returns its name.
    pub(super) async fn a_request(&self) -> BlockRequest {
        until("a request", async || self.requests().await.into_iter().next()).await
    }

    pub(super) async fn no_requests(&self) {
        until("no requests", async || self.requests().await.is_empty().then_some(())).await;
    }

    /// Creates the block that answers a request, like a controller.
    pub(super) async fn grant(&self, request: &BlockRequest, pool: &str, index: u8) -> AddressBlock {
        let mut block = block(pool, index, &request.spec.node_name);
        block["metadata"]["labels"]["coil.cybozu.com/request"] = json!(request.uid().unwrap());
        self.create(block).await
    }

    /// Answers a request in its status, like a controller.
    pub(super) async fn answer(&self, request: &str, status: &BlockRequestStatus) {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<BlockRequest>().patch_status(request, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) fn agent(&self) -> Agent {
        self.agent_with(ObjectsOptions::new(NODE))
    }

    /// An agent that starts.
    pub(super) fn agent_with(&self, options: ObjectsOptions) -> Agent {
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let clock = ManualClock::at(RuntimeClock.now());
        let tell = {
            let told = Arc::clone(&told);
            move |event| told.lock().unwrap().push(event)
        };
        let stop = CancellationToken::new();
        let client = self.faults.client(self.server.clone(), "default");
        let entropy = SeededEntropy::new(7);
        let objects = Objects::start(client, options, clock, entropy, tell, stop.clone());
        Agent { objects, told, _life: stop.drop_guard() }
    }

    /// An agent that has read everything.
    pub(super) async fn ready(&self) -> Agent {
        self.ready_with(ObjectsOptions::new(NODE)).await
    }

    /// The same with a short patience.
    pub(super) async fn ready_and_impatient(&self) -> Agent {
        self.ready_with(ObjectsOptions { patience: Duration::from_secs(1), ..ObjectsOptions::new(NODE) })
            .await
    }

    pub(super) async fn ready_with(&self, options: ObjectsOptions) -> Agent {
        let agent = self.agent_with(options);
        agent.until("the first lists", |event| *event == Event::ApiRead).await;
        agent
    }

    /// Cuts the connection and ends open watches, until the faults are cleared.
    pub(super) fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    /// Ends watches of a kind and refuses new ones, until the faults are cleared.
    pub(super) fn blind(&self, resource: &str) {
        let watches = || Calls::of(Verb::Watch).to(resource);
        self.faults.add(Rule::fail(http::StatusCode::SERVICE_UNAVAILABLE).on(watches()));
        self.faults.cut_watches(&watches());
    }
}

pub(super) fn block(pool: &str, index: u8, node: &str) -> Value {
    json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock",
        "metadata": {
            "name": format!("{pool}-{index}"), "finalizers": ["coil.cybozu.com"],
            "labels": {"coil.cybozu.com/pool": pool, "coil.cybozu.com/node": node},
        },
        "index": index, "ipv4": format!("10.1.0.{}/30", u32::from(index) * 4),
    })
}

impl Agent {
    pub(super) fn told(&self) -> Vec<Event> {
        self.told.lock().unwrap().clone()
    }

    /// Waits for an event.
    pub(super) async fn until(&self, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
        until(what, async || self.told().into_iter().find(|event| is_it(event))).await
    }

    pub(super) async fn seen(&self, block: &str) -> crate::node::SeenBlock {
        let is_it = |event: &Event| matches!(event, Event::BlockSeen(seen) if seen.name == block);
        let Event::BlockSeen(seen) = self.until(&format!("block {block}"), is_it).await else {
            unreachable!()
        };
        seen
    }

    pub(super) async fn gone(&self, block: &str, uid: &str) {
        let gone = Event::BlockGone { name: block.into(), uid: uid.into() };
        self.until(&format!("the end of {block}"), |event| *event == gone).await;
    }

    /// Forgets recorded events.
    pub(super) fn forget(&self) {
        self.told.lock().unwrap().clear();
    }

    /// The recorded events of pools and blocks, in short.
    pub(super) fn story(&self) -> Vec<String> {
        let uid = |uid: &str| uid.to_owned();
        let line = |event: Event| match event {
            Event::PoolChanged { name, .. } => format!("+{name}"),
            Event::PoolGone { name } => format!("-{name}"),
            Event::BlockSeen(seen) => format!("+{} {}", seen.name, uid(&seen.uid)),
            Event::BlockGone { name, uid: it } => format!("-{name} {}", uid(&it)),
            other => format!("{other:?}"),
        };
        self.told().into_iter().map(line).collect()
    }

    pub(super) fn ask(&self, ask: u64, pool: &str) {
        let urgency = Urgency::Waiting(1);
        self.objects.carry_out(Action::AskForBlock { ask: AskId(ask), pool: pool.into(), urgency });
    }

    /// Waits for the answer to a wish.
    pub(super) async fn answer_to(&self, ask: u64) -> Event {
        let is_it = |event: &Event| match event {
            Event::BlockGranted { ask: it, .. } | Event::BlockRefused { ask: it, .. } => it.0 == ask,
            _ => false,
        };
        self.until(&format!("an answer to wish {ask}"), is_it).await
    }

    pub(super) fn return_block(&self, block: &AddressBlock) {
        let (name, uid) = (block.name_any(), block.uid().unwrap());
        self.objects.carry_out(Action::ReturnBlock { pool: String::new(), name, uid });
    }
}
