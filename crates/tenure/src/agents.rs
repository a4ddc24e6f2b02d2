//! Reading the state of agents: through the API server's proxy to their pods, or at a socket on the same
//! host.
//!
//! An agent answers only callers that the API server knows and allows. So each one gets a token that the API
//! server issued for this agent alone: the caller's own credentials stay between the caller and the API
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_handles::{Clock, SystemClock, Timestamp};
use tenure_view::{History, Node};

/// The label of agents' pods.
const AGENTS: &str = "app.kubernetes.io/name=tenured";
/// How long an agent may take. It answers in milliseconds or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to read its history: others may be asking, too.
const PATIENCE_FOR_HISTORY: Duration = Duration::from_secs(25);
/// How long a token is used again; it is valid for ten minutes.
const TOKEN_IS_GOOD: Duration = Duration::from_mins(8);
/// How many agents are asked at once.
pub(crate) const AT_ONCE: usize = 32;

/// The answers of agents, by node, or why there is none.
pub(crate) type Answers = BTreeMap<String, Result<Node, String>>;

/// Their histories, by node, or why there is none.
pub(crate) type Histories = BTreeMap<String, Result<History, String>>;

/// A page of an agent.
#[derive(Clone, Copy)]
struct Page<'a> {
    path: &'a str,
    patience: Duration,
}

const NODE: Page<'_> = Page { path: tenure_view::PATH, patience: PATIENCE };

/// The agents that can be asked.
#[derive(Clone)]
pub(crate) enum Agents {
    /// The agents of a cluster, whose pods are in this namespace. Pods in other namespaces could pretend to
    /// be agents.
    Cluster(Client, String),
    /// The agent with this socket.
    Host(PathBuf),
    /// The agents of several hosts on one machine, by their nodes' names.
    Hosts(BTreeMap<String, PathBuf>),
}

impl Agents {
    /// Asks one agent. A single host has only one, whatever the name.
    pub(crate) async fn one(&self, node: &str) -> Result<Node, String> {
        match self {
            Self::Host(socket) => at_socket(socket, NODE).await,
            Self::Hosts(sockets) => match sockets.get(node) {
                Some(socket) => at_socket(socket, NODE).await,
                None => Err(format!("there is no node \"{node}\" on this machine")),
            },
            Self::Cluster(client, namespace) => {
                let pods = pods(client, namespace).await?;
                match pods.get(node) {
                    Some(pod) => of_pod(client, node, pod, NODE).await,
                    None => Err(no_agent(node)),
                }
            }
        }
    }

    /// Asks every agent, and records for every other node of `nodes` that it has none.
    pub(crate) async fn all(&self, nodes: &BTreeSet<String>) -> Answers {
        self.ask(nodes, &[], NODE, |told: &Node| told.node.clone()).await
    }

    /// Asks the agents of these nodes, or every agent if none is named, for their histories. Records for every other node of
    /// `nodes` that it has none.
    pub(crate) async fn histories(
        &self,
        only: &[String],
        nodes: &BTreeSet<String>,
        query: &str,
    ) -> Histories {
        let path = format!("{}?{query}", tenure_view::HISTORY_PATH);
        let page = Page { path: &path, patience: PATIENCE_FOR_HISTORY };
        if let Self::Host(socket) = self {
            let told: Result<History, String> = at_socket(socket, page).await;
            let node = told.as_ref().map_or_else(|_| "(this host)".to_owned(), |told| told.node.clone());
            return BTreeMap::from([(node, told)]);
        }
        self.ask(nodes, only, page, |told: &History| told.node.clone()).await
    }

    /// Asks those of `only`, or all if it is empty.
    async fn ask<T: DeserializeOwned>(
        &self,
        nodes: &BTreeSet<String>,
        only: &[String],
        page: Page<'_>,
        node_of: fn(&T) -> String,
    ) -> BTreeMap<String, Result<T, String>> {
        let wanted = |node: &String| only.is_empty() || only.contains(node);
        let nodes: Vec<String> = nodes.iter().filter(|node| wanted(node)).cloned().collect();
        let none = |problem: &String| nodes.iter().map(|node| (node.clone(), Err(problem.clone()))).collect();
        let mut answers: BTreeMap<String, Result<T, String>> = match self {
            Self::Host(socket) => match at_socket(socket, page).await {
                Ok(told) => BTreeMap::from([(node_of(&told), Ok(told))]),
                // It could not be asked which of the nodes it is, either.
                Err(problem) => none(&problem),
            },
            Self::Hosts(sockets) => {
                let mut answers = BTreeMap::new();
                for (node, socket) in sockets.iter().filter(|(node, _)| wanted(node)) {
                    answers.insert(node.clone(), at_socket(socket, page).await);
                }
                answers
            }
            Self::Cluster(client, namespace) => match pods(client, namespace).await {
                Err(problem) => none(&problem),
                Ok(mut pods) => {
                    pods.retain(|node, _| wanted(node));
                    let asked = futures::stream::iter(&pods)
                        .map(|(node, pod)| async { (node.clone(), of_pod(client, node, pod, page).await) });
                    asked.buffer_unordered(AT_ONCE).collect().await
                }
            },
        };
        for node in nodes {
            let problem = no_agent(&node);
            answers.entry(node).or_insert(Err(problem));
        }
        answers
    }

    /// Deletes the pod of a node's agent, exactly the one that was seen; its DaemonSet makes another one.
    pub(crate) async fn restart(&self, node: &str) -> Result<(), String> {
        let Self::Cluster(client, namespace) = self else {
            return Err(
                "without Kubernetes nothing starts the agent again: restart tenured on the host".to_owned()
            );
        };
        let pods_there = pods(client, namespace).await?;
        let agent = pods_there.get(node).ok_or_else(|| no_agent(node))?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let exactly = Preconditions { uid: Some(agent.uid.clone()), resource_version: None };
        let deleted = pods.delete(&agent.name, &DeleteParams::default().preconditions(exactly)).await;
        deleted
            .map(drop)
            .map_err(|error| format!("pod {namespace}/{} could not be deleted: {error}", agent.name))
    }
}

/// Where agents are, as listed once, and tokens for them while they are good: for those who ask often.
#[derive(Default)]
pub(crate) struct Roster {
    pods: BTreeMap<String, AgentPod>,
    tokens: Mutex<BTreeMap<String, (String, Timestamp)>>,
}

impl Agents {
    /// Lists the agents again; tokens that were made stay.
    pub(crate) async fn relist(&self, roster: &mut Roster) -> Result<(), String> {
        if let Self::Cluster(client, namespace) = self {
            roster.pods = pods(client, namespace).await?;
            let mut tokens = roster.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.retain(|node, _| roster.pods.contains_key(node));
        }
        Ok(())
    }

    /// Asks one agent of those that were listed.
    pub(crate) async fn listed(&self, roster: &Roster, node: &str) -> Result<Node, String> {
        let Self::Cluster(client, _) = self else { return self.one(node).await };
        let pod = roster.pods.get(node).ok_or_else(|| no_agent(node))?;
        let tokens = || roster.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemClock.now();
        let good = |made: &&(String, Timestamp)| now.since(made.1) < TOKEN_IS_GOOD;
        let known = tokens().get(node).filter(good).map(|(token, _)| token.clone());
        let told = answer(pod, PATIENCE, async {
            let token = match known {
                Some(token) => token,
                None => token(client, node, &pod.namespace).await?,
            };
            let told: Node = with_token(client, pod, &token, tenure_view::PATH).await?;
            Ok((told, token))
        })
        .await;
        match told {
            Ok((told, token)) => {
                tokens()
                    .entry(node.to_owned())
                    .and_modify(|it| it.0.clone_from(&token))
                    .or_insert((token, now));
                Ok(told)
            }
            Err(problem) => {
                // It may be about the token.
                tokens().remove(node);
                Err(problem)
            }
        }
    }
}

impl Roster {
    /// The nodes that have an agent.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }
}

fn no_agent(node: &str) -> String {
    format!("no pod with the label {AGENTS} runs on node \"{node}\"")
}

/// An agent's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AgentPod {
    namespace: String,
    name: String,
    uid: String,
    port: i32,
    ready: bool,
}

/// The agents' pods by node. While one replaces another, the ready one.
async fn pods(client: &Client, namespace: &str) -> Result<BTreeMap<String, AgentPod>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = pods.list(&ListParams::default().labels(AGENTS)).await;
    let listed = listed.map_err(|error| format!("the agents' pods could not be listed: {error}"))?;
    let mut agents = BTreeMap::new();
    for pod in listed {
        let Some((node, agent)) = agent_pod(&pod) else { continue };
        let known: Option<&AgentPod> = agents.get(&node);
        if known.is_none_or(|known| !known.ready) {
            agents.insert(node, agent);
        }
    }
    Ok(agents)
}

fn agent_pod(pod: &Pod) -> Option<(String, AgentPod)> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Running") {
        return None;
    }
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port = ports.clone().find(|port| port.name.as_deref() == Some("metrics"));
    let ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    let agent = AgentPod {
        namespace: pod.namespace()?,
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        port: port.map_or(i32::from(tenure_view::PORT), |port| port.container_port),
        ready,
    };
    Some((spec.node_name.clone()?, agent))
}

async fn of_pod<T: DeserializeOwned>(
    client: &Client,
    node: &str,
    pod: &AgentPod,
    page: Page<'_>,
) -> Result<T, String> {
    answer(pod, page.patience, async {
        with_token(client, pod, &token(client, node, &pod.namespace).await?, page.path).await
    })
    .await
}

/// The answer of an agent, within its time.
async fn answer<T>(
    pod: &AgentPod,
    patience: Duration,
    asked: impl Future<Output = anyhow::Result<T>>,
) -> Result<T, String> {
    let said = |problem: String| format!("pod {}/{} could not be asked: {problem}", pod.namespace, pod.name);
    match tokio::time::timeout(patience, asked).await {
        Ok(told) => told.map_err(|error: anyhow::Error| said(format!("{error:#}"))),
        Err(_) => Err(said(format!("no answer for {} s", patience.as_secs()))),
    }
}

async fn with_token<T: DeserializeOwned>(
    client: &Client,
    pod: &AgentPod,
    token: &str,
    page: &str,
) -> anyhow::Result<T> {
    let AgentPod { namespace, name, port, .. } = pod;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{page}");
    let request = Request::get(path).header(tenure_view::TOKEN_HEADER, token).body(Vec::new())?;
    Ok(client.request::<T>(request).await?)
}

/// A token that only the agent of this node accepts.
async fn token(client: &Client, node: &str, namespace: &str) -> anyhow::Result<String> {
    let spec = TokenRequestSpec {
        audiences: vec![tenure_view::audience(node)],
        // The shortest lifetime that the API server accepts.
        expiration_seconds: Some(600),
        ..TokenRequestSpec::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let asked = TokenRequest { spec, ..TokenRequest::default() };
    let viewer = tenure_view::VIEWER;
    let made = accounts.create_token_request(viewer, &PostParams::default(), &asked).await;
    let made = made.with_context(|| {
        format!(
            "asking for a token of service account {namespace}/{viewer} (a role can allow it: docs/cli.md)"
        )
    })?;
    Ok(made.status.context("the API server made no token")?.token)
}

async fn at_socket<T: DeserializeOwned>(socket: &Path, page: Page<'_>) -> Result<T, String> {
    let asked = async {
        let request = Request::get(page.path).body(Empty::<Bytes>::new())?;
        let response = tenure_daemon::ask(socket, request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            anyhow::bail!("the agent says: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(serde_json::from_slice(&body)?)
    };
    match tokio::time::timeout(page.patience, asked).await {
        Ok(told) => told.map_err(|error: anyhow::Error| format!("{error:#}")),
        Err(_) => Err(format!("{} does not answer", socket.display())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_is_a_pod_that_runs_and_its_port_is_the_one_of_its_metrics() {
        let pod = |phase: &str, ports: serde_json::Value| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"namespace": "kube-system", "name": "tenured-x"},
                "spec": {"nodeName": "node1", "containers": [{"name": "tenured", "ports": ports}]},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap()
        };
        let (node, agent) =
            agent_pod(&pod("Running", json!([{"name": "metrics", "containerPort": 1234}]))).unwrap();
        assert_eq!((node.as_str(), agent.port, agent.ready), ("node1", 1234, true));
        assert_eq!(agent_pod(&pod("Running", json!([]))).unwrap().1.port, 9384);
        assert_eq!(agent_pod(&pod("Pending", json!([]))), None);
    }
}
