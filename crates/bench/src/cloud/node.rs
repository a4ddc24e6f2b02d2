//! A machine of the fake cloud: a network namespace with a whole agent in this process, called by the plugin's own code.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde_json::{Value, json};
use tenure_agent::Agent;
use tenure_agent::alias::{AliasOptions, PoolChoice};
use tenure_agent::run::{AgentOptions, Paths};
use tenure_cni::plugin::{self, Places};
use tenure_handles::{SystemClock, SystemEntropy};
use tenure_testbed::compute::PROJECT;
use tenure_testbed::hosts::NetworkNamespace;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::bed::{Bed, NAMESPACE, SUBNET, Side};
use crate::host::machine::SOON;
use crate::host::objects::create;

/// CNI's code for "try again later", which a runtime does.
const TRY_AGAIN_LATER: u64 = 11;

/// A machine with an agent. Both end with this.
pub(super) struct Node {
    pub(super) name: String,
    agent: Agent,
    paths: Paths,
    /// The IPAM plugin of its network.
    ipam: &'static str,
    _stopping: DropGuard,
    _directory: tempfile::TempDir,
    _host: NetworkNamespace,
}

impl Node {
    /// A machine whose pods get alias addresses of this pool; without one, addresses of the ordinary pool.
    pub(super) async fn start(bed: &Bed, name: &str, pool: Option<&str>) -> Result<Self> {
        let (directory, host, stop) =
            (tempfile::tempdir()?, NetworkNamespace::new(name)?, CancellationToken::new());
        let zone = Side::Tenure.zone();
        bed.fake.add_instance(&zone, name, SUBNET);
        let nodes: Api<NodeObject> = Api::all(bed.client.clone());
        let provider = format!("gce://{PROJECT}/{zone}/{name}");
        create(&nodes, json!({"metadata": {"name": name}, "spec": {"providerID": provider}})).await?;
        let alias = match pool {
            None => None,
            Some(pool) => Some(AliasOptions {
                pool: PoolChoice::Named(pool.to_owned()),
                metadata: bed.fake.metadata(&zone, name).await?,
                ..AliasOptions::default()
            }),
        };
        let paths = Paths::in_directory(directory.path().join("run"));
        let options = AgentOptions {
            paths: paths.clone(),
            namespace: Some(host.path()),
            alias,
            egress: None,
            node_addresses: None,
            ..AgentOptions::new(name)
        };
        let client = bed.another_client()?;
        let agent = Agent::start(client, options, SystemClock, SystemEntropy::new()?, stop.clone()).await?;
        let serving = tokio::time::timeout(SOON, agent.progress().serving()).await;
        ensure!(
            serving.with_context(|| format!("the agent of {name} does not answer"))?,
            "the agent of {name} ended"
        );
        let ipam = if pool.is_some() { "gcp-ipam" } else { "tenure" };
        Ok(Self {
            name: name.to_owned(),
            agent,
            paths,
            ipam,
            _stopping: stop.drop_guard(),
            _directory: directory,
            _host: host,
        })
    }

    /// ADD, as often as the agent says that it should be tried again: the address.
    pub(super) async fn add(&self, pod: &str) -> Result<String> {
        let began = Instant::now();
        loop {
            match self.call("ADD", pod).await? {
                Ok(result) => {
                    let address = result["ips"][0]["address"].as_str().context("an ADD gives an address")?;
                    return Ok(address.split('/').next().unwrap_or_default().to_owned());
                }
                Err(failure) if failure["code"] == TRY_AGAIN_LATER && began.elapsed() < SOON => {}
                Err(failure) => bail!("ADD of {pod}: {failure}"),
            }
        }
    }

    /// DEL.
    pub(super) async fn del(&self, pod: &str) -> Result<()> {
        match self.call("DEL", pod).await? {
            Ok(_) => Ok(()),
            Err(failure) => bail!("DEL of {pod}: {failure}"),
        }
    }

    /// Waits until so many addresses are free on the machine.
    pub(super) async fn until_free(&self, addresses: usize) -> Result<()> {
        let node = self.agent.node();
        let enough = async {
            loop {
                let free = node.look(|node| node.pools().iter().map(|pool| pool.counts.free).sum::<u128>());
                let free = free.await.map_err(|error| anyhow!("the agent has ended: {error:?}"))?;
                if free >= addresses as u128 {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, enough)
            .await
            .with_context(|| format!("{} has no {addresses} free addresses", self.name))?
    }

    /// What the plugin printed, or its error.
    async fn call(&self, verb: &str, pod: &str) -> Result<Result<Value, Value>> {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod}");
        let variables = HashMap::from([
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", format!("sandbox-of-{pod}")),
            ("CNI_IFNAME", "eth0".to_owned()),
            // The plugin that would make the interface is another one.
            ("CNI_NETNS", "/proc/self/ns/net".to_owned()),
            ("CNI_ARGS", args),
        ]);
        let ipam = self.ipam;
        let network =
            json!({"cniVersion": "1.0.0", "name": "measured", "type": "ptp", "ipam": {"type": ipam}});
        let paths = self.paths.clone();
        let run = move || {
            let (socket, tombstones) = (paths.socket(), paths.tombstones());
            let places = Places { socket: &socket, tombstones: &tombstones };
            plugin::run(ipam, |name| variables.get(name).cloned(), network.to_string().into_bytes(), places)
        };
        let outcome = tokio::task::spawn_blocking(run).await?;
        let printed = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
        Ok(if outcome.code == 0 { Ok(printed) } else { Err(printed) })
    }
}
