//! Nodes: each an agent in a runtime of its own, with its own run directory and its own way to the API server, and the
//! plugin, which is called as a runtime calls it but without a process of its own.
//!
//! An agent is stopped as by a signal, or dropped where it stands, as by a crash; what it has under `/run` stays.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_agent::Agent;
use tenure_agent::run::{AgentOptions, Paths, StartError};
use tenure_cni::plugin::{self, Places};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_testbed::faults::Faults;
use tenure_testbed::wait::{PATIENCE, until};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{Bed, now};

/// The code of an error that says to try again later.
pub const LATER: u64 = 11;

/// A node.
pub struct Node<'b> {
    bed: &'b Bed,
    pub name: String,
    /// What goes wrong between its agent and the API server.
    pub faults: Faults,
    directory: tempfile::TempDir,
    life: Mutex<Option<Life>>,
}

/// An agent that runs.
struct Life {
    agent: Agent,
    stop: CancellationToken,
    runtime: Runtime,
}

/// A pod's interface, as a runtime names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// In the namespace `default`.
    pub pod: String,
    pub container: String,
    pub ifname: String,
}

impl Interface {
    /// `net1` of a pod, in a container that is named after it.
    pub fn of(pod: &str) -> Self {
        Self::in_container(pod, &format!("{pod}-sandbox"))
    }

    /// `net1` of a pod in this container.
    pub fn in_container(pod: &str, container: &str) -> Self {
        Self { pod: pod.to_owned(), container: container.to_owned(), ifname: "net1".to_owned() }
    }

    /// Another interface of the same container.
    pub fn named(&self, ifname: &str) -> Self {
        Self { ifname: ifname.to_owned(), ..self.clone() }
    }

    /// As Whereabouts' records name the pod.
    pub fn podref(&self) -> String {
        format!("default/{}", self.pod)
    }
}

impl<'b> Node<'b> {
    /// A node without an agent; `seed` decides what goes wrong on its way to the API server.
    pub fn new(bed: &'b Bed, name: &str, seed: u64) -> Self {
        Self {
            bed,
            name: name.to_owned(),
            faults: Faults::seeded(seed),
            directory: tempfile::tempdir().unwrap(),
            life: Mutex::default(),
        }
    }

    /// A node of the cluster with an agent that answers.
    pub fn running(bed: &'b Bed, name: &str) -> Self {
        bed.make_nodes(&[name.to_owned()]);
        let node = Self::new(bed, name, 1);
        node.start();
        node.serving();
        node
    }

    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paths(&self) -> Paths {
        Paths::in_directory(self.directory.path().join("run"))
    }

    /// What this node's agent is like.
    fn options(&self) -> AgentOptions {
        let mut options = AgentOptions::new(&self.name);
        options.paths = self.paths();
        options.namespace = Some(self.bed.place());
        options.tombstone_interval = Duration::from_millis(500);
        options
    }

    /// Starts the agent; it may take a while until it answers.
    pub fn start(&self) {
        let mut life = self.life();
        assert!(life.is_none(), "{} has an agent", self.name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(&self.name)
            .enable_all()
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let began = now();
        let agent = loop {
            let started = runtime.block_on(async {
                let client = self.bed.plane.client_with(&self.faults).unwrap();
                let entropy = SeededEntropy::new(7);
                Agent::start(client, self.options(), SystemClock, entropy, stop.clone()).await
            });
            match started {
                Ok(agent) => break agent,
                // The one before has the journal open until its last thread has ended.
                Err(StartError::Journal(_)) if now().saturating_sub(began) < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{}: {error:?}", self.name),
            }
        };
        *life = Some(Life { agent, stop, runtime });
    }

    /// Waits until the agent answers the plugin.
    pub fn serving(&self) {
        until(&format!("the agent of {} to answer", self.name), || self.is_serving().then_some(()));
    }

    pub fn is_serving(&self) -> bool {
        self.life().as_ref().is_some_and(|life| life.agent.progress().is_serving())
    }

    /// Asks the agent to end, and waits until it has.
    pub fn stop(&self) {
        assert!(self.end(false), "{} has no agent", self.name);
    }

    /// Drops the agent where it stands.
    pub fn crash(&self) {
        assert!(self.end(true), "{} has no agent", self.name);
    }

    /// Ends the agent, if there is one, in one way or the other.
    pub fn end(&self, crash: bool) -> bool {
        let Some(Life { agent, stop, runtime }) = self.life().take() else { return false };
        if crash {
            drop(agent);
        } else {
            stop.cancel();
            runtime.block_on(async { tokio::time::timeout(PATIENCE, agent.wait()).await }).unwrap().unwrap();
        }
        runtime.shutdown_timeout(Duration::from_secs(5));
        true
    }

    /// The node is switched off and on: nothing under `/run` is left.
    pub fn forget_everything(&self) {
        assert!(self.life().is_none(), "{} has an agent", self.name);
        std::fs::remove_dir_all(self.paths().run).unwrap();
    }

    /// Calls the plugin.
    pub fn call(&self, verb: &str, interface: &Interface, config: &Value) -> Called {
        let pod = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", interface.pod);
        self.call_with(verb, interface, &format!("IgnoreUnknown=1;{pod}"), config)
    }

    /// Calls the plugin with these `CNI_ARGS`.
    pub fn call_with(&self, verb: &str, interface: &Interface, args: &str, config: &Value) -> Called {
        let environment: HashMap<&str, String> = HashMap::from([
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", interface.container.clone()),
            ("CNI_IFNAME", interface.ifname.clone()),
            ("CNI_NETNS", self.bed.place().display().to_string()),
            ("CNI_PATH", "/opt/cni/bin".to_owned()),
            ("CNI_ARGS", args.to_owned()),
        ]);
        let (socket, tombstones) = (self.paths().socket(), self.paths().tombstones());
        let places = Places { socket: &socket, tombstones: &tombstones };
        let began = now();
        let variable = |name: &str| environment.get(name).cloned();
        let outcome = plugin::run("whereabouts", variable, config.to_string().into_bytes(), places);
        Called {
            code: outcome.code,
            json: serde_json::from_slice(&outcome.stdout).unwrap_or_default(),
            stderr: outcome.stderr,
            took: now().saturating_sub(began),
        }
    }

    /// ADD, which must succeed: the addresses.
    #[track_caller]
    pub fn add(&self, interface: &Interface, config: &Value) -> Vec<IpAddr> {
        self.call("ADD", interface, config).addresses()
    }

    /// DEL, which must succeed.
    #[track_caller]
    pub fn del(&self, interface: &Interface, config: &Value) {
        self.call("DEL", interface, config).succeeded();
    }

    /// GC of a network: these, and no others, are alive.
    pub fn collect(&self, alive: &[Interface], config: &Value) -> Called {
        let mut config = config.clone();
        let alive: Vec<Value> =
            alive.iter().map(|it| json!({"containerID": it.container, "ifname": it.ifname})).collect();
        config["cni.dev/valid-attachments"] = json!(alive);
        let nobody = Interface { pod: String::new(), container: String::new(), ifname: String::new() };
        self.call_with("GC", &nobody, "", &config)
    }

    /// The tombstones that are there.
    pub fn tombstones(&self) -> usize {
        let entries = std::fs::read_dir(self.paths().tombstones());
        entries.map_or(0, |entries| entries.flatten().count())
    }

    /// What the agent holds of slices, each as `network/container/interface` with an address; nothing without an agent.
    pub fn holds(&self) -> Option<Vec<(String, IpAddr)>> {
        let life = self.life();
        let life = life.as_ref()?;
        let holds = life.runtime.block_on(life.agent.node().look(tenure_agent::Node::holds)).ok()?;
        let each = holds.iter().flat_map(|hold| {
            let text = hold.key.to_string();
            let whose = text.split("//").next().unwrap_or_default().to_owned();
            hold.addresses.iter().map(move |address| (whose.clone(), IpAddr::from(address)))
        });
        Some(each.collect())
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// What came of a call of the plugin.
#[derive(Clone, Debug)]
pub struct Called {
    pub code: u8,
    pub json: Value,
    pub stderr: String,
    pub took: Duration,
}

impl Called {
    /// The addresses of a result; it must be one.
    #[track_caller]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.networks().iter().map(|it| it.split('/').next().unwrap().parse().unwrap()).collect()
    }

    /// The addresses of a result with their lengths; it must be one.
    #[track_caller]
    pub fn networks(&self) -> Vec<String> {
        assert_eq!(self.code, 0, "{self:?}");
        let ips = self.json["ips"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        ips.iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
    }

    /// The code and the words of an error; it must be one.
    #[track_caller]
    pub fn refused(&self) -> (u64, String) {
        assert_eq!(self.code, 1, "{self:?}");
        let text = |field: &str| self.json[field].as_str().unwrap_or_default().to_owned();
        let words = format!("{}; {}", text("msg"), text("details"));
        (self.json["code"].as_u64().unwrap_or_else(|| panic!("{self:?}")), words)
    }

    /// That it succeeded.
    #[track_caller]
    pub fn succeeded(&self) {
        assert_eq!(self.code, 0, "{self:?}");
    }

    /// Whether it is to be tried again later.
    pub fn is_later(&self) -> bool {
        self.code != 0 && self.json["code"] == LATER
    }
}
