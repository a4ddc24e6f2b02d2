//! A real API server with our kinds and a controller, and Whereabouts' objects on it as people and programs see them.
//!
//! Needs root (agents want a network namespace, which they share here: with `ipam.type` `whereabouts` they only decide
//! addresses, and nobody makes an interface), etcd and kube-apiserver.

pub mod node;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_api::whereabouts::{
    Allocation, IPPool, IPPoolSpec, NodeSlicePool, OverlappingRangeIPReservation,
    OverlappingRangeIPReservationSpec,
};
use tenure_controller::{Controller, Settings, Timing, Whereabouts};
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::{PATIENCE, until};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Where Whereabouts' objects are.
pub const NAMESPACE: &str = "kube-system";
/// Where attachment definitions are: somewhere else.
pub const APPS: &str = "apps";
/// What an `IPPool` says of itself.
pub const STATE: &str = "whereabouts.cni.cncf.io/state";
/// Whose a pool is, if it is a named network's.
pub const NETWORK: &str = "whereabouts.cni.cncf.io/network";
/// Whose slice a pool is.
pub const NODE: &str = "whereabouts.cni.cncf.io/node";

/// Where Multus says what a pod has.
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The time since the start of the machine's clock.
pub fn now() -> Duration {
    SystemClock.elapsed()
}

/// Says something that is seen also when the test succeeds.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{:.1} s: {what}", now().as_secs_f64());
}

/// An API server.
pub struct Bed {
    stop: CancellationToken,
    pub client: Client,
    pub plane: ControlPlane,
    place: NetworkNamespace,
    pub runtime: Runtime,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A controller that runs.
pub struct Control {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), tenure_controller::RunError>>,
}

impl Bed {
    /// With our kinds and other people's attachment definitions, and without a controller.
    pub fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let (plane, client) = runtime.block_on(async {
            let plane = ControlPlane::start(ControlPlaneOptions::default().without_controller_manager())
                .await
                .unwrap();
            let client = plane.client().unwrap();
            define(&client).await;
            let apps: Namespace = object(json!({"metadata": {"name": APPS}}));
            Api::all(client.clone()).create(&PostParams::default(), &apps).await.unwrap();
            (plane, client)
        });
        let shared = NetworkNamespace::new("nodes").unwrap();
        Self { stop: CancellationToken::new(), client, plane, place: shared, runtime }
    }

    /// One with a controller that all tests of a program share which run at the same time.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Bed>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bed) = shared.upgrade() {
            return bed;
        }
        let bed = Arc::new(Self::new());
        bed.control("shared");
        *shared = Arc::downgrade(&bed);
        bed
    }

    /// Starts a controller that releases after a few seconds what nobody uses.
    pub fn control(&self, identity: &str) -> Control {
        let settings = Settings {
            timing: Timing {
                duration: Duration::from_secs(8),
                renew_deadline: Duration::from_secs(6),
                retry: Duration::from_millis(300),
            },
            whereabouts: Whereabouts {
                release_after: Some(Duration::from_secs(3)),
                node_gone_after: Duration::from_secs(2),
                ..Whereabouts::default()
            },
            tick: Duration::from_secs(1),
            ..Settings::new(identity)
        };
        let controller = Controller::new(self.client.clone(), SystemClock, settings);
        let stop = self.stop.child_token();
        let task = self.runtime.spawn(controller.run(stop.clone()));
        Control { stop, task }
    }

    /// The path of the network namespace that stands for every node's and every pod's.
    pub fn place(&self) -> PathBuf {
        self.place.path()
    }

    /// Waits for an answer of the API server.
    pub fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.runtime.block_on(asking)
    }

    pub fn ledgers(&self) -> Api<IPPool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn reservations(&self) -> Api<OverlappingRangeIPReservation> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn slice_pools(&self) -> Api<NodeSlicePool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes nodes.
    pub fn make_nodes(&self, names: &[String]) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let each = names.iter().map(|name| {
            let (nodes, node): (_, Node) = (nodes.clone(), object(json!({"metadata": {"name": name}})));
            async move { nodes.create(&PostParams::default(), &node).await }
        });
        self.wait(try_join_all(each)).unwrap();
    }

    /// Makes pods of the namespace `default`, each on its node. They have no network status.
    pub fn make_pods(&self, pods: &[(String, String)]) {
        let each = pods.iter().map(|(name, node)| {
            let pod: Pod = object(json!({
                "metadata": {"name": name},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            }));
            let api = self.pods();
            async move { api.create(&PostParams::default(), &pod).await }
        });
        self.wait(try_join_all(each)).unwrap();
    }

    /// Says in pods' network status what they have, beside an address of the cluster's own network, as Multus does.
    pub fn tell_status(&self, pods: &BTreeMap<String, Vec<IpAddr>>) {
        let each = pods.iter().map(|(name, addresses)| {
            let mut status = vec![json!({"name": "cluster", "interface": "eth0", "ips": ["192.0.2.1"]})];
            status.push(json!({"name": "default/networks", "interface": "net1", "ips": addresses}));
            let status = json!({STATUS: json!(status).to_string()});
            let patch = Patch::Merge(json!({"metadata": {"annotations": status}}));
            let api = self.pods();
            async move { api.patch(name, &PatchParams::default(), &patch).await }
        });
        self.wait(try_join_all(each)).unwrap();
    }

    /// Deletes a pod at once.
    pub fn delete_pod(&self, name: &str) {
        self.wait(self.pods().delete(name, &DeleteParams::default().grace_period(0))).unwrap();
    }

    /// Makes or changes the attachment definition of a network.
    pub fn attach(&self, name: &str, config: &Value) {
        let api: Api<NetworkAttachmentDefinition> = Api::namespaced(self.client.clone(), APPS);
        self.wait(async {
            if api.get_opt(name).await.unwrap().is_some() {
                let patch = Patch::Merge(json!({"spec": {"config": config.to_string()}}));
                api.patch(name, &PatchParams::default(), &patch).await.unwrap();
                return;
            }
            let spec = NetworkAttachmentDefinitionSpec { config: config.to_string() };
            let definition = NetworkAttachmentDefinition::new(name, spec);
            api.create(&PostParams::default(), &definition).await.unwrap();
        });
    }

    /// Waits until all of these nodes have a slice of a pool: by node.
    pub fn sliced(&self, pool: &str, nodes: &[String]) -> BTreeMap<String, String> {
        until(&format!("slices of {pool}"), || {
            let pool = self.wait(self.slice_pools().get_opt(pool)).unwrap()?;
            let slices = nodes.iter().map(|node| Some((node.clone(), pool.slice_of(node)?.to_owned())));
            slices.collect()
        })
    }

    /// Makes an `IPPool` as Whereabouts leaves it: no labels, no annotations.
    pub fn make_ledger(&self, name: &str, range: &str, records: BTreeMap<String, Allocation>) -> IPPool {
        let pool = IPPool::new(name, IPPoolSpec { range: range.to_owned(), allocations: records });
        self.wait(self.ledgers().create(&PostParams::default(), &pool)).unwrap()
    }

    /// Makes a reservation as Whereabouts leaves it.
    pub fn make_reservation(&self, name: &str, podref: &str, ifname: &str) {
        let (podref, ifname) = (podref.to_owned(), Some(ifname.to_owned()));
        let spec = OverlappingRangeIPReservationSpec { containerid: None, podref, ifname };
        let reservation = OverlappingRangeIPReservation::new(name, spec);
        self.wait(self.reservations().create(&PostParams::default(), &reservation)).unwrap();
    }

    /// An `IPPool`, if it is there.
    pub fn ledger(&self, name: &str) -> Option<IPPool> {
        self.wait(self.ledgers().get_opt(name)).unwrap()
    }

    /// The records of an `IPPool`; none if it is not there.
    pub fn records(&self, name: &str) -> BTreeMap<String, Allocation> {
        self.ledger(name).map(|pool| pool.spec.allocations).unwrap_or_default()
    }

    /// What an `IPPool` says of itself.
    pub fn state(&self, name: &str) -> Option<String> {
        self.ledger(name)?.annotations().get(STATE).cloned()
    }

    /// All `IPPool`s.
    pub fn all_ledgers(&self) -> Vec<IPPool> {
        self.wait(self.ledgers().list(&ListParams::default())).unwrap().items
    }

    /// All reservations: name, pod and interface.
    pub fn all_reservations(&self) -> BTreeMap<String, (String, String)> {
        let found = self.wait(self.reservations().list(&ListParams::default())).unwrap();
        let spec = |it: &OverlappingRangeIPReservation| {
            (it.spec.podref.clone(), it.spec.ifname.clone().unwrap_or_default())
        };
        found.items.iter().map(|it| (it.name_any(), spec(it))).collect()
    }

    /// The names of reservations that begin like this.
    pub fn reservations_of(&self, prefix: &str) -> Vec<String> {
        self.all_reservations().into_keys().filter(|name| name.starts_with(prefix)).collect()
    }
}

impl Control {
    /// Ends it as a signal does.
    pub fn stop(self, bed: &Bed) {
        self.stop.cancel();
        bed.wait(self.task).unwrap().unwrap();
    }

    /// Ends it as a crash does.
    pub fn kill(self, bed: &Bed) {
        self.task.abort();
        assert!(bed.wait(self.task).unwrap_err().is_cancelled());
    }
}

async fn define(client: &Client) {
    let attachments = include_str!("../../deploy/optional/network-attachment-definitions.yaml");
    let attachments: CustomResourceDefinition = serde_saphyr::from_str(attachments).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let all: Vec<CustomResourceDefinition> = tenure_api::crds().into_iter().chain([attachments]).collect();
    for definition in &all {
        definitions.create(&PostParams::default(), definition).await.unwrap();
    }
    for definition in &all {
        let name = definition.name_any();
        let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
    }
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A record as Whereabouts writes it.
pub fn record(container: &str, podref: &str, ifname: Option<&str>) -> Allocation {
    Allocation {
        id: container.to_owned(),
        podref: podref.to_owned(),
        ifname: ifname.map(str::to_owned),
        ..Allocation::default()
    }
}

/// The CNI configuration of a network whose addresses come from Whereabouts.
pub fn network(name: &str, ipam: Value) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": name, "type": "macvlan", "master": "eth0"});
    config["ipam"] = ipam;
    config["ipam"]["type"] = json!("whereabouts");
    config
}

/// An address as a number of its family.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address at an offset of a range; `None` for keys that are no offset.
pub fn address_at(range: &str, key: &str) -> Option<IpAddr> {
    let net: ipnet::IpNet = range.parse().unwrap();
    let offset: u128 = key.parse().ok()?;
    let at = number(net.network()).checked_add(offset)?;
    let address = match net {
        ipnet::IpNet::V4(_) => IpAddr::V4(u32::try_from(at).ok()?.into()),
        ipnet::IpNet::V6(_) => IpAddr::V6(at.into()),
    };
    net.contains(&address).then_some(address)
}

/// The key of an address in the records of a range.
pub fn key_of(range: &str, address: IpAddr) -> String {
    let net: ipnet::IpNet = range.parse().unwrap();
    (number(address) - number(net.network())).to_string()
}
