//! A machine with two further interfaces, policies, and enactments as the controller writes them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{
    FINALIZER, NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    enactment_name, label, node_label,
};
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::{Host, Port, Segment};

use crate::agent::{Cluster, Machine};

/// An API server that all tests share, without a controller.
pub fn cluster() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let options = ControlPlaneOptions::default().without_controller_manager();
    let cluster = Arc::new(Cluster::without_controller(options));
    *shared = Arc::downgrade(&cluster);
    cluster
}

/// A machine whose interfaces `eth1` and `eth2` are on a segment with a neighbour.
pub struct Bed<'a> {
    pub machine: Machine<'a>,
    pub neighbour: Host,
    pub wire: Arc<Segment>,
    ports: Vec<Port>,
}

impl<'a> Bed<'a> {
    /// With an agent that is started by nobody yet.
    pub fn new(cluster: &'a Cluster) -> Self {
        let mut machine = Machine::new(cluster);
        machine.arguments =
            ["--node-probe", "2s", "--dbus-socket", "/no/such/socket"].map(ToOwned::to_owned).to_vec();
        let wire = Arc::new(Segment::new("second").unwrap());
        let neighbour = Host::new(&format!("{}-neighbour", machine.name)).unwrap();
        let mut ports = vec![wire.connect(&neighbour, "eth1", &["10.10.10.200/24", "fd10::200/64"]).unwrap()];
        for name in ["eth1", "eth2"] {
            ports.push(wire.connect(&machine.host, name, &[]).unwrap());
        }
        Self { machine, neighbour, wire, ports }
    }

    /// With an agent that answers.
    pub fn running(cluster: &'a Cluster) -> Self {
        let mut bed = Self::new(cluster);
        bed.machine.start();
        bed
    }

    /// Gives the machine one more interface on the segment.
    pub fn plug(&mut self, name: &str) {
        self.ports.push(self.wire.connect(&self.machine.host, name, &[]).unwrap());
    }

    /// A name of this machine's own.
    pub fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.machine.name)
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, kube::Error>>) -> T {
        self.machine.cluster.runtime.block_on(future).unwrap()
    }

    fn policies(&self) -> Api<Policy> {
        Api::all(self.machine.cluster.client.clone())
    }

    fn enactments(&self) -> Api<Enactment> {
        Api::all(self.machine.cluster.client.clone())
    }

    /// Makes a policy, and this node's enactment of it with these addresses, and lets it have its turn.
    pub fn policy(&self, name: &str, capture: &[(&str, &str, &str)], desired: &Value) -> String {
        let policy = self.named(name);
        let captures: serde_json::Map<String, Value> =
            capture.iter().map(|(capture, text, _)| ((*capture).to_owned(), json!(text))).collect();
        let spec = serde_json::from_value(json!({"capture": captures, "desiredState": desired})).unwrap();
        let made = self.wait(self.policies().create(&PostParams::default(), &Policy::new(&policy, spec)));
        self.enact(&policy, capture, made.metadata.generation);
        policy
    }

    /// Switches duplicate address detection on, which hosts of the test bed do without.
    pub fn detect_duplicates(&self) {
        for interface in ["eth1", "eth2"] {
            let key = format!("net.ipv6.conf.{interface}.accept_dad");
            self.machine.host.sysctl(&key, "1").unwrap();
            self.machine.host.sysctl(&key.replace("accept_dad", "dad_transmits"), "1").unwrap();
        }
    }

    /// Makes a policy whose change takes the kernel some seconds: it asks several times whether others have the address.
    pub fn slow_policy(&self, name: &str) -> String {
        self.detect_duplicates();
        self.machine.host.sysctl("net.ipv6.conf.eth1.dad_transmits", "5").unwrap();
        let desired = json!({"interfaces": [{"name": "eth1", "ipv6": {"enabled": true, "address": [
            {"ip": "{{ capture.six.ip }}", "prefix-length": "{{ capture.six.prefix-length }}"}
        ]}}]});
        self.policy(name, &[("six", "ippool.traffic-6.allocate", "fd10::8/64")], &desired)
    }

    /// Makes the enactment of a policy, as the controller does.
    pub fn enact(&self, policy: &str, capture: &[(&str, &str, &str)], generation: Option<i64>) {
        let nodes: Api<Node> = Api::all(self.machine.cluster.client.clone());
        let node = self.wait(nodes.get(&self.machine.name));
        let name = enactment_name(&self.machine.name, policy).unwrap();
        let enactment = json!({
            "metadata": {
                "name": name,
                "labels": {label::NODE: node_label(&self.machine.name), label::POLICY: policy},
                "finalizers": [FINALIZER],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.machine.name, "uid": node.uid().unwrap(),
                }],
            },
        });
        let enactment: Enactment = serde_json::from_value(enactment).unwrap();
        self.wait(self.enactments().create(&PostParams::default(), &enactment));
        let mut status = json!({"capturedStates": {}, "ippool": {}, "policyGeneration": generation});
        for (capture, text, address) in capture.iter().filter(|(.., address)| !address.is_empty()) {
            let (ip, prefix) = address.split_once('/').unwrap();
            let prefix: u8 = prefix.parse().unwrap();
            status["capturedStates"][capture] = json!({"ip": ip, "prefix-length": prefix});
            let pool = text.split('.').nth(1).unwrap();
            status["ippool"][pool] = json!({"allocated": [ip]});
        }
        let patch = Patch::Merge(json!({"status": status}));
        self.wait(self.enactments().patch_status(&name, &PatchParams::default(), &patch));
    }

    /// Changes the desired state of a policy, and lets the node have its turn.
    pub fn change(&self, policy: &str, desired: &Value) {
        // A merge would keep what is left out.
        let clear = Patch::Merge(json!({"spec": {"desiredState": null}}));
        self.wait(self.policies().patch(policy, &PatchParams::default(), &clear));
        let patch = Patch::Merge(json!({"spec": {"desiredState": desired}}));
        let changed = self.wait(self.policies().patch(policy, &PatchParams::default(), &patch));
        let patch = Patch::Merge(json!({"status": {"policyGeneration": changed.metadata.generation}}));
        let name = enactment_name(&self.machine.name, policy).unwrap();
        self.wait(self.enactments().patch_status(&name, &PatchParams::default(), &patch));
    }

    /// Asks for the enactment's addresses back.
    pub fn delete(&self, policy: &str) {
        let name = enactment_name(&self.machine.name, policy).unwrap();
        self.wait(self.enactments().delete(&name, &DeleteParams::default()));
    }

    /// Ends an enactment, as the controller does with those of a node that is gone.
    pub fn end(&self, policy: &str) {
        let name = enactment_name(&self.machine.name, policy).unwrap();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        self.wait(self.enactments().patch(&name, &PatchParams::default(), &patch));
    }

    /// This node's enactment of a policy.
    pub fn enactment(&self, policy: &str) -> Enactment {
        let name = enactment_name(&self.machine.name, policy).unwrap();
        self.wait(self.enactments().get(&name))
    }

    /// Waits until the enactment says that the node has it.
    pub fn until_available(&self, policy: &str) -> Enactment {
        self.until_condition(policy, "Available", "")
    }

    /// Waits until the enactment says that the node has it not, with these words.
    pub fn until_failing(&self, policy: &str, words: &str) -> Enactment {
        self.until_condition(policy, "Failing", words)
    }

    fn until_condition(&self, policy: &str, type_: &str, words: &str) -> Enactment {
        self.machine.until(&format!("{policy} to be {type_} with {words:?}"), || {
            let enactment = self.enactment(policy);
            let status = enactment.status.clone().unwrap_or_default();
            let is = enactment
                .condition(type_)
                .is_some_and(|it| it.is_true() && it.message.as_deref().unwrap_or_default().contains(words));
            let about =
                status.applied.as_ref().and_then(|it| it.policy_generation) == status.policy_generation;
            (is && about).then_some(enactment)
        })
    }

    /// Waits until the enactment says that its addresses can be freed.
    pub fn until_released(&self, policy: &str) {
        self.machine.until(&format!("{policy} to be released"), || {
            let applied = self.enactment(policy).status.and_then(|it| it.applied)?;
            (applied.released && applied.addresses.is_empty()).then_some(())
        });
    }

    /// The addresses of an interface that mean something beyond the link; nothing if there is none.
    pub fn addresses(&self, interface: &str) -> BTreeSet<String> {
        let shown = self.machine.host.namespace().ip_json(&["address", "show", "dev", interface]);
        let all = shown.ok().and_then(|links| links[0]["addr_info"].as_array().cloned()).unwrap_or_default();
        let global = all.into_iter().filter(|it| it["scope"] == "global");
        global.map(|it| format!("{}/{}", it["local"].as_str().unwrap(), it["prefixlen"])).collect()
    }

    /// Waits until an interface has exactly these.
    pub fn until_addresses(&self, interface: &str, expected: &[&str]) {
        let expected = texts(expected);
        self.machine.until(&format!("{interface} to have {expected:?}"), || {
            (self.addresses(interface) == expected).then_some(())
        });
    }

    pub fn ping(&self, address: &str) {
        let address: IpAddr = address.parse().unwrap();
        self.machine.host.ping(address, tenure_testbed::wait::PATIENCE).unwrap();
    }
}

pub fn texts(addresses: &[&str]) -> BTreeSet<String> {
    addresses.iter().map(|&it| it.to_owned()).collect()
}

/// An interface with the address of a capture, as in the seed.
pub fn interface(name: &str, capture: &str) -> Value {
    json!({
        "name": name, "type": "ethernet", "state": "up",
        "ipv4": {
            "address": [{
                "ip": format!("{{{{ capture.{capture}.ip }}}}"),
                "prefix-length": format!("{{{{ capture.{capture}.prefix-length }}}}"),
            }],
            "dhcp": false, "enabled": true,
        },
    })
}
