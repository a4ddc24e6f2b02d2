//! A client, a gateway, a router and the world outside, each in a namespace, around a node that stands for the network
//! between them and for kube-proxy.
//!
//! ```text
//!  client 10.2.0.7, fd02::7 ──┐      ┌── gateway 10.3.0.9, fd03::9: egress
//!                             │      ├── router  10.4.0.9, fd04::9: masquerades, without tunnels
//!                             node ──┘
//!                               └── outside: at its first address by egress, at its second directly, at its third by
//!                                   the router
//! ```
//!
//! All ways are open at the same time, and only the address that a client asks for tells them apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::PoisonError;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use tenure_linux::egress::gateway::{self, Gateway, GatewayPlan};
use tenure_linux::egress::{ClientPlan, Datapath, Egress, SourcePort, client};
use tenure_linux::netns::NetNs;
use tenure_testbed::hosts::{Host, link};

use super::echo::Echo;

/// How many families there are.
pub(super) const FAMILIES: usize = 2;
const CLIENT: [IpAddr; FAMILIES] = both([10, 2, 0, 7], [0xfd02, 0, 0, 0, 0, 0, 0, 7]);
const GATEWAY: [IpAddr; FAMILIES] = both([10, 3, 0, 9], [0xfd03, 0, 0, 0, 0, 0, 0, 9]);
const ROUTER: [IpAddr; FAMILIES] = both([10, 4, 0, 9], [0xfd04, 0, 0, 0, 0, 0, 0, 9]);
/// The gateway's Service.
pub(super) const SERVICE: [IpAddr; FAMILIES] = both([10, 96, 0, 7], [0xfd96, 0, 0, 0, 0, 0, 0, 7]);

/// How much both ends keep of a flow at most: enough for ways as short as these, and little enough that the threads of many
/// flows take turns often.
const BUFFERS: [(&str, &str); 2] = [("tcp_rmem", "4096 131072 524288"), ("tcp_wmem", "4096 16384 262144")];

/// An address of each family.
pub(super) const fn both(v4: [u8; 4], v6: [u16; 8]) -> [IpAddr; FAMILIES] {
    let v4 = Ipv4Addr::from_octets(v4);
    [IpAddr::V4(v4), IpAddr::V6(Ipv6Addr::from_segments(v6))]
}

/// From the client to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the gateway.
    Egress,
    /// Over the node alone.
    Plain,
    /// Through the router.
    Router,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Egress, Self::Plain, Self::Router];

    /// Where the outside is found by it.
    fn outside(self) -> [IpAddr; FAMILIES] {
        let last = self as u8 + 1;
        both([198, 51, 100, last], [0x2001, 0xdb8, 0x99, 0, 0, 0, 0, u16::from(last)])
    }

    /// As whom the client is seen there.
    fn seen(self) -> [IpAddr; FAMILIES] {
        match self {
            Self::Egress => GATEWAY,
            Self::Plain => CLIENT,
            Self::Router => ROUTER,
        }
    }
}

/// Hosts that are connected.
pub(super) struct Bed {
    echoes: Vec<(Way, Vec<Echo>)>,
    pub(super) client: Host,
    gateway: Host,
    _others: [Host; 3],
}

impl Bed {
    /// Without egress.
    pub(super) fn new() -> Result<Self> {
        let (node, client) = (Host::new("node")?, Host::new("client")?);
        let (gateway, router, outside) = (Host::new("gateway")?, Host::new("router")?, Host::new("outside")?);
        node.forward()?;
        router.forward()?;
        for (host, name, number, last) in [(&client, "c", 2, 7), (&gateway, "g", 3, 9), (&router, "r", 4, 9)]
        {
            let ends = |last: u8| [format!("10.{number}.0.{last}/24"), format!("fd0{number}::{last}/64")];
            let (theirs, ours) = (ends(last), ends(1));
            link(
                (host, "eth0", &theirs.each_ref().map(String::as_str)),
                (&node, name, &ours.each_ref().map(String::as_str)),
            )?;
            host.ip(&format!(
                "route add default via 10.{number}.0.1\nroute add default via fd0{number}::1\n"
            ))?;
            know_router(host, (&node, name), number)?;
        }
        let addresses: Vec<String> = Way::ALL
            .iter()
            .flat_map(|way| way.outside())
            .map(|address| format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 }))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        link((&outside, "eth0", &addresses), (&node, "o", &["198.51.100.254/24", "2001:db8:99::fe/64"]))?;
        outside.ip("route add default via 198.51.100.254\nroute add default via 2001:db8:99::fe\n")?;
        for host in [&client, &outside] {
            for (key, value) in BUFFERS {
                host.sysctl(&format!("net.ipv4.{key}"), value)?;
            }
        }
        lead_to_router(&node, &router)?;
        lead_to_gateway(&node)?;
        let mut echoes = Vec::new();
        for way in Way::ALL {
            let here = way.outside().into_iter().map(|address| Echo::start(&outside, address));
            echoes.push((way, here.collect::<Result<_>>()?));
        }
        Ok(Self { echoes, client, gateway, _others: [node, router, outside] })
    }

    /// Makes the client a client.
    pub(super) fn connect(&self, datapath: &mut Datapath) -> Result<()> {
        let namespace = NetNs::open(self.client.namespace().path())?;
        client::apply(&namespace, datapath, &plan(CLIENT, &Way::Egress.outside().map(IpNet::from)))?;
        Ok(())
    }

    /// Does for the gateway what the node's agent does.
    pub(super) fn prepare(&self, datapath: &mut Datapath) -> Result<()> {
        gateway::prepare(&self.gateway_namespace()?, datapath, "eth0", &GATEWAY)?;
        Ok(())
    }

    /// Starts the gateway, for the bed's client and these.
    pub(super) fn serve(&self, others: &[IpAddr]) -> Result<Gateway> {
        let source_port = SourcePort::default();
        let plan = GatewayPlan { interface: "eth0".into(), addresses: GATEWAY.to_vec(), source_port };
        let clients = CLIENT.into_iter().chain(others.iter().copied());
        Ok(Gateway::start(self.gateway_namespace()?, plan, clients)?)
    }

    fn gateway_namespace(&self) -> Result<NetNs> {
        Ok(NetNs::open(self.gateway.namespace().path())?)
    }

    /// The address that is answered at by a way, in a family.
    pub(super) fn target(&self, way: Way, family: usize) -> Result<(SocketAddr, &Echo)> {
        let echoes = self.echoes.iter().find(|(of, _)| *of == way).map(|(_, echoes)| echoes);
        let echo = echoes.and_then(|echoes| echoes.get(family)).context("there is such a way")?;
        Ok((echo.address, echo))
    }

    /// Checks that whoever was asked by a way saw who goes that way, and nobody else.
    pub(super) fn check(&self, way: Way, family: usize) -> Result<()> {
        let (address, echo) = self.target(way, family)?;
        let seen = echo.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = way.seen()[family];
        ensure!(seen.iter().eq([&expected]), "{address} was asked by {seen:?}, and not by {expected} alone");
        Ok(())
    }
}

/// A plan of a client with one Egress.
pub(super) fn plan(addresses: [IpAddr; FAMILIES], destinations: &[IpNet]) -> ClientPlan {
    let egress = Egress {
        services: SERVICE.to_vec(),
        destinations: destinations.to_vec(),
        source_port: SourcePort::default(),
        originating_only: false,
    };
    ClientPlan { egresses: vec![egress], ..ClientPlan::new("eth0", addresses.to_vec()) }
}

/// Gives a host routes and neighbours as pods of this product have them: everybody is behind a router whose Ethernet address
/// never changes.
fn know_router(host: &Host, (node, end): (&Host, &str), number: u8) -> Result<()> {
    let links = node.namespace().ip_json(&["link", "show", "dev", end])?;
    let mac = links[0]["address"].as_str().context("a link has an Ethernet address")?;
    let (v4, v6) = (format!("10.{number}.0"), format!("fd0{number}::"));
    for (router, network) in
        [(format!("{v4}.1"), format!("{v4}.0/24")), (format!("{v6}1"), format!("{v6}/64"))]
    {
        host.ip(&format!("neighbour replace {router} lladdr {mac} dev eth0 nud permanent"))?;
        host.ip(&format!("route add {router} dev eth0"))?;
        host.ip(&format!("route delete {network} dev eth0"))?;
    }
    Ok(())
}

/// Has what is for the outside's third address go through the router, which masquerades it.
fn lead_to_router(node: &Host, router: &Host) -> Result<()> {
    for (address, via) in Way::Router.outside().into_iter().zip(ROUTER) {
        let family = if address.is_ipv4() { "-4" } else { "-6" };
        for words in [
            format!("{family} rule add iif c to {address} lookup 100"),
            format!("{family} route add default via {via} table 100"),
        ] {
            run(node, "ip", &words.split(' ').collect::<Vec<_>>())?;
        }
    }
    // What comes in leaves by the same interface, which a router would tell the sender.
    for interface in ["all", "eth0"] {
        router.sysctl(&format!("net.ipv4.conf.{interface}.send_redirects"), "0")?;
    }
    run(
        router,
        "nft",
        &["add table inet nat; add chain inet nat post { type nat hook postrouting priority srcnat; }; \
           add rule inet nat post oifname eth0 masquerade"],
    )
}

/// Leads packets for the Service to the gateway, as kube-proxy does.
fn lead_to_gateway(node: &Host) -> Result<()> {
    let ([s4, s6], [g4, g6]) = (SERVICE, GATEWAY);
    let rules = format!(
        "add table inet proxy; add chain inet proxy pre {{ type nat hook prerouting priority dstnat; }}; \
         add rule inet proxy pre ip daddr {s4} udp dport 5555 dnat ip to {g4}; \
         add rule inet proxy pre ip6 daddr {s6} udp dport 5555 dnat ip6 to {g6}"
    );
    run(node, "nft", &[&rules])
}

fn run(host: &Host, program: &str, arguments: &[&str]) -> Result<()> {
    let output = host.run(|| Command::new(program).args(arguments).output())?;
    let output = output.with_context(|| format!("run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
