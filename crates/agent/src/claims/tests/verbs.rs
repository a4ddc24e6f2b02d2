//! The agent's service, called as the plugin calls it.

use serde_json::{Value, json};
use tenure_cni::{Failure, Verb, rpc};

use super::bed::{Agent, At, until};
use crate::journal::Image;
use crate::node::Node;

impl Agent {
    /// What a crash leaves.
    pub(super) fn journal(&self) -> Image {
        self.journal.lock().unwrap().clone()
    }

    pub(super) async fn ask(&self, verb: Verb, network: &Value, at: &At) -> Result<Value, Failure> {
        let pairs = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", at.namespace),
            ("K8S_POD_NAME", &at.pod),
            ("K8S_POD_UID", &at.uid),
        ];
        let call = rpc::Call {
            protocol: rpc::PROTOCOL,
            container_id: at.container.clone(),
            netns: format!("/run/netns/{}", at.container),
            ifname: at.interface.clone(),
            args: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            config: network.to_string().into_bytes(),
            plugin: "tenure".to_owned(),
            ..rpc::Call::default()
        };
        let reply = self.service.answer(verb, call).await;
        match reply.failure {
            Some(failure) => Err(failure.into()),
            None if reply.result.is_empty() => Ok(Value::Null),
            None => Ok(serde_json::from_slice(&reply.result).unwrap()),
        }
    }

    /// The addresses that an ADD answers, with their lengths.
    pub(super) async fn add(&self, network: &Value, at: &At) -> Result<Vec<String>, Failure> {
        let result = self.ask(Verb::Add, network, at).await?;
        let ips = result["ips"].as_array().unwrap().iter();
        Ok(ips.map(|ip| ip["address"].as_str().unwrap().to_owned()).collect())
    }

    /// Why an ADD is refused, when it is by these words: what is written is heard a moment later.
    pub(super) async fn refused(&self, network: &Value, at: &At, words: &str) -> Failure {
        until(words, async || {
            let failure = self.add(network, at).await.unwrap_err();
            failure.to_string().contains(words).then_some(failure)
        })
        .await
    }

    pub(super) async fn del(&self, network: &Value, at: &At) -> Result<Value, Failure> {
        self.ask(Verb::Del, network, at).await
    }

    /// How many DELs are left for later.
    pub(super) fn left(&self) -> usize {
        tenure_cni::tombstone::read_all(&self.tombstones).unwrap().len()
    }

    pub(super) async fn check(&self, network: &Value, at: &At, ips: &[String]) -> Result<Value, Failure> {
        let mut network = network.clone();
        let ips: Vec<Value> = ips.iter().map(|ip| json!({"address": ip})).collect();
        network["prevResult"] = json!({"cniVersion": "1.1.0", "ips": ips});
        self.ask(Verb::Check, &network, at).await
    }

    pub(super) async fn gc(&self, network: &Value, alive: &[&At]) -> Result<Value, Failure> {
        let mut network = network.clone();
        let alive = alive.iter().map(|at| json!({"containerID": at.container, "ifname": at.interface}));
        network["cni.dev/valid-attachments"] = alive.collect();
        let nobody = At {
            namespace: "",
            pod: String::new(),
            uid: String::new(),
            container: String::new(),
            interface: String::new(),
        };
        self.ask(Verb::Gc, &network, &nobody).await
    }

    /// Of all holds, container, claim and whether packets arrive there.
    pub(super) async fn holds(&self) -> Vec<String> {
        let holds = self.node.look(Node::holds).await.unwrap();
        let text = |hold: &crate::node::view::HoldView| match &hold.claim {
            Some(claim) => format!("{} {} {}", hold.key.container(), claim.name, claim.reached),
            None => format!("{} {}", hold.key.container(), hold.addresses),
        };
        holds.iter().map(text).collect()
    }
}
