//! The export table: what this node tells a routing daemon (BIRD, FRR) to announce.
//!
//! The table is never used to forward a packet. It belongs to Tenure alone and is exactly the wanted set: whatever else
//! is found in it is removed.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::Settings;
use crate::host::Host;
use crate::link::LOOPBACK;
use crate::reconcile::{self, Changes};
use crate::route::{self, Filter, Route};
use crate::socket::Error;

/// Makes the export table exactly `wanted`: this node's blocks, and single addresses that are reached here.
pub fn sync(host: &mut Host, wanted: &BTreeSet<IpNet>) -> Result<Changes, Error> {
    let wanted = wanted.iter().map(|destination| exported(&host.settings, *destination)).collect();
    let all = Filter::table(host.settings.export_table);
    reconcile::converge(&mut host.socket, &wanted, |socket| route::list(socket, all), same)
}

/// Exports one more destination, without looking at the others.
pub fn add(host: &mut Host, destination: IpNet) -> Result<(), Error> {
    host.socket.apply(&[exported(&host.settings, destination).put()])
}

/// Exports one destination less; it may be gone already.
pub fn remove(host: &mut Host, destination: IpNet) -> Result<(), Error> {
    host.socket.apply(&[exported(&host.settings, destination).remove()])
}

/// What is exported now, whoever put it there.
pub fn list(host: &mut Host) -> Result<BTreeSet<IpNet>, Error> {
    let routes = route::list(&mut host.socket, Filter::table(host.settings.export_table))?;
    Ok(routes.into_iter().map(|route| route.destination).collect())
}

fn exported(settings: &Settings, destination: IpNet) -> Route {
    Route::on_link(destination.trunc(), LOOPBACK, settings.export_table, settings.protocol)
}

/// The kernel gives IPv6 routes a metric if they have none.
fn same(wanted: &Route, actual: &Route) -> bool {
    Route { metric: wanted.metric, ..*actual } == *wanted
}
