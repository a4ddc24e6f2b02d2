//! Three machines of a cloud in two zones, with an agent each, a controller, and pods with alias addresses.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tenure_api::cloud::annotation;
use tenure_testbed::compute::Settings;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::until;
use tenure_tests::agent::Machine;
use tenure_tests::cloud::{self, Cloud, on_two_machines};
use tenure_tests::moves::{self, Placed};

/// The zone of each machine: the first two are in different ones.
pub const ZONES: [&str; 3] = ["europe-west4-a", "europe-west4-b", "europe-west4-a"];

/// The part of the range that is for claims.
pub const CLAIMS: &str = "10.111.255.0/24";

/// An API server, a cloud and a controller.
pub struct Stage {
    moves: moves::Stage,
    pub cloud: Cloud,
    /// What agents are told beside the usual.
    of_agents: &'static [&'static str],
    _plugins: tempfile::TempDir,
}

impl Deref for Stage {
    type Target = moves::Stage;

    fn deref(&self) -> &moves::Stage {
        &self.moves
    }
}

impl Stage {
    /// With a pool that has this, too.
    pub fn new(pool: &Value) -> Self {
        Self::start(pool, &[], &[])
    }

    /// With addresses that outlive pods: a part of the subnet's range is for claims.
    pub fn with_claims() -> Self {
        let stage = Self::start(
            &json!({"warm": 0, "exclude": [CLAIMS]}),
            &["--cluster-network", cloud::NETWORK],
            &["--persistent-ips"],
        );
        stage.cluster.pool("default", 3, json!([{"ipv4": CLAIMS}]));
        stage
    }

    fn start(pool: &Value, of_controller: &[&str], of_agents: &'static [&'static str]) -> Self {
        let (network, plugins) = cloud::network();
        let mut stage = moves::Stage::new(network);
        let millis = Duration::from_millis;
        let settings = Settings {
            update: millis(900)..millis(1000),
            arrival: millis(100)..millis(200),
            ..Settings::default()
        };
        let cloud = Cloud::start(&stage.cluster, settings);
        Cloud::pool(&stage.cluster, pool);
        let told = of_controller.iter().map(|it| (*it).to_owned());
        stage.control(&cloud.arguments().into_iter().chain(told).collect::<Vec<_>>());
        Self { moves: stage, cloud, of_agents, _plugins: plugins }
    }

    /// Three machines on one Ethernet, with an agent each.
    pub fn machines(&self, wire: &Arc<Segment>) -> [Machine<'_>; 3] {
        let mut machines = [1, 2, 3].map(|number| Machine::on(&self.cluster, wire, number));
        for (machine, zone) in machines.iter_mut().zip(ZONES) {
            self.cloud.join(machine, zone);
            machine.arguments.extend(self.of_agents.iter().map(|it| (*it).to_owned()));
        }
        self.cloud.connect(&machines);
        machines.iter_mut().for_each(Machine::start);
        machines
    }

    /// Marks pods as moving out, and waits until their agent has said so.
    pub fn mark(&self, pods: &[&Placed<'_>], addresses: &[IpAddr]) {
        for pod in pods {
            self.change(&pod.name, &json!({"annotations": {annotation::MOVE_OUT: "true"}}));
        }
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        cloud::until_leaving(&self.cluster, &pods[0].machine.name, &texts);
    }

    /// Ends pods that have moved away, as a kubelet does. Nothing of theirs is theirs any more.
    pub fn end(&self, pods: &[&Placed<'_>]) {
        for pod in pods {
            pod.del();
            self.delete_pod(&pod.name);
        }
    }

    /// Deletes the object of a node.
    pub fn delete_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        self.cluster.runtime.block_on(nodes.delete(name, &DeleteParams::default())).unwrap();
    }

    /// That addresses are on one machine alone, and always were on one or none.
    pub fn assert_only_on(&self, machine: usize, machines: [&Machine<'_>; 3], addresses: &[IpAddr]) {
        let ranges: Vec<String> = addresses.iter().map(|address| format!("{address}/32")).collect();
        for (number, other) in machines.iter().enumerate() {
            let there = self.cloud.fake.aliases(ZONES[number], &other.name);
            let found: Vec<&String> = ranges.iter().filter(|range| there.contains(*range)).collect();
            let expected = if number == machine { ranges.len() } else { 0 };
            assert_eq!(found.len(), expected, "{found:?} of {ranges:?} are on {}", other.name);
        }
        assert_eq!(on_two_machines(&self.cloud.fake.changes()), Vec::<String>::new());
    }

    /// Waits until the records of addresses name a node, and nothing is left of how they came there.
    pub fn until_recorded(&self, node: &str, addresses: &[IpAddr]) {
        until("the records to name the node", || {
            let ledgers = cloud::ledgers(&self.cluster);
            let is = |address: &IpAddr| {
                let IpAddr::V4(address) = address else { return false };
                let [a, b, c, offset] = address.octets();
                let ledger = ledgers.iter().find(|it| it.spec.cidr.starts_with(&format!("{a}.{b}.{c}.")));
                let record = ledger.and_then(|it| it.spec.records.get(&offset.to_string()));
                record.is_some_and(|record| record.node == node && record.freed.is_none())
            };
            addresses.iter().all(is).then_some(())
        });
    }
}

/// The annotations of a pod that takes an address over.
pub fn takes_over(address: IpAddr, instance: &str) -> Value {
    let address = address.to_string();
    json!({"annotations": {annotation::ADDRESS: address, annotation::ORIGINAL_INSTANCE: instance}})
}
