//! The actual and the desired egress of a namespace, and the requests that lead from one to the other.
//!
//! Client and gateway, and both datapaths, describe what they want in the same terms: devices, routes, rules,
//! neighbours and programs. Only our objects are touched: devices by alias, routes and rules by protocol number and
//! table, programs by name.

mod observed;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::devices::{self, Device};
use crate::Mac;
use crate::bpf::Program;
use crate::link::Link;
use crate::neighbour::{self, Belief};
use crate::policy::Rule;
use crate::reconcile;
use crate::route::Route;
use crate::routes::same;
use crate::socket::Request;
use crate::tc::{self, Filter};

pub(super) use self::observed::Observed;

/// The prefix of our programs' names.
pub(super) const PROGRAM_PREFIX: &str = "tenure_egress";

/// The desired state of a namespace.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Tunnels' devices.
    pub(super) devices: Vec<Device>,
    /// Routes into tunnels.
    pub(super) routes: BTreeSet<Route>,
    /// Rules that lead to them.
    pub(super) rules: Vec<Rule>,
    /// Neighbours that stand for gateways.
    pub(super) neighbours: Vec<(u32, IpAddr, Mac)>,
    /// Programs, and where.
    pub(super) programs: Vec<(Filter, Arc<Program>)>,
}

impl Wanted {
    /// The requests, in an order in which packets always have a route: carriers are added first and removed last.
    pub(super) fn difference(&self, observed: &Observed) -> Vec<Request> {
        let mut requests = Vec::new();
        let there: BTreeMap<u32, &Link> = observed.links.iter().map(|link| (link.index, link)).collect();
        for device in &self.devices {
            requests.extend(device.difference(there.get(&device.index).copied()));
        }
        let known = |it: &(u32, IpAddr, Mac)| observed.neighbours.contains(it);
        let neighbours = self.neighbours.iter().filter(|it| !known(it));
        requests.extend(
            neighbours.map(|(link, address, mac)| neighbour::put(*link, *address, *mac, Belief::Always)),
        );
        requests.extend(self.attach(observed));
        let (missing, mut surplus) = reconcile::difference(&self.routes, &observed.routes, same);
        // A changed route is replaced in one step, so no old one is left to remove.
        surplus.retain(|old| {
            !missing.iter().any(|new| (new.destination, new.table) == (old.destination, old.table))
        });
        requests.extend(missing.iter().map(|route| match route.gateway {
            Some(_) => route.put_on_link(),
            None => route.put(),
        }));
        requests.extend(self.rules.iter().filter(|rule| !observed.rules.contains(rule)).map(Rule::add));
        requests.extend(observed.rules.iter().filter(|rule| !self.rules.contains(rule)).map(Rule::remove));
        requests.extend(surplus.iter().map(Route::remove));
        requests.extend(self.forget(observed));
        let places: Vec<_> = self.programs.iter().map(|(filter, _)| place(filter)).collect();
        let stale = observed.filters.iter().filter(|filter| !places.contains(&place(filter)));
        requests.extend(stale.map(Filter::remove));
        let kept: BTreeSet<u32> = self.devices.iter().map(|device| device.index).collect();
        requests.extend(devices::delete(there.into_keys().filter(|index| !kept.contains(index))));
        requests
    }

    /// Neighbours that stand for nobody any more. Those of a deleted device are deleted with it.
    fn forget(&self, observed: &Observed) -> Vec<Request> {
        let is_wanted =
            |link: u32, address: IpAddr| self.neighbours.iter().any(|it| (it.0, it.1) == (link, address));
        let of_interface = observed.neighbours.iter().filter(|(link, ..)| *link == observed.interface.index);
        let stale = of_interface.filter(|(link, address, _)| !is_wanted(*link, *address));
        stale.map(|(link, address, _)| neighbour::remove(*link, *address)).collect()
    }

    fn attach(&self, observed: &Observed) -> Vec<Request> {
        let missing: Vec<_> =
            self.programs.iter().filter(|(filter, _)| !observed.filters.contains(filter)).collect();
        let links: BTreeSet<u32> = missing.iter().map(|(filter, _)| filter.link).collect();
        let prepare = links.into_iter().map(tc::prepare);
        prepare.chain(missing.iter().map(|(filter, program)| filter.put(program))).collect()
    }
}

/// Where a program is attached, whichever it is.
fn place(filter: &Filter) -> (u32, tc::Side, u16) {
    (filter.link, filter.side, filter.priority)
}
