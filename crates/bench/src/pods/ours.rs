//! Our side: `tenured` and `tenure-cni` on a host, `tenure-controller` beside the API server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tenure_testbed::hosts::HostChild;
use tenure_testbed::process::{Process, Program};

use super::cluster::{Cluster, NODE, Pools};
use super::side::{Pace, Side};
use crate::host::machine::Machine;
use crate::host::programs::Programs;
use crate::host::way::Way;
use crate::host::{log, process};

/// Our side, with what only we can tell of ourselves.
pub(super) struct Ours {
    pub(super) side: Side,
    pub(super) cluster: Cluster,
    agent: HostChild,
    log: PathBuf,
    _controller: Process,
    _way: Way,
    _directory: tempfile::TempDir,
}

impl Ours {
    /// Starts all of it; when it returns, one pod is there and so are the blocks of the usual pool.
    pub(super) fn start(runtime: &tokio::runtime::Handle, programs: &Programs, pools: Pools) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let cluster = Cluster::start(runtime, pools)?;
        let log = directory.path().join("controller.log");
        let controller = Program::new("tenure-controller", &programs.controller, &log)
            .flag("--kubeconfig", cluster.plane.kubeconfig())
            .flag("--metrics-address", "127.0.0.1:0")
            .start()?;
        let machine = Machine::start(NODE)?;
        let (kubeconfig, way) = cluster.reach(&machine, directory.path())?;
        let log = directory.path().join("tenured.log");
        let agent = machine.agent(&programs.agent, &kubeconfig, &log)?;
        let config = json!({"cniVersion": "1.0.0", "name": "measured", "type": "tenure"});
        let nowhere = PathBuf::from("/nonexistent");
        let side = Side::new("Tenure", machine, programs.plugin.clone(), nowhere, &config);
        let mut ours =
            Self { side, cluster, agent, log, _controller: controller, _way: way, _directory: directory };
        ours.side.make("first", 0..1)?;
        ours.side.add("first", 0..1, "default", Pace::OneByOne)?;
        Ok(ours)
    }

    /// How much memory the agent has in use, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        process::resident(self.agent.id())
    }

    /// How often the agent has called the API server, but for watches that went on.
    pub(super) fn api_calls(&self) -> Result<f64> {
        process::api_calls(&self.side.machine)
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
