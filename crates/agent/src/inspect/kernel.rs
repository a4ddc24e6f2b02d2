//! Compares the kernel with the holds. It changes nothing; the node repairs what it observes twice.
//!
//! Links and routes are listed while ADDs and DELs are in progress, so a difference may be a change in
//! progress. Act only on differences that are seen twice.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_linux::Host;
use tenure_linux::inventory::{Inventory, PodLink};
use tenure_linux::socket;
use tenure_view::{Difference, Traffic};

use crate::key::HoldKey;
use crate::node::view::HoldView;

/// Observes the kernel, one observation at a time.
#[derive(Clone, Debug)]
pub(super) struct InventoryReader {
    host: Arc<Mutex<Host>>,
}

impl InventoryReader {
    pub(super) fn new(host: Host) -> Self {
        Self { host: Arc::new(Mutex::new(host)) }
    }

    /// Takes the inventory, on a thread that may block.
    pub(super) async fn look(&self) -> Result<Inventory, String> {
        let host = Arc::clone(&self.host);
        let taken = tokio::task::spawn_blocking(move || -> Result<Inventory, socket::Error> {
            Inventory::take(&mut host.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match taken.await {
            Ok(Ok(inventory)) => Ok(inventory),
            Ok(Err(error)) => Err(format!("the kernel could not be listed: {error}")),
            Err(error) => Err(format!("the kernel could not be listed: {error}")),
        }
    }
}

/// The links of holders, by key.
pub(super) fn links(inventory: &Inventory) -> BTreeMap<HoldKey, &PodLink> {
    let key = |link: &PodLink| {
        let owner = &link.owner;
        HoldKey::new(owner.network.clone(), owner.container.clone(), owner.interface.clone()).ok()
    };
    inventory.pods.iter().filter_map(|link| Some((key(link)?, link))).collect()
}

/// The traffic of a link, as the pod sees it.
pub(super) fn traffic(link: &PodLink) -> Traffic {
    let counters = &link.link.counters;
    Traffic {
        received_bytes: counters.sent.bytes,
        received_packets: counters.sent.packets,
        sent_bytes: counters.received.bytes,
        sent_packets: counters.received.packets,
    }
}

/// The differences between holds and kernel, without changes in progress.
pub(super) fn compare(holds: &[HoldView], inventory: &Inventory) -> Vec<Difference> {
    let links = links(inventory);
    let mut differences = Vec::new();
    let mut differ = |subject: String, problem: String| differences.push(Difference { subject, problem });
    for hold in holds.iter().filter(|hold| hold.interface && hold.settled) {
        let whose = whose(hold);
        let Some(link) = links.get(&hold.key) else {
            differ(whose, format!("holds {}, and has no interface on this host", hold.addresses));
            continue;
        };
        // No route leads to a claim user whose claim is elsewhere.
        let routed = hold.claim.as_ref().is_none_or(|claim| claim.routed);
        let held = hold.addresses.iter().filter(|_| routed).map(tenure_ipam::Address::to_ip);
        let held: Vec<IpAddr> = held.collect();
        for address in held.iter().filter(|address| !link.addresses.contains(address)) {
            differ(address.to_string(), format!("is held by {whose}, and no route leads to it"));
        }
        for address in link.addresses.iter().filter(|address| !held.contains(address)) {
            let link = &link.link.name;
            differ(
                address.to_string(),
                if routed {
                    format!("a route leads to {link} of {whose}, which does not hold it")
                } else {
                    format!("a route leads to {link} of {whose}, and its claim is not there now")
                },
            );
        }
        if !link.link.up {
            differ(whose, format!("its interface {} is down", link.link.name));
        }
    }
    for (key, link) in &links {
        if !holds.iter().any(|hold| hold.key == *key) {
            let owner = &link.owner;
            let pod = format!("interface {} of {}/{} ({key})", link.link.name, owner.namespace, owner.pod);
            differ(pod, "is there, and nobody holds an address for it".to_owned());
        }
    }
    for link in &inventory.unmarked {
        differ(format!("interface {}", link.name), "is ours, and does not say whose".to_owned());
    }
    for route in &inventory.strays {
        differ(format!("route to {}", route.destination), "leads to no pod".to_owned());
    }
    differences.sort();
    differences
}

fn whose(hold: &HoldView) -> String {
    if hold.pod.name.is_empty() {
        format!("container {}", hold.key.container())
    } else {
        hold.pod.to_string()
    }
}

#[cfg(test)]
mod tests;
