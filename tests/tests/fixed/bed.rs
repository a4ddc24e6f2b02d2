//! An agent with a dialect of its own, in front of an embedded API server; called by the plugin's own code.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tenure_agent::Agent;
use tenure_agent::run::{AgentOptions, Paths, StartError};
use tenure_cni::plugin::{self, Places};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Options as ServerOptions};
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::PATIENCE;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::agent::{ANNOTATION, FixedPart, TYPE};

/// The address of the network.
pub const ADDRESS: &str = "192.0.2.7/32";

/// A node that an agent can run on.
pub struct Bed {
    server: LocalApi,
    host: NetworkNamespace,
    directory: tempfile::TempDir,
}

/// An agent that answers.
pub struct Running {
    agent: Agent,
    stop: CancellationToken,
    paths: Paths,
}

impl Bed {
    pub async fn new() -> Self {
        let server = ServerOptions::default().temporary(SystemClock, SeededEntropy::new(6));
        let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
        for definition in tenure_api::crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let host = NetworkNamespace::new("fixed").unwrap();
        Self { server, host, directory: tempfile::tempdir().unwrap() }
    }

    /// A pod of this node whose annotation names an address. Returns the arguments that a kubelet passes for it.
    pub async fn pod_with(&self, name: &str, address: &str) -> String {
        let pods: Api<Pod> = Api::namespaced(self.server.client(), "default");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {ANNOTATION: address}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]},
        });
        let made = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let uid = made.metadata.uid.unwrap();
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}")
    }

    /// Starts an agent that knows the dialect, and waits until it answers.
    pub async fn start(&self) -> Running {
        let read = Arc::new(Notify::new());
        read.notify_one();
        let running = self.begin(read).await;
        running.serving().await;
        running
    }

    /// Starts an agent that knows the dialect. It answers after `read`.
    pub async fn begin(&self, read: Arc<Notify>) -> Running {
        let (paths, stop) =
            (Paths::in_directory(self.directory.path().join("run")), CancellationToken::new());
        let options = AgentOptions {
            paths: paths.clone(),
            namespace: Some(self.host.path()),
            parts: vec![Arc::new(FixedPart { read })],
            ..AgentOptions::new("node-1")
        };
        let started = async {
            loop {
                let (client, entropy) = (self.server.client(), SeededEntropy::new(7));
                match Agent::start(client, options.clone(), SystemClock, entropy, stop.clone()).await {
                    // The one before has the journal open until its last thread has ended.
                    Err(StartError::Journal(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                    started => return started.unwrap(),
                }
            }
        };
        let agent = tokio::time::timeout(PATIENCE, started).await.unwrap();
        Running { agent, stop, paths }
    }
}

impl Running {
    /// Waits until it answers.
    pub async fn serving(&self) {
        assert!(tokio::time::timeout(PATIENCE, self.agent.progress().serving()).await.unwrap());
    }

    /// Whether it is ready, with words.
    pub async fn ready(&self) -> (bool, String) {
        self.agent.inspector().ready().await
    }

    /// Its metrics.
    pub async fn metrics(&self) -> String {
        self.agent.inspector().metrics().await.unwrap()
    }

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.agent.wait()).await.unwrap().unwrap();
    }

    /// Calls the plugin: what it printed, or its error.
    pub async fn call(&self, verb: &str, container: &str, network: &Value) -> Result<Value, Value> {
        self.call_for("", verb, container, network).await
    }

    /// The same, with arguments that name a pod.
    pub async fn call_for(
        &self,
        arguments: &str,
        verb: &str,
        container: &str,
        network: &Value,
    ) -> Result<Value, Value> {
        let variables = HashMap::from([
            ("CNI_ARGS", arguments.to_owned()),
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", container.to_owned()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_NETNS", "/proc/self/ns/net".to_owned()),
            ("CNI_PATH", "/opt/cni/bin".to_owned()),
        ]);
        let (socket, tombstones) = (self.paths.socket(), self.paths.tombstones());
        let stdin = network.to_string().into_bytes();
        let run = move || {
            let places = Places { socket: &socket, tombstones: &tombstones };
            plugin::run(TYPE, |name| variables.get(name).cloned(), stdin, places)
        };
        let outcome = tokio::task::spawn_blocking(run).await.unwrap();
        let printed = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
        if outcome.code == 0 { Ok(printed) } else { Err(printed) }
    }
}

/// The network, with more fields of its `ipam`.
pub fn network(address: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "lab", "type": "bridge",
        "ipam": {"type": TYPE, "address": address},
    })
}

/// The network as a GC has it: these containers are alive.
pub fn alive(containers: &[&str]) -> Value {
    let mut network = network(ADDRESS);
    let alive: Vec<Value> =
        containers.iter().map(|container| json!({"containerID": container, "ifname": "eth0"})).collect();
    network["cni.dev/valid-attachments"] = json!(alive);
    network
}
