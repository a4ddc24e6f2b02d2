//! What of CRI a caller needs to run pods: a few messages, and calls over containerd's socket.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use tenure_cni::grpc::{CallError, UnaryCall};

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

/// Requests and answers that are nothing but a sandbox's id.
#[derive(Clone, PartialEq, Message)]
struct SandboxId {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct PodIp {
    #[prost(string, tag = "1")]
    ip: String,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxNetworkStatus {
    #[prost(string, tag = "1")]
    ip: String,
    #[prost(message, repeated, tag = "2")]
    additional_ips: Vec<PodIp>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxStatus {
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(message, optional, tag = "5")]
    network: Option<PodSandboxNetworkStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bool, tag = "2")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<PodSandboxStatus>,
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxFilter {
    #[prost(map = "string, string", tag = "3")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    filter: Option<PodSandboxFilter>,
}

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    items: Vec<SandboxId>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub status: bool,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(string, tag = "4")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

/// A runtime's socket.
pub struct Runtime {
    pub socket: PathBuf,
    /// Where pods' control groups go.
    pub cgroup: String,
}

impl Runtime {
    pub fn new(socket: &Path, cgroup: String) -> Self {
        Self { socket: socket.to_owned(), cgroup }
    }

    fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, CallError> {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        let message = request.encode_to_vec();
        let patience = Duration::from_mins(1);
        let call = UnaryCall { path: &path, message: &message, traceparent: None, patience };
        let answer = call.send(&self.socket)?;
        Ok(A::decode(answer.as_slice()).unwrap_or_else(|error| panic!("{method} answered: {error}")))
    }

    /// Starts a pod; its id.
    pub fn run(&self, namespace: &str, name: &str) -> Result<String, CallError> {
        let metadata = PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            namespace: namespace.to_owned(),
        };
        let linux = LinuxPodSandboxConfig { cgroup_parent: self.cgroup.clone() };
        let config = PodSandboxConfig { metadata: Some(metadata), linux: Some(linux) };
        let started: SandboxId =
            self.call("RunPodSandbox", &RunPodSandboxRequest { config: Some(config) })?;
        Ok(started.id)
    }

    /// A pod's addresses; none when it does not run.
    pub fn addresses(&self, id: &str) -> Result<Vec<String>, CallError> {
        let answer: PodSandboxStatusResponse =
            self.call("PodSandboxStatus", &SandboxId { id: id.to_owned() })?;
        let status = answer.status.unwrap_or_default();
        let network = status.network.filter(|_| status.state == 0).unwrap_or_default();
        let all = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip));
        Ok(all.filter(|ip| !ip.is_empty()).collect())
    }

    /// The sandbox of a kubelet's pod, by the pod's UID: its id, and the path of its network namespace.
    pub fn sandbox_of(&self, uid: &str) -> Option<(String, String)> {
        let labels = HashMap::from([("io.kubernetes.pod.uid".to_owned(), uid.to_owned())]);
        let filter = Some(PodSandboxFilter { labels });
        let found: ListPodSandboxResponse =
            self.call("ListPodSandbox", &ListPodSandboxRequest { filter }).ok()?;
        let id = found.items.into_iter().next()?.id;
        let request = PodSandboxStatusRequest { id: id.clone(), verbose: true };
        let answer: PodSandboxStatusResponse = self.call("PodSandboxStatus", &request).ok()?;
        let info: serde_json::Value = serde_json::from_str(answer.info.get("info")?).ok()?;
        let namespaces = info.pointer("/runtimeSpec/linux/namespaces")?.as_array()?;
        let network = namespaces.iter().find(|namespace| namespace["type"] == "network")?;
        Some((id, network["path"].as_str()?.to_owned()))
    }

    /// Stops a pod.
    pub fn stop(&self, id: &str) -> Result<(), CallError> {
        self.call::<Empty>("StopPodSandbox", &SandboxId { id: id.to_owned() }).map(drop)
    }

    /// Removes a pod.
    pub fn remove(&self, id: &str) -> Result<(), CallError> {
        self.call::<Empty>("RemovePodSandbox", &SandboxId { id: id.to_owned() }).map(drop)
    }

    /// Whether pods can have networks, and what is said about it.
    pub fn network_ready(&self) -> Result<RuntimeCondition, CallError> {
        let answer: StatusResponse = self.call("Status", &Empty {})?;
        let conditions = answer.status.unwrap_or_default().conditions;
        Ok(conditions.into_iter().find(|it| it.name == "NetworkReady").unwrap_or_default())
    }
}
