//! Plans from the actual to the desired state of an interface, without I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Detection, InterfaceAddress, InterfaceState, MARK};
use crate::route::Route;

const MAIN_TABLE: u32 = 254;
/// The kernel's default metric of IPv6 routes.
const DEFAULT_METRIC_V6: u32 = 1024;

/// The desired state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Its name.
    pub name: String,
    /// Whether to set it up; otherwise that is left alone.
    pub up: bool,
    /// The MTU; left alone if not given.
    pub mtu: Option<u32>,
    /// Our addresses.
    pub addresses: Vec<IpNet>,
    /// Addresses that are recorded as ours. They are removed if they are not among our addresses, even without our
    /// mark: kernels before 5.18 do not keep it.
    pub recorded: BTreeSet<IpNet>,
    /// Our routes.
    pub routes: Vec<PlannedRoute>,
}

/// A desired route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlannedRoute {
    /// Where packets go.
    pub destination: IpNet,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// The kernel's default if it is not given.
    pub metric: Option<u32>,
    /// The main table if it is not given.
    pub table: Option<u32>,
}

impl PlannedRoute {
    fn route(&self, link: u32) -> Route {
        let table = self.table.unwrap_or(MAIN_TABLE);
        let route = Route::on_link(self.destination.trunc(), link, table, MARK);
        Route { gateway: self.gateway, metric: self.metric.unwrap_or(0), ..route }
    }

    fn is(&self, route: &Route, link: u32) -> bool {
        let mut wanted = self.route(link);
        if wanted.metric == 0 && wanted.destination.addr().is_ipv6() {
            wanted.metric = DEFAULT_METRIC_V6;
        }
        wanted == Route { source: None, mtu: 0, ..*route }
    }
}

/// One change of an interface's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressStep {
    /// Removes an address.
    Delete(IpNet),
    /// Adds an address again that the kernel may have removed with another.
    Keep(Box<InterfaceAddress>),
    /// Adds one of our addresses.
    Add(IpNet),
}

/// One change of an interface's routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteStep {
    Remove(Route),
    Create(Route),
}

impl InterfacePlan {
    /// Whether an address of the interface is ours.
    fn owns(&self, address: &InterfaceAddress) -> bool {
        address.ours || self.recorded.contains(&address.address) || self.addresses.contains(&address.address)
    }

    /// The steps to the desired addresses: deletions, then what must stay, then additions.
    pub(super) fn address_steps(&self, state: &InterfaceState) -> Vec<AddressStep> {
        // An address that somebody else has is added again, so that the kernel checks again.
        let right =
            |it: &InterfaceAddress| self.addresses.contains(&it.address) && it.detection != Detection::Failed;
        let (gone, stay): (Vec<_>, Vec<_>) =
            state.addresses.iter().partition(|it| self.owns(it) && !right(it));
        let missing = self.addresses.iter().filter(|it| !stay.iter().any(|there| there.address == **it));
        let mut steps: Vec<AddressStep> = gone.iter().map(|it| AddressStep::Delete(it.address)).collect();
        steps.extend(taken_along(&gone, &stay).map(|it| AddressStep::Keep(Box::new(it.clone()))));
        steps.extend(missing.map(|address| AddressStep::Add(*address)));
        steps
    }

    /// The steps to the desired routes.
    pub(super) fn route_steps(&self, state: &InterfaceState) -> Vec<RouteStep> {
        let ours: Vec<&Route> = state.routes.iter().filter(|it| it.ours).map(|it| &it.route).collect();
        let wanted = |route: &Route| self.routes.iter().any(|it| it.is(route, state.index));
        let surplus = ours.iter().filter(|route| !wanted(route)).map(|route| RouteStep::Remove(**route));
        let missing = self.routes.iter().filter(|it| !ours.iter().any(|route| it.is(route, state.index)));
        let missing = missing.map(|it| RouteStep::Create(it.route(state.index)));
        surplus.chain(missing).collect()
    }

    /// How an interface differs from the desired state.
    pub fn differences(&self, state: Option<&InterfaceState>) -> Vec<Difference> {
        let Some(state) = state else { return vec![Difference::NoInterface] };
        let mut found = Vec::new();
        if self.up && !state.up {
            found.push(Difference::Down);
        }
        if let Some(wanted) = self.mtu.filter(|mtu| *mtu != state.mtu) {
            found.push(Difference::Mtu { wanted, actual: state.mtu });
        }
        for address in &self.addresses {
            match state.address(*address).map(|there| there.detection) {
                None => found.push(Difference::AddressMissing(*address)),
                Some(Detection::Failed) => found.push(Difference::Duplicate(*address)),
                Some(Detection::Running) => found.push(Difference::Tentative(*address)),
                Some(Detection::Passed) => {}
            }
        }
        let left = state.addresses.iter().filter(|it| self.owns(it) && !self.addresses.contains(&it.address));
        found.extend(left.map(|it| Difference::AddressLeft(it.address)));
        found.extend(self.route_steps(state).into_iter().map(|step| match step {
            RouteStep::Remove(route) => Difference::RouteLeft(route.to_string()),
            RouteStep::Create(route) => Difference::RouteMissing(route.to_string()),
        }));
        found
    }
}

/// The addresses that the kernel removes together with others: secondaries of their networks.
pub(super) fn taken_along<'s>(
    gone: &[&InterfaceAddress],
    stay: &[&'s InterfaceAddress],
) -> impl Iterator<Item = &'s InterfaceAddress> {
    let firsts: Vec<IpNet> = gone
        .iter()
        .filter(|it| !it.secondary && it.address.addr().is_ipv4())
        .map(|it| it.address.trunc())
        .collect();
    let also = move |it: &&InterfaceAddress| it.secondary && firsts.contains(&it.address.trunc());
    stay.iter().copied().filter(also).collect::<Vec<_>>().into_iter()
}

/// A difference from the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is not there.
    NoInterface,
    /// It is not up.
    Down,
    /// It has another MTU.
    Mtu {
        /// The one that it should have.
        wanted: u32,
        /// The one that it has.
        actual: u32,
    },
    /// An address is not there.
    AddressMissing(IpNet),
    /// An address of ours is there that should not be.
    AddressLeft(IpNet),
    /// Somebody else on the segment has an address.
    Duplicate(IpNet),
    /// The kernel still checks whether somebody else has an address: look again a little later.
    Tentative(IpNet),
    /// A route is not there.
    RouteMissing(String),
    /// A route of ours is there that should not be.
    RouteLeft(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface => write!(f, "there is no such interface"),
            Self::Down => write!(f, "it is down"),
            Self::Mtu { wanted, actual } => write!(f, "its MTU is {actual} instead of {wanted}"),
            Self::AddressMissing(address) => write!(f, "address {address} is missing"),
            Self::AddressLeft(address) => write!(f, "address {address} is still there"),
            Self::Duplicate(address) => {
                write!(
                    f,
                    "address {address} is in use by another host of the segment (duplicate address detection)"
                )
            }
            Self::Tentative(address) => write!(f, "address {address} is still being checked for duplicates"),
            Self::RouteMissing(route) => write!(f, "route {route} is missing"),
            Self::RouteLeft(route) => write!(f, "route {route} is still there"),
        }
    }
}
