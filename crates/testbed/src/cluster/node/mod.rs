//! A node: a host with containerd, kubelet and kube-proxy.

mod configuration;
mod faults;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tenure_handles::{Clock as _, SystemClock};

use super::cgroups::Cgroups;
use super::network::Network;
use super::{ClusterError, CniChoice};
use crate::binaries::{Binaries, Program};
use crate::hosts::{Host, HostChild, HostCommand, Mounts, Port};

/// How long containerd may take until it answers.
const CONTAINERD_LIMIT: Duration = crate::wait::PATIENCE;
const INTERVAL: Duration = Duration::from_millis(25);

/// The directories that are a node's own, as its programs see them.
const OWN_DIRECTORIES: [&str; 8] = [
    "/opt/cni",
    "/etc/cni",
    "/etc/kubernetes",
    "/etc/tenure",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/tenure",
];

/// Machine-wide kernel settings that the kubelet requires.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];

/// The reference plugins that a node has.
const PLUGINS: [Program; 5] =
    [Program::Ptp, Program::Bridge, Program::Macvlan, Program::HostLocal, Program::Loopback];

/// A part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodePart {
    /// containerd. Pods run without it.
    Containerd,
    /// The kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
}

impl NodePart {
    /// All of them, in the order in which they are started.
    pub const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::KubeProxy];

    fn program(self) -> Program {
        match self {
            Self::Containerd => Program::Containerd,
            Self::Kubelet => Program::Kubelet,
            Self::KubeProxy => Program::KubeProxy,
        }
    }
}

impl fmt::Display for NodePart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program().fmt(formatter)
    }
}

/// A node of a cluster. Dropping it ends its pods and everything else that it runs.
#[derive(Debug)]
pub struct Node {
    name: String,
    address: Ipv4Addr,
    ipv6: Ipv6Addr,
    binaries: Binaries,
    logs: PathBuf,
    parts: [Mutex<Option<Arc<HostChild>>>; NodePart::ALL.len()],
    /// Where in containerd's log the lines of the running one begin.
    containerd_log_from: AtomicU64,
    port: Port,
    /// Before the cgroups, which cannot be removed while something runs in them.
    host: Host,
    cgroups: Cgroups,
}

/// The plan of a node, decided by its cluster.
pub(super) struct Plan<'a> {
    pub(super) index: u8,
    pub(super) network: &'a Network,
    pub(super) binaries: &'a Binaries,
    pub(super) cni: CniChoice,
    /// The directory of the whole run, and of its logs.
    pub(super) directory: &'a Path,
    pub(super) logs: &'a Path,
}

/// What a node's programs need from the control plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials<'a> {
    pub(super) authority: &'a Path,
    pub(super) kubelet: &'a Path,
    pub(super) kube_proxy: &'a Path,
}

impl Node {
    /// Makes the node, without starting anything on it.
    pub(super) fn create(plan: &Plan<'_>) -> Result<Self, ClusterError> {
        let name = format!("node-{}", plan.index + 1);
        let (directory, logs) = (plan.directory.join(&name), plan.logs.join(&name));
        let mut mounts = Mounts::default();
        for own in OWN_DIRECTORIES {
            mounts = mounts.bind(directory.join(own.trim_start_matches('/').replace('/', "-")), own);
        }
        // Pods' logs are kept after a failure like all others.
        mounts = mounts.bind(logs.join("var-log"), "/var/log");
        for (key, value) in KERNEL_SETTINGS {
            mounts = mounts.private_sysctl(key, value);
        }
        let host = Host::with_mounts(&name, mounts)?;
        let port = plan.network.connect(&host, plan.index)?;
        let run = plan.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let node = Self {
            address: plan.network.addresses().node(plan.index),
            ipv6: plan.network.addresses().node_ipv6(plan.index),
            binaries: plan.binaries.clone(),
            parts: Default::default(),
            containerd_log_from: AtomicU64::new(0),
            cgroups: Cgroups::create(&run, &name)?,
            logs,
            port,
            host,
            name,
        };
        node.install_plugins()?;
        if plan.cni == CniChoice::PtpHostLocal {
            let pods = plan.network.addresses().pods(plan.index);
            node.write("/etc/cni/net.d/10-testbed.conflist", &configuration::ptp(&pods))?;
        }
        Ok(node)
    }

    /// Starts containerd.
    pub(super) fn start_containerd(&self) -> Result<(), ClusterError> {
        let runc = self.binaries.path(Program::Runc)?;
        self.write(configuration::CONTAINERD, &configuration::containerd(runc))?;
        self.launch(NodePart::Containerd)
    }

    /// Starts kubelet and kube-proxy.
    pub(super) fn join(&self, credentials: Credentials<'_>, pods: &str) -> Result<(), ClusterError> {
        for (from, to) in [
            (credentials.authority, configuration::AUTHORITY),
            (credentials.kubelet, configuration::KUBELET_ACCESS),
            (credentials.kube_proxy, configuration::KUBE_PROXY_ACCESS),
        ] {
            let text = fs::read_to_string(from).map_err(file_error("reading", from))?;
            self.write(to, &text)?;
        }
        let kubelet = configuration::kubelet(self.address, &self.cgroups.path());
        self.write(configuration::KUBELET, &kubelet)?;
        self.write(configuration::KUBE_PROXY, &configuration::kube_proxy(&self.name, pods))?;
        self.launch(NodePart::Kubelet)?;
        self.launch(NodePart::KubeProxy)
    }

    /// The node's name, also in the API.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The node's address of IPv6.
    pub fn ipv6(&self) -> Ipv6Addr {
        self.ipv6
    }

    /// The node's control group, the same in every hierarchy.
    pub fn cgroup(&self) -> String {
        self.cgroups.path()
    }

    /// The node as a host: its interfaces, routes, captures, closures.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A program to be run on the node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> HostCommand {
        self.host.command(program).env("PATH", self.search_path())
    }

    /// The path for the test of a file of the node; `path` is the one on the node.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf, ClusterError> {
        Ok(self.host.path(path)?)
    }

    /// Writes a file on the node; creates its directory if it is missing.
    pub fn write(&self, path: &str, text: &str) -> Result<(), ClusterError> {
        let path = self.path(path)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(file_error("making", parent))?;
        }
        fs::write(&path, text).map_err(file_error("writing", &path))
    }

    /// The directory of the node's logs, and of its pods' in `var-log`.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Imports an image that was [saved](super::Image::save) to `path`, as soon as containerd answers.
    pub(super) fn import(&self, path: &Path) -> Result<(), ClusterError> {
        self.await_containerd()?;
        let ctr = self.command(self.binaries.path(Program::Ctr)?);
        ctr.args(["--namespace", "k8s.io", "images", "import"]).arg(path).succeed()?;
        Ok(())
    }

    fn launch(&self, part: NodePart) -> Result<(), ClusterError> {
        let log = self.log(part);
        let open = || -> io::Result<(File, File)> {
            let file = OpenOptions::new().create(true).append(true).open(&log)?;
            Ok((file.try_clone()?, file))
        };
        let (stdout, stderr) = open().map_err(file_error("opening", &log))?;
        match part {
            NodePart::Containerd => {
                let length = stdout.metadata().map_err(file_error("reading", &log))?.len();
                self.containerd_log_from.store(length, Ordering::Relaxed);
            }
            // A kubelet that finds containerd without its services ends, and nobody here restarts it.
            NodePart::Kubelet if self.process_id(NodePart::Containerd).is_some() => {
                self.await_containerd()?;
            }
            NodePart::Kubelet | NodePart::KubeProxy => {}
        }
        let command = self.command(self.binaries.path(part.program())?);
        let command = match part {
            NodePart::Containerd => command.args(["--config", configuration::CONTAINERD]),
            NodePart::Kubelet => command
                .args(["--config", configuration::KUBELET, "--kubeconfig", configuration::KUBELET_ACCESS])
                .args(["--hostname-override", &self.name, "--node-ip"])
                .arg(format!("{},{}", self.address, self.ipv6)),
            NodePart::KubeProxy => command.args(["--config", configuration::KUBE_PROXY]),
        };
        let process = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn()?;
        *self.slot(part) = Some(Arc::new(process));
        Ok(())
    }

    /// Waits until containerd has logged that all its services run. An accepting socket is not enough: it
    /// accepts earlier, and refuses calls.
    pub fn await_containerd(&self) -> Result<(), ClusterError> {
        let log = self.log(NodePart::Containerd);
        let start = SystemClock.now();
        let mut last = String::new();
        while SystemClock.now().since(start) < CONTAINERD_LIMIT {
            self.check(NodePart::Containerd)?;
            let said = fs::read(&log).map_err(file_error("reading", &log))?;
            let from =
                usize::try_from(self.containerd_log_from.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
            let said = String::from_utf8_lossy(said.get(from..).unwrap_or_default());
            if said.contains("containerd successfully booted") {
                return Ok(());
            }
            said.lines().last().unwrap_or("it says nothing").clone_into(&mut last);
            thread::sleep(INTERVAL);
        }
        let what = format!("containerd of {} does not answer", self.name);
        Err(ClusterError::NotReady { what, limit: CONTAINERD_LIMIT, last })
    }

    /// An error if a part was started and has ended.
    pub(super) fn check(&self, part: NodePart) -> Result<(), ClusterError> {
        let Some(how) = self.process(part).and_then(|process| process.try_wait()) else { return Ok(()) };
        let log = self.log(part);
        let end = last_lines(&log);
        Err(ClusterError::Ended { part, node: self.name.clone(), how: how.to_string(), log, end })
    }

    /// Copies the reference plugins: what the test installs beside or over them stays on the node.
    fn install_plugins(&self) -> Result<(), ClusterError> {
        let directory = self.path("/opt/cni/bin")?;
        fs::create_dir_all(&directory).map_err(file_error("making", &directory))?;
        for plugin in PLUGINS {
            let to = directory.join(plugin.name());
            fs::copy(self.binaries.path(plugin)?, &to).map_err(file_error("copying a plugin to", &to))?;
        }
        Ok(())
    }

    /// The search path of the node's programs: containerd needs its shim, kube-proxy nft.
    fn search_path(&self) -> OsString {
        let mut path = OsString::new();
        for program in [Program::ContainerdShim, Program::Runc, Program::Nft] {
            if let Some(directory) = self.binaries.path(program).ok().and_then(Path::parent) {
                path.push(directory);
                path.push(":");
            }
        }
        path.push("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        path
    }

    fn log(&self, part: NodePart) -> PathBuf {
        self.logs.join(format!("{part}.log"))
    }

    fn process(&self, part: NodePart) -> Option<Arc<HostChild>> {
        self.slot(part).clone()
    }

    fn slot(&self, part: NodePart) -> MutexGuard<'_, Option<Arc<HostChild>>> {
        self.parts[part as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file_error(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClusterError {
    let path = path.to_owned();
    move |source| ClusterError::File { act, path, source }
}

/// The end of a log, for a message.
fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
