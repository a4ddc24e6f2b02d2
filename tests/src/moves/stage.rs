//! An API server, a controller, and pods on hosts of their own.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::{Host, Mounts};
use tenure_testbed::process::{Process, Program};
use tenure_testbed::wait::{PATIENCE, until};

use crate::agent::{Called, Calling, Cluster, Machine};
use crate::programs;

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

/// What attaches pods.
#[derive(Clone)]
pub struct Network {
    pub plugin: PathBuf,
    pub config: Value,
}

/// An API server and a controller. One test at a time has one: they measure.
pub struct Stage {
    controller: Option<(Process, PathBuf)>,
    pub network: Network,
    pub cluster: Cluster,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// One without a controller.
    pub fn new(network: Network) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster =
            Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
        Self { controller: None, network, cluster, _turn: turn }
    }

    /// Starts the controller, with these arguments beside the usual ones.
    pub fn control(&mut self, arguments: &[String]) {
        let plane = self.cluster.plane();
        let log = plane.logs().join("tenure-controller.log");
        let program = Program::new("tenure-controller", programs::controller(), &log)
            .flag("--kubeconfig", plane.kubeconfig())
            .args(["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=300ms"])
            .args(["--metrics-address=127.0.0.1:0"])
            .args(arguments)
            .env("NO_COLOR", "1");
        self.controller = Some((program.start().unwrap(), log));
    }

    pub fn pods(&self, namespace: &str) -> Api<PodObject> {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    /// Makes a pod: an object that is scheduled to a host, and a namespace there.
    pub fn pod<'a>(&self, machine: &'a Machine<'a>, name: &str, metadata: &Value) -> Placed<'a> {
        self.pod_in(NAMESPACE, machine, name, metadata)
    }

    /// The claims.
    pub fn claims(&self) -> Api<IPAMClaim> {
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

    /// Makes a pod in a namespace of Kubernetes.
    pub fn pod_in<'a>(
        &self,
        namespace: &str,
        machine: &'a Machine<'a>,
        name: &str,
        metadata: &Value,
    ) -> Placed<'a> {
        let mut object = json!({
            "metadata": metadata,
            "spec": {"nodeName": machine.name, "containers": [{"name": "c", "image": "i"}]},
        });
        object["metadata"]["name"] = json!(name);
        let object: PodObject = serde_json::from_value(object).unwrap();
        let pods = self.pods(namespace);
        let made = self.cluster.runtime.block_on(pods.create(&PostParams::default(), &object)).unwrap();
        let (network, path) = machine.host.pod_namespace(name).unwrap();
        // Plugins that make an interface wait until nobody else claims its addresses, for seconds.
        network.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
        Placed {
            machine,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: made.uid().unwrap(),
            path,
            network: Host::in_namespace(network, Mounts::default()),
            by: self.network.clone(),
        }
    }

    /// Changes a pod's metadata. Returns when the change was asked for.
    pub fn change(&self, pod: &str, metadata: &Value) -> Duration {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let (asked, pods) = (now(), self.pods(NAMESPACE));
        self.cluster.runtime.block_on(pods.patch(pod, &PatchParams::default(), &patch)).unwrap();
        asked
    }

    /// Says that a pod has done what it was for.
    pub fn finish(&self, pod: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        let pods = self.pods(NAMESPACE);
        self.cluster.runtime.block_on(pods.patch_status(pod, &PatchParams::default(), &patch)).unwrap();
    }

    pub fn delete_pod(&self, pod: &str) {
        let (pods, at_once) = (self.pods(NAMESPACE), DeleteParams::default().grace_period(0));
        self.cluster.runtime.block_on(pods.delete(pod, &at_once)).unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some((_, log)) = self.controller.as_ref().filter(|_| std::thread::panicking()) {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            say(&format!("the controller's log:\n{}", lines[lines.len().saturating_sub(60)..].join("\n")));
        }
    }
}

/// A pod on a host.
pub struct Placed<'a> {
    pub machine: &'a Machine<'a>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub path: PathBuf,
    pub network: Host,
    by: Network,
}

impl Placed<'_> {
    /// `CNI_ARGS`.
    pub fn args(&self) -> String {
        let Self { namespace, name, uid, .. } = self;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}")
    }

    /// The id of its sandbox.
    pub fn container(&self) -> String {
        format!("{}-sandbox", self.name)
    }

    /// ADD, as a runtime does it: again where that is asked for. The addresses.
    pub fn add(&self) -> Vec<IpAddr> {
        let called = insist(&self.name, || self.call("ADD").join());
        called.addresses()
    }

    pub fn del(&self) {
        self.call("DEL").join().succeeded();
    }

    /// Calls the plugin, to be waited for later.
    pub fn call(&self, verb: &str) -> Calling {
        let (container, args) = (self.container(), self.args());
        let about = (container.as_str(), self.path.as_path(), args.as_str());
        self.machine.start_program(&self.by.plugin, "eth0", verb, about, &self.by.config)
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

/// The directory with plugins of these names, copied from these files.
pub fn plugins(all: &[(&str, &Path)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, from) in all {
        std::fs::copy(from, directory.path().join(name)).unwrap();
    }
    directory
}
