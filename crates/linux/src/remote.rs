//! Routes to the blocks of other nodes, for a flat layer 2 network without a routing daemon: `block via node address`.
//!
//! Their protocol number tells them from other routes, and only they use their metric: a route of another protocol stays
//! unchanged, even to the same destination.

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
/// A block that moved to another node changes its gateway in one step. The kernel refuses a gateway that is not on a connected
/// network; the other routes are still processed.
pub fn sync(host: &mut Host, wanted: &BTreeMap<IpNet, IpAddr>) -> Result<Changes, Error> {
    let Host { socket, settings, .. } = host;
    let wanted: BTreeSet<Route> = wanted.iter().map(|(block, via)| remote(settings, *block, *via)).collect();
    reconcile::converge(socket, &wanted, |socket| route::list(socket, filter(settings)), same)
}

/// The existing routes of our remote protocol.
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

/// The kernel determines the link to the gateway.
fn same(wanted: &Route, actual: &Route) -> bool {
    Route { link: wanted.link, ..*actual } == *wanted
}
