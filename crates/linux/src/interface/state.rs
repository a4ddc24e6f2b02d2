//! The state of an interface, as the kernel lists it.

use std::collections::BTreeSet;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};

use super::MARK;
use crate::Mac;
use crate::host::Host;
use crate::link::{Link, LinkKind};
use crate::route::{self, Filter, Route};
use crate::socket::{Answer, Error, Socket};

/// Every table.
const ANY_TABLE: u32 = 0;
/// The kernel's own routes to local addresses.
const LOCAL_TABLE: u32 = 255;

/// What an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Whether it is set up.
    pub up: bool,
    /// Whether the link has a carrier.
    pub carrier: bool,
    /// Its MTU.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
    /// The routes through it that the kernel did not create itself.
    pub routes: Vec<InterfaceRoute>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address with the length of its network's prefix.
    pub address: IpNet,
    /// Whether it carries our mark.
    pub ours: bool,
    /// Whether it is a secondary address.
    pub secondary: bool,
    /// Whether somebody else on the segment has it, as far as the kernel knows.
    pub detection: Detection,
    /// For how many seconds it is valid, if limited: an address from DHCP or a router advertisement.
    pub leased: Option<u32>,
    /// Whether it is valid beyond this link.
    pub global: bool,
    /// The whole message, to restore it.
    pub(super) message: AddressMessage,
}

/// The result of IPv6 duplicate address detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Nobody else has the address, or there was no check.
    Passed,
    /// The check is still running.
    Running,
    /// Somebody else has it.
    Failed,
}

/// A route through an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRoute {
    /// The route.
    pub route: Route,
    /// Whether it carries our mark.
    pub ours: bool,
    /// The whole message, to restore it.
    pub(super) message: RouteMessage,
}

impl InterfaceState {
    /// Exactly this address.
    pub fn address(&self, address: IpNet) -> Option<&InterfaceAddress> {
        self.addresses.iter().find(|it| it.address == address)
    }

    /// Whether it has this address, with any prefix length.
    pub fn has_ip(&self, ip: std::net::IpAddr) -> bool {
        self.addresses.iter().any(|it| it.address.addr() == ip)
    }
}

impl InterfaceAddress {
    pub(super) fn read(message: AddressMessage) -> Option<Self> {
        let mut address = None;
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        let (mut ours, mut valid) = (false, 0);
        for attribute in &message.attributes {
            match attribute {
                // On a point-to-point link `Address` is the other end's.
                AddressAttribute::Local(local) => address = Some(*local),
                AddressAttribute::Address(other) => address = address.or(Some(*other)),
                AddressAttribute::Flags(all) => flags = *all,
                AddressAttribute::CacheInfo(times) => valid = times.ifa_valid,
                AddressAttribute::Protocol(protocol) => ours = *protocol == AddressProtocol::Other(MARK),
                _ => {}
            }
        }
        let has = |flag| flags.contains(flag);
        let address = IpNet::new(address?, message.header.prefix_len).ok()?;
        Some(Self {
            address,
            ours,
            // In IPv6 the same bit marks temporary addresses.
            secondary: has(AddressFlags::Secondary) && address.addr().is_ipv4(),
            detection: if has(AddressFlags::Dadfailed) {
                Detection::Failed
            } else if has(AddressFlags::Tentative) && !has(AddressFlags::Optimistic) {
                Detection::Running
            } else {
                Detection::Passed
            },
            leased: (!has(AddressFlags::Permanent)).then_some(valid),
            global: message.header.scope == AddressScope::Universe,
            message,
        })
    }
}

impl InterfaceRoute {
    fn read(message: RouteMessage) -> Option<Self> {
        let route = Route::read(&message)?;
        let made_by_people = message.header.protocol != RouteProtocol::Kernel
            && message.header.kind == RouteType::Unicast
            && route.table != LOCAL_TABLE
            && !message.attributes.iter().any(|it| matches!(it, RouteAttribute::Expires(_)));
        made_by_people.then_some(Self { route, ours: route.protocol == MARK, message })
    }
}

/// The state of the interface of this name; `None` if there is none.
pub fn read(host: &mut Host, name: &str) -> Result<Option<InterfaceState>, Error> {
    let socket = &mut host.socket;
    let Some(link) = Link::by_name(socket, name)? else { return Ok(None) };
    let addresses = addresses(socket, link.index)?;
    let routes = routes(socket, Some(link.index))?;
    Ok(Some(state(&link, addresses, routes)))
}

/// The state of all interfaces, ordered by index. Routes are listed only for the named ones: a node may have a full
/// internet routing table.
pub fn read_all(host: &mut Host, routes_of: &BTreeSet<String>) -> Result<Vec<InterfaceState>, Error> {
    let socket = &mut host.socket;
    let mut links = Link::all(socket)?;
    links.sort_by_key(|link| link.index);
    let addresses = addresses(socket, 0)?;
    let mut found = Vec::with_capacity(links.len());
    for link in links {
        let routes =
            if routes_of.contains(&link.name) { routes(socket, Some(link.index))? } else { Vec::new() };
        let of_link = addresses.iter().filter(|it| it.message.header.index == link.index);
        found.push(state(&link, of_link.cloned().collect(), routes));
    }
    Ok(found)
}

/// The state of all interfaces, with all routes through them.
pub fn read_whole(host: &mut Host) -> Result<Vec<InterfaceState>, Error> {
    let mut found = read_all(host, &BTreeSet::new())?;
    let routes = routes(&mut host.socket, None)?;
    for interface in &mut found {
        let of_link = routes.iter().filter(|it| it.route.link == Some(interface.index));
        interface.routes = of_link.cloned().collect();
    }
    Ok(found)
}

fn state(link: &Link, addresses: Vec<InterfaceAddress>, routes: Vec<InterfaceRoute>) -> InterfaceState {
    InterfaceState {
        index: link.index,
        name: link.name.clone(),
        kind: link.kind,
        up: link.up,
        carrier: link.carrier,
        mtu: link.mtu,
        mac: link.mac,
        addresses,
        routes,
    }
}

/// The addresses of one link, or of all.
fn addresses(socket: &mut Socket, index: u32) -> Result<Vec<InterfaceAddress>, Error> {
    let mut message = AddressMessage::default();
    message.header.index = index;
    let found = socket.dump(&RouteNetlinkMessage::GetAddress(message))?;
    let read = |answer| match answer {
        Answer::Other(RouteNetlinkMessage::NewAddress(message)) => InterfaceAddress::read(message),
        _ => None,
    };
    Ok(found.into_iter().filter_map(read).collect())
}

fn routes(socket: &mut Socket, link: Option<u32>) -> Result<Vec<InterfaceRoute>, Error> {
    let found = route::messages(socket, Filter { table: ANY_TABLE, protocol: None, link })?;
    Ok(found.into_iter().filter_map(InterfaceRoute::read).collect())
}
