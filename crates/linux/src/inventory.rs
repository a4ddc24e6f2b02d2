//! What the kernel has of ours: for the replay after a restart, for `check`, and for repair.
//!
//! The links and the routes are two lists, taken one after the other; what changes in between may look like a fault. So
//! whoever acts on a fault looks twice. Setting up and destroying pods never need any of this.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::host::Host;
use crate::link::Link;
use crate::pod::Identity;
use crate::route::Route;
use crate::routes;
use crate::socket::Error;

/// All that is ours in the host's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Links in service, with their owners.
    pub pods: Vec<PodLink>,
    /// Links of our group that do not say whose they are: attempts that were cut short.
    pub unmarked: Vec<Link>,
    /// Links that wait for the reaper.
    pub trash: Vec<Link>,
    /// Routes of ours in the pod table that lead to none of the above.
    pub strays: Vec<Route>,
}

/// The host end of a pod's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// Who it belongs to; of the pod's name as much as the link could keep.
    pub owner: Identity,
    /// The link itself.
    pub link: Link,
    /// The addresses that are routed to it, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

impl Inventory {
    /// Takes the inventory, with the links' traffic counters or, cheaper, without.
    pub fn take(host: &mut Host, counters: bool) -> Result<Self, Error> {
        let links = Link::all_veths(&mut host.socket, counters)?;
        let routes = routes::list(host)?;
        Ok(Self::sort(links, &routes, host.settings.pod_group, host.settings.trash_group))
    }

    fn sort(links: Vec<Link>, routes: &[Route], pod_group: u32, trash_group: u32) -> Self {
        let mut addresses: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
        let mut inventory = Self::default();
        let known = |index: u32| links.iter().any(|link| link.index == index);
        for route in routes {
            let single = route.destination.prefix_len() == route.destination.max_prefix_len();
            match route.link {
                Some(index) if single => addresses.entry(index).or_default().push(route.destination.addr()),
                _ => inventory.strays.push(*route),
            }
        }
        let foreign: Vec<u32> = addresses.keys().copied().filter(|index| !known(*index)).collect();
        inventory.strays.extend(
            routes.iter().filter(|route| route.link.is_some_and(|index| foreign.contains(&index))),
        );
        for link in links {
            let owner = link.alias.as_deref().and_then(Identity::of_alias);
            match owner {
                _ if link.group == trash_group => inventory.trash.push(link),
                Some((owner, _)) => {
                    let mut addresses = addresses.remove(&link.index).unwrap_or_default();
                    addresses.sort_unstable();
                    inventory.pods.push(PodLink { owner, link, addresses });
                }
                None if link.group == pod_group => inventory.unmarked.push(link),
                None => {}
            }
        }
        inventory
    }
}
