//! The handlers of kubernetes-nmstate, played: each applies what selects its node, and says so in an enactment of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::nmstate::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
};

const TYPES: [&str; 5] = ["Available", "Failing", "Pending", "Progressing", "Aborted"];

/// All handlers of a cluster.
#[derive(Clone)]
pub struct Handlers {
    client: Client,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By `node/interface`.
    interfaces: BTreeMap<String, BTreeSet<String>>,
    /// What was wrong at some time.
    mistakes: Vec<String>,
    /// Nodes whose handler fails.
    broken: BTreeSet<String>,
    /// Nodes whose handler does nothing.
    asleep: BTreeSet<String>,
}

impl Handlers {
    pub fn new(client: Client) -> Self {
        Self { client, state: Arc::default() }
    }

    fn locked<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_broken(&self, node: &str, broken: bool) {
        self.locked(|it| if broken { it.broken.insert(node.to_owned()) } else { it.broken.remove(node) });
    }

    pub fn set_asleep(&self, node: &str, asleep: bool) {
        self.locked(|it| if asleep { it.asleep.insert(node.to_owned()) } else { it.asleep.remove(node) });
    }

    /// The addresses of an interface of a node.
    pub fn on(&self, node: &str, interface: &str) -> BTreeSet<String> {
        self.locked(|it| it.interfaces.get(&format!("{node}/{interface}")).cloned().unwrap_or_default())
    }

    /// An error if two interfaces had one address at some time, or something else went wrong.
    pub fn check(&self) -> Result<()> {
        self.locked(|it| {
            ensure!(it.mistakes.is_empty(), "{:?}", it.mistakes);
            Ok(())
        })
    }

    /// Works until it is dropped.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            // Whoever was faster: the next round sees what came of it.
            _ = self.round().await;
        }
    }

    async fn round(&self) -> Result<()> {
        let policies: Api<Policy> = Api::all(self.client.clone());
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
        let enactments: Api<Enactment> = Api::all(self.client.clone());
        let known = enactments.list(&ListParams::default()).await?;
        let all = policies.list(&ListParams::default()).await?;
        let mut selected = BTreeSet::new();
        for policy in &all {
            let of = |node: &&Node| {
                policy.spec.node_selector.iter().all(|(key, value)| node.labels().get(key) == Some(value))
            };
            let nodes: Vec<&Node> = nodes.iter().filter(of).collect();
            if nodes.is_empty() {
                self.policy_is(policy, "Ignored", "NoMatchingNode").await?;
            }
            for node in nodes {
                let name = format!("{}.{}", node.name_any(), policy.name_any());
                selected.insert(name.clone());
                let had = known.iter().find(|it| it.name_any() == name).and_then(|it| it.status.clone());
                let had = had.filter(|it| it.policy_generation == policy.metadata.generation);
                let failing = had
                    .as_ref()
                    .is_some_and(|it| it.conditions.iter().any(|it| it.type_ == "Failing" && it.is_true()));
                let asleep = self.locked(|it| it.asleep.contains(&node.name_any()));
                let broken = self.locked(|it| it.broken.contains(&node.name_any()));
                if !asleep && (had.is_none() || failing != broken) {
                    self.apply(node, policy, &name).await?;
                }
            }
        }
        // The policy is gone, or does not select the node any more. What the node has stays.
        for enactment in known.iter().filter(|it| !selected.contains(&it.name_any())) {
            enactments.delete(&enactment.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn apply(&self, node: &Node, policy: &Policy, name: &str) -> Result<()> {
        let enactments: Api<Enactment> = Api::all(self.client.clone());
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid()});
        let object = json!({
            "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
            "metadata": {
                "name": name, "ownerReferences": [owner],
                "labels": {"nmstate.io/policy": policy.name_any(), "nmstate.io/node": node.name_any()},
            },
        });
        _ = enactments.create(&PostParams::default(), &serde_json::from_value(object)?).await;
        self.policy_is(policy, "Progressing", "ConfigurationProgressing").await?;
        enactments.patch_status(name, &PatchParams::default(), &status(policy, "Progressing")).await?;
        // Long enough for others to try something meanwhile.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let broken = self.locked(|it| it.broken.contains(&node.name_any()));
        if !broken {
            self.configure(&node.name_any(), policy)?;
        }
        let (enactment_is, policy_is, reason) = if broken {
            ("Failing", "Degraded", "FailedToConfigure")
        } else {
            ("Available", "Available", "SuccessfullyConfigured")
        };
        enactments.patch_status(name, &PatchParams::default(), &status(policy, enactment_is)).await?;
        self.policy_is(policy, policy_is, reason).await
    }

    /// As nmstate does: the addresses of an interface that a state mentions are those of the state.
    fn configure(&self, node: &str, policy: &Policy) -> Result<()> {
        let desired = policy.spec.desired_state.clone().unwrap_or_default();
        for interface in desired["interfaces"].as_array().into_iter().flatten() {
            let name = interface["name"].as_str().context("an interface has a name")?;
            // What `interfaces.name == "eth1"` captures.
            let name = name.replace("{{ capture.nic.interfaces.0.name }}", "eth1");
            let known =
                policy.spec.capture.get("nic").map(String::as_str) == Some("interfaces.name == \"eth1\"");
            let addresses = interface["ipv4"]["address"].as_array().into_iter().flatten();
            let addresses: BTreeSet<String> =
                addresses.map(|it| it["ip"].as_str().unwrap_or_default().to_owned()).collect();
            self.locked(|it| {
                if !known || addresses.iter().any(|it| it.contains("capture")) {
                    it.mistakes
                        .push(format!("{node} cannot resolve captures of {}: {desired}", policy.name_any()));
                }
                let key = format!("{node}/{name}");
                let twice = it.interfaces.iter().filter(|(other, _)| **other != key);
                let twice: Vec<String> = twice
                    .filter(|(_, has)| !has.is_disjoint(&addresses))
                    .map(|(other, _)| format!("{addresses:?} on {key} and {other}"))
                    .collect();
                it.mistakes.extend(twice);
                it.interfaces.insert(key, addresses);
            });
        }
        Ok(())
    }

    async fn policy_is(&self, policy: &Policy, type_: &str, reason: &str) -> Result<()> {
        let said = policy.status.as_ref().and_then(|it| it.condition(type_));
        if said.is_some_and(|it| it.is_true() && type_ == "Ignored") {
            return Ok(());
        }
        let conditions: Vec<Value> = ["Available", "Degraded", "Progressing", "Ignored"]
            .iter()
            .map(|it| json!({"type": it, "status": if *it == type_ { "True" } else { "False" }, "reason": reason}))
            .collect();
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let policies: Api<Policy> = Api::all(self.client.clone());
        policies.patch_status(&policy.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn status(policy: &Policy, type_: &str) -> Patch<Value> {
    let condition = |it: &str| {
        let status = if type_ == "Progressing" { "Unknown" } else { "False" };
        json!({"type": it, "status": if it == type_ { "True" } else { status }, "reason": "Played"})
    };
    let conditions: Vec<Value> = TYPES.into_iter().map(condition).collect();
    Patch::Merge(json!({"status": {
        "policyGeneration": policy.metadata.generation, "desiredState": policy.spec.desired_state,
        "conditions": conditions,
    }}))
}
