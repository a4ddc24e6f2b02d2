//! The pod table: one host route for each address of a pod on this node.
//!
//! Setup and teardown of pods maintain the table. This module handles it as a whole: after a restart, for `check`, and to
//! repair damage. Routes of other protocols stay unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Settings;
use crate::host::Host;
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

/// Compares the pod table with `wanted`.
pub fn verify(host: &mut Host, wanted: &BTreeMap<IpAddr, PodRoute>) -> Result<Difference, Error> {
    let actual = list(host)?;
    let (missing, surplus) = reconcile::difference(&as_routes(&host.settings, wanted), &actual, same);
    Ok(Difference { missing, surplus })
}

/// Makes the pod table's routes of our protocol exactly `wanted`.
pub fn repair(host: &mut Host, wanted: &BTreeMap<IpAddr, PodRoute>) -> Result<Changes, Error> {
    let Host { socket, settings, .. } = host;
    let wanted = as_routes(settings, wanted);
    reconcile::converge(socket, &wanted, |socket| list_of(socket, settings), same)
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
