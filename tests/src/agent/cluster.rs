//! An API server with our kinds and the controller, which all tests of a program share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_controller::{Controller, Settings, Timing};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::PATIENCE;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// An API server with our kinds and a controller.
pub struct Cluster {
    /// Before the rest, so that nobody asks a server that is gone.
    stop: CancellationToken,
    pub client: Client,
    kubeconfig: Value,
    server: SocketAddr,
    /// Nodes are numbered, so that tests which share the cluster do not share them.
    nodes: AtomicU32,
    _serving: Option<Server>,
    plane: Option<ControlPlane>,
    pub runtime: Runtime,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    /// The one with the real API server, which is shared by all tests that run at the same time.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Self::real());
        *shared = Arc::downgrade(&cluster);
        cluster
    }

    fn real() -> Self {
        let cluster = {
            let options = ControlPlaneOptions::default().without_controller_manager();
            Self::without_controller(options.service_range("10.96.0.0/16,fd96::/112"))
        };
        cluster.control("bed");
        // Room for every test: blocks of 32 addresses of both families.
        cluster.pool("default", 5, json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]));
        cluster
    }

    /// One of a test's own with a real API server, and neither a controller nor a pool.
    pub fn without_controller(options: ControlPlaneOptions) -> Self {
        let runtime = Runtime::new().unwrap();
        let (plane, client) = runtime.block_on(async {
            let plane = ControlPlane::start(options).await.unwrap();
            let client = plane.patient_client().unwrap();
            install(&client).await;
            (plane, client)
        });
        let kubeconfig = std::fs::read(plane.kubeconfig()).unwrap();
        let server = plane.url().strip_prefix("https://").unwrap().parse().unwrap();
        Self {
            stop: CancellationToken::new(),
            client,
            kubeconfig: serde_json::from_slice(&kubeconfig).unwrap(),
            server,
            nodes: AtomicU32::new(1),
            _serving: None,
            plane: Some(plane),
            runtime,
        }
    }

    /// The same, and programs ask it by way of a proxy at this address, without TLS.
    pub fn behind(mut self, proxy: SocketAddr) -> Self {
        self.server = proxy;
        self.kubeconfig = plain_kubeconfig(proxy);
        self
    }

    /// Where programs reach it.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// What a program needs to ask it by way of this address.
    pub fn kubeconfig_at(&self, address: SocketAddr) -> Value {
        let mut kubeconfig = self.kubeconfig.clone();
        let place = &mut kubeconfig["clusters"][0]["cluster"]["server"];
        let scheme = place.as_str().unwrap().split("//").next().unwrap();
        *place = json!(format!("{scheme}//{address}"));
        kubeconfig
    }

    /// A file with what programs need to ask it.
    pub fn kubeconfig_file(&self) -> PathBuf {
        let file = self.plane().directory().join("programs.kubeconfig");
        std::fs::write(&file, self.kubeconfig.to_string()).unwrap();
        file
    }

    /// The real control plane, if it is one.
    pub fn plane(&self) -> &ControlPlane {
        self.plane.as_ref().expect("this cluster's API is embedded")
    }

    /// One of a test's own, on the embedded API: where all pools matter.
    pub fn embedded() -> Self {
        let runtime = Runtime::new().unwrap();
        let (serving, client) = runtime.block_on(async {
            let api = LocalApi::temporary(SystemClock, SeededEntropy::new(4));
            let client = api.client();
            install(&client).await;
            (Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap(), client)
        });
        let server = serving.address().unwrap();
        Self {
            stop: CancellationToken::new(),
            client,
            kubeconfig: plain_kubeconfig(server),
            server,
            nodes: AtomicU32::new(1),
            _serving: Some(serving),
            plane: None,
            runtime,
        }
    }

    /// Starts a controller.
    pub fn control(&self, identity: &str) {
        let timing = Timing {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_millis(500),
        };
        let settings = Settings { timing, ..Settings::new(identity) };
        let _inside = self.runtime.enter();
        // Not the patient one: the controller under test has to cope with errors by itself.
        let client = self.plane.as_ref().map_or_else(|| self.client.clone(), |plane| plane.client().unwrap());
        let controller = Controller::new(client, SystemClock, settings);
        self.runtime.spawn(controller.run(self.stop.clone()));
    }

    /// Makes a pool.
    pub fn pool(&self, name: &str, bits: i32, subnets: Value) {
        let mut spec = json!({"blockSizeBits": bits});
        spec["subnets"] = subnets;
        let pool = AddressPool::new(name, serde_json::from_value(spec).unwrap());
        self.runtime.block_on(self.pools().create(&PostParams::default(), &pool)).unwrap();
    }

    /// Makes a namespace whose pods get addresses of `pool`.
    pub fn namespace(&self, name: &str, pool: Option<&str>) {
        let annotations = pool.map(|pool| json!({"coil.cybozu.com/pool": pool}));
        let namespace = json!({"metadata": {"name": name, "annotations": annotations}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        self.runtime.block_on(namespaces.create(&PostParams::default(), &namespace)).unwrap();
    }

    /// A pool of its own, and a namespace of the same name that uses it.
    pub fn tenant(&self, name: &str, bits: i32, subnets: Value) {
        self.pool(name, bits, subnets);
        self.namespace(name, Some(name));
    }

    pub fn pools(&self) -> Api<AddressPool> {
        Api::all(self.client.clone())
    }

    pub fn blocks(&self) -> Api<AddressBlock> {
        Api::all(self.client.clone())
    }

    /// The blocks of a node, ordered by name.
    pub fn blocks_of(&self, node: &str) -> Vec<AddressBlock> {
        let params = ListParams::default().labels(&format!("coil.cybozu.com/node={node}"));
        let mut blocks = self.runtime.block_on(self.blocks().list(&params)).unwrap().items;
        blocks.sort_by_key(ResourceExt::name_any);
        blocks
    }

    /// The requests of a node.
    pub fn requests_of(&self, node: &str) -> Vec<BlockRequest> {
        let requests: Api<BlockRequest> = Api::all(self.client.clone());
        let requests = self.runtime.block_on(requests.list(&ListParams::default())).unwrap();
        requests.items.into_iter().filter(|request| request.spec.node_name == node).collect()
    }

    /// Makes the object of a node with these addresses.
    pub(super) fn node(&self, addresses: &[String]) -> String {
        let name = format!("node{}", self.nodes.fetch_add(1, Ordering::SeqCst));
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        let addresses: Vec<Value> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
        self.runtime.block_on(async {
            nodes.create(&PostParams::default(), &node).await.unwrap();
            nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        });
        name
    }

    /// Takes a block's object away, finalizer and all, as nobody should.
    pub fn destroy_block(&self, name: &str) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        self.runtime.block_on(async {
            self.blocks().patch(name, &PatchParams::default(), &patch).await.unwrap();
            self.blocks().delete(name, &DeleteParams::default()).await.unwrap();
        });
    }
}

/// A kubeconfig for a server that asks nobody who they are.
fn plain_kubeconfig(server: SocketAddr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
    })
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in tenure_api::crds() {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
    for crd in tenure_api::crds() {
        let name = crd.name_any();
        let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
    }
}
