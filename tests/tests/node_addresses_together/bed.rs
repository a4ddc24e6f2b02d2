//! Several machines with two further interfaces each, on segments that they share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment as Enactment,
    NodeNetworkConfigurationPolicy as Policy, enactment_name, label,
};
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::{Port, Segment};
use tenure_testbed::wait::PATIENCE;
use tenure_tests::agent::{Cluster, Machine};

/// An API server with a controller that all tests share.
pub fn cluster() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Arc::new(Cluster::without_controller(options));
    cluster.control("bed");
    *shared = Arc::downgrade(&cluster);
    cluster
}

/// Machines that one selector selects.
pub struct Bed<'a> {
    pub cluster: &'a Cluster,
    /// In the names of everything, and the value of the selector: tests share the cluster.
    pub name: String,
    pub machines: Vec<Machine<'a>>,
    wires: [Arc<Segment>; 2],
    ports: Vec<Port>,
}

impl<'a> Bed<'a> {
    pub fn new(cluster: &'a Cluster, count: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let wires = ["first", "second"].map(|name| Arc::new(Segment::new(name).unwrap()));
        let mut bed = Self { cluster, name, machines: Vec::new(), wires, ports: Vec::new() };
        for _ in 0..count {
            bed.join();
        }
        bed
    }

    /// One more machine with an agent, which the selector selects.
    pub fn join(&mut self) -> usize {
        let mut machine = Machine::new(self.cluster);
        machine.arguments =
            ["--node-probe", "5s", "--dbus-socket", "/no/such/socket"].map(ToOwned::to_owned).to_vec();
        for (name, wire) in ["eth1", "eth2"].into_iter().zip(&self.wires) {
            self.ports.push(wire.connect(&machine.host, name, &[]).unwrap());
        }
        machine.launch();
        self.machines.push(machine);
        self.select(self.machines.len() - 1, true);
        self.machines.len() - 1
    }

    /// Gives a machine's node the label that the selector wants, or takes it.
    pub fn select(&self, machine: usize, selected: bool) {
        let value = selected.then(|| self.name.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"bed": value}}}));
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        self.wait(nodes.patch(&self.machines[machine].name, &PatchParams::default(), &patch));
    }

    pub fn wait<T>(&self, future: impl Future<Output = Result<T, kube::Error>>) -> T {
        self.cluster.runtime.block_on(future).unwrap()
    }

    pub fn pools(&self) -> Api<NodeIPPool> {
        Api::all(self.cluster.client.clone())
    }

    pub fn policies(&self) -> Api<Policy> {
        Api::all(self.cluster.client.clone())
    }

    pub fn enactments(&self) -> Api<Enactment> {
        Api::all(self.cluster.client.clone())
    }

    pub fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// Makes a pool.
    pub fn pool(&self, name: &str, range: &Value) -> String {
        let name = self.named(name);
        let spec = serde_json::from_value(json!({"range": range})).unwrap();
        self.wait(self.pools().create(&PostParams::default(), &NodeIPPool::new(&name, spec)));
        name
    }

    /// Makes a policy that gives `eth1`, `eth2`, … addresses of these pools.
    pub fn policy(&self, name: &str, pools: &[&str]) -> String {
        let name = self.named(name);
        let captures: BTreeMap<String, String> = pools
            .iter()
            .enumerate()
            .map(|(at, pool)| (format!("address-{}", at + 1), format!("ippool.{pool}.allocate")))
            .collect();
        let interface = |at: usize| {
            json!({
                "name": format!("eth{at}"), "type": "ethernet", "state": "up",
                "ipv4": {"enabled": true, "dhcp": false, "address": [{
                    "ip": format!("{{{{ capture.address-{at}.ip }}}}"),
                    "prefix-length": format!("{{{{ capture.address-{at}.prefix-length }}}}"),
                }]},
            })
        };
        let interfaces: Vec<Value> = (1..=pools.len()).map(interface).collect();
        let spec = json!({
            "nodeSelector": {"bed": self.name}, "maxUnavailable": "100%", "capture": captures,
            "desiredState": {"interfaces": interfaces},
        });
        let policy = Policy::new(&name, serde_json::from_value(spec).unwrap());
        self.wait(self.policies().create(&PostParams::default(), &policy));
        name
    }

    pub fn delete_policy(&self, name: &str) {
        self.wait(self.policies().delete(name, &DeleteParams::default()));
    }

    /// The enactments of a policy.
    pub fn enactments_of(&self, policy: &str) -> Vec<Enactment> {
        let of = ListParams::default().labels(&format!("{}={policy}", label::POLICY));
        self.wait(self.enactments().list(&of)).items
    }

    /// Waits until all selected machines have the policy.
    pub fn until_available(&self, policy: &str, count: usize) {
        self.until(&format!("{policy} to be available on {count} nodes"), || {
            let all = self.enactments_of(policy);
            let well = |it: &Enactment| {
                it.metadata.deletion_timestamp.is_none()
                    && it.condition("Available").is_some_and(NodeCondition::is_true)
            };
            (all.len() == count && all.iter().all(well)).then_some(())
        });
    }

    /// Annotates an object for a reset.
    pub fn reset_enactment(&self, machine: usize, policy: &str, pool: &str) {
        let name = enactment_name(&self.machines[machine].name, policy).unwrap();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": pool}}}));
        self.wait(self.enactments().patch(&name, &PatchParams::default(), &patch));
    }

    /// The IPv4 address of an interface of a machine.
    pub fn address(&self, machine: usize, interface: &str) -> Option<String> {
        let host = &self.machines[machine].host;
        let shown = host.namespace().ip_json(&["-4", "address", "show", "dev", interface]).ok()?;
        let all = shown[0]["addr_info"].as_array()?;
        all.first().map(|it| it["local"].as_str().unwrap().to_owned())
    }

    /// The addresses of an interface of all machines, which must be different.
    pub fn addresses(&self, interface: &str) -> BTreeSet<String> {
        let all: Vec<String> =
            (0..self.machines.len()).filter_map(|machine| self.address(machine, interface)).collect();
        let distinct: BTreeSet<String> = all.iter().cloned().collect();
        assert_eq!(distinct.len(), all.len(), "twice: {all:?}");
        distinct
    }

    /// That all machines with an address on these interfaces reach each other.
    pub fn assert_connected(&self, interface: &str) {
        for (number, machine) in self.machines.iter().enumerate() {
            if self.address(number, interface).is_none() {
                continue;
            }
            for address in self.addresses(interface) {
                machine.host.ping(address.parse().unwrap(), PATIENCE).unwrap();
            }
        }
    }

    pub fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.machines
            .first()
            .map_or_else(|| panic!("a bed has machines"), |machine| machine.until(what, look))
    }

    /// Reason and message of the pool's condition.
    pub fn pool_condition(&self, pool: &str) -> (String, String) {
        let pool = self.wait(self.pools().get(pool));
        let conditions = pool.status.map(|it| json!(it.conditions)).unwrap_or_default();
        let text = |key: &str| conditions[0][key].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    /// The offsets that a pool says are taken.
    pub fn offsets(&self, pool: &str) -> Value {
        let pool = self.wait(self.pools().get(pool));
        json!(pool.status)["allocated-offsets"].clone()
    }

    pub fn uid_of(&self, machine: usize, policy: &str) -> Option<String> {
        let name = enactment_name(&self.machines[machine].name, policy).unwrap();
        self.wait(self.enactments().get_opt(&name)).and_then(|it| it.uid())
    }
}
