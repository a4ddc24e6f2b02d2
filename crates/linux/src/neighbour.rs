//! Neighbour entries, known in advance so that the first packet need not ask.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;

use crate::Mac;
use crate::address::family;
use crate::socket::Request;

/// How long a neighbour entry is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// As long as the link lives.
    Always,
    /// As if the neighbour had just answered: checked again later, in the usual way.
    Now,
}

/// Says that `address` is at `mac`.
pub(crate) fn put(index: u32, address: IpAddr, mac: Mac, belief: Belief) -> Request {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.kind = RouteType::Unspec;
    message.header.state = match belief {
        Belief::Always => NeighbourState::Permanent,
        Belief::Now => NeighbourState::Reachable,
    };
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    Request::put(RouteNetlinkMessage::NewNeighbour(message))
}
