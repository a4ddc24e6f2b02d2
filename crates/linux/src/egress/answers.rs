//! The interface by which answers leave a pod with several interfaces: the one with the address that the connection
//! was opened to, if it has a route to the peer.
//!
//! All interfaces share the pod's main table, which has one best route. So each interface gets a table with its own
//! routes, as in Coil, and a rule leads answers from its addresses there. Only answers that an Egress for originated
//! connections keeps out of tunnels get that far.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::plan::{ANSWERS_PRIORITY, LAST_ANSWERS_PRIORITY, REPLY_MARK, address_family};
use super::{Family, MAIN_TABLE, PROTOCOL, devices};
use crate::address;
use crate::link::{LOOPBACK, Link};
use crate::policy::Rule;
use crate::route::{self, Route};
use crate::socket::{Error, Socket};

/// The table of the first interface, minus its number.
const FIRST_TABLE: u32 = 1000;

/// An interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    /// Its name.
    pub(super) name: String,
    index: u32,
    addresses: Vec<IpAddr>,
    /// Its routes in the main table.
    routes: Vec<Route>,
}

impl Interface {
    /// The table of its routes.
    fn table(&self) -> u32 {
        FIRST_TABLE + self.index
    }
}

/// The interfaces of a pod that has several; empty if it has one, because its answers have no choice.
pub(super) fn interfaces(socket: &mut Socket) -> Result<Vec<Interface>, Error> {
    let links = Link::all(socket)?;
    let usual = links.into_iter().filter(|link| link.index != LOOPBACK && link.up && !devices::is_ours(link));
    let usual: Vec<Link> = usual.collect();
    if usual.len() < 2 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for link in usual {
        let addresses = address::of_link(socket, link.index)?.into_iter().filter(|it| it.global);
        let addresses = addresses.map(|it| it.address.addr()).collect();
        let filter = route::Filter { table: MAIN_TABLE, protocol: None, link: Some(link.index) };
        let routes = route::list(socket, filter)?;
        found.push(Interface { name: link.name, index: link.index, addresses, routes });
    }
    Ok(found)
}

/// The rules that lead answers of one family to the interfaces' tables. What has no route there takes the usual one.
pub(super) fn rules(interfaces: &[Interface], family: Family) -> Vec<Rule> {
    let to_table = |priority, table| {
        let rule = Rule::to_table(address_family(family), priority, table, PROTOCOL);
        Rule { mark: Some(REPLY_MARK), ..rule }
    };
    let mut rules = Vec::new();
    for interface in interfaces {
        let addresses = interface.addresses.iter().filter(|address| Family::of(**address) == family);
        rules.extend(addresses.map(|address| Rule {
            from: Some(IpNet::from(*address)),
            ..to_table(ANSWERS_PRIORITY, interface.table())
        }));
    }
    if !interfaces.is_empty() {
        rules.push(to_table(LAST_ANSWERS_PRIORITY, MAIN_TABLE));
    }
    rules
}

/// The routes of one family in these tables.
pub(super) fn routes(interfaces: &[Interface], family: Family) -> Vec<Route> {
    let mut routes = Vec::new();
    for interface in interfaces {
        let mut best: BTreeMap<IpNet, &Route> = BTreeMap::new();
        for route in interface.routes.iter().filter(|route| is_copied(route, family)) {
            let known = best.entry(route.destination).or_insert(route);
            if route.metric < known.metric {
                *known = route;
            }
        }
        let copy =
            |route: &Route| Route { table: interface.table(), protocol: PROTOCOL, metric: 0, ..*route };
        routes.extend(best.into_values().map(copy));
    }
    routes
}

/// Routes to the link itself stay in the main table, which rules ask first.
fn is_copied(route: &Route, family: Family) -> bool {
    let destination = route.destination.addr();
    let of_link = match destination {
        IpAddr::V4(v4) => v4.is_link_local() && route.destination.prefix_len() >= 16,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    Family::of(destination) == family && !destination.is_multicast() && !of_link
}
