//! A gateway's tunnels: the devices that the agent prepared for all clients, or one kernel tunnel for each client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::client;
use super::super::devices::{self, Device, Tunnel};
use super::super::encapsulate::router;
use super::super::fou::{self, Ports};
use super::super::masquerade::Client;
use super::super::places::Places;
use super::super::state::{Observed, Wanted};
use super::super::{Family, PROTOCOL, WIDE_TABLE};
use super::{Error, GatewayPlan};
use crate::link::Link;
use crate::netns::NetNs;
use crate::route::Route;
use crate::socket::Request;

/// How clients' packets leave their tunnels.
#[derive(Debug)]
pub(super) enum Tunnels {
    /// With the devices and programs that the agent prepared.
    Programs,
    /// With the kernel's own tunnels.
    Kernel(Box<KernelTunnels>),
}

/// The kernel's own tunnels: a device for each client.
#[derive(Debug)]
pub(super) struct KernelTunnels {
    interface: Link,
    devices: BTreeMap<IpAddr, Device>,
    places: Places,
}

impl Tunnels {
    /// What was prepared here.
    pub(super) fn find(namespace: &NetNs, observed: &Observed) -> Result<Self, Error> {
        if devices::found_pair(&observed.links).is_some() {
            return Ok(Self::Programs);
        }
        match Ports::of(namespace) {
            Ok(_) => Ok(Self::Kernel(Box::new(KernelTunnels {
                interface: observed.interface.clone(),
                devices: BTreeMap::new(),
                places: Places::default(),
            }))),
            Err(fou::Error::NoModule) => Err(Error::NotPrepared),
            Err(error) => Err(client::Error::from(error).into()),
        }
    }

    pub(super) fn datapath(&self) -> &'static str {
        match self {
            Self::Programs => "bpf",
            Self::Kernel(_) => "kernel",
        }
    }

    pub(super) fn device(&self, client: IpAddr) -> String {
        match self {
            Self::Programs => devices::name_of_pair(Family::of(client)).to_owned(),
            Self::Kernel(tunnels) => {
                tunnels.devices.get(&client).map_or_else(String::new, |device| device.name.clone())
            }
        }
    }

    /// A client in the terms of the rules.
    pub(super) fn client(&self, address: IpAddr) -> Client {
        let device = match self {
            Self::Programs => None,
            Self::Kernel(tunnels) => tunnels.devices.get(&address).map(|device| device.index),
        };
        Client { address, device }
    }

    /// The desired state of the namespace for these clients.
    pub(super) fn wanted(
        &mut self,
        plan: &GatewayPlan,
        clients: &BTreeSet<IpAddr>,
        observed: &Observed,
    ) -> Result<Wanted, Error> {
        match self {
            Self::Programs => by_programs(plan, observed),
            Self::Kernel(tunnels) => Ok(tunnels.wanted(plan, clients, observed)),
        }
    }
}

impl KernelTunnels {
    fn wanted(&mut self, plan: &GatewayPlan, clients: &BTreeSet<IpAddr>, observed: &Observed) -> Wanted {
        self.interface = observed.interface.clone();
        self.devices.clear();
        self.places = Places::of(&observed.links);
        let mut wanted = Wanted { rules: plan.rules(), ..Wanted::default() };
        for client in clients {
            if let Some((device, route)) = self.plan(plan, *client) {
                wanted.devices.push(device);
                wanted.routes.insert(route);
            }
        }
        wanted
    }

    /// The requests that create a client's tunnel.
    pub(super) fn add(&mut self, plan: &GatewayPlan, client: IpAddr) -> Vec<Request> {
        let Some((device, route)) = self.plan(plan, client) else { return Vec::new() };
        device.difference(None).into_iter().chain([route.put()]).collect()
    }

    /// Forgets clients' tunnels. Returns the requests that remove them.
    pub(super) fn remove(&mut self, plan: &GatewayPlan, clients: &[IpAddr]) -> Vec<Request> {
        let mut removed = Vec::new();
        for client in clients {
            let Some(device) = self.devices.remove(client) else { continue };
            removed.push(device.index);
            if let Some(tunnel) = tunnel(plan, *client) {
                self.places.forget(&tunnel);
            }
        }
        devices::delete(removed)
    }

    /// A client's device and the route to it.
    fn plan(&mut self, plan: &GatewayPlan, client: IpAddr) -> Option<(Device, Route)> {
        let device = tunnel(plan, client)?.device(&self.interface, &mut self.places);
        let route = Route::on_link(IpNet::from(client), device.index, WIDE_TABLE, PROTOCOL);
        self.devices.insert(client, device.clone());
        Some((device, route))
    }
}

/// The tunnel to a client.
fn tunnel(plan: &GatewayPlan, client: IpAddr) -> Option<Tunnel> {
    let local = Family::of(client).among(&plan.addresses)?;
    Some(Tunnel { local, remote: Some(client), port: plan.source_port })
}

/// The devices that the agent created, up.
pub(super) fn prepared(observed: &Observed) -> Result<Vec<Device>, Error> {
    let pair = devices::found_pair(&observed.links).ok_or(Error::NotPrepared)?;
    Ok(pair.map(Device::raised).to_vec())
}

/// One route for all clients, to a router that only encodes the source port: the program looks at the inner packet.
fn by_programs(plan: &GatewayPlan, observed: &Observed) -> Result<Wanted, Error> {
    let devices = prepared(observed)?;
    let mut wanted = Wanted { rules: plan.rules(), ..Wanted::default() };
    for (family, device) in Family::ALL.into_iter().zip(&devices) {
        if family.among(&plan.addresses).is_none() {
            continue;
        }
        let (address, all): (IpAddr, IpNet) = match family {
            Family::V4 => (Ipv4Addr::new(169, 254, 117, 1).into(), Ipv4Net::default().into()),
            Family::V6 => (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x117, 1).into(), Ipv6Net::default().into()),
        };
        wanted.neighbours.push((device.index, address, router(plan.source_port)));
        let route = Route::on_link(all, device.index, WIDE_TABLE, PROTOCOL);
        wanted.routes.insert(Route { gateway: Some(address), ..route });
    }
    wanted.devices = devices;
    Ok(wanted)
}
