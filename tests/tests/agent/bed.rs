//! Hosts made of namespaces, with `tenured` on them and pods that the real plugin attaches; and an API server with the
//! controller, which all tests of this program share.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
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
use tenure_handles::{Clock, SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::control_plane::{ControlPlane, Options};
use tenure_testbed::hosts::{Host, HostChild, HostCommand, Mounts, Port, Segment};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;

const TENURED: &str = env!("CARGO_BIN_EXE_bed-tenured");
const PLUGIN: &str = env!("CARGO_BIN_EXE_bed-cni");

/// Much longer than anything takes, also on a machine that is busy with other things.
pub const SOON: Duration = Duration::from_secs(30);
/// Long enough for something to happen that must not.
pub const A_MOMENT: Duration = Duration::from_millis(300);

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
        let cluster = Self::without_controller(Options::default().without_controller_manager());
        cluster.control("bed");
        // Room for every test: blocks of 32 addresses of both families.
        cluster.pool("default", 5, json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]));
        cluster
    }

    /// One of a test's own with a real API server, and neither a controller nor a pool.
    pub fn without_controller(options: Options) -> Self {
        let runtime = Runtime::new().unwrap();
        let (plane, client) = runtime.block_on(async {
            let plane = ControlPlane::start(options).await.unwrap();
            let client = plane.client().unwrap();
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
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "local",
            "clusters": [{"name": "local", "cluster": {"server": format!("http://{server}")}}],
            "users": [{"name": "local", "user": {}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        });
        Self {
            stop: CancellationToken::new(),
            client,
            kubeconfig,
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
        let controller = Controller::new(self.client.clone(), SystemClock, settings);
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
    fn node(&self, addresses: &[String]) -> String {
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

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in tenure_api::crds() {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
    for crd in tenure_api::crds() {
        let name = crd.name_any();
        let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(SOON, established).await.unwrap().unwrap();
    }
}

/// A host with an agent, or without one for the moment.
pub struct Machine<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
    /// Of both families.
    pub addresses: [IpAddr; 2],
    pub host: Host,
    pub gate: Gate,
    pub arguments: Vec<String>,
    agent: Option<HostChild>,
    directory: tempfile::TempDir,
    _uplink: (Arc<Segment>, Port),
}

impl<'a> Machine<'a> {
    /// A host of a node of its own, without an agent.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self::on(cluster, &Arc::new(Segment::new("wire").unwrap()), 1)
    }

    /// A host of a node of its own, without an agent, on this segment, with this number in its addresses.
    pub fn on(cluster: &'a Cluster, wire: &Arc<Segment>, number: u8) -> Self {
        let addresses = [format!("192.0.2.{number}"), format!("2001:db8::{number}")];
        let name = cluster.node(&addresses);
        let host = Host::new(&name).unwrap();
        let nets = [format!("{}/24", addresses[0]), format!("{}/64", addresses[1])];
        let port = wire.connect(&host, "uplink", &[&nets[0], &nets[1]]).unwrap();
        host.route("default", "192.0.2.254".parse().unwrap()).unwrap();
        let gate = Gate::open(cluster.runtime.handle(), &host, cluster.server);
        let directory = tempfile::tempdir().unwrap();
        let mut kubeconfig = cluster.kubeconfig.clone();
        let place = &mut kubeconfig["clusters"][0]["cluster"]["server"];
        let scheme = place.as_str().unwrap().split("//").next().unwrap();
        *place = json!(format!("{scheme}//{}", gate.address()));
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let uplink = (Arc::clone(wire), port);
        let addresses = addresses.map(|address| address.parse().unwrap());
        let arguments = Vec::new();
        Self { cluster, name, addresses, host, gate, arguments, agent: None, directory, _uplink: uplink }
    }

    /// A host with an agent that answers.
    pub fn running(cluster: &'a Cluster) -> Self {
        let mut machine = Self::new(cluster);
        machine.start();
        machine
    }

    /// Starts the agent and waits until it answers.
    pub fn start(&mut self) {
        self.launch();
        self.until("an agent that answers", || self.has_socket().then_some(()));
    }

    /// Starts the agent.
    pub fn launch(&mut self) {
        // An agent that was killed left its socket behind.
        let _ = std::fs::remove_file(self.file("tenured.sock"));
        let command = self.agent_command().args(["--metrics-address", "127.0.0.1:0"]);
        self.agent = Some(command.spawn().unwrap());
    }

    /// An agent, all but where its metrics are.
    pub fn agent_command(&self) -> HostCommand {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let command = self.host.command(TENURED).args(["--node-name", &self.name, "--kubeconfig"]);
        let command = command.arg(self.directory.path().join("kubeconfig")).args(&self.arguments);
        let command = command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log)
    }

    /// Ends the agent without a word.
    pub fn kill(&mut self) {
        self.agent.take().unwrap().kill().unwrap();
    }

    /// Asks the agent to end, and waits until it has.
    pub fn stop(&mut self) {
        let agent = self.agent.take().unwrap();
        agent.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = agent.wait_for(SOON).expect("it does not end");
        assert!(status.success(), "{status}");
    }

    /// Switches the host off and on: no process, no pod and nothing under `/run` is left.
    pub fn reboot(&mut self) {
        self.agent = None;
        self.host.end_processes();
        for link in self.links().iter().filter(|name| name.starts_with("tnr")) {
            // One may have gone with its pod.
            let _ = self.host.ip(&format!("link del {link}"));
        }
    }

    /// Whether the plugin's socket is there.
    pub fn has_socket(&self) -> bool {
        self.file("tenured.sock").exists()
    }

    /// A file in the agent's directory, as the test sees it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.host.path(Path::new("/run/tenure").join(name)).unwrap()
    }

    /// The tombstones that are there.
    pub fn tombstones(&self) -> usize {
        let entries = std::fs::read_dir(self.file("tombstones"));
        entries.map_or(0, |entries| entries.flatten().count())
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// All that the agents have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Makes a pod: a namespace on this host.
    pub fn pod(&self, name: &str) -> Pod {
        self.pod_in("default", name)
    }

    /// Makes a pod in a namespace of Kubernetes.
    pub fn pod_in(&self, namespace: &str, name: &str) -> Pod {
        let (network, path) = self.host.pod_namespace(name).unwrap();
        Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            container: format!("{name}-sandbox"),
            path,
            network: Host::in_namespace(network, Mounts::default()),
        }
    }

    /// ADD, which must succeed: the addresses.
    pub fn add(&self, pod: &Pod) -> Vec<IpAddr> {
        self.call("ADD", pod).addresses()
    }

    /// DEL, which must succeed.
    pub fn del(&self, pod: &Pod) {
        let called = self.call("DEL", pod);
        assert_eq!(called.code, 0, "{called:?}");
    }

    /// Calls the plugin for a pod.
    pub fn call(&self, verb: &str, pod: &Pod) -> Called {
        self.call_with(verb, pod, &config())
    }

    /// Calls the plugin for a pod with this configuration.
    pub fn call_with(&self, verb: &str, pod: &Pod, config: &Value) -> Called {
        self.exec(verb, &pod.container, &pod.path, &args_of(pod), config)
    }

    /// STATUS.
    pub fn status(&self) -> Called {
        self.exec("STATUS", "", Path::new(""), "", &config())
    }

    /// Runs the plugin.
    pub fn exec(&self, verb: &str, container: &str, netns: &Path, args: &str, config: &Value) -> Called {
        self.start_plugin(verb, container, netns, args, config).join()
    }

    /// Starts the plugin for a pod, to be waited for later.
    pub fn plugin(&self, verb: &str, pod: &Pod) -> Calling {
        self.start_plugin(verb, &pod.container, &pod.path, &args_of(pod), &config())
    }

    fn start_plugin(&self, verb: &str, container: &str, netns: &Path, args: &str, config: &Value) -> Calling {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(config.to_string().as_bytes()).unwrap();
        input.rewind().unwrap();
        let command = self.host.command(PLUGIN).env("CNI_COMMAND", verb).env("CNI_PATH", "/opt/cni/bin");
        let command = command.env("CNI_CONTAINERID", container).env("CNI_NETNS", netns);
        let command = command.env("CNI_IFNAME", "eth0").env("CNI_ARGS", args);
        let began = SystemClock.elapsed();
        let command = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        Calling { child: command.spawn().unwrap(), began }
    }

    /// The blocks of this node.
    pub fn blocks(&self) -> Vec<String> {
        self.cluster.blocks_of(&self.name).iter().map(ResourceExt::name_any).collect()
    }

    /// Names of all links.
    pub fn links(&self) -> Vec<String> {
        let links = self.host.namespace().ip_json(&["link", "show"]).unwrap();
        links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
    }

    /// The host ends of pods' links.
    pub fn pod_links(&self) -> usize {
        let up = |link: &Value| {
            link["ifname"].as_str().unwrap().starts_with("tnr") && link["operstate"].as_str() == Some("UP")
        };
        let links = self.host.namespace().ip_json(&["link", "show"]).unwrap();
        links.as_array().unwrap().iter().filter(|link| up(link)).count()
    }

    /// Destinations in a table, of both families.
    pub fn table(&self, id: u32) -> Vec<String> {
        let id = id.to_string();
        let routes = |family| {
            // "FIB table does not exist": nothing was ever in it.
            let routes = self.host.namespace().ip_json(&[family, "route", "show", "table", &id]);
            routes.ok().and_then(|routes| routes.as_array().cloned()).unwrap_or_default()
        };
        let all = ["-4", "-6"].into_iter().flat_map(routes);
        let mut found: Vec<String> = all.map(|route| route["dst"].as_str().unwrap().to_owned()).collect();
        found.sort();
        found
    }

    /// The networks of this node's blocks, as a table has them.
    pub fn networks(&self) -> Vec<String> {
        let blocks = self.cluster.blocks_of(&self.name);
        let each = |block: &AddressBlock| [block.spec.ipv4.clone(), block.spec.ipv6.clone()];
        let short = |network: String| {
            network.strip_suffix("/32").or(network.strip_suffix("/128")).map(str::to_owned).unwrap_or(network)
        };
        let mut networks: Vec<String> = blocks.iter().flat_map(each).flatten().map(short).collect();
        networks.sort();
        networks
    }

    /// Waits until there is something; fails with the agent's log.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = SystemClock.elapsed();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                SystemClock.elapsed().saturating_sub(began) < SOON,
                "{}: waited {SOON:?} for {what}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a pod has no interface any more: it is out of service when the DEL is answered, and deleted later.
    pub fn until_gone(&self, pod: &Pod) {
        self.until(&format!("the interface of {} to go", pod.name), || (!pod.has_interface()).then_some(()));
    }

    /// That the pod is reached from its host and reaches it, over each of its addresses.
    pub fn assert_reached(&self, pod: &Pod, addresses: &[IpAddr]) {
        for address in addresses {
            self.host.ping(*address, SOON).unwrap();
            let host = self.addresses[usize::from(address.is_ipv6())];
            pod.network.ping(host, SOON).unwrap();
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "--- log of {} ---\n{}", self.name, tail.join("\n"));
        }
    }
}

/// A pod.
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub container: String,
    pub path: PathBuf,
    pub network: Host,
}

impl Pod {
    /// Whether it has its interface.
    pub fn has_interface(&self) -> bool {
        self.network.namespace().ip_json(&["link", "show", "eth0"]).is_ok()
    }
}

/// `CNI_ARGS` for a pod.
fn args_of(pod: &Pod) -> String {
    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}", pod.namespace, pod.name)
}

/// A call of the plugin that is under way.
pub struct Calling {
    child: HostChild,
    began: Duration,
}

impl Calling {
    /// Waits for its end.
    pub fn join(mut self) -> Called {
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().code().unwrap();
        let json = serde_json::from_slice(&stdout).unwrap_or_default();
        Called { code, json, stderr, took: SystemClock.elapsed().saturating_sub(self.began) }
    }
}

/// What came of a call of the plugin.
#[derive(Debug)]
pub struct Called {
    pub code: i32,
    pub json: Value,
    pub stderr: String,
    pub took: Duration,
}

impl Called {
    /// The addresses of a result; it must be one.
    pub fn addresses(&self) -> Vec<IpAddr> {
        assert_eq!(self.code, 0, "{self:?}");
        let ips = self.json["ips"].as_array().unwrap();
        let address =
            |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
        ips.iter().map(address).collect()
    }

    /// The code of the error; it must be one.
    pub fn refused(&self) -> u64 {
        assert_eq!(self.code, 1, "{self:?}");
        self.json["code"].as_u64().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// That it succeeded.
    #[track_caller]
    pub fn succeeded(&self) {
        assert_eq!(self.code, 0, "{self:?}");
    }
}

/// The network's configuration.
pub fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "k8s", "type": "tenure"})
}

/// That no two are equal.
#[track_caller]
pub fn assert_distinct<T: Ord + Debug + Clone>(all: &[T]) {
    let mut sorted = all.to_vec();
    sorted.sort();
    for pair in sorted.windows(2) {
        assert_ne!(pair[0], pair[1], "twice in {all:?}");
    }
}
