//! Routes: the value, requests that add and remove one, and lists that the kernel filters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::address::family;
use crate::socket::{Answer, Error, Message, Request, Socket};

// See rtnetlink(7).
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const RTA_TABLE: u16 = 15;

/// Both families, in the order in which we list.
pub(crate) const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// The destination.
    pub destination: IpNet,
    /// The table it is in.
    pub table: u32,
    /// The protocol number of its creator.
    pub protocol: u8,
    /// The output link.
    pub link: Option<u32>,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Of several routes to one destination, the smallest metric wins; 0 leaves it to the kernel.
    pub metric: u32,
    /// The host's source address towards the destination.
    pub source: Option<IpAddr>,
    /// The largest packet that it takes; 0 for as large as its link does.
    pub mtu: u32,
}

impl Route {
    /// A route to a directly connected destination.
    pub fn on_link(destination: IpNet, link: u32, table: u32, protocol: u8) -> Self {
        Self {
            destination,
            table,
            protocol,
            link: Some(link),
            gateway: None,
            metric: 0,
            source: None,
            mtu: 0,
        }
    }

    /// A route through a gateway.
    pub fn through(destination: IpNet, gateway: IpAddr, table: u32, protocol: u8) -> Self {
        Self {
            destination,
            table,
            protocol,
            link: None,
            gateway: Some(gateway),
            metric: 0,
            source: None,
            mtu: 0,
        }
    }

    /// Adds the route, or replaces one with the same destination and metric.
    pub fn put(&self) -> Request {
        Request::put(self.message(RTM_NEWROUTE, RouteScope::Universe, RouteType::Unicast))
    }

    /// The same for a route to a gateway: IPv4 requires link scope. Other routes have universe scope even if they end on a
    /// link; otherwise the kernel would use an address of that link, possibly the pods' gateway, as the host's source address.
    pub fn put_to_router(&self) -> Request {
        Request::put(self.message(RTM_NEWROUTE, RouteScope::Link, RouteType::Unicast))
    }

    /// The same for a gateway that is on the route's link (`onlink`), whatever other routes say.
    pub fn put_on_link(&self) -> Request {
        const RTNH_F_ONLINK: u32 = 4;
        Request::put(self.flagged(RTM_NEWROUTE, RouteScope::Universe, RouteType::Unicast, RTNH_F_ONLINK))
    }

    /// Makes the route, and is refused if there is one with the same destination and metric, whoever made it.
    pub(crate) fn create(&self) -> Request {
        let direct = self.gateway.is_none() && self.destination.addr().is_ipv4();
        let scope = if direct { RouteScope::Link } else { RouteScope::Universe };
        Request::create(self.message(RTM_NEWROUTE, scope, RouteType::Unicast))
    }

    /// Removes exactly this route; it may be gone already.
    pub fn remove(&self) -> Request {
        // Any type and scope: for example, IPv6 routes to the loopback interface become "unreachable".
        let route = Self { source: None, mtu: 0, ..*self };
        Request::remove(route.message(RTM_DELROUTE, RouteScope::NoWhere, RouteType::Unspec))
    }

    fn message(&self, kind: u16, scope: RouteScope, of: RouteType) -> Message {
        self.flagged(kind, scope, of, 0)
    }

    fn flagged(&self, kind: u16, scope: RouteScope, of: RouteType, flags: u32) -> Message {
        let with = |message: Message, kind, address| match address {
            IpAddr::V4(address) => message.with(kind, &address.octets()),
            IpAddr::V6(address) => message.with(kind, &address.octets()),
        };
        // The header has room for 255 tables; the attribute is what counts.
        let table = u8::try_from(self.table).unwrap_or(0);
        let (family, length) = (family(self.destination.addr()).into(), self.destination.prefix_len());
        let [f0, f1, f2, f3] = flags.to_ne_bytes();
        let start = [family, length, 0, 0, table, self.protocol, scope.into(), of.into(), f0, f1, f2, f3];
        let mut message = Message::new(kind, start);
        if length > 0 {
            message = with(message, RTA_DST, self.destination.network());
        }
        if let Some(link) = self.link {
            message = message.with_number(RTA_OIF, link);
        }
        if let Some(gateway) = self.gateway {
            message = with(message, RTA_GATEWAY, gateway);
        }
        if self.metric != 0 {
            message = message.with_number(RTA_PRIORITY, self.metric);
        }
        if let Some(source) = self.source {
            message = with(message, RTA_PREFSRC, source);
        }
        if self.mtu != 0 {
            message = message.with_nested(RTA_METRICS, &[], |it| it.with_number(RTAX_MTU, self.mtu));
        }
        message.with_number(RTA_TABLE, self.table)
    }

    /// Decodes the kernel's description; `None` for what is not an IP route.
    ///
    /// A route with several next hops has neither link nor gateway.
    pub fn read(message: &RouteMessage) -> Option<Self> {
        let unspecified = match message.header.address_family {
            AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let mut destination = unspecified;
        let mut route = Self {
            destination: IpNet::new(unspecified, 0).ok()?,
            table: u32::from(message.header.table),
            protocol: message.header.protocol.into(),
            link: None,
            gateway: None,
            metric: 0,
            source: None,
            mtu: 0,
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => destination = ip(address)?,
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Oif(link) => route.link = Some(*link),
                RouteAttribute::Gateway(address) => route.gateway = ip(address),
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::PrefSource(address) => route.source = ip(address),
                RouteAttribute::Metrics(metrics) => {
                    let mtu = |metric: &RouteMetric| {
                        if let RouteMetric::Mtu(mtu) = metric { Some(*mtu) } else { None }
                    };
                    route.mtu = metrics.iter().find_map(mtu).unwrap_or(0);
                }
                _ => {}
            }
        }
        route.destination = IpNet::new(destination, message.header.destination_prefix_length).ok()?;
        Some(route)
    }
}

impl std::fmt::Display for Route {
    /// As `ip route` prints it, with the link's number.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(link) = self.link {
            write!(f, " dev {link}")?;
        }
        write!(f, " table {} proto {}", self.table, self.protocol)
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// A filter that the kernel applies, so that a large routing table elsewhere costs nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this table.
    pub table: u32,
    /// Only those of this protocol.
    pub protocol: Option<u8>,
    /// Only those with this link.
    pub link: Option<u32>,
}

impl Filter {
    /// All routes of a table.
    pub fn table(table: u32) -> Self {
        Self { table, protocol: None, link: None }
    }

    fn message(self, family: AddressFamily) -> RouteNetlinkMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.table = u8::try_from(self.table).unwrap_or(0);
        message.header.protocol = self.protocol.unwrap_or(0).into();
        message.attributes.push(RouteAttribute::Table(self.table));
        message.attributes.extend(self.link.map(RouteAttribute::Oif));
        RouteNetlinkMessage::GetRoute(message)
    }
}

/// The IPv4 and IPv6 routes that match `filter`, as the kernel describes them.
pub(crate) fn messages(socket: &mut Socket, filter: Filter) -> Result<Vec<RouteMessage>, Error> {
    let mut found = Vec::new();
    for family in FAMILIES {
        for message in socket.dump(&filter.message(family))? {
            // A kernel without IPv6 answers an IPv6 request with everything it has.
            if let Answer::Other(RouteNetlinkMessage::NewRoute(message)) = message
                && message.header.address_family == family
            {
                found.push(message);
            }
        }
    }
    Ok(found)
}

/// The IPv4 and IPv6 routes that match `filter`.
pub fn list(socket: &mut Socket, filter: Filter) -> Result<Vec<Route>, Error> {
    Ok(messages(socket, filter)?.iter().filter_map(Route::read).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_route()(
            v4 in any::<bool>(),
            bits in any::<u128>(),
            length in 0..=128_u8,
            table in 1..=u32::MAX,
            protocol in any::<u8>(),
            link in prop::option::of(1..=i32::MAX as u32),
            gateway in prop::option::of(any::<u32>()),
            metric in any::<u32>(),
            source in prop::option::of(any::<u32>()),
            mtu in any::<u32>(),
        ) -> Route {
            let address = |bits: u128| if v4 {
                IpAddr::V4(Ipv4Addr::from(bits.to_be_bytes().last_chunk::<4>().copied().unwrap()))
            } else {
                IpAddr::V6(Ipv6Addr::from(bits))
            };
            let length = if v4 { length % 33 } else { length };
            Route {
                destination: IpNet::new(address(bits), length).unwrap().trunc(),
                table,
                protocol,
                link,
                gateway: gateway.map(|bits| address(bits.into())),
                metric,
                source: source.map(|bits| address(bits.into())),
                mtu,
            }
        }
    }

    proptest! {
        #[test]
        fn a_route_survives_the_way_through_its_message(route in any_route()) {
            let RouteNetlinkMessage::NewRoute(message) = route.put().message().unwrap() else { panic!() };
            prop_assert_eq!(Route::read(&message), Some(route));
        }
    }
}
