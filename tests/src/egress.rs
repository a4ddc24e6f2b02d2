//! A bed for egress: a client, a gateway and somebody outside, each in a namespace, around a node that stands for the
//! network between them and for kube-proxy.
//!
//! ```text
//!  client 10.2.0.7, fd02::7 ──┐                    ┌── gateway 10.3.0.9, fd03::9
//!                             node: DNAT of 10.96.0.7 and fd96::7, port 5555, to the gateway
//!                                    └── outside 198.51.100.1, 2001:db8:99::1, which knows no way to the client
//! ```
//!
//! It runs on the machine's own kernel, and by `bed-egress` in a virtual machine with another one.

pub mod coil;
pub mod inside;
pub mod scenarios;
pub mod traffic;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tenure_linux::egress::gateway::{self, Gateway, GatewayPlan};
use tenure_linux::egress::{ClientPlan, Datapath, Egress, SourcePort, client};
use tenure_linux::netns::NetNs;
use tenure_testbed::hosts::{Host, link};

pub const CLIENT: [&str; 2] = ["10.2.0.7", "fd02::7"];
pub const GATEWAY: [&str; 2] = ["10.3.0.9", "fd03::9"];
pub const SERVICE: [&str; 2] = ["10.96.0.7", "fd96::7"];
pub const OUTSIDE: [&str; 2] = ["198.51.100.1", "2001:db8:99::1"];
/// What the links between them take.
pub const MTU: u32 = 1500;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn both(texts: [&str; 2]) -> Vec<IpAddr> {
    texts.map(ip).to_vec()
}

/// Hosts that are connected, without egress.
pub struct Bed {
    pub node: Host,
    pub client: Host,
    pub gateway: Host,
    pub outside: Host,
}

impl Bed {
    pub fn new() -> Result<Self> {
        let (node, client) = (Host::new("node")?, Host::new("client")?);
        let (gateway, outside) = (Host::new("gateway")?, Host::new("outside")?);
        node.forward()?;
        link(
            (&client, "eth0", &["10.2.0.7/24", "fd02::7/64"]),
            (&node, "c", &["10.2.0.1/24", "fd02::1/64"]),
        )?;
        link(
            (&gateway, "eth0", &["10.3.0.9/24", "fd03::9/64"]),
            (&node, "g", &["10.3.0.1/24", "fd03::1/64"]),
        )?;
        link(
            (&outside, "eth0", &["198.51.100.1/24", "2001:db8:99::1/64"]),
            (&node, "o", &["198.51.100.254/24", "2001:db8:99::fe/64"]),
        )?;
        for (host, v4, v6) in [(&client, "10.2.0.1", "fd02::1"), (&gateway, "10.3.0.1", "fd03::1")] {
            host.route("default", ip(v4))?;
            host.route("default", ip(v6))?;
        }
        outside.route("10.3.0.0/24", ip("198.51.100.254"))?;
        outside.route("fd03::/64", ip("2001:db8:99::fe"))?;
        let bed = Self { node, client, gateway, outside };
        bed.proxy(GATEWAY)?;
        Ok(bed)
    }

    /// Leads packets for the Service to this gateway, as kube-proxy does.
    pub fn proxy(&self, gateway: [&str; 2]) -> Result<()> {
        proxy(&self.node, &both(SERVICE), &both(gateway))
    }

    /// Gives client and gateway routes and neighbours as pods of this product have them: everybody is behind a router whose
    /// Ethernet address never changes.
    pub fn know_routers(&self) -> Result<()> {
        for (host, end, number) in [(&self.client, "c", 2), (&self.gateway, "g", 3)] {
            let links = self.node.namespace().ip_json(&["link", "show", "dev", end])?;
            let mac = links[0]["address"].as_str().context("a link has an Ethernet address")?;
            let (v4, v6) = (format!("10.{number}.0"), format!("fd0{number}::"));
            for (router, network) in
                [(format!("{v4}.1"), format!("{v4}.0/24")), (format!("{v6}1"), format!("{v6}/64"))]
            {
                host.ip(&format!("neighbour replace {router} lladdr {mac} dev eth0 nud permanent"))?;
                host.ip(&format!("route add {router} dev eth0"))?;
                host.ip(&format!("route delete {network} dev eth0"))?;
            }
        }
        Ok(())
    }

    pub fn client_namespace(&self) -> Result<NetNs> {
        Ok(NetNs::open(self.client.namespace().path())?)
    }

    /// A plan for the client that leads everything through the Service.
    pub fn plan(port: SourcePort) -> ClientPlan {
        let egress = Egress {
            services: both(SERVICE),
            destinations: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            source_port: port,
            originating_only: false,
        };
        ClientPlan { egresses: vec![egress], ..ClientPlan::new("eth0", both(CLIENT)) }
    }

    /// Makes the client a client. Says what was changed.
    pub fn connect(&self, datapath: &mut Datapath, plan: &ClientPlan) -> Result<Vec<String>> {
        Ok(client::apply(&self.client_namespace()?, datapath, plan)?)
    }

    pub fn gateway_namespace(&self) -> Result<NetNs> {
        Ok(NetNs::open(self.gateway.namespace().path())?)
    }

    /// Prepares the gateway's namespace, as the node's agent does. Says what was changed.
    pub fn prepare(&self, datapath: &mut Datapath) -> Result<Vec<String>> {
        Ok(gateway::prepare(&self.gateway_namespace()?, datapath, "eth0", &both(GATEWAY))?)
    }

    /// Prepares and starts the gateway, for these clients.
    pub fn serve(&self, datapath: &mut Datapath, port: SourcePort, clients: &[IpAddr]) -> Result<Gateway> {
        self.prepare(datapath)?;
        let plan = GatewayPlan { interface: "eth0".into(), addresses: both(GATEWAY), source_port: port };
        Ok(Gateway::start(self.gateway_namespace()?, plan, clients.iter().copied())?)
    }
}

/// Leads packets for a Service to a gateway on a node, as kube-proxy does; what it led elsewhere before is forgotten.
pub fn proxy(node: &Host, service: &[IpAddr], gateway: &[IpAddr]) -> Result<()> {
    let mut rules =
        "add table inet proxy; add chain inet proxy pre { type nat hook prerouting priority dstnat; }; \
         add chain inet proxy post { type nat hook postrouting priority srcnat; }; flush chain inet proxy pre"
            .to_owned();
    for (service, gateway) in service.iter().zip(gateway) {
        let family = if service.is_ipv4() { "ip" } else { "ip6" };
        let matched = format!("{family} daddr {service} udp dport 5555");
        let _ = write!(rules, "; add rule inet proxy pre {matched} dnat {family} to {gateway}");
    }
    let output = node.run(|| Command::new("nft").arg(&rules).output())?.context("run nft")?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A datapath by its name.
pub fn datapath(name: &str) -> Result<Datapath> {
    Ok(match name {
        "kernel" => Datapath::kernel()?,
        "bpf" => Datapath::bpf()?,
        _ => Datapath::detect()?,
    })
}
