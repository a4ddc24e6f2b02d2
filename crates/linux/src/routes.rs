//! The pod table: one host route for each address of a pod on this node.
//!
//! Setup and teardown of pods maintain the table. This module handles it as a whole: after a restart, for `check`, and to
//! repair damage. Routes of other protocols stay unchanged, and so do those of Coil's pods, which have the same table and
//! protocol: they run on when an agent takes a node over from Coil.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Settings;
use crate::host::Host;
use crate::link::Link;
use crate::reconcile::{self, Changes};
use crate::route::{self, Filter, Route};
use crate::socket::{Error, Socket};

/// The route that leads to a pod's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRoute {
    /// The host end of the pod's link.
    pub link: u32,
    /// The host's source address towards the pod.
    pub source: Option<IpAddr>,
}

/// The difference between the pod table and the wanted routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Routes that are missing.
    pub missing: Vec<Route>,
    /// Routes of ours that are too many.
    pub surplus: Vec<Route>,
}

impl Difference {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty()
    }
}

/// What the alias of a link begins with if Coil has made it.
const OF_COIL: &str = "COIL:";

/// Compares the pod table with `wanted`.
pub fn verify(host: &mut Host, wanted: &BTreeMap<IpAddr, PodRoute>) -> Result<Difference, Error> {
    let actual = list_besides(&mut host.socket, &host.settings, wanted)?;
    let (missing, surplus) = reconcile::difference(&as_routes(&host.settings, wanted), &actual, same);
    Ok(Difference { missing, surplus })
}

/// Makes the pod table's routes of our protocol exactly `wanted`.
pub fn repair(host: &mut Host, wanted: &BTreeMap<IpAddr, PodRoute>) -> Result<Changes, Error> {
    let Host { socket, settings, .. } = host;
    let routes = as_routes(settings, wanted);
    reconcile::converge(socket, &routes, |socket| list_besides(socket, settings, wanted), same)
}

/// The pod table's routes without those of Coil's pods. Links are listed only if a route leads to one that is not wanted.
fn list_besides(
    socket: &mut Socket,
    settings: &Settings,
    wanted: &BTreeMap<IpAddr, PodRoute>,
) -> Result<Vec<Route>, Error> {
    let mut routes = list_of(socket, settings)?;
    let known: BTreeSet<u32> = wanted.values().map(|route| route.link).collect();
    if routes.iter().filter_map(|route| route.link).any(|link| !known.contains(&link)) {
        leave_coils(&mut routes, &Link::all_veths(socket)?);
    }
    Ok(routes)
}

/// Whether there are pods of Coil.
pub(crate) fn has_coils(host: &mut Host) -> Result<bool, Error> {
    Ok(Link::all_veths(&mut host.socket)?.iter().any(is_coils))
}

fn is_coils(link: &Link) -> bool {
    link.alias.as_deref().is_some_and(|alias| alias.starts_with(OF_COIL))
}

/// Leaves out the routes that lead to pods of Coil.
pub(crate) fn leave_coils(routes: &mut Vec<Route>, links: &[Link]) {
    let coils: BTreeSet<u32> = links.iter().filter(|link| is_coils(link)).map(|link| link.index).collect();
    routes.retain(|route| route.link.is_none_or(|link| !coils.contains(&link)));
}

fn as_routes(settings: &Settings, wanted: &BTreeMap<IpAddr, PodRoute>) -> BTreeSet<Route> {
    wanted.iter().map(|(address, to)| to_pod(settings, *address, to.link, to.source)).collect()
}

/// The pod table's routes of our protocol.
pub fn list(host: &mut Host) -> Result<Vec<Route>, Error> {
    list_of(&mut host.socket, &host.settings)
}

fn list_of(socket: &mut Socket, settings: &Settings) -> Result<Vec<Route>, Error> {
    route::list(socket, Filter { table: settings.pod_table, protocol: Some(settings.protocol), link: None })
}

/// The route to one address of a pod.
pub(crate) fn to_pod(settings: &Settings, address: IpAddr, link: u32, source: Option<IpAddr>) -> Route {
    let route = Route::on_link(IpNet::from(address), link, settings.pod_table, settings.protocol);
    Route { source, ..route }
}

/// The kernel gives IPv6 routes a metric if they have none.
pub(crate) fn same(wanted: &Route, actual: &Route) -> bool {
    Route { metric: wanted.metric, ..*actual } == *wanted
}
