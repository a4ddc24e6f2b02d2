//! The node's uplink: the interface of the default route.

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};

use crate::Mac;
use crate::address;
use crate::host::Host;
use crate::link::Link;
use crate::route::{self, Filter};
use crate::socket::Error;

const MAIN_TABLE: u32 = 254;

/// The interface of the default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The smallest MTU of all default routes' interfaces.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Its usable addresses that are unique beyond the link.
    pub addresses: Vec<IpNet>,
}

/// Finds the uplink: the interface of the best IPv4 default route, else of the IPv6 one; `None` without a default route. With
/// several next hops it is the first one's.
pub fn find(host: &mut Host) -> Result<Option<Uplink>, Error> {
    let socket = &mut host.socket;
    let routes = route::messages(socket, Filter::table(MAIN_TABLE))?;
    let links = best_default(&routes);
    let Some(index) = links.first() else { return Ok(None) };
    let Some(link) = Link::by_index(socket, *index)? else { return Ok(None) };
    let mut mtu = link.mtu;
    for other in &links[1..] {
        if let Some(other) = Link::by_index(socket, *other)? {
            mtu = mtu.min(other.mtu);
        }
    }
    let mut addresses: Vec<IpNet> = address::of_link(socket, *index)?
        .into_iter()
        .filter(|address| address.global && address.usable)
        .map(|address| address.address)
        .collect();
    addresses.sort_by_key(|address| address.addr().is_ipv6());
    Ok(Some(Uplink { index: *index, name: link.name, mtu, mac: link.mac, addresses }))
}

/// The links of the default route with the smallest metric, IPv4 before IPv6.
fn best_default(routes: &[RouteMessage]) -> Vec<u32> {
    routes
        .iter()
        .filter(|route| {
            route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
        })
        .map(|route| {
            let metric = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Priority(metric) => Some(*metric),
                _ => None,
            });
            (u8::from(route.header.address_family), metric.unwrap_or(0), links_of(route))
        })
        .filter(|(_, _, links)| !links.is_empty())
        .min_by_key(|(family, metric, _)| (*family, *metric))
        .map(|(_, _, links)| links)
        .unwrap_or_default()
}

fn links_of(route: &RouteMessage) -> Vec<u32> {
    route
        .attributes
        .iter()
        .flat_map(|attribute| match attribute {
            RouteAttribute::Oif(link) => vec![*link],
            RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
            _ => Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::AddressFamily;

    use super::*;

    fn default_route(family: AddressFamily, metric: u32, link: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Priority(metric), RouteAttribute::Oif(link)];
        message
    }

    #[test]
    fn the_default_route_of_the_smallest_metric_counts_and_ipv4_before_ipv6() {
        let mut elsewhere = default_route(AddressFamily::Inet, 0, 9);
        elsewhere.header.destination_prefix_length = 24;
        let mut unreachable = default_route(AddressFamily::Inet, 0, 9);
        unreachable.header.kind = RouteType::Unreachable;
        let routes = [
            elsewhere,
            unreachable,
            default_route(AddressFamily::Inet6, 1, 5),
            default_route(AddressFamily::Inet, 200, 3),
            default_route(AddressFamily::Inet, 100, 4),
        ];
        assert_eq!(best_default(&routes), [4]);
        assert_eq!(best_default(&routes[..3]), [5]);
        assert_eq!(best_default(&routes[..2]), [0_u32; 0]);
    }
}
