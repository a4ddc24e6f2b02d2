//! Where it all happens: hosts with two further interfaces, and the API, whose answers are waited for also while it is down.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::nmstate::{
    NodeIPPool, NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    enactment_name,
};
use tenure_linux::interface::{InterfaceState, read};
use tenure_linux::netns::NetNs;
use tenure_linux::{Host, Settings};
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::objects::ask;

use crate::plan::{ENDS, MTUS, POLICIES, Step};

/// The pool.
pub const POOL: &str = "wandering";
/// The names of the policies; a node with a label of that name is selected.
pub const NAMES: [&str; POLICIES] = ["first", "second"];
/// The interface of each policy.
pub const INTERFACES: [&str; POLICIES] = ["eth1", "eth2"];

/// What each host has: host and interface, by address.
type Found = BTreeMap<IpAddr, Vec<String>>;

/// The hosts, the API, and what must not have happened.
pub struct ChaosBed<'a> {
    pub cluster: &'a Cluster,
    pub machines: &'a [Machine<'a>],
    kernels: Mutex<Vec<Host>>,
    wrong: Mutex<Vec<String>>,
}

impl<'a> ChaosBed<'a> {
    pub fn new(cluster: &'a Cluster, machines: &'a [Machine<'a>]) -> Self {
        let kernel = |machine: &Machine<'_>| {
            let namespace = NetNs::open(machine.host.namespace().path()).unwrap();
            Host::of(namespace, Settings::default()).unwrap()
        };
        let kernels = Mutex::new(machines.iter().map(kernel).collect());
        Self { cluster, machines, kernels, wrong: Mutex::default() }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        Api::all(self.cluster.client.clone())
    }

    /// Something happened that must not.
    pub fn blame(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does a step, however long the API takes.
    pub fn perform(&self, step: Step) {
        match step {
            Step::Select { node, policy, selected } => self.select(node, policy, selected),
            Step::Policy { policy } => {
                if !self.delete::<Policy>(NAMES[policy]) {
                    self.make_policy(policy);
                }
            }
            Step::Change { policy, mtu } => self.ask_for(policy, MTUS[mtu]),
            Step::Recreate { end, lasts } => {
                self.delete::<NodeIPPool>(POOL);
                sleep(lasts);
                self.make_pool(ENDS[end]);
            }
            Step::Grow => self.grow(),
            Step::Empty => {
                let empty = Patch::Merge(json!({"status": {"allocated-offsets": []}}));
                let pools = self.api::<NodeIPPool>();
                ask(self.cluster, &[404], async || {
                    pools.patch_status(POOL, &PatchParams::default(), &empty).await
                });
            }
            Step::ResetPool => self.patch::<NodeIPPool>(POOL, &reset("")),
            Step::Reset { policy, node: None } => self.patch::<Policy>(NAMES[policy], &reset(POOL)),
            Step::Reset { policy, node: Some(node) } => {
                let name = enactment_name(&self.machines[node].name, NAMES[policy]).unwrap();
                self.patch::<Enactment>(&name, &reset(POOL));
            }
            Step::Rest(time) => sleep(time),
        }
    }

    pub fn select(&self, node: usize, policy: usize, selected: bool) {
        let value = selected.then_some("yes");
        let patch = json!({"metadata": {"labels": {NAMES[policy]: value}}});
        self.patch::<Node>(&self.machines[node].name, &patch);
    }

    pub fn make_pool(&self, end: u8) {
        let range = json!({"cidr": "10.70.0.0/24", "start": "10.70.0.1", "end": format!("10.70.0.{end}")});
        let pool = NodeIPPool::new(POOL, serde_json::from_value(json!({"range": range})).unwrap());
        let pools = self.api::<NodeIPPool>();
        ask(self.cluster, &[409], async || pools.create(&PostParams::default(), &pool).await);
    }

    pub fn grow(&self) {
        let end = format!("10.70.0.{}", ENDS[ENDS.len() - 1]);
        self.patch::<NodeIPPool>(POOL, &json!({"spec": {"range": {"end": end}}}));
    }

    pub fn make_policy(&self, policy: usize) {
        let spec = json!({
            "nodeSelector": {NAMES[policy]: "yes"},
            "maxUnavailable": "100%",
            "capture": {"address": format!("ippool.{POOL}.allocate")},
            "desiredState": {"interfaces": [interface(policy, MTUS[0])]},
        });
        let object = Policy::new(NAMES[policy], serde_json::from_value(spec).unwrap());
        let policies = self.api::<Policy>();
        ask(self.cluster, &[409], async || policies.create(&PostParams::default(), &object).await);
    }

    fn ask_for(&self, policy: usize, mtu: u32) {
        let patch = json!({"spec": {"desiredState": {"interfaces": [interface(policy, mtu)]}}});
        self.patch::<Policy>(NAMES[policy], &patch);
    }

    /// Whether there was one.
    pub fn delete<K>(&self, name: &str) -> bool
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api = self.api::<K>();
        ask(self.cluster, &[404], async || api.delete(name, &DeleteParams::default()).await).is_some()
    }

    fn patch<K>(&self, name: &str, patch: &Value)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let (api, patch) = (self.api::<K>(), Patch::Merge(patch));
        ask(self.cluster, &[404], async || api.patch(name, &PatchParams::default(), &patch).await);
    }

    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api = self.api::<K>();
        let found = ask(self.cluster, &[], async || api.list(&ListParams::default()).await);
        found.map(|list| list.items).unwrap_or_default()
    }

    /// A pod on a node: as long as it is bound to it, a node without an object is in use.
    pub fn bind_pod(&self, node: usize) {
        let name = format!("tenured-{node}");
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": self.machines[node].name, "containers": [{"name": "c", "image": "none"}]},
        });
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let pod: Pod = serde_json::from_value(pod).unwrap();
        ask(self.cluster, &[409], async || pods.create(&PostParams::default(), &pod).await);
    }

    /// The IPv4 addresses of an interface of a node.
    pub fn addresses(&self, node: usize, interface: &str) -> Vec<IpAddr> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        addresses(&mut kernels[node], interface)
    }

    /// The MTU of an interface of a node.
    pub fn mtu(&self, node: usize, interface: &str) -> u32 {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        state(&mut kernels[node], interface).mtu
    }

    /// That no address is on two interfaces. An address may leave one host after it was looked at and come to another before that one
    /// is; so what two have has to be there at a second look at both.
    pub fn look(&self) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let (once, again) = (self.found(&mut kernels), self.found(&mut kernels));
        for (address, places) in once.iter().filter(|(_, places)| places.len() > 1) {
            let still = again.get(address).into_iter().flatten();
            let still: Vec<&String> = still.filter(|place| places.contains(place)).collect();
            if still.len() > 1 {
                self.blame(format!("{address} is on {still:?}"));
            }
        }
    }

    fn found(&self, kernels: &mut [Host]) -> Found {
        let mut found = Found::new();
        for (machine, kernel) in self.machines.iter().zip(kernels) {
            for interface in INTERFACES {
                for address in addresses(kernel, interface) {
                    found.entry(address).or_default().push(format!("{} {interface}", machine.name));
                }
            }
        }
        found
    }

    /// The number of a machine's node.
    pub fn number(&self, enactment: &Enactment) -> Option<usize> {
        let node = enactment.node()?;
        self.machines.iter().position(|machine| machine.name == node)
    }

    /// The number of a policy.
    pub fn policy_of(enactment: &Enactment) -> Option<usize> {
        let name = enactment.policy().unwrap_or_default().to_owned();
        NAMES.iter().position(|policy| *policy == name)
    }

    /// What is left in the API.
    pub fn left(&self) -> Vec<String> {
        self.list::<Enactment>().iter().map(|it| format!("enactment {}", it.name_any())).collect()
    }
}

fn state(kernel: &mut Host, interface: &str) -> InterfaceState {
    read(kernel, interface).unwrap().unwrap()
}

fn addresses(kernel: &mut Host, interface: &str) -> Vec<IpAddr> {
    let all = state(kernel, interface).addresses;
    all.iter().map(|it| it.address.addr()).filter(IpAddr::is_ipv4).collect()
}

fn reset(value: &str) -> Value {
    json!({"metadata": {"annotations": {"nmstate.io/reset-ippool": value}}})
}

fn interface(policy: usize, mtu: u32) -> Value {
    json!({
        "name": INTERFACES[policy], "type": "ethernet", "state": "up", "mtu": mtu,
        "ipv4": {"enabled": true, "dhcp": false, "address": [
            {"ip": "{{ capture.address.ip }}", "prefix-length": "{{ capture.address.prefix-length }}"},
        ]},
    })
}
