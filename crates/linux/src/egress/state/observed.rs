//! The actual egress of a namespace, as the kernel reports it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::super::devices;
use super::super::encapsulate::is_stand_in;
use super::super::plan::{REPLY_MARK, address_family};
use super::super::{Family, MAIN_TABLE, NARROW_TABLE, PROTOCOL, WIDE_TABLE};
use super::PROGRAM_PREFIX;
use crate::Mac;
use crate::link::Link;
use crate::policy::{self, Action, Rule};
use crate::route::{self, Route};
use crate::socket::{Answer, Error, Socket};
use crate::tc::{self, Filter, Side};

/// A namespace's egress as it is.
#[derive(Clone, Debug)]
pub(in crate::egress) struct Observed {
    /// The interface that tunnels go through.
    pub(in crate::egress) interface: Link,
    /// Tunnels' devices.
    pub(in crate::egress) links: Vec<Link>,
    /// Rules of ours.
    pub(in crate::egress) rules: Vec<Rule>,
    /// Routes of ours into tunnels.
    pub(in crate::egress) routes: Vec<Route>,
    /// Neighbours that stand for gateways: link, address and Ethernet address.
    pub(in crate::egress) neighbours: Vec<(u32, IpAddr, Mac)>,
    /// Neighbours at the interface whose Ethernet addresses are known for good.
    pub(in crate::egress) fixed: Vec<(IpAddr, Mac)>,
    /// Programs of ours.
    pub(in crate::egress) filters: Vec<Filter>,
}

impl Observed {
    /// Reads a namespace; `None` if it has no such interface.
    pub(in crate::egress) fn take(socket: &mut Socket, interface: &str) -> Result<Option<Self>, Error> {
        let mut links = Link::all(socket)?;
        let Some(interface) = links.iter().find(|link| link.name == interface).cloned() else {
            return Ok(None);
        };
        links.retain(devices::is_ours);
        let mut rules = Vec::new();
        for family in Family::ALL {
            rules.extend(policy::list(socket, address_family(family))?.unwrap_or_default());
        }
        rules.retain(|rule| rule.protocol == PROTOCOL);
        let mut routes = Vec::new();
        // And those of interfaces, to which rules lead answers.
        let tables = rules.iter().filter_map(|rule| match rule.action {
            Action::Table(table) if table != MAIN_TABLE => Some(table),
            _ => None,
        });
        let tables: BTreeSet<u32> = tables.chain([NARROW_TABLE, WIDE_TABLE]).collect();
        for table in tables {
            let filter = route::Filter { table, protocol: Some(PROTOCOL), link: None };
            routes.extend(route::list(socket, filter)?);
        }
        let mut filters = tc::list(socket, interface.index, Side::Arriving)?;
        filters.extend(tc::list(socket, interface.index, Side::Leaving)?);
        let (mut neighbours, mut fixed) = (Vec::new(), Vec::new());
        for (state, (link, address, mac)) in neighbours_of(socket, interface.index)? {
            if is_stand_in(address, mac) {
                neighbours.push((link, address, mac));
            } else if state == NeighbourState::Permanent {
                fixed.push((address, mac));
            }
        }
        // The kernel's own tunnels, of which a gateway has many, have neither.
        for link in links.iter().filter(|link| devices::is_of_pair(link)) {
            filters.extend(tc::list(socket, link.index, Side::Leaving)?);
            neighbours.extend(neighbours_of(socket, link.index)?.into_iter().map(|(_, it)| it));
        }
        filters.retain(|filter| filter.name.starts_with(PROGRAM_PREFIX));
        Ok(Some(Self { interface, links, rules, routes, neighbours, fixed, filters }))
    }

    /// The Ethernet address of a neighbour at the interface, if it is permanent.
    pub(in crate::egress) fn mac_of(&self, address: IpAddr) -> Option<Mac> {
        self.fixed.iter().find(|(it, _)| *it == address).map(|(_, mac)| *mac)
    }

    /// Whether there are rules for answering packets.
    pub(in crate::egress) fn has_reply_rules(&self) -> bool {
        self.rules.iter().any(|rule| rule.mark == Some(REPLY_MARK))
    }
}

/// A neighbour: link, address and Ethernet address.
type Neighbour = (u32, IpAddr, Mac);

fn neighbours_of(socket: &mut Socket, link: u32) -> Result<Vec<(NeighbourState, Neighbour)>, Error> {
    let mut filter = NeighbourMessage::default();
    filter.header.family = AddressFamily::Unspec;
    filter.attributes.push(NeighbourAttribute::IfIndex(link));
    let found = socket.dump(&RouteNetlinkMessage::GetNeighbour(filter))?;
    Ok(found
        .iter()
        .filter_map(|answer| match answer {
            Answer::Other(RouteNetlinkMessage::NewNeighbour(message)) => read_neighbour(message),
            _ => None,
        })
        .collect())
}

fn read_neighbour(message: &NeighbourMessage) -> Option<(NeighbourState, Neighbour)> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(it)) => address = Some(IpAddr::V4(*it)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(it)) => address = Some(IpAddr::V6(*it)),
            NeighbourAttribute::LinkLayerAddress(it) => mac = Mac::from_bytes(it),
            _ => {}
        }
    }
    Some((message.header.state, (message.header.ifindex, address?, mac?)))
}
