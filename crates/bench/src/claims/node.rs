//! A host with an agent, and the plugin that its runtime executes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use tenure_testbed::hosts::HostChild;

use super::cluster::Cluster;
use super::{NETWORK, PLAIN};
use crate::host::log;
use crate::host::machine::Machine;
use crate::host::programs::Programs;
use crate::host::runtime::{Calls, Container, Order, Timings};
use crate::host::way::Way;

/// A host with an agent.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) machine: Machine,
    plugin: PathBuf,
    log: PathBuf,
    /// Counts sandboxes, so that each has an id of its own.
    sandboxes: u64,
    /// How many pods have an interface.
    attached: usize,
    pub(super) calls: u64,
    pub(super) failed: u64,
    _agent: HostChild,
    _way: Way,
    _directory: tempfile::TempDir,
}

/// Pods that have an interface, or had one.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    containers: Vec<Container>,
    opted_in: bool,
}

impl Node {
    /// Starts a host, and an agent on it.
    pub(super) fn start(cluster: &Cluster, programs: &Programs, name: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let machine = Machine::start(name)?;
        let way = Way::to(&cluster.plane, &cluster.runtime, &machine)?;
        let kubeconfig = directory.path().join("kubeconfig");
        way.kubeconfig(&cluster.plane, None, &kubeconfig)?;
        let log = directory.path().join("tenured.log");
        let agent = machine.agent(&programs.agent, &kubeconfig, &log)?;
        let mut node = Self {
            name: name.to_owned(),
            machine,
            plugin: programs.plugin.clone(),
            log,
            sandboxes: 0,
            attached: 0,
            calls: 0,
            failed: 0,
            _agent: agent,
            _way: way,
            _directory: directory,
        };
        // What the first pod's block brings with it passes here.
        node.make(&["first".to_owned()])?;
        let (first, _) = node.add(PLAIN, &["first".to_owned()], false)?;
        node.del(&first)?;
        Ok(node)
    }

    /// Makes pods' network namespaces.
    pub(super) fn make(&mut self, pods: &[String]) -> Result<()> {
        self.machine.order(&Order::Make(pods.to_vec()))?;
        Ok(())
    }

    /// ADD for these pods, one at a time, on a network that opts in or on the same that does not.
    pub(super) fn add(
        &mut self,
        namespace: &str,
        pods: &[String],
        opted_in: bool,
    ) -> Result<(Pods, Timings)> {
        let containers = pods.iter().map(|pod| {
            self.sandboxes += 1;
            Container {
                id: format!("{:064x}", self.sandboxes),
                netns: pod.clone(),
                pod: pod.clone(),
                namespace: namespace.to_owned(),
            }
        });
        let pods = Pods { containers: containers.collect(), opted_in };
        let timings = self.call("ADD", &pods)?;
        self.attached += pods.containers.len();
        Ok((pods, timings))
    }

    /// DEL for these pods, and then until nothing is left of them.
    pub(super) fn del(&mut self, pods: &Pods) -> Result<Timings> {
        let timings = self.call("DEL", pods)?;
        self.attached -= pods.containers.len();
        let left = self.machine.settle(self.attached)?;
        ensure!(left == 0, "{}: {left} interfaces stayed after DEL", self.name);
        Ok(timings)
    }

    fn call(&mut self, verb: &str, pods: &Pods) -> Result<Timings> {
        let mut config = json!({"cniVersion": "1.0.0", "name": NETWORK, "type": "tenure"});
        if pods.opted_in {
            config["allowPersistentIPs"] = json!(true);
        }
        let calls = Calls {
            verb: verb.to_owned(),
            plugin: self.plugin.clone(),
            path: PathBuf::from("/nonexistent"),
            config: config.to_string(),
            interface: "eth0".to_owned(),
            at_once: 1,
            containers: pods.containers.clone(),
        };
        let timings = self.machine.order(&Order::Call(calls))?;
        self.calls += timings.each.len() as u64;
        self.failed += timings.failures.len() as u64;
        if let Some(failure) =
            timings.failures.last().filter(|_| timings.failures.len() == timings.each.len())
        {
            bail!("{}: every {verb} failed, such as {failure}", self.name);
        }
        Ok(timings)
    }

    /// How much the agent has logged so far.
    pub(super) fn logged(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.log)?.len())
    }

    /// How long each call of a verb took inside the agent, of those that were logged after the first `from` bytes.
    pub(super) fn inside(&self, verb: &str, from: u64) -> Result<Vec<Duration>> {
        log::taken(&self.log, verb, from)
    }

    /// The last that the agent said.
    pub(super) fn tail(&self) -> String {
        format!("the agent of {} said last:\n{}", self.name, log::tail(&self.log))
    }
}
