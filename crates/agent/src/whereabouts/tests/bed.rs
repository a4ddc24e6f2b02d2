//! An embedded API server with faults before it, and agents without a kernel whose service is called as the plugin calls it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod as KubePod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_api::whereabouts::{GROUP, IPPool, NodeSlicePool};
use tenure_cni::{Failure, Verb, rpc};
use tenure_handles::SeededEntropy;
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::faults::{Calls, Faults, Rule};
use tenure_whereabouts::Config;
use tenure_whereabouts::config::Arguments;
use tenure_whereabouts::slices::{NETWORK, slice_pools};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::drive::{Handle, NodeChannel};
use crate::journal::Image;
use crate::node::{Event, Node, Settings};
use crate::pods::Pods;
use crate::run::tombstones::Tombstones;
use crate::serve::{PodName, PostponedDels, Service};
pub(super) use crate::testing::until;
use crate::testing::{Obedient, SOON};
use crate::whereabouts::ledgers::{self, Ledgers};
use crate::whereabouts::slices::{self, Slices};
use crate::whereabouts::{PreferredAddress, Whereabouts};

pub(super) const NAMESPACE: &str = "kube-system";

/// A pod's interface: pod, container, interface.
pub(super) type At<'a> = (&'a str, &'a str, &'a str);

/// An API server.
pub(super) struct Bed {
    server: LocalApi,
    /// Without faults.
    pub(super) client: Client,
    /// Between agents and the server.
    pub(super) faults: Faults,
    directory: tempfile::TempDir,
}

/// A node's agent. It ends when this is dropped; its directory stays.
pub(super) struct Agent {
    pub(super) node: Handle,
    pub(super) service: Service<RuntimeClock>,
    pods: Pods<PreferredAddress>,
    pub(super) tombstones: Tombstones<RuntimeClock>,
    directory: PathBuf,
    journal: Arc<Mutex<Image>>,
    _life: DropGuard,
}

impl Bed {
    pub(super) async fn new() -> Self {
        let server = ServerOptions::default().temporary(RuntimeClock, SeededEntropy::new(11));
        let client = server.client();
        for name in [NAMESPACE, "shop"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let namespaces: Api<Namespace> = Api::all(client.clone());
            drop(namespaces.create(&PostParams::default(), &namespace).await);
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in tenure_api::crds().into_iter().filter(|crd| crd.spec.group == GROUP) {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        Self { server, client, faults: Faults::seeded(11), directory: tempfile::tempdir().unwrap() }
    }

    /// One whose controller has cut the network's ranges: the first slice is node-1's, the second node-2's.
    pub(super) async fn cutting(network: &Value) -> Self {
        let bed = Self::new().await;
        bed.cut(network).await;
        bed
    }

    pub(super) async fn cut(&self, network: &Value) {
        let config = Config::load(network, None, &Arguments::default()).unwrap();
        let pools: Api<NodeSlicePool> = Api::namespaced(self.client.clone(), NAMESPACE);
        for (name, cut) in slice_pools(&config).unwrap() {
            let nodes = ["node-1", "node-2"].into_iter().zip(cut.iter());
            let allocations: Vec<Value> = nodes
                .map(|(node, slice)| json!({"nodeName": node, "sliceRange": slice.to_string()}))
                .collect();
            let pool = json!({
                "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool",
                "metadata": {"name": name, "annotations": {NETWORK: config.network}},
                "spec": {"range": cut.whole().to_string(), "sliceSize": format!("/{}", cut.prefix())},
                "status": {"allocations": allocations},
            });
            let pool = serde_json::from_value(pool).unwrap();
            pools.create(&PostParams::default(), &pool).await.unwrap();
        }
        for node in ["node-1", "node-2"] {
            crate::testing::tell(&self.client, NAMESPACE, node).await;
        }
    }

    pub(super) fn pools(&self) -> Api<IPPool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(super) async fn edit(&self, pool: &str, patch: Value) {
        self.pools().patch(pool, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Makes a pod of node-1 that would like an address.
    pub(super) async fn pod(&self, name: &str, preferred: &str) {
        let pod = json!({
            "metadata": {"name": name, "annotations": {"whereabouts.cni.cncf.io/preferred-ip": preferred}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        });
        let pods: Api<KubePod> = Api::namespaced(self.client.clone(), "shop");
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// What all objects have on record: object, offset, container, interface.
    pub(super) async fn records(&self) -> Vec<String> {
        let mut records = Vec::new();
        for pool in self.pools().list(&ListParams::default()).await.unwrap().items {
            let name = pool.metadata.name.unwrap_or_default();
            for (offset, record) in pool.spec.allocations {
                records.push(format!("{name} {offset} {} {}", record.id, record.ifname.unwrap_or_default()));
            }
        }
        records.sort();
        records
    }

    /// Waits until this is on record.
    pub(super) async fn until_recorded(&self, wanted: &[&str]) {
        let looking = async {
            while self.records().await != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let recorded = tokio::time::timeout(SOON, looking).await.is_ok();
        assert!(recorded, "{:?} is on record, and not {wanted:?}", self.records().await);
    }

    /// Nothing reaches the server any more, and open watches end.
    pub(super) fn away(&self) {
        self.faults.add(Rule::lose_request());
        self.faults.cut_watches(&Calls::all());
    }

    /// The server is there again.
    pub(super) fn back(&self) {
        self.faults.clear();
    }

    /// An agent that begins with nothing.
    pub(super) async fn agent(&self, name: &str) -> Agent {
        self.agent_after(name, Image::default()).await
    }

    /// An agent that has read everything, in the directory of the one before.
    pub(super) async fn agent_after(&self, name: &str, journal: Image) -> Agent {
        let (channel, stop) = (NodeChannel::new(), CancellationToken::new());
        let (node, directory) = (channel.handle(), self.directory.path().join(name));
        for event in [Event::Journal(journal.clone()), Event::Kernel(Vec::new()), Event::ApiRead] {
            node.tell(event);
        }
        let client = self.faults.client(self.server.clone(), NAMESPACE);
        let wanted = slices::SlicesOptions {
            debounce: Duration::from_millis(20),
            patience: Duration::from_millis(300),
            call_patience: Duration::from_secs(1),
            look_again: Duration::from_millis(100),
            look_at_pods: Duration::from_mins(10),
            ..slices::SlicesOptions::new(name, NAMESPACE)
        };
        let slices = Slices::start(client.clone(), wanted, RuntimeClock, node.clone(), stop.clone());
        let journal = Arc::new(Mutex::new(journal));
        let executor = Obedient {
            node: node.clone(),
            slices: slices.clone(),
            journal: Arc::clone(&journal),
            position: 0,
        };
        let settings =
            Settings { sources: vec![slices::SOURCE], cooling: Duration::ZERO, ..Settings::new(name) };
        let driver = channel.driver(Node::new(settings), RuntimeClock, executor);
        tokio::spawn(driver.run(stop.clone().cancelled_owned()));
        let wanted = ledgers::LedgersOptions {
            cooling: Duration::ZERO,
            patience: Duration::from_millis(300),
            ..ledgers::LedgersOptions::new(name, directory.join("ledgers"))
        };
        let ledgers = Ledgers::new(client.clone(), wanted, RuntimeClock, stop.clone());
        let pods = Pods::new(client, name, RuntimeClock, stop.clone());
        let whereabouts = Whereabouts::new(ledgers, slices, pods.clone(), &directory, false);
        let postponed = PostponedDels::of(directory.join("tombstones"));
        let service =
            Service::new(node.clone(), RuntimeClock, vec![Arc::new(whereabouts)], Some(postponed.clone()));
        let tombstones = Tombstones::new(postponed, service.clone());
        let pods = pods.keep();
        let agent = Agent { node, service, pods, tombstones, directory, journal, _life: stop.drop_guard() };
        until("the node", async || agent.node.look(Node::is_ready).await.unwrap().then_some(())).await;
        agent
    }
}

impl Agent {
    /// What a crash leaves.
    pub(super) fn journal(&self) -> Image {
        self.journal.lock().unwrap().clone()
    }

    /// The annotation of a pod that names the address it would like.
    pub(super) async fn wish_of(&self, pod: &str) -> String {
        let pod = PodName { namespace: "shop".into(), name: pod.into(), uid: String::new() };
        PreferredAddress::of_pod(&self.pods, &pod).await
    }

    pub(super) async fn ask(&self, verb: Verb, network: &Value, at: At<'_>) -> Result<Value, Failure> {
        let reply = self.service.answer(verb, call(network, at)).await;
        match reply.failure {
            Some(failure) => Err(failure.into()),
            None if reply.result.is_empty() => Ok(Value::Null),
            None => Ok(serde_json::from_slice(&reply.result).unwrap()),
        }
    }

    /// The addresses that an ADD answers, without their lengths.
    pub(super) async fn add(&self, network: &Value, at: At<'_>) -> Result<Vec<String>, Failure> {
        Ok(addresses(&self.ask(Verb::Add, network, at).await?))
    }

    pub(super) async fn del(&self, network: &Value, at: At<'_>) -> Result<Value, Failure> {
        self.ask(Verb::Del, network, at).await
    }

    /// A CHECK of what an ADD answered.
    pub(super) async fn check(&self, network: &Value, at: At<'_>, ips: &[&str]) -> Result<Value, Failure> {
        let mut network = network.clone();
        let ips: Vec<Value> = ips.iter().map(|ip| json!({"address": ip})).collect();
        network["prevResult"] = json!({"cniVersion": "1.1.0", "ips": ips});
        self.ask(Verb::Check, &network, at).await
    }

    /// A GC: container and interface of those alive.
    pub(super) async fn gc(&self, network: &Value, alive: &[(&str, &str)]) -> Result<Value, Failure> {
        let mut network = network.clone();
        let alive: Vec<Value> = alive
            .iter()
            .map(|(container, interface)| json!({"containerID": container, "ifname": interface}))
            .collect();
        network["cni.dev/valid-attachments"] = json!(alive);
        self.ask(Verb::Gc, &network, ("", "", "")).await
    }

    pub(super) async fn status(&self, network: &Value) -> Result<Value, Failure> {
        self.ask(Verb::Status, network, ("", "", "")).await
    }

    /// Address, container and interface of what is held in slices.
    pub(super) async fn held(&self) -> Vec<String> {
        let slices = self.node.look(Node::slices).await.unwrap();
        let holds = slices.iter().flat_map(|slice| &slice.holds);
        holds.map(|hold| format!("{} {} {}", hold.address, hold.container(), hold.interface())).collect()
    }

    /// The files of DELs that are left for later.
    pub(super) fn left(&self) -> Vec<PathBuf> {
        let found = tenure_cni::tombstone::read_all(&self.directory.join("tombstones")).unwrap();
        found.into_iter().map(|(path, _)| path).collect()
    }

    /// Leaves a DEL for later, as the plugin does when no agent answers.
    pub(super) fn leave(&self, network: &Value, at: At<'_>) -> PathBuf {
        let name = network["name"].as_str().unwrap();
        tenure_cni::tombstone::leave(&self.directory.join("tombstones"), name, &call(network, at)).unwrap()
    }

    /// How many attachments this node remembers.
    pub(super) fn remembered(&self) -> usize {
        fs::read_dir(self.directory.join("ledgers")).map_or(0, Iterator::count)
    }
}

/// A call as the plugin makes it.
fn call(network: &Value, (pod, container, interface): At<'_>) -> rpc::Call {
    // `name@uid`, where it matters which of the pods of a name it is.
    let (name, uid) = pod.split_once('@').map_or((pod, None), |(name, uid)| (name, Some(uid)));
    let named = [("IgnoreUnknown", "1"), ("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", name)];
    let arguments = named.into_iter().chain(uid.map(|uid| ("K8S_POD_UID", uid)));
    rpc::Call {
        protocol: rpc::PROTOCOL,
        container_id: container.to_owned(),
        netns: format!("/run/netns/{container}"),
        ifname: interface.to_owned(),
        args: arguments.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        config: network.to_string().into_bytes(),
        plugin: "whereabouts".to_owned(),
        ..rpc::Call::default()
    }
}

/// A network of this CNI name that asks for addresses.
pub(super) fn network(name: &str, ipam: Value) -> Value {
    let mut network = json!({"cniVersion": "1.1.0", "name": name, "type": "macvlan"});
    network["ipam"] = ipam;
    network["ipam"]["type"] = json!("whereabouts");
    network
}

/// A network without slices.
pub(super) fn shared() -> Value {
    network("conf", json!({"range": "10.0.0.0/24"}))
}

/// The same network with slices: 10.0.0.0/28 is node-1's, 10.0.0.16/28 node-2's.
pub(super) fn sliced() -> Value {
    network("conf", json!({"range": "10.0.0.0/24", "node_slice_size": "/28"}))
}

/// Both kinds of network, each on a bed of its own.
pub(super) async fn both() -> [(Bed, Value); 2] {
    [(Bed::new().await, shared()), (Bed::cutting(&sliced()).await, sliced())]
}

pub(super) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}
