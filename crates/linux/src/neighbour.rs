//! Neighbour entries, known in advance so that the first packet need not ask.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;
use nix::errno::Errno;

use crate::Mac;
use crate::address::family;
use crate::socket::Request;

/// How long a neighbour entry is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// As long as the link lives.
    Always,
    /// For the first packets; then the neighbour is asked, in the usual way. It does not count against the kernel's
    /// limit of neighbours, which all namespaces share and a thousand pods would reach.
    AtFirst,
}

/// Says that `address` is at `mac`.
pub(crate) fn put(index: u32, address: IpAddr, mac: Mac, belief: Belief) -> Request {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.kind = RouteType::Unspec;
    (message.header.state, message.header.flags) = match belief {
        Belief::Always => (NeighbourState::Permanent, NeighbourFlags::empty()),
        Belief::AtFirst => (NeighbourState::Stale, NeighbourFlags::ExtLearned),
    };
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    // Without it, it is asked for in time; no reason to fail.
    Request::put(RouteNetlinkMessage::NewNeighbour(message)).tolerating(&[Errno::ENOBUFS])
}
