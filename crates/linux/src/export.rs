//! The export table: routes that a routing daemon (BIRD, FRR) reads and announces.
//!
//! The kernel never forwards by this table. It belongs to Tenure alone: routes of others in it are removed.

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

/// Exports one more destination. Does not read the others.
pub fn add(host: &mut Host, destination: IpNet) -> Result<(), Error> {
    host.socket.apply(&[exported(&host.settings, destination).put()])
}

/// Stops exporting a destination; it may be gone already.
pub fn remove(host: &mut Host, destination: IpNet) -> Result<(), Error> {
    host.socket.apply(&[exported(&host.settings, destination).remove()])
}

/// All routes in the export table, whoever added them.
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
