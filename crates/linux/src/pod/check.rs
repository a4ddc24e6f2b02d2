//! Compares a pod's interface with its plan: for the CNI verb CHECK, and for a repeated ADD.

use ipnet::IpNet;

use super::{Identity, PodPlan};
use crate::host::Host;
use crate::link::Link;
use crate::netns::{self, NetNs};
use crate::route::{self, Filter, Route};
use crate::routes::{self, to_pod};
use crate::{address, socket};

const MAIN_TABLE: u32 = 254;

/// One difference from the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: expected {expected}, found {found}")]
pub struct Difference {
    /// What was compared.
    pub object: String,
    /// How it should be.
    pub expected: String,
    /// How it is.
    pub found: String,
}

/// Why an interface could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The pod's namespace cannot be entered.
    #[error("look at {holder}")]
    Namespace {
        /// Whose interface.
        holder: String,
        /// The cause.
        source: netns::Error,
    },
    /// The kernel cannot list it.
    #[error("look at {holder}")]
    Kernel {
        /// Whose interface.
        holder: String,
        /// The cause.
        source: socket::Error,
    },
}

/// All differences between a pod's interface and its plan, on the host and inside the pod. Ignores addresses and routes that
/// others added.
pub fn check(host: &mut Host, namespace: &NetNs, plan: &PodPlan) -> Result<Vec<Difference>, CheckError> {
    let holder = || plan.identity.to_string();
    let kernel = |source| CheckError::Kernel { holder: holder(), source };
    let mut differences = Differences::default();
    let outside = check_host(host, plan, &mut differences).map_err(kernel)?;
    let mut pod = namespace.socket().map_err(|source| CheckError::Namespace { holder: holder(), source })?;
    if let Some(outside) = outside {
        let settings = host.settings.clone();
        check_pod(&mut pod, &settings, plan, &outside, &mut differences).map_err(kernel)?;
    }
    Ok(differences.0)
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn compare<T: PartialEq + ToString>(&mut self, object: &str, expected: &T, found: &T) {
        if expected != found {
            self.note(object, expected.to_string(), found.to_string());
        }
    }

    fn note(&mut self, object: &str, expected: impl Into<String>, found: impl Into<String>) {
        let object = object.to_owned();
        self.0.push(Difference { object, expected: expected.into(), found: found.into() });
    }
}

fn check_host(
    host: &mut Host,
    plan: &PodPlan,
    differences: &mut Differences,
) -> Result<Option<Link>, socket::Error> {
    let Host { socket, settings, .. } = host;
    let name = plan.host_name(settings);
    let object = format!("host link {name}");
    let Some(link) = Link::by_name(socket, &name)? else {
        differences.note(&object, "a link", "none");
        return Ok(None);
    };
    let owner = link.alias.as_deref().and_then(Identity::of_alias);
    if !owner.is_some_and(|(owner, _)| owner.is_same_holder(&plan.identity)) {
        differences.note(&object, plan.identity.alias(), link.alias.clone().unwrap_or_default());
    }
    differences.compare(&format!("{object}, group"), &settings.pod_group, &link.group);
    differences.compare(&format!("{object}, up"), &true, &link.up);
    differences.compare(&format!("{object}, MTU"), &plan.mtu, &link.mtu);
    let filter =
        Filter { table: settings.pod_table, protocol: Some(settings.protocol), link: Some(link.index) };
    let actual = route::list(socket, filter)?;
    let reached = plan.addresses.iter().filter(|_| plan.reached);
    let wanted: Vec<Route> =
        reached.map(|address| to_pod(settings, *address, link.index, plan.source_for(*address))).collect();
    for route in &wanted {
        if !actual.iter().any(|found| routes::same(route, found)) {
            let object = format!("route to {} in table {}", route.destination.addr(), settings.pod_table);
            differences.note(&object, format!("dev {name}"), "none");
        }
    }
    for route in &actual {
        if !wanted.iter().any(|wanted| routes::same(wanted, route)) {
            let object = format!("route to {} in table {}", route.destination, settings.pod_table);
            differences.note(&object, "none", format!("dev {name}"));
        }
    }
    Ok(Some(link))
}

fn check_pod(
    pod: &mut socket::Socket,
    settings: &crate::Settings,
    plan: &PodPlan,
    outside: &Link,
    differences: &mut Differences,
) -> Result<(), socket::Error> {
    let object = format!("pod link {}", plan.identity.interface);
    let Some(inside) = Link::by_name(pod, &plan.identity.interface)? else {
        differences.note(&object, "a link", "none");
        return Ok(());
    };
    let ends = (outside.peer_index(), inside.peer_index());
    if ends != (inside.index, outside.index) {
        differences.note(&object, format!("the other end of {}", outside.name), "another link");
        return Ok(());
    }
    differences.compare(&format!("{object}, up"), &true, &inside.up);
    differences.compare(&format!("{object}, MTU"), &plan.mtu, &inside.mtu);
    let addresses = address::of_link(pod, inside.index)?;
    for address in &plan.addresses {
        let found = addresses.iter().find(|found| found.address == IpNet::from(*address));
        match found {
            Some(found) if found.usable => {}
            Some(_) => differences.note(&format!("{object}, address {address}"), "usable", "not usable"),
            None => differences.note(&format!("{object}, address {address}"), "there", "missing"),
        }
    }
    let found = route::list(pod, Filter { table: MAIN_TABLE, protocol: None, link: Some(inside.index) })?;
    for destination in plan.usable_routes() {
        let gateway = if destination.addr().is_ipv4() {
            settings.gateway_v4.into()
        } else {
            settings.gateway_v6.into()
        };
        let there = |route: &Route| route.destination == destination && route.gateway == Some(gateway);
        if !found.iter().any(there) {
            differences.note(&format!("pod route to {destination}"), format!("via {gateway}"), "none");
        }
    }
    Ok(())
}
