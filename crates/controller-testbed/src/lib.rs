//! An embedded API server with our definitions, controllers on it, and waiting with a limit.

pub mod claims;
pub mod machines;
pub mod ranges;

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::coil::{
    AddressBlock, AddressPool, BlockRequest, BlockRequestSpec, FINALIZER, RequestOutcome,
};
use tenure_controller::{Controller, RunError, Settings, Timing, Whereabouts};
use tenure_handles::SeededEntropy;
use tenure_localapi::LocalApi;
use tenure_testbed::clock::RuntimeClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Much longer than anything takes, also on a machine that is busy with other things.
pub const SOON: Duration = tenure_testbed::wait::PATIENCE;

/// A controller that runs.
pub struct Running {
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), RunError>>,
    pub pages: tenure_daemon::Pages,
    pub metrics: std::sync::Arc<tenure_controller::Metrics>,
}

impl Running {
    /// Ends it as a signal does.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it as a crash does.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub fn leads(&self) -> bool {
        self.metrics.text().unwrap().contains("tenure_controller_leader 1")
    }
}

pub fn settings(identity: &str) -> Settings {
    Settings {
        timing: Timing {
            duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1_500),
            retry: Duration::from_millis(200),
        },
        tick: Duration::from_millis(500),
        patience: Duration::from_secs(2),
        missing_node_rest: Duration::from_secs(10),
        whereabouts: Whereabouts {
            release_after: Some(Duration::from_secs(2)),
            node_gone_after: Duration::from_secs(1),
            ..Whereabouts::default()
        },
        ..Settings::new(identity)
    }
}

/// Starts a controller with short times.
pub fn start(client: Client, identity: &str) -> Running {
    start_with(client, settings(identity))
}

/// Starts a controller.
pub fn start_with(client: Client, settings: Settings) -> Running {
    let controller = Controller::new(client, RuntimeClock, settings);
    let (pages, metrics) = (controller.pages(), controller.metrics());
    let stop = CancellationToken::new();
    let task = tokio::spawn(controller.run(stop.clone()));
    Running { stop, task, pages, metrics }
}

/// An embedded API server that knows our kinds.
pub async fn server(seed: u64) -> LocalApi {
    let server = LocalApi::temporary(RuntimeClock, SeededEntropy::new(seed));
    install(&server.client()).await;
    server
}

pub async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in tenure_api::crds() {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
}

pub fn pools(client: &Client) -> Api<AddressPool> {
    Api::all(client.clone())
}

pub fn blocks(client: &Client) -> Api<AddressBlock> {
    Api::all(client.clone())
}

pub fn requests(client: &Client) -> Api<BlockRequest> {
    Api::all(client.clone())
}

pub async fn pool(client: &Client, name: &str, bits: i32, subnet: &str) -> AddressPool {
    let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": subnet}]});
    let pool = AddressPool::new(name, serde_json::from_value(spec).unwrap());
    pools(client).create(&PostParams::default(), &pool).await.unwrap()
}

pub async fn node(client: &Client, name: &str) -> Node {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap()
}

/// Makes a node unless there is one of the name: of a pod that is gone with its node nobody knows whether it has ended.
pub async fn have_node(client: &Client, name: &str) {
    if Api::<Node>::all(client.clone()).get_opt(name).await.unwrap().is_none() {
        node(client, name).await;
    }
}

pub async fn delete_node(client: &Client, name: &str) {
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
}

pub async fn ask(client: &Client, name: &str, node: &str, pool: &str) -> BlockRequest {
    let spec = BlockRequestSpec { node_name: node.to_owned(), pool_name: pool.to_owned() };
    let request = BlockRequest::new(name, spec);
    requests(client).create(&PostParams::default(), &request).await.unwrap()
}

/// The block that the request got, or the reason why it got none.
pub async fn answer(client: &Client, name: &str) -> Result<String, String> {
    until(&format!("an answer to {name}"), async || {
        let request = requests(client).get(name).await.ok()?;
        match request.outcome() {
            RequestOutcome::Pending => None,
            RequestOutcome::Block(block) => Some(Ok(block.to_owned())),
            RequestOutcome::Failed { reason, .. } => Some(Err(reason.to_owned())),
        }
    })
    .await
}

/// Waits until so many requests have a block, looking seldom because each look is a long list.
pub async fn all_served(client: &Client, count: usize) {
    until(&format!("{count} answers"), async || {
        let requests = requests(client).list(&ListParams::default()).await.ok()?;
        let served = requests.iter().filter(|request| matches!(request.outcome(), RequestOutcome::Block(_)));
        if served.count() == count {
            return Some(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        None
    })
    .await;
}

/// The node returns a block.
pub async fn return_block(client: &Client, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    blocks(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
    blocks(client).delete(name, &DeleteParams::default()).await.unwrap();
}

/// A block as somebody may have left it behind.
pub async fn orphan(client: &Client, name: &str, index: u32, pool: &str, node: &str) {
    let block = json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock", "index": index, "ipv4": "10.250.0.0/32",
        "metadata": {
            "name": name, "finalizers": [FINALIZER],
            "labels": {"coil.cybozu.com/pool": pool, "coil.cybozu.com/node": node},
        },
    });
    let block: AddressBlock = serde_json::from_value(block).unwrap();
    blocks(client).create(&PostParams::default(), &block).await.unwrap();
}

/// Waits until there is something, with a limit. Looks more and more seldom: some objects are large.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        let mut rest = Duration::from_millis(10);
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(Duration::from_millis(160));
        }
    };
    tokio::time::timeout(SOON, looking).await.unwrap_or_else(|_| panic!("waited {SOON:?} for {what}"))
}

/// That no two blocks share an index or a request, and that every block was asked for.
pub async fn check_blocks(client: &Client) -> usize {
    let blocks = blocks(client).list(&ListParams::default()).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for block in &blocks {
        let uid = block.request_uid().unwrap().to_owned();
        assert!(seen.insert(uid), "{} is the second block of its request", block.name_any());
        assert!(
            seen.insert(block.spec.ipv4.clone().unwrap()),
            "{} has the addresses of another",
            block.name_any()
        );
    }
    blocks.items.len()
}
