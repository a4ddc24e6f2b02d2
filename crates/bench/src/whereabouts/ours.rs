//! Our side: `tenured`, and `tenure-cni` under the name `whereabouts`, on a host.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tenure_testbed::control_plane::Part;
use tenure_testbed::hosts::HostChild;
use tenure_testbed::process::Program;

use super::NODE;
use super::caller::Caller;
use super::cluster::Cluster;
use crate::host::machine::{Machine, until};
use crate::host::programs::Programs;
use crate::host::way::Way;
use crate::host::{log, process};

/// Who has a part in a call.
pub(super) const PARTS: [&str; 4] = ["plugin", "agent", "kube-apiserver", "etcd"];

/// Our side, with what only we can tell of ourselves.
pub(super) struct Ours {
    pub(super) caller: Caller,
    controller: PathBuf,
    log: PathBuf,
    agent: HostChild,
    _way: Way,
    directory: tempfile::TempDir,
}

impl Ours {
    pub(super) fn start(cluster: &Cluster, programs: &Programs) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let machine = Machine::start(NODE)?;
        let way = Way::to(&cluster.plane, &cluster.runtime, &machine)?;
        let kubeconfig = directory.path().join("kubeconfig");
        way.kubeconfig(&cluster.plane, None, &kubeconfig)?;
        let log = directory.path().join("tenured.log");
        let agent = machine.agent(&programs.agent, &kubeconfig, &log)?;
        let plugin = directory.path().join("whereabouts");
        std::fs::copy(&programs.plugin, &plugin)
            .with_context(|| format!("cannot copy {}", programs.plugin.display()))?;
        let caller = Caller::new("Tenure", machine, &plugin)?;
        let controller = programs.controller.clone();
        Ok(Self { caller, controller, log, agent, _way: way, directory })
    }

    /// Lets the controller give this node a slice. It has no part in what follows, and ends: it would take away addresses
    /// of pods that nobody made.
    pub(super) fn take_slice(&mut self, cluster: &Cluster, network: &str, config: &Value) -> Result<()> {
        cluster.attach(network, config)?;
        let log = self.directory.path().join("controller.log");
        let controller = Program::new("tenure-controller", &self.controller, &log)
            .flag("--kubeconfig", cluster.plane.kubeconfig())
            .flag("--metrics-address", "127.0.0.1:0")
            .start()?;
        until("the controller to give this node a slice", || {
            ensure!(controller.is_running(), "the controller has ended: {}", log::tail(&log));
            Ok(cluster.has_slice(network)?.then_some(()))
        })?;
        controller.stop()?;
        // The agent hears of it in its own time.
        until("the agent to hand out of its slice", || Ok(self.warm_up(config).is_ok().then_some(())))?;
        Ok(())
    }

    /// One ADD, and its DEL.
    pub(super) fn warm_up(&mut self, config: &Value) -> Result<()> {
        let (added, _) = self.caller.add(config, 1, 1)?;
        self.caller.del(config, &added, 1)?;
        Ok(())
    }

    /// How often the agent has called the API server, but for watches that went on.
    pub(super) fn api_calls(&self) -> Result<f64> {
        process::api_calls(&self.caller.machine)
    }

    /// How much processor time everybody has had so far who has a part in a call, in the order of [`PARTS`].
    pub(super) fn processor_time(&self, cluster: &Cluster) -> Result<[f64; 4]> {
        let of = |part| {
            let pid = cluster.plane.process_id(part).context("the API server has ended")?;
            Ok::<_, anyhow::Error>(process::processor_time(i32::try_from(pid)?)?.0)
        };
        let agent = process::processor_time(self.agent.id())?.0;
        Ok([self.caller.machine.plugins_time()?, agent, of(Part::ApiServer)?, of(Part::Etcd)?])
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
        log::tail(&self.log)
    }
}
