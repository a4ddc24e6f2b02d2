//! Whole ADDs of pods that are clients, beside ADDs of pods that are not: a real agent in a namespace, its plugin executed
//! as a runtime does it, on the embedded API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client};
use serde_json::json;
use tenure_api::coil::egress::gateway_labels;
use tenure_api::coil::{AddressPool, Egress};
use tenure_controller::{Controller, Settings};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::hosts::{HostChild, NetworkNamespace};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::bed::SERVICE;
use crate::host::log;
use crate::host::machine::Machine;
use crate::host::objects::{self, create};
use crate::host::programs::Programs;
use crate::host::runtime::{Calls, Container, NAMESPACES, Order, Timings};
use crate::host::sampled::{Sampled, nanoseconds, percentile};
use crate::host::way::Way;
use crate::measure::Effort;
use crate::report::{Report, Unit};

const NODE: &str = "measured";
const TARGET: &str = "≤ 1 ms more";
/// Long enough for the agent to have heard of pods, and to have done what the last ones brought with them.
const REST: Duration = Duration::from_millis(500);

/// Pods without egress, and clients.
const KINDS: [&str; 2] = ["plain", "client"];

/// A host with an agent.
struct Bed {
    machine: Machine,
    client: Client,
    plugin: PathBuf,
    log: PathBuf,
    sandboxes: u64,
    stop: CancellationToken,
    _agent: HostChild,
    _way: Way,
    _server: Server,
    _directory: tempfile::TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the calls for one kind of pods took: whole executions, and inside the agent.
#[derive(Default)]
struct Figures {
    add: Sampled,
    del: Sampled,
    inside: Vec<f64>,
}

/// The table.
pub(super) fn measure(effort: Effort, programs: &Programs) -> Result<Report> {
    let (rounds, pods) = match effort {
        Effort::Quick => (1, 10),
        Effort::Full => (6, 40),
    };
    let runtime = Runtime::new()?;
    let mut bed = Bed::start(&runtime, programs)?;
    let measured = bed.rounds(&runtime, rounds, pods);
    let [plain, client] =
        measured.with_context(|| format!("the agent said last:\n{}", log::tail(&bed.log)))?;
    let columns = ["what", "without egress", "with egress", "more", "target"].map(str::to_owned);
    let mut report = Report::of_columns("Egress: an ADD of a pod with one Egress, both families", &columns);
    let mut row = |what: &str, without: f64, with: f64, target: &str| {
        let show = |value: f64| Unit::Nanoseconds.show(value);
        report.cells(&[what.into(), show(without), show(with), show(with - without), target.into()]);
    };
    row("ADD, whole execution: p50", plain.add.p50(), client.add.p50(), TARGET);
    row("ADD, whole execution: p99", plain.add.p99(), client.add.p99(), "");
    for (percent, target) in [(50, TARGET), (99, "")] {
        let [without, with] = [&plain, &client].map(|it| percentile(&it.inside, percent));
        row(&format!("ADD, inside the agent: p{percent}"), without, with, target);
    }
    row("DEL, whole execution: p50", plain.del.p50(), client.del.p50(), "");
    Ok(report)
}

impl Bed {
    fn start(runtime: &Runtime, programs: &Programs) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let stop = CancellationToken::new();
        let machine = Machine::start(NODE)?;
        let (server, client) = runtime.block_on(async {
            let api = LocalApi::temporary(SystemClock, SeededEntropy::new(4));
            let client = api.client();
            prepare(&client).await?;
            let controller = Controller::new(client.clone(), SystemClock, Settings::new("bench"));
            tokio::spawn(controller.run(stop.clone()));
            let server = Server::loopback(api, SocketAddr::from(([127, 0, 0, 1], 0))).await?;
            anyhow::Ok((server, client))
        })?;
        let address = server.address().context("the embedded API server has no port")?;
        let way = Way::open(runtime.handle(), &machine.host, address)?;
        let kubeconfig = directory.path().join("kubeconfig");
        way.plain_kubeconfig(&kubeconfig)?;
        let log = directory.path().join("tenured.log");
        let agent = machine.agent(&programs.agent, &kubeconfig, &log)?;
        let plugin = programs.plugin.clone();
        let (sandboxes, directory) = (0, directory);
        Ok(Self {
            machine,
            client,
            plugin,
            log,
            sandboxes,
            stop,
            _agent: agent,
            _way: way,
            _server: server,
            _directory: directory,
        })
    }

    /// Both kinds take turns. Every pod has a namespace of its own, which nothing was in before.
    fn rounds(&mut self, runtime: &Runtime, rounds: usize, pods: usize) -> Result<[Figures; 2]> {
        let mut figures = [Figures::default(), Figures::default()];
        // In the first round the node gets its blocks, and programs are loaded.
        for round in 0..=rounds {
            for (kind, figures) in KINDS.iter().zip(&mut figures) {
                let count = if round == 0 { 2 } else { pods };
                let names: Vec<String> =
                    (0..count).map(|number| format!("{kind}-{round}-{number}")).collect();
                runtime.block_on(make_pods(&self.client, kind, &names))?;
                self.machine.order(&Order::Make(names.clone()))?;
                std::thread::sleep(REST);
                let containers = self.name(&names);
                let from = std::fs::metadata(&self.log)?.len();
                let adding = self.call("ADD", &containers)?;
                for name in &names {
                    self.check(name, *kind == "client")?;
                }
                let deleting = self.call("DEL", &containers)?;
                let left = self.machine.settle(0)?;
                ensure!(left == 0, "{left} interfaces stayed after DEL");
                if round > 0 {
                    figures.add.take(&adding);
                    figures.del.take(&deleting);
                    figures.inside.extend(log::taken(&self.log, "ADD", from)?.iter().map(nanoseconds));
                }
            }
        }
        Ok(figures)
    }

    fn name(&mut self, pods: &[String]) -> Vec<Container> {
        let named = pods.iter().map(|pod| {
            self.sandboxes += 1;
            let (netns, namespace) = (pod.clone(), "default".to_owned());
            Container { id: format!("{:064x}", self.sandboxes), netns, pod: pod.clone(), namespace }
        });
        named.collect()
    }

    fn call(&mut self, verb: &str, containers: &[Container]) -> Result<Timings> {
        let calls = Calls {
            verb: verb.to_owned(),
            plugin: self.plugin.clone(),
            path: PathBuf::from("/nonexistent"),
            config: json!({"cniVersion": "1.0.0", "name": "measured", "type": "tenure"}).to_string(),
            interface: "eth0".to_owned(),
            at_once: 1,
            containers: containers.to_vec(),
        };
        let timings = self.machine.order(&Order::Call(calls))?;
        ensure!(timings.failures.is_empty(), "calls failed, such as {:?}", timings.failures.first());
        Ok(timings)
    }

    /// That a pod has egress if it is a client, and has not if not.
    fn check(&self, pod: &str, client: bool) -> Result<()> {
        let path = self.machine.path(&format!("{NAMESPACES}/{pod}"))?;
        let inside = NetworkNamespace::open(pod, &path)?;
        let routes = inside.ip_json(&["route", "show", "table", "118"]);
        let found = routes.is_ok_and(|routes| routes.as_array().is_some_and(|routes| !routes.is_empty()));
        ensure!(found == client, "{pod} has {}", if found { "egress" } else { "no egress" });
        Ok(())
    }
}

/// A node, a pool of both families, and an Egress whose Service is there already.
async fn prepare(client: &Client) -> Result<()> {
    objects::install(client, []).await?;
    objects::node(client, NODE).await?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let spec = json!({"blockSizeBits": 12, "subnets": [{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]});
    create(&pools, json!({"metadata": {"name": "default"}, "spec": spec})).await?;
    let egresses: Api<Egress> = Api::namespaced(client.clone(), "default");
    let spec = json!({"destinations": ["0.0.0.0/0", "::/0"]});
    create(&egresses, json!({"metadata": {"name": "nat", "namespace": "default"}, "spec": spec})).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let metadata = json!({"name": "nat", "namespace": "default", "labels": gateway_labels("nat")});
    let spec = json!({
        "clusterIP": SERVICE[0], "clusterIPs": SERVICE, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
        "ports": [{"port": 5555, "protocol": "UDP"}],
    });
    create(&services, json!({"metadata": metadata, "spec": spec})).await
}

async fn make_pods(client: &Client, kind: &str, names: &[String]) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let annotations =
        if kind == "client" { json!({"egress.coil.cybozu.com/default": "nat"}) } else { json!({}) };
    for name in names {
        let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
        let spec = json!({"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]});
        create(&pods, json!({"metadata": metadata, "spec": spec})).await?;
    }
    Ok(())
}
