//! A gateway: its pod on the first node, and the real program in it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use tenure_api::coil::egress::gateway_labels;
use tenure_testbed::hosts::HostChild;
use tenure_tests::agent::{Gate, Pod};

use crate::bed::{ChaosBed, INTERNET};
use crate::plan::EGRESSES;
use crate::work::{attach, call, remove};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bed-gateway");
/// The node that it is on.
pub const NODE: usize = 0;

/// A gateway of the first Egress, with its program.
pub struct Gateway<'a> {
    bed: &'a ChaosBed<'a>,
    directory: PathBuf,
    number: usize,
    running: Option<Running>,
}

struct Running {
    pod: Pod,
    uid: String,
    addresses: Vec<IpAddr>,
    /// Its way to the API server.
    gate: Gate,
    program: HostChild,
}

impl<'a> Gateway<'a> {
    /// Starts one whose files are in this directory.
    pub fn start(bed: &'a ChaosBed<'a>, directory: PathBuf) -> Self {
        let mut gateway = Self { bed, directory, number: 0, running: None };
        gateway.make();
        gateway
    }

    /// Its addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        self.running.as_ref().map_or(&[], |running| &running.addresses)
    }

    /// What it says of its readiness.
    pub fn says(&self) -> Option<String> {
        let to = SocketAddr::from((*self.addresses().first()?, 8081));
        let host = &self.bed.machines[NODE].host;
        let mut stream = host.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(1))).ok()?.ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET /readyz HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned())
    }

    /// Kills its program and starts it again.
    pub fn restart(&mut self, lasts: Duration) {
        let Some(mut running) = self.running.take() else { return };
        running.program.kill().unwrap();
        sleep(lasts);
        running.program = self.launch(&running.pod, &running.addresses, &running.gate);
        self.running = Some(running);
    }

    /// Replaces its pod by another one.
    pub fn replace(&mut self) {
        self.end();
        self.make();
    }

    /// Ends it.
    pub fn end(&mut self) {
        let Some(Running { pod, uid, gate, program, .. }) = self.running.take() else { return };
        program.kill().unwrap();
        drop((program, gate));
        let called = call(self.bed, NODE, "DEL", &pod, &uid);
        if called.code != 0 {
            self.bed.blame(format!("DEL of {}: {called:?}", pod.name));
        }
        self.bed.delete_pod(INTERNET, &pod.name);
        remove(self.bed, NODE, pod);
    }

    fn make(&mut self) {
        self.number += 1;
        let name = format!("gateway-{}", self.number);
        let labels = json!({"labels": gateway_labels(EGRESSES[0])});
        let uid = self.bed.make_pod(INTERNET, &name, NODE, &labels);
        let pod = self.bed.machines[NODE].pod_in(INTERNET, &name);
        let addresses = attach(self.bed, NODE, &pod, &uid);
        let cluster = self.bed.cluster;
        let gate = Gate::open(cluster.runtime.handle(), &pod.network, cluster.server());
        let program = self.launch(&pod, &addresses, &gate);
        self.running = Some(Running { pod, uid, addresses, gate, program });
    }

    fn launch(&self, pod: &Pod, addresses: &[IpAddr], gate: &Gate) -> HostChild {
        let kubeconfig = self.directory.join(format!("{}.kubeconfig", pod.name));
        std::fs::write(&kubeconfig, self.bed.cluster.kubeconfig_at(gate.address()).to_string()).unwrap();
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let command = pod.network.command(PROGRAM).arg("--kubeconfig").arg(kubeconfig);
        let command = command.args(["--pod-name", &pod.name]).env("COIL_POD_NAMESPACE", INTERNET);
        let command = command.env("COIL_EGRESS_NAME", EGRESSES[0]).env("COIL_POD_ADDRESSES", texts.join(","));
        let command = command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log).spawn().unwrap()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("gateway.log")
    }
}
