//! The parts of the demo: the embedded API on a socket, the controller, an Ethernet segment, and hosts on it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tenure_handles::{Clock, SystemClock, SystemEntropy};
use tenure_linux::netns::NetNs;
use tenure_linux::segment::Segment;
use tenure_localapi::{LocalApi, Server};

use super::cloud::Cloud;
use super::host::{Host, NETWORK, Pod, UPLINK};
use super::programs::{Programs, start_daemon};
use super::scenes::HOSTS;
use crate::query::Source;

/// Much longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(2);

/// All parts.
pub(crate) struct Lab {
    pub(crate) client: Client,
    pub(crate) hosts: Vec<Host>,
    pub(crate) cloud: Cloud,
    api: PathBuf,
    programs: Programs,
    directory: PathBuf,
    segment: Segment,
    /// Both run until the demo ends.
    _serving: Server,
    _controller: Child,
}

impl Lab {
    /// The API with our kinds, and the controller.
    pub(crate) async fn open(directory: &Path, programs: Programs, entropy: SystemEntropy) -> Result<Self> {
        let local = LocalApi::temporary(SystemClock, entropy);
        let client = local.client();
        let definitions = Api::all(client.clone());
        for definition in tenure_api::crds() {
            definitions.create(&PostParams::default(), &definition).await.context("cannot install a kind")?;
        }
        // Nobody else can reach it: only its owner can open the directory.
        let api = directory.join("api.sock");
        let serving = Server::unix(local, &api).await.context("cannot serve the API")?;
        let mut segment = Segment::make()?;
        let machines: Vec<_> = HOSTS.into_iter().zip((1..).map(host_address)).collect();
        let cloud = Cloud::start(&mut segment, &machines)?;
        let mut command = Command::new(&programs.controller);
        let log = directory.join("controller");
        fs::create_dir_all(&log).context("cannot make the controller's directory")?;
        // Nobody pulls the image of gateways here: the demo starts their program.
        let command =
            command.args(["--cluster-network", NETWORK, "--egress-image", "demo", "--api-socket"]).arg(&api);
        let command = command.args(["--cloud", "gcp", "--cloud-endpoint", &cloud.compute()]);
        let command = command.args(["--metadata-host", &cloud.metadata]);
        let controller = start_daemon(command, &cloud.namespace, &log.join("log"))?;
        Ok(Self {
            client,
            hosts: Vec::new(),
            cloud,
            api,
            programs,
            directory: directory.to_owned(),
            segment,
            _serving: serving,
            _controller: controller,
        })
    }

    /// Adds a host, and its node to the API.
    pub(crate) async fn add_host(&mut self, name: &str) -> Result<()> {
        let number = u8::try_from(self.hosts.len() + 1).context("there are too many hosts")?;
        let v4 = host_address(number);
        let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()));
        let addresses = [IpNet::new(v4, 24)?, IpNet::new(v6, 64)?];
        let host = Host::make(name, addresses, &mut self.segment, &self.directory, &self.programs)?;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let spec = json!({"providerID": Cloud::provider_id(name)});
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        nodes.create(&PostParams::default(), &node).await.context("cannot create a Node")?;
        let address = |address: IpAddr| json!({"type": "InternalIP", "address": address});
        let status = json!({"status": {"addresses": [address(v4), address(v6)]}});
        let patched = nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        patched.context("cannot write a Node's status")?;
        self.hosts.push(host);
        Ok(())
    }

    /// Starts the agents of these hosts at once; returns how long each took until it answered.
    pub(crate) fn start_agents(&mut self, which: &[usize]) -> Result<BTreeMap<usize, Duration>> {
        let began = SystemClock.elapsed();
        for host in which {
            self.hosts[*host].start_agent(&self.api, &self.cloud.metadata)?;
        }
        let mut ready = BTreeMap::new();
        until("the agents to answer", || {
            for host in which {
                if !ready.contains_key(host) && self.hosts[*host].is_answering()? {
                    ready.insert(*host, SystemClock.elapsed().saturating_sub(began));
                }
            }
            Ok(ready.len() == which.len())
        })?;
        Ok(ready)
    }

    /// Connects somebody else to the hosts' Ethernet.
    pub(crate) fn connect(&mut self, namespace: &NetNs, addresses: &[IpNet]) -> Result<()> {
        Ok(self.segment.connect(namespace, UPLINK, addresses)?)
    }

    /// Starts the program of an egress gateway in its pod.
    pub(crate) fn start_gateway(&self, pod: &Pod, egress: &str) -> Result<Child> {
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&self.programs.gateway);
        let command = command.args(["--pod-namespace", &pod.kubernetes_namespace, "--egress-name", egress]);
        let command = command.args(["--pod-name", &pod.name, "--pod-addresses", &addresses.join(",")]);
        let command = command.arg("--api-socket").arg(&self.api);
        let log = self.directory.join(&pod.name);
        fs::create_dir_all(&log).context("cannot make the gateway's directory")?;
        start_daemon(command, &pod.namespace, &log.join("log"))
    }

    /// Changes the network's configuration so that claims keep its addresses.
    pub(crate) fn let_addresses_outlive_pods(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.opted_in = true);
    }

    /// The source that the other verbs of this program would use.
    pub(crate) fn source(&self) -> Source {
        let sockets = self.hosts.iter().map(|host| (host.name.clone(), host.state_socket()));
        Source::of_hosts(self.client.clone(), sockets.collect())
    }
}

/// The IPv4 address of a host.
fn host_address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
}

/// Waits for something that must happen.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = SystemClock.elapsed();
    while !there()? {
        if SystemClock.elapsed().saturating_sub(began) > PATIENCE {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The same for an asynchronous condition.
pub(crate) async fn until_async(what: &str, mut there: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = SystemClock.elapsed();
    while !there().await? {
        if SystemClock.elapsed().saturating_sub(began) > PATIENCE {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The ends of all logs, to find out what went wrong.
pub(crate) fn last_words(directory: &Path) -> String {
    const SHOWN: usize = 8;
    let mut words = String::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let log = fs::read_to_string(entry.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        if !lines.is_empty() {
            let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
            // Writing to a string does not fail.
            let _ = write!(words, "--- end of the log of {} ---\n{last}\n", entry.file_name().display());
        }
    }
    words
}
