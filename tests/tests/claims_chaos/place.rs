//! Where it all happens: the hosts, and the API, whose answers are waited for also while it is down.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::wait::PATIENCE;

use crate::networks::{NAMESPACE, Network};
use crate::oracle::{Living, Oracle};
use tenure_tests::agent::{Called, Cluster, Machine};
use tenure_tests::chaos::course::now;
use tenure_tests::chaos::objects::Struck;

/// No answer takes longer than this from a server that is there.
const ANSWER: Duration = Duration::from_secs(10);

/// The hosts, the API, and who knows what was promised.
pub struct ChaosBed<'a> {
    pub cluster: &'a Cluster,
    pub machines: &'a [Machine<'a>],
    pub oracle: &'a Oracle,
    /// What went wrong.
    pub struck: &'a Struck,
    /// Where the plugins are.
    pub plugins: &'a Path,
    /// Containers that nobody has said DEL for, though their pods are gone.
    pub lost: Mutex<Vec<Lost>>,
}

/// A container that nobody has said DEL for, though its pod is gone.
pub struct Lost {
    pub network: Network,
    pub node: usize,
    pub container: String,
    /// Where its namespace was.
    pub path: PathBuf,
    /// `CNI_ARGS`.
    pub args: String,
}

impl ChaosBed<'_> {
    pub fn claims(&self) -> Api<IPAMClaim> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    /// Asks until there is an answer: what was asked for, or a refusal that stays one.
    pub fn ask<T, F: Future<Output = kube::Result<T>>>(
        &self,
        what: &str,
        act: impl Fn() -> F,
    ) -> Result<T, Box<Status>> {
        let began = now();
        loop {
            let asked = self.cluster.runtime.block_on(async { tokio::time::timeout(ANSWER, act()).await });
            match asked {
                Ok(Ok(answer)) => return Ok(answer),
                // Of a server that has just started, others mean nothing.
                Ok(Err(kube::Error::Api(status))) if [404, 409, 422].contains(&status.code) => {
                    return Err(status);
                }
                other => {
                    let waited = now().saturating_sub(began);
                    let problem = other.map(|it| it.err().map(|error| error.to_string()));
                    assert!(waited < PATIENCE, "waited {waited:?} to {what}: {problem:?}");
                }
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Makes an object, or finds it made.
    pub fn make<K>(&self, api: &Api<K>, object: &Value) -> K
    where
        K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object.clone()).unwrap();
        let name = object.name_any();
        match self.ask("make an object", async || api.create(&PostParams::default(), &object).await) {
            Ok(made) => made,
            Err(_) => self.ask("find what was made", async || api.get(&name).await).unwrap(),
        }
    }

    /// Deletes an object, and no other of its name.
    pub fn delete<K>(&self, api: &Api<K>, name: &str, uid: &str, grace: u32)
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().grace_period(grace).preconditions(only);
        // Gone already, or another: a call before this one was answered to nobody.
        _ = self.ask("delete an object", async || api.delete(name, &params).await.map(drop));
    }

    /// Changes a pod, if it is there.
    pub fn change_pod(&self, name: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        _ = self.ask("change a pod", async || self.pods().patch(name, &PatchParams::default(), &patch).await);
    }

    /// Calls the plugin of a network as a runtime does.
    pub fn call(
        &self,
        (network, node): (Network, usize),
        verb: &str,
        (container, netns, args): (&str, &Path, &str),
        config: &Value,
    ) -> Called {
        // Of plugins that make interfaces none knows GC.
        let plugin = match network {
            Network::Routed => tenure_tests::programs::plugin(),
            _ if verb == "GC" => self.plugins.join("whereabouts"),
            _ => self.plugins.join("macvlan"),
        };
        let interface = network.interface();
        self.machines[node].start_program(&plugin, interface, verb, (container, netns, args), config).join()
    }

    /// A runtime comes round to what it has left: sooner than the agent finds out by itself.
    pub fn come_round(&self, node: usize) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        for it in lost.extract_if(.., |it| it.node == node) {
            let about = (it.container.as_str(), it.path.as_path(), it.args.as_str());
            let called = self.call((it.network, node), "DEL", about, &it.network.config());
            if called.code != 0 {
                self.oracle.blame(format!("late DEL of {} on node {node}: {called:?}", it.container));
            }
        }
    }

    /// Whether the agent of a pod lost the journal in which it was. What it has stays; its agent does not know that it is a
    /// claim's until somebody says ADD once more, which no runtime does.
    pub fn is_forgotten(&self, living: &Living) -> bool {
        self.struck.has_forgotten(living.node, living.since)
    }

    /// Whether no packets arrived at a pod when its agent lost the journal. They do not since either, also if the claim has moved
    /// to it: see [`ChaosBed::is_forgotten`].
    pub fn is_out_of_reach(&self, living: &Living) -> bool {
        let routes = self.struck.forgot_routes(living.node, living.since);
        routes.is_some_and(|routes| !living.addresses.iter().all(|it| routes.contains(&it.to_string())))
    }

    /// What every runtime does now and then: says to each node who is alive.
    pub fn collect(&self) -> Vec<String> {
        let (living, mut found) = (self.oracle.living(), Vec::new());
        for node in 0..self.machines.len() {
            for network in Network::ALL {
                let here = living.iter().filter(|it| it.node == node && it.network == network);
                let alive: Vec<Value> = here
                    .map(|it| json!({"containerID": it.container, "ifname": network.interface()}))
                    .collect();
                let mut config = network.config();
                config["cniVersion"] = json!("1.1.0");
                config["cni.dev/valid-attachments"] = json!(alive);
                let called = self.call((network, node), "GC", ("", Path::new(""), ""), &config);
                if called.code != 0 {
                    found.push(format!("GC of {network:?} on node {node}: {called:?}"));
                }
            }
        }
        found
    }
}

/// The plugins of runtimes, and ours where Whereabouts' own would be.
pub fn plugins() -> tempfile::TempDir {
    let (binaries, directory) = (Binaries::locate([Program::Macvlan]).unwrap(), tempfile::tempdir().unwrap());
    for (name, from) in [
        ("macvlan", binaries.path(Program::Macvlan).unwrap()),
        ("whereabouts", &tenure_tests::programs::plugin()),
    ] {
        std::fs::copy(from, directory.path().join(name)).unwrap();
    }
    directory
}

/// Other people's kind of networks, and ours of it.
pub fn define_networks(cluster: &Cluster) {
    let definition = include_str!("../../../deploy/optional/network-attachment-definitions.yaml");
    let definition: CustomResourceDefinition = serde_saphyr::from_str(definition).unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    cluster.runtime.block_on(async {
        api.create(&PostParams::default(), &definition).await.unwrap();
        let name = definition.name_any();
        let established = await_condition(api, &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
        let api: Api<NetworkAttachmentDefinition> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        for network in [Network::Shared, Network::Sliced] {
            let spec = NetworkAttachmentDefinitionSpec { config: network.config().to_string() };
            let definition = NetworkAttachmentDefinition::new(network.name(), spec);
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
    });
}
