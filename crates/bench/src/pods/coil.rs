//! The peer that is there when somebody gives its programs: Coil 2.15, started as its manifests start it, with egress off
//! and an API server of its own.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tenure_testbed::hosts::HostChild;

use super::cluster::{Cluster, NODE, Pools};
use super::side::{Pace, Side};
use crate::host::log;
use crate::host::machine::{Machine, until};
use crate::host::process::resident;
use crate::host::stripped::stripped_size;
use crate::host::way::Way;

/// Coil on a host.
pub(super) struct Coil {
    pub(super) side: Side,
    pub(super) cluster: Cluster,
    /// Of the plugin, the agent and the controller.
    pub(super) sizes: [f64; 3],
    agent: HostChild,
    _controller: HostChild,
    _way: Way,
    _directory: tempfile::TempDir,
}

impl Coil {
    /// Starts all of it out of a directory with `coil`, `coild` and `coil-ipam-controller`; one pod is there then.
    pub(super) fn start(runtime: &tokio::runtime::Handle, programs: &Path, pools: Pools) -> Result<Self> {
        let files = ["coil", "coild", "coil-ipam-controller"].map(|name| programs.join(name));
        let mut sizes = [0.0; 3];
        for (file, size) in files.iter().zip(&mut sizes) {
            let expected =
                "accepted by --peer is a directory with coil, coild and coil-ipam-controller of Coil 2.15";
            *size = stripped_size(file).context(expected)?;
        }
        let [plugin, coild, controller] = files;
        let directory = tempfile::tempdir()?;
        let cluster = Cluster::start(runtime, pools)?;
        let machine = Machine::start(NODE)?;
        let (kubeconfig, way) = cluster.reach(&machine, directory.path())?;
        let kubeconfig = kubeconfig.display().to_string();
        // The controller insists on a certificate for webhooks, which nobody calls here.
        let certificates = directory.path().join("certs");
        std::fs::create_dir(&certificates)?;
        let (certificate, key) = cluster.plane.server_certificate("coil", &["localhost".to_owned()])?;
        std::fs::copy(certificate, certificates.join("tls.crt"))?;
        std::fs::copy(key, certificates.join("tls.key"))?;
        let certificates = format!("--cert-dir={}", certificates.display());
        let variables =
            [("KUBECONFIG", kubeconfig.as_str()), ("COIL_NODE_NAME", NODE), ("POD_NAMESPACE", "kube-system")];
        // On the host, so that its fixed ports are nobody else's.
        let log = directory.path().join("controller.log");
        let controller = machine.daemon(&controller, &[&certificates], &variables, &log)?;
        let log = directory.path().join("coild.log");
        let agent = machine.daemon(&coild, &["--enable-egress=false"], &variables, &log)?;
        let socket = machine.path("/run/coild.sock")?;
        until("coild to answer", || {
            ensure!(agent.try_wait().is_none(), "coild has ended: {}", log::tail(&log));
            Ok(socket.exists().then_some(()))
        })?;
        let config = json!({"cniVersion": "1.0.0", "name": "measured", "type": "coil"});
        let side = Side::new("Coil", machine, plugin, programs.to_owned(), &config);
        let mut coil =
            Self { side, cluster, sizes, agent, _controller: controller, _way: way, _directory: directory };
        coil.expect("default", "first", 0..1)?;
        coil.side.make("first", 0..1)?;
        // Its first call fails now and then while the controller is not leading yet.
        until("coil's first ADD", || {
            Ok(coil.side.add("first", 0..1, "default", Pace::OneByOne).is_ok().then_some(()))
        })?;
        Ok(coil)
    }

    /// Makes the objects of pods, which coild reads at each ADD.
    pub(super) fn expect(&self, namespace: &str, kind: &str, numbers: std::ops::Range<usize>) -> Result<()> {
        self.cluster.pods(namespace, NODE, numbers.map(|number| format!("{kind}{number}")).collect())
    }

    /// How much memory coild has in use, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        resident(self.agent.id())
    }
}
