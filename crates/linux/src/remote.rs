//! Routes to the blocks of other nodes, for a flat layer 2 network without a routing daemon: `block via node address`.
//!
//! They are told from everyone else's by their protocol number, and their metric is theirs alone: a route of another
//! protocol stays as it is, even to the same destination.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Settings;
use crate::host::Host;
use crate::reconcile::{self, Changes};
use crate::route::{self, Filter, Route};
use crate::socket::Error;

/// Makes the routes of our remote protocol exactly `wanted`: each block through its node's address.
///
/// A block that moved to another node changes its gateway in one step. A gateway that is not on a connected network is
/// refused by the kernel; the others are dealt with nevertheless.
pub fn sync(host: &mut Host, wanted: &BTreeMap<IpNet, IpAddr>) -> Result<Changes, Error> {
    let Host { socket, settings, .. } = host;
    let wanted: BTreeSet<Route> = wanted.iter().map(|(block, via)| remote(settings, *block, *via)).collect();
    reconcile::converge(socket, &wanted, |socket| route::list(socket, filter(settings)), same)
}

/// The routes of our remote protocol, as they are.
pub fn list(host: &mut Host) -> Result<BTreeMap<IpNet, IpAddr>, Error> {
    let routes = route::list(&mut host.socket, filter(&host.settings))?;
    Ok(routes.into_iter().filter_map(|route| Some((route.destination, route.gateway?))).collect())
}

fn filter(settings: &Settings) -> Filter {
    Filter { table: settings.remote_table, protocol: Some(settings.remote_protocol), link: None }
}

fn remote(settings: &Settings, block: IpNet, via: IpAddr) -> Route {
    let route = Route::through(block.trunc(), via, settings.remote_table, settings.remote_protocol);
    Route { metric: settings.remote_metric, ..route }
}

/// The kernel finds out by itself which link leads to the gateway.
fn same(wanted: &Route, actual: &Route) -> bool {
    Route { link: wanted.link, ..*actual } == *wanted
}
