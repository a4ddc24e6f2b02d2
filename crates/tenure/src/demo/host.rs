//! A host made of a network namespace, with its agent and its pods, and the CNI plugin as a container runtime calls it.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use tenure_handles::{Clock, SystemClock};
use tenure_linux::link::Link;
use tenure_linux::netns::NetNs;
use tenure_linux::segment::Segment;

use super::programs::{Programs, start_daemon};

/// The name of the network.
pub(crate) const NETWORK: &str = "demo";
/// The link to the other hosts.
pub(crate) const UPLINK: &str = "uplink";
/// The link to the hosts' second network.
pub(crate) const SECOND: &str = "eth1";
/// CNI's code for "try again later".
pub(crate) const TRY_AGAIN_LATER: u64 = 11;
/// The directory of pods' namespaces on a host.
const PODS: &str = "pods";

/// A host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) addresses: [IpNet; 2],
    directory: PathBuf,
    namespace: NetNs,
    programs: Programs,
    agent: Option<Child>,
    /// Whether the network's configuration lets addresses outlive pods.
    pub(crate) opted_in: bool,
}

/// A pod: a network namespace, as a container runtime creates one.
pub(crate) struct Pod {
    pub(crate) name: String,
    /// The namespace of its object.
    pub(crate) kubernetes_namespace: String,
    /// Whether another plugin creates its interface, with an alias address.
    pub(crate) addresses_only: bool,
    /// The UID of its object, if there is one.
    pub(crate) uid: Option<String>,
    /// The addresses in the plugin's result: IPv4 before IPv6.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) namespace: NetNs,
    path: PathBuf,
}

/// The result of a call of the plugin.
pub(crate) struct Called {
    /// The total time, from the start of the program to its end.
    pub(crate) took: Duration,
    answer: Result<Value, Refusal>,
}

/// The plugin's error.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u64,
    message: String,
}

impl Host {
    /// A host without an agent, connected to the others.
    pub(crate) fn make(
        name: &str,
        addresses: [IpNet; 2],
        segment: &mut Segment,
        place: &Path,
        programs: &Programs,
    ) -> Result<Self> {
        let directory = place.join(name);
        fs::create_dir_all(directory.join(PODS)).context("cannot make a host's directory")?;
        let namespace = NetNs::make()?;
        segment.connect(&namespace, UPLINK, &addresses)?;
        let (name, programs) = (name.to_owned(), programs.clone());
        Ok(Self { name, addresses, directory, namespace, programs, agent: None, opted_in: false })
    }

    /// Gives the host an interface on another network, without addresses.
    pub(crate) fn plug(&self, network: &mut Segment) -> Result<()> {
        Ok(network.connect(&self.namespace, SECOND, &[])?)
    }

    pub(crate) fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// The socket where the agent serves its state.
    pub(crate) fn state_socket(&self) -> PathBuf {
        self.directory.join(tenure_view::SOCKET)
    }

    /// Starts the agent. It is ready when it [answers](Self::is_answering).
    pub(crate) fn start_agent(&mut self, api: &Path, metadata: &str) -> Result<()> {
        let mut command = Command::new(&self.programs.agent);
        let command = command.args(["--node-name", &self.name, "--route-blocks", "--api-socket"]).arg(api);
        let command = command.arg("--run-dir").arg(&self.directory);
        let command = command.arg("--state-dir").arg(self.directory.join("state"));
        let command = command.args(["--alias-pool", "auto", "--metadata-host", metadata]);
        // A NetworkManager of the machine has nothing to do with this host.
        let command = command.arg("--dbus-socket").arg(self.directory.join("no-bus"));
        self.agent = Some(start_daemon(command, &self.namespace, &self.directory.join("log"))?);
        Ok(())
    }

    /// Whether the agent answers the plugin; an error if it has ended.
    pub(crate) fn is_answering(&mut self) -> Result<bool> {
        if let Some(agent) = &mut self.agent
            && let Some(status) = agent.try_wait().context("cannot look at the agent")?
        {
            bail!("the agent of {} ended with {status}", self.name);
        }
        Ok(self.socket().exists())
    }

    /// Kills the agent as the kernel would when memory runs out: at once.
    pub(crate) fn kill_agent(&mut self) -> Result<()> {
        let mut agent = self.agent.take().context("no agent runs")?;
        agent.kill().and_then(|()| agent.wait()).context("cannot kill the agent")?;
        // It could not remove its socket.
        match fs::remove_file(self.socket()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("cannot remove a socket")
            }
            _ => Ok(()),
        }
    }

    /// How many DELs wait for the agent.
    pub(crate) fn tombstones(&self) -> usize {
        fs::read_dir(self.directory.join("tombstones")).map_or(0, |entries| entries.flatten().count())
    }

    /// How many pods have an interface, or the rest of one.
    pub(crate) fn pod_links(&self) -> Result<usize> {
        let links = Link::all_veths(&mut self.namespace.socket()?)?;
        Ok(links.iter().filter(|link| link.name != UPLINK).count())
    }

    /// Creates a pod and calls the plugin for it.
    pub(crate) fn start_pod(&self, name: &str) -> Result<(Pod, Duration)> {
        let mut pod = self.make_pod(name)?;
        let took = self.add(&mut pod)?;
        Ok((pod, took))
    }

    /// Calls the plugin for a pod, which gets an interface and addresses.
    pub(crate) fn add(&self, pod: &mut Pod) -> Result<Duration> {
        let called = self.call("ADD", pod)?;
        pod.addresses = called.addresses().with_context(|| format!("ADD of {}", pod.name))?;
        Ok(called.took)
    }

    /// The same for a pod that may have to wait; returns whether it got an interface.
    pub(crate) fn add_or_wait(&self, pod: &mut Pod) -> Result<bool> {
        let called = self.call("ADD", pod)?;
        if called.refusal().is_some_and(|refusal| refusal.code == TRY_AGAIN_LATER) {
            return Ok(false);
        }
        pod.addresses = called.addresses().with_context(|| format!("ADD of {}", pod.name))?;
        Ok(true)
    }

    /// A pod without an interface.
    pub(crate) fn make_pod(&self, name: &str) -> Result<Pod> {
        let namespace = NetNs::make()?;
        let path = self.directory.join(PODS).join(name);
        File::create(&path).context("cannot make a file")?;
        let open = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        mount(Some(open.as_str()), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .context("cannot give a pod's namespace a name")?;
        let (name, kubernetes_namespace) = (name.to_owned(), "default".to_owned());
        let (uid, addresses) = (None, Vec::new());
        Ok(Pod { name, kubernetes_namespace, addresses_only: false, uid, addresses, namespace, path })
    }

    /// Calls the plugin for a pod and removes its namespace.
    pub(crate) fn end_pod(&self, pod: &Pod) -> Result<Duration> {
        let called = self.call("DEL", pod)?;
        called.result().with_context(|| format!("DEL of {}", pod.name))?;
        umount2(&pod.path, MntFlags::MNT_DETACH).context("cannot take a pod's namespace away")?;
        fs::remove_file(&pod.path).context("cannot remove a file")?;
        Ok(called.took)
    }

    /// Runs the plugin on this host, as a container runtime does.
    pub(crate) fn call(&self, verb: &str, pod: &Pod) -> Result<Called> {
        let mut config = json!({"cniVersion": "1.1.0", "name": NETWORK, "type": "tenure"});
        if pod.addresses_only {
            (config["type"], config["ipam"]) = (json!("ptp"), json!({"type": "gcp-ipam"}));
        } else if self.opted_in {
            config["allowPersistentIPs"] = json!(true);
        }
        let uid = pod.uid.as_ref().map_or_else(String::new, |uid| format!(";K8S_POD_UID={uid}"));
        let object = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME={}{uid}", pod.kubernetes_namespace, pod.name);
        let mut command = Command::new(&self.programs.plugin);
        command
            .env_clear()
            .env("TENURE_SOCKET", self.socket())
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("demo-{}", pod.name))
            .env("CNI_NETNS", &pod.path)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", object)
            .env("CNI_PATH", self.programs.plugin.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let run = || {
            let began = SystemClock.elapsed();
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(config.to_string().as_bytes())?;
            }
            let output = child.wait_with_output()?;
            Ok((output, SystemClock.elapsed().saturating_sub(began)))
        };
        let ran: std::io::Result<_> = self.namespace.run(run)?;
        let (output, took) = ran.context("cannot run the CNI plugin")?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let answer = if output.status.success() {
            Ok(said)
        } else {
            let message = said["msg"].as_str().map_or_else(|| output.status.to_string(), str::to_owned);
            Err(Refusal { code: said["code"].as_u64().unwrap_or_default(), message })
        };
        Ok(Called { took, answer })
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("tenured.sock")
    }
}

impl Called {
    /// The result.
    pub(crate) fn result(&self) -> Result<&Value> {
        self.answer
            .as_ref()
            .map_err(|Refusal { code, message }| anyhow!("the plugin failed with code {code}: {message}"))
    }

    /// The error, if it is one.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.answer.as_ref().err()
    }

    fn addresses(&self) -> Result<Vec<IpAddr>> {
        let ips = self.result()?["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
        let address = |ip: &Value| {
            let net: IpNet = ip["address"].as_str().unwrap_or_default().parse()?;
            Ok(net.addr())
        };
        ips.iter().map(address).collect::<Result<_>>().context("cannot understand the plugin's result")
    }
}
