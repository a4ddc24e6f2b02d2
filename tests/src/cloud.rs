//! A fake cloud around hosts made of namespaces: each host is a machine of it with its own metadata server, and aliases become routes
//! between the hosts.

mod history;
mod routes;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases};
use tenure_controller::CloudSettings;
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::compute::{Call, FakeCloud, PROJECT, Settings, TOKEN};
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::until;

pub use history::{Delay, Promise, delay_of_move, on_two_machines, over_budget, unkept};
pub use routes::Routes;

use crate::agent::{Cluster, Gate, Machine};
use crate::moves::{Network, plugins};
use crate::programs;

pub const REGION: &str = "europe-west4";
const SUBNET: &str = "nodes";
/// The name of the pool.
pub const POOL: &str = "live";
/// The secondary range that pools are part of.
pub const RANGE: &str = "10.111.0.0/16";

/// The fake, as programs on hosts reach it.
pub struct Cloud {
    pub fake: FakeCloud,
    token: tempfile::NamedTempFile,
    /// The ways of hosts to their metadata servers.
    metadata: Mutex<Vec<Gate>>,
}

impl Cloud {
    /// A cloud without machines.
    pub fn start(cluster: &Cluster, settings: Settings) -> Self {
        let fake = cluster.runtime.block_on(FakeCloud::start(settings)).unwrap();
        fake.add_subnet(REGION, SUBNET, "192.0.2.0/24").unwrap();
        fake.add_secondary_range(REGION, SUBNET, POOL, RANGE).unwrap();
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), TOKEN).unwrap();
        Self { fake, token, metadata: Mutex::default() }
    }

    /// What a controller has to be told to reach it.
    pub fn arguments(&self) -> Vec<String> {
        let endpoint = format!("--cloud-endpoint={}", self.fake.compute());
        let token = format!("--cloud-token-file={}", self.token.path().display());
        vec!["--cloud=gcp".to_owned(), endpoint, token]
    }

    /// The same for one that is no program of its own.
    pub fn settings(&self) -> CloudSettings {
        CloudSettings::google(Some(&self.fake.compute()), Some(self.token.path().to_owned()), "no.such.host")
    }

    /// Makes a host a machine of the cloud, before its agent starts.
    pub fn join(&self, machine: &mut Machine<'_>, zone: &str) {
        let (cluster, name) = (machine.cluster, machine.name.clone());
        self.fake.add_instance(zone, &name, SUBNET);
        let metadata = cluster.runtime.block_on(self.fake.metadata(zone, &name)).unwrap();
        let gate = Gate::open(cluster.runtime.handle(), &machine.host, metadata.parse().unwrap());
        let host = gate.address().to_string();
        let told = ["--alias-pool", "auto", "--cluster-network", NETWORK, "--metadata-host", &host];
        machine.arguments.extend(told.map(str::to_owned));
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner).push(gate);
        // What arrives nowhere is dropped without a word.
        machine.host.ip(&format!("route add blackhole {RANGE}")).unwrap();
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let patch = Patch::Merge(json!({"spec": {"providerID": format!("gce://{PROJECT}/{zone}/{name}")}}));
        cluster.runtime.block_on(nodes.patch(&name, &PatchParams::default(), &patch)).unwrap();
    }

    /// Carries packets between these hosts from now on.
    pub fn connect(&self, machines: &[Machine<'_>]) {
        let open = |machine: &Machine<'_>| {
            NetworkNamespace::open(&machine.name, &machine.host.namespace().path()).unwrap()
        };
        let addresses = machines.iter().map(|machine| (machine.name.clone(), machine.addresses[0]));
        let routes = Routes::new(machines.iter().map(open).collect(), addresses.collect());
        self.fake.on_arrival(move |arrivals| routes.change(arrivals));
    }

    /// Makes the pool.
    pub fn pool(cluster: &Cluster, more: &Value) {
        let mut spec = json!({
            "cidr": RANGE, "subnet": format!("projects/{PROJECT}/regions/{REGION}/subnetworks/{SUBNET}"),
        });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let pool = AliasPool::new(POOL, serde_json::from_value(spec).unwrap());
        let pools: Api<AliasPool> = Api::all(cluster.client.clone());
        cluster.runtime.block_on(pools.create(&PostParams::default(), &pool)).unwrap();
    }

    /// How many updates of interfaces it has accepted.
    pub fn updates(&self) -> usize {
        self.fake.accepted(Call::UpdateInterface)
    }
}

/// The name of the network of pods.
pub const NETWORK: &str = "gke-pod-network";

/// A network as the cloud's own agents configure it, with our plugin in the place of theirs. The plugins are as long as the directory is.
pub fn network() -> (Network, tempfile::TempDir) {
    let binaries = Binaries::locate([Program::Ptp]).unwrap();
    let own = programs::plugin();
    let directory = plugins(&[("ptp", binaries.path(Program::Ptp).unwrap()), ("gcp-ipam", &own)]);
    let config = json!({"cniVersion": "0.3.1", "name": NETWORK, "type": "ptp", "mtu": 1460, "ipam": {"type": "gcp-ipam"}});
    (Network { plugin: directory.path().join("ptp"), config }, directory)
}

/// What a node's object says, if it is there.
pub fn aliases_of(cluster: &Cluster, node: &str) -> Option<NodeAliases> {
    let objects: Api<NodeAliases> = Api::all(cluster.client.clone());
    cluster.runtime.block_on(objects.get_opt(node)).unwrap()
}

/// Waits until the agent of a node has said that these addresses leave with their pods.
pub fn until_leaving(cluster: &Cluster, node: &str, addresses: &[String]) {
    until("the agent to say that its pods leave", || {
        let leaving = aliases_of(cluster, node)?.spec.leaving;
        addresses.iter().all(|address| leaving.contains_key(address)).then_some(())
    });
}

/// All ledgers of the pool.
pub fn ledgers(cluster: &Cluster) -> Vec<IPLedger> {
    let ledgers: Api<IPLedger> = Api::all(cluster.client.clone());
    cluster.runtime.block_on(ledgers.list(&ListParams::default())).unwrap().items
}

/// What the pods of a namespace were refused: pod and words.
pub fn refusals(cluster: &Cluster, namespace: &str) -> BTreeSet<(String, String)> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
    let events = cluster.runtime.block_on(events.list(&ListParams::default())).unwrap().items;
    let refused = events.into_iter().filter(|event| event.reason.as_deref() == Some("AddressRefused"));
    refused.map(|it| (it.involved_object.name.unwrap_or_default(), it.message.unwrap_or_default())).collect()
}
