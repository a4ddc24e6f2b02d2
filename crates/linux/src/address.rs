//! Addresses of links: requests that add them, and lists.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::socket::{Answer, Error, Message, Request, Socket};

// See rtnetlink(7).
const RTM_NEWADDR: u16 = 20;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Without duplicate address detection.
const IFA_F_NODAD: u8 = 2;

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkAddress {
    /// The address with the length of its network's prefix.
    pub address: IpNet,
    /// Whether it is unique beyond this link.
    pub global: bool,
    /// Whether it is usable: duplicate address detection is over and found nobody else.
    pub usable: bool,
}

/// The address family as used in messages.
pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Adds `address` to a link; does nothing if the link has it. Skips IPv6 duplicate address detection: callers pass addresses
/// that are known to be unique, or links without other hosts.
pub(crate) fn add(index: u32, address: IpNet, scope: AddressScope) -> Request {
    let flags = if address.addr().is_ipv6() { IFA_F_NODAD } else { 0 };
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let start = [family(address.addr()).into(), address.prefix_len(), flags, scope.into(), i0, i1, i2, i3];
    let message = Message::new(RTM_NEWADDR, start);
    Request::put(match address.addr() {
        IpAddr::V4(address) => {
            message.with(IFA_LOCAL, &address.octets()).with(IFA_ADDRESS, &address.octets())
        }
        IpAddr::V6(address) => message
            .with(IFA_LOCAL, &address.octets())
            .with(IFA_ADDRESS, &address.octets())
            .with_number(IFA_FLAGS, flags.into()),
    })
}

/// Makes the kernel accept packets for a new IPv6 address immediately.
///
/// The kernel accepts them only after its address worker has run. Under load that takes milliseconds, even without duplicate
/// address detection. A local route that expires by itself bridges the gap.
pub(crate) fn accept_now(index: u32, address: Ipv6Addr) -> Request {
    const LOCAL_TABLE: u8 = 255;
    const SECONDS: u32 = 60;
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = 128;
    message.header.table = LOCAL_TABLE;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Local;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet6(address)),
        RouteAttribute::Oif(index),
        RouteAttribute::Expires(SECONDS),
    ];
    Request::put(RouteNetlinkMessage::NewRoute(message))
}

/// All addresses of one link, or of every link if `None`.
pub fn of_link(socket: &mut Socket, index: u32) -> Result<Vec<LinkAddress>, Error> {
    let mut message = AddressMessage::default();
    message.header.index = index;
    let found = socket.dump(&RouteNetlinkMessage::GetAddress(message))?;
    Ok(found
        .iter()
        .filter_map(|message| match message {
            Answer::Other(RouteNetlinkMessage::NewAddress(message)) => read(message),
            _ => None,
        })
        .collect())
}

/// All addresses of the socket's namespace.
pub fn of_all(socket: &mut Socket) -> Result<Vec<LinkAddress>, Error> {
    of_link(socket, 0)
}

fn read(message: &AddressMessage) -> Option<LinkAddress> {
    let mut address = None;
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link `Address` is the other end's.
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(other) => address = address.or(Some(*other)),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed;
    Some(LinkAddress {
        address: IpNet::new(address?, message.header.prefix_len).ok()?,
        global: message.header.scope == AddressScope::Universe,
        usable: !flags.intersects(unusable) || flags.contains(AddressFlags::Optimistic),
    })
}
