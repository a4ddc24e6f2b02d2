//! The gateway's side: decapsulates packets of clients, masquerades and forwards them; returning packets go into the
//! client's tunnel.
//!
//! A gateway's container may change its network, but may neither write kernel parameters nor load programs. So the
//! node's agent runs [`prepare()`] when the pod gets its network, and [`Gateway`] does the rest.
//!
//! It forwards only packets that clients send with their own address. Nothing leaves a tunnel before the rules are in
//! place. A gateway that starts where another one ran takes over without interrupting clients that both know.
//!
//! ```text
//!  gateway's namespace, BPF datapath
//!
//!  anyone ──▶ eth0 ── program: decapsulate ──▶ fou4 ──▶ nftables: if a client, masquerade ──▶ eth0 ──▶ outside
//!  client ◀── eth0 ◀── program: encapsulate ── fou4 ◀── nftables: if to a client ◀── rule: came by eth0 ◀── outside
//! ```
//!
//! The programs and the devices `fou4` and `fou6` belong to the agent. The devices are down until the gateway sets
//! them up.

mod error;
mod prepare;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::client::{self, apply_with_ipv6, check_mtu, observe};
use super::devices;
use super::fou::{self, Ports};
use super::masquerade::{self, Client, Counted, Ways};
use super::plan::address_family;
use super::state::{Observed, Wanted};
use super::{ClientPlan, Family, InvalidPlan, PROTOCOL, SourcePort, WIDE_TABLE};
use crate::causes::chain;
use crate::netns::NetNs;
use crate::policy::Rule;
use crate::socket::{Raw, Request, Socket};
use crate::{ethtool, nft, sysctl};
use tunnels::Tunnels;

pub use error::Error;
pub use prepare::prepare;

/// Priority of the rule that leads returning packets to the tunnels, as in Coil.
const RULE_PRIORITY: u32 = 2000;

/// A gateway's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlan {
    /// The interface of tunnels and of outgoing packets.
    pub interface: String,
    /// The gateway's addresses on it, at most one of each family; clients appear with them.
    pub addresses: Vec<IpAddr>,
    /// The source port of tunnels' packets to clients.
    pub source_port: SourcePort,
}

impl GatewayPlan {
    fn validate(&self) -> Result<(), InvalidPlan> {
        ClientPlan::new(self.interface.clone(), self.addresses.clone()).validate()
    }

    fn families(&self) -> Vec<Family> {
        Family::ALL.into_iter().filter(|family| family.among(&self.addresses).is_some()).collect()
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |family| {
            let rule = Rule::to_table(address_family(family), RULE_PRIORITY, WIDE_TABLE, PROTOCOL);
            Rule { from_interface: Some(self.interface.clone()), ..rule }
        };
        self.families().into_iter().map(rule).collect()
    }

    /// Whether an address can be a client's: the gateway has an address of its family, and it is not the gateway's
    /// own.
    fn can_serve(&self, client: IpAddr) -> bool {
        Family::of(client).among(&self.addresses).is_some_and(|own| own != client)
    }
}

/// A gateway that serves clients. It needs only the right to change its network.
#[derive(Debug)]
pub struct Gateway {
    namespace: NetNs,
    plan: GatewayPlan,
    clients: BTreeSet<IpAddr>,
    unserved: BTreeMap<IpAddr, String>,
    socket: Socket,
    netfilter: Socket<Raw>,
    tunnels: Tunnels,
}

impl Gateway {
    /// Starts to serve `clients`, replacing an earlier gateway.
    pub fn start(
        namespace: NetNs,
        plan: GatewayPlan,
        clients: impl IntoIterator<Item = IpAddr>,
    ) -> Result<Self, Error> {
        plan.validate().map_err(client::Error::from)?;
        namespace
            .run(|| sysctl::enable_forwarding(Some(&plan.interface)))
            .map_err(client::Error::from)?
            .map_err(Error::Forwarding)?;
        let mut socket = namespace.socket().map_err(client::Error::from)?;
        let netfilter = nft::open(&namespace).map_err(client::Error::from)?;
        let observed = observe(&mut socket, &namespace, &plan.interface)?;
        for family in plan.families() {
            check_mtu(family, &observed.interface)?;
        }
        let tunnels = Tunnels::find(&namespace, &observed)?;
        let (index, none, unserved) = (observed.interface.index, BTreeSet::new(), BTreeMap::new());
        let mut gateway = Self { namespace, plan, clients: none, unserved, socket, netfilter, tunnels };
        ethtool::offload_udp_segmentation(&gateway.namespace, index, false).map_err(client::Error::from)?;
        let clients: BTreeSet<IpAddr> = clients.into_iter().collect();
        if gateway.build(clients.clone(), &observed).is_err() {
            gateway.rebuild(BTreeSet::new())?;
            gateway.serve(&clients)?;
        }
        Ok(gateway)
    }

    /// Serves exactly these clients. The change is atomic; if that fails, everything is rebuilt. A client that the
    /// kernel refuses does not affect others ([`Self::unserved`]), and is tried again with the next change.
    pub fn serve(&mut self, clients: &BTreeSet<IpAddr>) -> Result<(), Error> {
        let wanted: BTreeSet<IpAddr> =
            clients.iter().copied().filter(|it| self.plan.can_serve(*it)).collect();
        let is_so = wanted.iter().filter(|it| !self.unserved.contains_key(it)).eq(&self.clients);
        if is_so && self.unserved.keys().all(|it| wanted.contains(it)) {
            return Ok(());
        }
        self.unserved.clear();
        match self.change(&wanted) {
            Ok(()) => {
                self.clients = wanted;
                Ok(())
            }
            Err(_) => match self.rebuild(wanted.clone()) {
                Err(error) => self.serve_each(&wanted, error),
                Ok(()) => Ok(()),
            },
        }
    }

    /// Serves as many of these as the kernel accepts. If it accepts none, there is another reason, which is returned.
    fn serve_each(&mut self, wanted: &BTreeSet<IpAddr>, error: Error) -> Result<(), Error> {
        self.rebuild(self.clients.intersection(wanted).copied().collect())?;
        for client in wanted.difference(&self.clients.clone()).copied() {
            let mut with = self.clients.clone();
            with.insert(client);
            match self.change(&with) {
                Ok(()) => self.clients = with,
                Err(problem) => {
                    self.unserved.insert(client, chain(&problem));
                    // Undoes it.
                    self.rebuild(self.clients.clone())?;
                }
            }
        }
        if self.clients.is_empty() { Err(error) } else { Ok(()) }
    }

    /// Repairs differences. Returns them.
    pub fn repair(&mut self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        if self.counted()?.is_none() {
            found.push(format!("make the nftables table {}", masquerade::TABLE));
        }
        let observed = observe(&mut self.socket, &self.namespace, &self.plan.interface)?;
        let wanted = self.tunnels.wanted(&self.plan, &self.clients, &observed)?;
        found.extend(wanted.difference(&visible(&observed)).iter().map(Request::describe));
        if !found.is_empty() {
            self.build(self.clients.clone(), &observed)?;
        }
        Ok(found)
    }

    /// Its clients.
    pub fn clients(&self) -> &BTreeSet<IpAddr> {
        &self.clients
    }

    /// Clients that the kernel refuses, and why.
    pub fn unserved(&self) -> &BTreeMap<IpAddr, String> {
        &self.unserved
    }

    /// `kernel` or `bpf`.
    pub fn datapath(&self) -> &'static str {
        self.tunnels.datapath()
    }

    /// The device that a client's packets come out of.
    pub fn device(&self, client: IpAddr) -> String {
        self.tunnels.device(client)
    }

    /// The counters of the rules; `None` if somebody removed them.
    pub fn counted(&mut self) -> Result<Option<Counted>, Error> {
        let counted = masquerade::counted(&mut self.netfilter);
        Ok(counted.map_err(client::Error::kernel("read the counters of nftables"))?)
    }

    /// Stops serving: removes everything that it created from the namespace.
    pub fn stop(mut self) -> Result<(), Error> {
        let observed = observe(&mut self.socket, &self.namespace, &self.plan.interface)?;
        let (requests, ports) = match self.tunnels {
            Tunnels::Programs => {
                let wanted = Wanted { devices: tunnels::prepared(&observed)?, ..Wanted::default() };
                let mut requests = wanted.difference(&visible(&observed));
                let pair = observed.links.iter().filter(|link| devices::is_of_pair(link));
                requests.extend(pair.map(|link| devices::lower(link.index)));
                (requests, false)
            }
            Tunnels::Kernel(_) => (Wanted::default().difference(&visible(&observed)), true),
        };
        self.socket.apply(&requests).map_err(client::Error::kernel("remove the tunnels"))?;
        if ports {
            let mut ports = Ports::of(&self.namespace).map_err(client::Error::from)?;
            let close = ports.difference(&[]);
            ports.apply(&close).map_err(fou::Error::from).map_err(client::Error::from)?;
        }
        let removed = masquerade::remove(&mut self.netfilter);
        Ok(removed.map_err(client::Error::kernel("remove the table of nftables"))?)
    }

    fn rebuild(&mut self, clients: BTreeSet<IpAddr>) -> Result<(), Error> {
        let observed = observe(&mut self.socket, &self.namespace, &self.plan.interface)?;
        self.build(clients, &observed)
    }

    /// Creates everything: the rules with all clients at once, then the tunnels.
    fn build(&mut self, clients: BTreeSet<IpAddr>, observed: &Observed) -> Result<(), Error> {
        let clients = clients.into_iter().filter(|client| self.plan.can_serve(*client)).collect();
        let wanted = self.tunnels.wanted(&self.plan, &clients, observed)?;
        let ways = match self.tunnels {
            Tunnels::Programs => {
                let index = |family: usize| wanted.devices.get(family).map_or(0, |device| device.index);
                Ways::Devices([index(0), index(1)])
            }
            Tunnels::Kernel(_) => Ways::PerClient,
        };
        let listed: Vec<Client> = clients.iter().map(|client| self.tunnels.client(*client)).collect();
        let (own, interface) = (&self.plan.addresses, observed.interface.index);
        masquerade::masquerade(&mut self.netfilter, interface, own, ways, &listed)
            .map_err(client::Error::kernel("masquerade"))?;
        if let Tunnels::Kernel(_) = self.tunnels {
            let mut ports = Ports::of(&self.namespace).map_err(client::Error::from)?;
            let open = ports.difference(&self.plan.families());
            ports.apply(&open).map_err(fou::Error::from).map_err(client::Error::from)?;
        }
        let requests = wanted.difference(&visible(observed));
        apply_with_ipv6(&mut self.socket, &self.namespace, &requests)?;
        self.clients = clients;
        Ok(())
    }

    /// Applies the difference between its clients and these.
    fn change(&mut self, wanted: &BTreeSet<IpAddr>) -> Result<(), client::Error> {
        let gone: Vec<IpAddr> = self.clients.difference(wanted).copied().collect();
        let came: Vec<IpAddr> = wanted.difference(&self.clients).copied().collect();
        let removed: Vec<Client> = gone.iter().map(|client| self.tunnels.client(*client)).collect();
        let mut requests = Vec::new();
        if let Tunnels::Kernel(tunnels) = &mut self.tunnels {
            // Additions first, because the kernel takes its time to delete: removed clients are not served, whatever
            // devices exist.
            requests.extend(came.iter().flat_map(|client| tunnels.add(&self.plan, *client)));
            requests.extend(tunnels.remove(&self.plan, &gone));
        }
        let added: Vec<Client> = came.iter().map(|client| self.tunnels.client(*client)).collect();
        masquerade::change_clients(&mut self.netfilter, &added, &removed)
            .map_err(client::Error::kernel("change the list of clients"))?;
        apply_with_ipv6(&mut self.socket, &self.namespace, &requests)
    }
}

/// What a gateway maintains; programs belong to the agent.
fn visible(observed: &Observed) -> Observed {
    Observed { filters: Vec::new(), ..observed.clone() }
}
