//! A host made of namespaces, with `tenured` on it and pods that the real plugin attaches.

use std::fs::File;
use std::io::{Seek, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use serde_json::Value;
use tenure_api::coil::AddressBlock;
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::hosts::{Host, HostChild, HostCommand, Mounts, Port, Segment};
use tenure_testbed::wait::PATIENCE;

use super::gate::Gate;
use crate::programs;

use super::{Called, Calling, Cluster, Pod, config};

/// A host with an agent, or without one for the moment.
pub struct Machine<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
    /// Of both families.
    pub addresses: [IpAddr; 2],
    pub host: Arc<Host>,
    pub gate: Gate,
    pub arguments: Vec<String>,
    agent: Option<HostChild>,
    directory: tempfile::TempDir,
    _uplink: (Arc<Segment>, Port),
}

impl<'a> Machine<'a> {
    /// A host of a node of its own, without an agent.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self::on(cluster, &Arc::new(Segment::new("wire").unwrap()), 1)
    }

    /// So many hosts on a segment, as [`Self::on`] makes them, numbered from one.
    pub fn several(cluster: &'a Cluster, wire: &Arc<Segment>, count: usize) -> Vec<Self> {
        (1..=count).map(|number| Self::on(cluster, wire, u8::try_from(number).unwrap())).collect()
    }

    /// A host of a node of its own, without an agent, on this segment, with this number in its addresses.
    pub fn on(cluster: &'a Cluster, wire: &Arc<Segment>, number: u8) -> Self {
        let addresses = [format!("192.0.2.{number}"), format!("2001:db8::{number}")];
        let name = cluster.node(&addresses);
        let host = Arc::new(Host::new(&name).unwrap());
        let nets = [format!("{}/24", addresses[0]), format!("{}/64", addresses[1])];
        let port = wire.connect(&host, "uplink", &[&nets[0], &nets[1]]).unwrap();
        host.route("default", "192.0.2.254".parse().unwrap()).unwrap();
        let gate = Gate::open(cluster.runtime.handle(), &host, cluster.server());
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = cluster.kubeconfig_at(gate.address());
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let uplink = (Arc::clone(wire), port);
        let addresses = addresses.map(|address| address.parse().unwrap());
        let arguments = Vec::new();
        Self { cluster, name, addresses, host, gate, arguments, agent: None, directory, _uplink: uplink }
    }

    /// A host with an agent that answers.
    pub fn running(cluster: &'a Cluster) -> Self {
        let mut machine = Self::new(cluster);
        machine.start();
        machine
    }

    /// Starts the agent and waits until it answers.
    pub fn start(&mut self) {
        self.launch();
        self.until("an agent that answers", || self.has_socket().then_some(()));
    }

    /// Starts the agent.
    pub fn launch(&mut self) {
        // An agent that was killed left its socket behind.
        let _ = std::fs::remove_file(self.file("tenured.sock"));
        let command = self.agent_command().args(["--metrics-address", "127.0.0.1:0"]);
        self.agent = Some(command.spawn().unwrap());
    }

    /// An agent, all but where its metrics are.
    pub fn agent_command(&self) -> HostCommand {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let command =
            self.host.command(programs::tenured()).args(["--node-name", &self.name, "--kubeconfig"]);
        let command = command.arg(self.directory.path().join("kubeconfig")).args(&self.arguments);
        let command = command.arg("--state-dir").arg(self.directory.path().join("state"));
        let command = command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log)
    }

    /// Ends the agent without a word.
    pub fn kill(&mut self) {
        self.agent.take().unwrap().kill().unwrap();
    }

    /// Asks the agent to end, and waits until it has.
    pub fn stop(&mut self) {
        let agent = self.agent.take().unwrap();
        agent.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = agent.wait_for(PATIENCE).expect("it does not end");
        assert!(status.success(), "{status}");
    }

    /// Switches the host off and on: no process, no pod and nothing under `/run` is left.
    pub fn reboot(&mut self) {
        self.agent = None;
        self.host.end_processes();
        // The kernel goes on, so that only this says that it is another boot.
        std::fs::write(self.directory.path().join("state/boot"), "before the reboot").unwrap();
        for link in self.links().iter().filter(|name| name.starts_with("tnr")) {
            // One may have gone with its pod.
            let _ = self.host.ip(&format!("link del {link}"));
        }
    }

    /// Whether the plugin's socket is there.
    pub fn has_socket(&self) -> bool {
        self.file("tenured.sock").exists()
    }

    /// A file in the agent's directory, as the test sees it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.host.path(Path::new("/run/tenure").join(name)).unwrap()
    }

    /// The tombstones that are there.
    pub fn tombstones(&self) -> usize {
        let entries = std::fs::read_dir(self.file("tombstones"));
        entries.map_or(0, |entries| entries.flatten().count())
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// All that the agents have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Makes a pod: a namespace on this host.
    pub fn pod(&self, name: &str) -> Pod {
        self.pod_in("default", name)
    }

    /// Makes a pod in a namespace of Kubernetes.
    pub fn pod_in(&self, namespace: &str, name: &str) -> Pod {
        let (network, path) = self.host.pod_namespace(name).unwrap();
        Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            container: format!("{name}-sandbox"),
            path,
            network: Host::in_namespace(network, Mounts::default()),
        }
    }

    /// ADD, which must succeed: the addresses.
    pub fn add(&self, pod: &Pod) -> Vec<IpAddr> {
        self.call("ADD", pod).addresses()
    }

    /// DEL, which must succeed.
    pub fn del(&self, pod: &Pod) {
        let called = self.call("DEL", pod);
        assert_eq!(called.code, 0, "{called:?}");
    }

    /// Calls the plugin for a pod.
    pub fn call(&self, verb: &str, pod: &Pod) -> Called {
        self.call_with(verb, pod, &config())
    }

    /// Calls the plugin for a pod with this configuration.
    pub fn call_with(&self, verb: &str, pod: &Pod, config: &Value) -> Called {
        self.exec(verb, &pod.container, &pod.path, &args_of(pod), config)
    }

    /// STATUS.
    pub fn status(&self) -> Called {
        self.exec("STATUS", "", Path::new(""), "", &config())
    }

    /// Runs the plugin.
    pub fn exec(&self, verb: &str, container: &str, netns: &Path, args: &str, config: &Value) -> Called {
        self.start_plugin(verb, container, netns, args, config).join()
    }

    /// Starts the plugin for a pod, to be waited for later.
    pub fn plugin(&self, verb: &str, pod: &Pod) -> Calling {
        self.start_plugin(verb, &pod.container, &pod.path, &args_of(pod), &config())
    }

    fn start_plugin(&self, verb: &str, container: &str, netns: &Path, args: &str, config: &Value) -> Calling {
        self.start_program(&programs::plugin(), "eth0", verb, (container, netns, args), config)
    }

    /// Starts a plugin for an interface of a container in a namespace, with arguments; plugins that it calls are beside it.
    pub fn start_program(
        &self,
        plugin: &Path,
        interface: &str,
        verb: &str,
        (container, netns, args): (&str, &Path, &str),
        config: &Value,
    ) -> Calling {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(config.to_string().as_bytes()).unwrap();
        input.rewind().unwrap();
        let beside = plugin.parent().unwrap_or(Path::new("/"));
        let command = self.host.command(plugin).env("CNI_COMMAND", verb).env("CNI_PATH", beside);
        let command = command.env("CNI_CONTAINERID", container).env("CNI_NETNS", netns);
        let command = command.env("CNI_IFNAME", interface).env("CNI_ARGS", args);
        let began = SystemClock.elapsed();
        let command = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        Calling { child: command.spawn().unwrap(), began }
    }

    /// The blocks of this node.
    pub fn blocks(&self) -> Vec<String> {
        self.cluster.blocks_of(&self.name).iter().map(ResourceExt::name_any).collect()
    }

    /// Names of all links.
    pub fn links(&self) -> Vec<String> {
        let links = self.host.namespace().ip_json(&["link", "show"]).unwrap();
        links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
    }

    /// The host ends of pods' links.
    pub fn pod_links(&self) -> usize {
        let up = |link: &Value| {
            link["ifname"].as_str().unwrap().starts_with("tnr") && link["operstate"].as_str() == Some("UP")
        };
        let links = self.host.namespace().ip_json(&["link", "show"]).unwrap();
        links.as_array().unwrap().iter().filter(|link| up(link)).count()
    }

    /// Destinations in a table, of both families.
    pub fn table(&self, id: u32) -> Vec<String> {
        let id = id.to_string();
        let routes = |family| {
            // "FIB table does not exist": nothing was ever in it.
            let routes = self.host.namespace().ip_json(&[family, "route", "show", "table", &id]);
            routes.ok().and_then(|routes| routes.as_array().cloned()).unwrap_or_default()
        };
        let all = ["-4", "-6"].into_iter().flat_map(routes);
        let mut found: Vec<String> = all.map(|route| route["dst"].as_str().unwrap().to_owned()).collect();
        found.sort();
        found
    }

    /// The networks of this node's blocks, as a table has them.
    pub fn networks(&self) -> Vec<String> {
        let blocks = self.cluster.blocks_of(&self.name);
        let each = |block: &AddressBlock| [block.spec.ipv4.clone(), block.spec.ipv6.clone()];
        let short = |network: String| {
            network.strip_suffix("/32").or(network.strip_suffix("/128")).map(str::to_owned).unwrap_or(network)
        };
        let mut networks: Vec<String> = blocks.iter().flat_map(each).flatten().map(short).collect();
        networks.sort();
        networks
    }

    /// Waits until there is something; fails with the agent's log.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = SystemClock.elapsed();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                SystemClock.elapsed().saturating_sub(began) < PATIENCE,
                "{}: waited {PATIENCE:?} for {what}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a pod has no interface any more: it is out of service when the DEL is answered, and deleted later.
    pub fn until_gone(&self, pod: &Pod) {
        self.until(&format!("the interface of {} to go", pod.name), || (!pod.has_interface()).then_some(()));
    }

    /// That the pod is reached from its host and reaches it, over each of its addresses.
    pub fn assert_reached(&self, pod: &Pod, addresses: &[IpAddr]) {
        for address in addresses {
            self.host.ping(*address, PATIENCE).unwrap();
            let host = self.addresses[usize::from(address.is_ipv6())];
            pod.network.ping(host, PATIENCE).unwrap();
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "--- log of {} ---\n{}", self.name, tail.join("\n"));
        }
    }
}

/// `CNI_ARGS` for a pod.
fn args_of(pod: &Pod) -> String {
    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}", pod.namespace, pod.name)
}
