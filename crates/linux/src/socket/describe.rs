//! Describes requests in words, for errors. Runs only after a failure.

use std::fmt::Write;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

/// "create link tnr0123", "add route 10.2.0.1/32 dev 7 table 116", …
pub(super) fn message(message: &RouteNetlinkMessage) -> String {
    use RouteNetlinkMessage as M;
    match message {
        M::NewLink(m) => format!("create {}", link(m)),
        M::SetLink(m) => format!("change {}{}", link(m), link_changes(m)),
        M::DelLink(m) => format!("delete {}", link(m)),
        M::GetLink(m) => format!("look up {}", link(m)),
        M::NewAddress(m) => format!("add {}", address(m)),
        M::DelAddress(m) => format!("delete {}", address(m)),
        M::GetAddress(m) => format!("list addresses of link {}", m.header.index),
        M::NewNeighbour(m) => format!("add {}", neighbour(m)),
        M::DelNeighbour(m) => format!("delete {}", neighbour(m)),
        M::NewRoute(m) => format!("add {}", route(m)),
        M::DelRoute(m) => format!("delete {}", route(m)),
        M::GetRoute(m) => format!("look up {}", route(m)),
        M::NewRule(m) => format!("add {}", rule(m)),
        M::DelRule(m) => format!("delete {}", rule(m)),
        M::GetRule(m) => format!("list {:?} rules", m.header.family),
        other => format!("do {other:?}"),
    }
}

/// "request 2 of 5".
pub(super) fn position(index: usize, total: usize) -> String {
    format!("request {} of {total}", index + 1)
}

fn link(message: &LinkMessage) -> String {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    let group = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Group(group) => Some(group),
        _ => None,
    });
    match (name, message.header.index, group) {
        (Some(name), _, _) => format!("link {name}"),
        (None, 0, Some(group)) => format!("the links of group {group}"),
        (None, 0, None) => "links".to_owned(),
        (None, index, _) => format!("link {index}"),
    }
}

fn link_changes(message: &LinkMessage) -> String {
    let mut text = String::new();
    if message.header.change_mask.contains(LinkFlags::Up) {
        let up = message.header.flags.contains(LinkFlags::Up);
        text.push_str(if up { ", up" } else { ", down" });
    }
    for attribute in &message.attributes {
        // Writing to a string cannot fail.
        let _ = match attribute {
            LinkAttribute::Group(group) => write!(text, ", group {group}"),
            LinkAttribute::IfAlias(alias) => write!(text, ", alias {alias:?}"),
            LinkAttribute::Mtu(mtu) => write!(text, ", MTU {mtu}"),
            LinkAttribute::AfSpecUnspec(_) => write!(text, ", address family settings"),
            _ => Ok(()),
        };
    }
    text
}

fn address(message: &AddressMessage) -> String {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) | AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let address = address.map_or_else(|| "?".to_owned(), |address| address.to_string());
    format!("address {address}/{} on link {}", message.header.prefix_len, message.header.index)
}

fn neighbour(message: &NeighbourMessage) -> String {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    });
    let address = address.map_or_else(|| "?".to_owned(), |address| address.to_string());
    format!("neighbour {address} on link {}", message.header.ifindex)
}

fn route(message: &RouteMessage) -> String {
    let mut text = String::from("route");
    let mut table = u32::from(message.header.table);
    let mut destination = None;
    let mut rest = String::new();
    for attribute in &message.attributes {
        let _ = match attribute {
            RouteAttribute::Destination(address) => {
                destination = Some(route_address(address));
                Ok(())
            }
            RouteAttribute::Gateway(address) => write!(rest, " via {}", route_address(address)),
            RouteAttribute::Oif(index) => write!(rest, " dev {index}"),
            RouteAttribute::Table(id) => {
                table = *id;
                Ok(())
            }
            _ => Ok(()),
        };
    }
    let _ = match destination {
        Some(destination) => write!(text, " {destination}/{}", message.header.destination_prefix_length),
        None => write!(text, " default of {:?}", message.header.address_family),
    };
    text.push_str(&rest);
    if table != 0 {
        let _ = write!(text, " in table {table}");
    }
    text
}

fn route_address(address: &RouteAddress) -> String {
    match address {
        RouteAddress::Inet(address) => address.to_string(),
        RouteAddress::Inet6(address) => address.to_string(),
        other => format!("{other:?}"),
    }
}

fn rule(message: &RuleMessage) -> String {
    let mut text = format!("{:?} rule", message.header.family);
    for attribute in &message.attributes {
        let _ = match attribute {
            RuleAttribute::Priority(priority) => write!(text, " of priority {priority}"),
            RuleAttribute::Table(table) => write!(text, " to table {table}"),
            _ => Ok(()),
        };
    }
    text
}
