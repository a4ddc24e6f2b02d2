//! A node and its pods, each in a namespace of its own.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tenure_linux::netns::NetNs;
use tenure_linux::pod::{self, Identity, PodPlan, Wired};
use tenure_linux::{Host, Settings};
use tenure_testbed::hosts::{self, Mounts, NetworkNamespace, Port, Segment};
use tenure_testbed::wait::PATIENCE;

pub type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Long enough for an answer to arrive that must not.
pub const A_MOMENT: Duration = Duration::from_millis(300);
pub const NODE_V4: &str = "192.0.2.1";
pub const NODE_V6: &str = "2001:db8::1";

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A node with an uplink, prepared to carry pods' traffic.
pub struct Node {
    pub host: Host,
    pub bed: hosts::Host,
    _uplink: (Segment, Port),
}

impl Node {
    pub fn new(name: &str) -> Result<Self> {
        let mut node = Self::unprepared(name)?;
        node.host.prepare()?;
        Ok(node)
    }

    pub fn unprepared(name: &str) -> Result<Self> {
        let bed = hosts::Host::new(name)?;
        let wire = Segment::new("wire")?;
        let port = wire.connect(&bed, "uplink", &[&format!("{NODE_V4}/24"), &format!("{NODE_V6}/64")])?;
        bed.route("default", ip("192.0.2.254"))?;
        // The kernel takes a moment until it accepts packets for the address that it has.
        bed.ping(ip(NODE_V6), PATIENCE)?;
        let host = Host::of(NetNs::open(bed.namespace().path())?, Settings::default())?;
        Ok(Self { host, bed, _uplink: (wire, port) })
    }

    /// A second pair of hands on the same node.
    pub fn another(&self) -> Host {
        Host::of(NetNs::open(self.bed.namespace().path()).unwrap(), Settings::default()).unwrap()
    }

    /// Sets up an interface for a new pod.
    pub fn pod(&mut self, name: &str, addresses: &[&str]) -> Result<Pod> {
        let mut pod = Pod::new(name, addresses)?;
        pod.wired = Some(self.set_up(&pod)?);
        Ok(pod)
    }

    pub fn set_up(&mut self, pod: &Pod) -> Result<Wired> {
        Ok(pod::setup(&mut self.host, &pod.namespace, &pod.plan)?)
    }

    /// The lines of `ip -json ARGS`.
    pub fn ip(&self, args: &[&str]) -> Vec<serde_json::Value> {
        self.bed.namespace().ip_json(args).unwrap().as_array().unwrap().clone()
    }

    /// Names of all links.
    pub fn links(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .ip(&["link", "show"])
            .iter()
            .map(|link| link["ifname"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// Destinations in a table, of both families.
    pub fn table(&self, id: u32) -> Vec<String> {
        let id = id.to_string();
        let mut found: Vec<String> = ["-4", "-6"]
            .into_iter()
            .flat_map(|family| {
                match self.bed.namespace().ip_json(&[family, "route", "show", "table", &id]) {
                    Ok(routes) => routes.as_array().unwrap().clone(),
                    // "FIB table does not exist": nothing was ever in it.
                    Err(_) => Vec::new(),
                }
            })
            .map(|route| route["dst"].as_str().unwrap().to_owned())
            .collect();
        found.sort();
        found
    }
}

/// A pod: a namespace as a runtime makes it, untouched, with duplicate address detection on.
pub struct Pod {
    pub namespace: NetNs,
    pub bed: hosts::Host,
    pub plan: PodPlan,
    pub wired: Option<Wired>,
}

impl Pod {
    pub fn new(name: &str, addresses: &[&str]) -> Result<Self> {
        let namespace = NetNs::make()?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()));
        let bed = hosts::Host::in_namespace(NetworkNamespace::open(name, &path)?, Mounts::default());
        let addresses = addresses.iter().map(|address| ip(address)).collect();
        Ok(Self { namespace, bed, plan: PodPlan::new(identity(name), addresses, 1450), wired: None })
    }

    pub fn wired(&self) -> &Wired {
        self.wired.as_ref().unwrap()
    }

    pub fn has_interface(&self) -> bool {
        self.bed.namespace().ip_json(&["link", "show", "eth0"]).is_ok()
    }
}

pub fn identity(name: &str) -> Identity {
    Identity {
        container: format!("{name}-sandbox"),
        interface: "eth0".into(),
        network: "k8s".into(),
        namespace: "shop".into(),
        pod: name.into(),
    }
}
