//! Lists our objects in the kernel: for the replay after a restart, for `check`, and for repair.
//!
//! Links and routes are two lists, taken one after the other. A change between them can look like a fault, so a caller acts
//! only on a fault that it sees twice. Setup and teardown of pods never list anything.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::host::Host;
use crate::link::Link;
use crate::pod::Identity;
use crate::route::Route;
use crate::routes;
use crate::socket::Error;

/// All of our objects in the host's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Links in service, with their owners.
    pub pods: Vec<PodLink>,
    /// Links of our group without an owner: setups that were interrupted.
    pub unmarked: Vec<Link>,
    /// Links that wait for the reaper.
    pub trash: Vec<Link>,
    /// Our routes in the pod table that lead to no link above.
    pub strays: Vec<Route>,
}

/// The host end of a pod's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// The owner; the pod's name may be truncated by the alias.
    pub owner: Identity,
    /// The link itself.
    pub link: Link,
    /// The addresses that are routed to it, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

impl Inventory {
    /// Takes the inventory.
    pub fn take(host: &mut Host) -> Result<Self, Error> {
        let links = Link::all_veths(&mut host.socket)?;
        let mut routes = routes::list(host)?;
        routes::leave_coils(&mut routes, &links);
        Ok(Self::sort(links, &routes, host.settings.pod_group, host.settings.trash_group))
    }

    fn sort(links: Vec<Link>, routes: &[Route], pod_group: u32, trash_group: u32) -> Self {
        let mut inventory = Self::default();
        let mut places = BTreeMap::new();
        for link in links {
            let owner = link.alias.as_deref().and_then(Identity::of_alias);
            match owner {
                _ if link.group == trash_group => inventory.trash.push(link),
                Some((owner, _)) => {
                    places.insert(link.index, inventory.pods.len());
                    inventory.pods.push(PodLink { owner, link, addresses: Vec::new() });
                }
                None if link.group == pod_group => inventory.unmarked.push(link),
                None => {}
            }
        }
        for route in routes {
            let single = route.destination.prefix_len() == route.destination.max_prefix_len();
            let place = route.link.filter(|_| single).and_then(|link| places.get(&link));
            match place.and_then(|place| inventory.pods.get_mut(*place)) {
                Some(pod) => pod.addresses.push(route.destination.addr()),
                None => inventory.strays.push(*route),
            }
        }
        for pod in &mut inventory.pods {
            pod.addresses.sort_unstable();
        }
        inventory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, group: u32, alias: Option<&str>) -> Link {
        Link { index, group, alias: alias.map(str::to_owned), ..Link::default() }
    }

    fn route(destination: &str, link: u32) -> Route {
        Route::on_link(destination.parse().unwrap(), link, 116, 30)
    }

    #[test]
    fn every_link_and_route_has_its_place() {
        let ours = Some("tenure/c0ffee/eth0/k8s/shop/web-0");
        let links = vec![
            link(2, 0, None),
            link(3, 7, ours),
            link(4, 7, None),
            link(5, 8, ours),
            link(6, 0, Some("somebody else's")),
            // Still ours, although somebody changed its group.
            link(7, 0, Some("tenure/decade/eth0/k8s//")),
        ];
        let routes = [
            route("fd01::1/128", 3),
            route("10.2.0.1/32", 3),
            route("10.2.0.0/24", 3),
            route("10.2.0.2/32", 99),
            route("10.2.0.3/32", 4),
        ];
        let inventory = Inventory::sort(links, &routes, 7, 8);
        let pods: Vec<_> =
            inventory.pods.iter().map(|pod| (pod.link.index, pod.owner.container.as_str())).collect();
        assert_eq!(pods, [(3, "c0ffee"), (7, "decade")]);
        let addresses: Vec<String> = inventory.pods[0].addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.2.0.1", "fd01::1"]);
        assert_eq!(inventory.unmarked, [link(4, 7, None)]);
        assert_eq!(inventory.trash, [link(5, 8, ours)]);
        assert_eq!(inventory.strays, routes[2..]);
    }
}
