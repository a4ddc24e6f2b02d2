//! Three hosts on one Ethernet with an agent each, a controller, and pods that have a claim.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::{Host, Mounts, Segment};
use tenure_testbed::process::{Process, Program};
use tenure_testbed::wait::{PATIENCE, until};

use tenure_tests::agent::{Called, Cluster, Machine};

const CONTROLLER: &str = env!("CARGO_BIN_EXE_bed-controller");
/// The name of the cluster's default network.
pub const NETWORK: &str = "k8s";
/// Where pods and claims are.
pub const NAMESPACE: &str = "default";
/// CNI's "try again later".
const LATER: u64 = 11;

/// The time since the start of the machine's clock.
pub fn now() -> Duration {
    SystemClock.elapsed()
}

/// Says something that is seen also when the test succeeds.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "moves: {:.1} s: {what}", now().as_secs_f64());
}

/// The middle and the largest of some times, in milliseconds.
pub fn figures(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let [middle, largest] =
        [sorted[sorted.len() / 2], sorted[sorted.len() - 1]].map(|it| it.as_secs_f64() * 1e3);
    format!("p50 {middle:.1} ms, max {largest:.1} ms of {}", sorted.len())
}

/// The configuration of the cluster's default network, which lets addresses outlive pods.
pub fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": NETWORK, "type": "tenure", "allowPersistentIPs": true})
}

/// An API server and a controller. One test at a time has one: they measure.
pub struct Stage {
    _controller: Process,
    log: PathBuf,
    pub cluster: Cluster,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster =
            Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
        cluster.runtime.block_on(define_attachments(&cluster));
        let plane = cluster.plane();
        let log = plane.logs().join("tenure-controller.log");
        let program = Program::new("tenure-controller", CONTROLLER, &log)
            .flag("--kubeconfig", plane.kubeconfig())
            .args(["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=300ms"])
            .flag("--cluster-network", NETWORK)
            .args(["--metrics-address=127.0.0.1:0"])
            .env("NO_COLOR", "1");
        let controller = program.start().unwrap();
        cluster.pool("default", 3, json!([{"ipv4": "10.64.0.0/22", "ipv6": "fd64::/118"}]));
        Self { _controller: controller, log, cluster, _turn: turn }
    }

    /// Three hosts on one Ethernet, which find each other's addresses without a routing daemon.
    pub fn machines(&self, wire: &Arc<Segment>) -> [Machine<'_>; 3] {
        [1, 2, 3].map(|number| {
            let mut machine = Machine::on(&self.cluster, wire, number);
            machine.arguments = vec!["--route-blocks".to_owned()];
            machine.start();
            machine
        })
    }

    fn claims(&self) -> Api<IPAMClaim> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<PodObject> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    /// Makes a claim, and waits for its addresses.
    pub fn claim(&self, name: &str, network: &str, interface: &str, labels: &Value) -> Vec<IpAddr> {
        let claim: IPAMClaim = serde_json::from_value(json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {"network": network, "interface": interface},
        }))
        .unwrap();
        // The controller brings the kind, so it may not be there yet.
        until("a claim", || {
            self.cluster.runtime.block_on(self.claims().create(&PostParams::default(), &claim)).ok()
        });
        until("the addresses of the claim", || {
            let claim = self.cluster.runtime.block_on(self.claims().get(name)).unwrap();
            let ips = claim.status.map(|status| json!(status)["ips"].clone()).unwrap_or_default();
            let ips = ips.as_array().cloned().unwrap_or_default();
            let each = ips.iter().map(|ip| ip.as_str().unwrap().split('/').next().unwrap().parse().unwrap());
            Some(each.collect::<Vec<IpAddr>>()).filter(|all| !all.is_empty())
        })
    }

    pub fn delete_claim(&self, name: &str) {
        self.cluster.runtime.block_on(self.claims().delete(name, &DeleteParams::default())).unwrap();
    }

    /// What the claim's annotation says of who has it.
    pub fn holders(&self, claim: &str) -> Value {
        let claim = self.cluster.runtime.block_on(self.claims().get(claim)).unwrap();
        let holders = claim.annotations().get("tenure/holders").cloned().unwrap_or_default();
        serde_json::from_str(&holders).unwrap_or_default()
    }

    /// Makes the attachment definition of a network.
    pub fn attachment(&self, name: &str, config: &Value) {
        let api: Api<NetworkAttachmentDefinition> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let spec = NetworkAttachmentDefinitionSpec { config: config.to_string() };
        let definition = NetworkAttachmentDefinition::new(name, spec);
        self.cluster.runtime.block_on(api.create(&PostParams::default(), &definition)).unwrap();
    }

    /// Makes a pod: an object that is scheduled to a host, and a namespace there.
    pub fn pod<'a>(&self, machine: &'a Machine<'a>, name: &str, metadata: &Value) -> Placed<'a> {
        let mut object = json!({
            "metadata": metadata,
            "spec": {"nodeName": machine.name, "containers": [{"name": "c", "image": "i"}]},
        });
        object["metadata"]["name"] = json!(name);
        let object: PodObject = serde_json::from_value(object).unwrap();
        let made =
            self.cluster.runtime.block_on(self.pods().create(&PostParams::default(), &object)).unwrap();
        let (network, path) = machine.host.pod_namespace(name).unwrap();
        // Plugins that make an interface wait until nobody else claims its addresses, for seconds.
        network.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
        let network = Host::in_namespace(network, Mounts::default());
        Placed { machine, name: name.to_owned(), uid: made.uid().unwrap(), path, network }
    }

    /// Changes a pod's metadata. Returns when the change was asked for.
    pub fn change(&self, pod: &str, metadata: &Value) -> Duration {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let asked = now();
        self.cluster.runtime.block_on(self.pods().patch(pod, &PatchParams::default(), &patch)).unwrap();
        asked
    }

    /// Says that a pod has done what it was for.
    pub fn finish(&self, pod: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        self.cluster
            .runtime
            .block_on(self.pods().patch_status(pod, &PatchParams::default(), &patch))
            .unwrap();
    }

    pub fn delete_pod(&self, pod: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.cluster.runtime.block_on(self.pods().delete(pod, &at_once)).unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            say(&format!("the controller's log:\n{}", lines[lines.len().saturating_sub(60)..].join("\n")));
        }
    }
}

/// A pod on a host.
pub struct Placed<'a> {
    pub machine: &'a Machine<'a>,
    pub name: String,
    pub uid: String,
    pub path: PathBuf,
    pub network: Host,
}

impl Placed<'_> {
    /// `CNI_ARGS`.
    pub fn args(&self) -> String {
        let Self { name, uid, .. } = self;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name};K8S_POD_UID={uid}")
    }

    /// The id of its sandbox.
    pub fn container(&self) -> String {
        format!("{}-sandbox", self.name)
    }

    /// ADD on the cluster's default network, as a runtime does it: again where that is asked for. The addresses.
    pub fn add(&self) -> Vec<IpAddr> {
        let called = insist(&self.name, || self.call("ADD"));
        called.addresses()
    }

    pub fn del(&self) {
        self.call("DEL").succeeded();
    }

    fn call(&self, verb: &str) -> Called {
        self.machine.exec(verb, &self.container(), &self.path, &self.args(), &config())
    }

    /// Whether its host has a route to an address in one of its tables.
    pub fn has_route(&self, table: u32, address: IpAddr) -> bool {
        self.machine.table(table).contains(&address.to_string())
    }
}

/// Calls until it is not asked to try again later.
pub fn insist(whose: &str, mut call: impl FnMut() -> Called) -> Called {
    let began = now();
    loop {
        let called = call();
        if called.code == 0 || called.json["code"] != LATER || now().saturating_sub(began) > PATIENCE {
            return called;
        }
        say(&format!("ADD of {whose} is to be tried again: {}", called.json));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All routes of a host that lead to an address, in all tables, as text.
pub fn routes_to(machine: &Machine<'_>, address: IpAddr) -> Vec<String> {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    let shown = machine.host.namespace().ip_json(&[family, "route", "show", "table", "all"]).unwrap();
    let to = address.to_string();
    let ours = shown.as_array().unwrap().iter().filter(|route| route["dst"] == to.as_str());
    ours.map(|route| format!("{}: {route}", machine.name)).collect()
}

/// Other people's kind of networks.
async fn define_attachments(cluster: &Cluster) {
    let definition = include_str!("../../../deploy/optional/network-attachment-definitions.yaml");
    let definition: CustomResourceDefinition = serde_saphyr::from_str(definition).unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    api.create(&PostParams::default(), &definition).await.unwrap();
    let name = definition.name_any();
    let established = await_condition(api, &name, conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
}

/// The directory with plugins of these names, copied from these files.
pub fn plugins(all: &[(&str, &Path)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, from) in all {
        std::fs::copy(from, directory.path().join(name)).unwrap();
    }
    directory
}
