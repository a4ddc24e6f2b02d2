//! Looking at what the kernel has of ours.
//!
//! It says that something is gone only where that is certain: a path that leads nowhere may as well be one that cannot
//! be seen from here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use tenure_linux::inventory::{Inventory, PodLink};
use tenure_linux::link::Link;
use tenure_linux::netns::{self, NetNs};
use tenure_linux::pod::{self, Identity};
use tenure_linux::{Host, socket};

use crate::key::{HoldKey, Pod};
use crate::node::{Found, Look};

/// What was seen before, as far as it matters for what is seen now.
#[derive(Debug, Default)]
pub(super) struct KernelObserver {
    /// Numbers of links that say nothing about whose they are.
    unmarked: BTreeSet<u32>,
    /// Paths of namespaces that were there.
    present: BTreeSet<String>,
}

/// What is seen now.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) look: Look,
    /// Links that were begun and not finished, for the second time.
    pub(super) cut_short: Vec<Link>,
}

impl KernelObserver {
    /// Looks at all links and routes of ours, at these holders' interfaces and at those holders' namespaces.
    pub(super) fn look(
        &mut self,
        host: &mut Host,
        interfaces: &[HoldKey],
        namespaces: &[(HoldKey, String)],
    ) -> Result<Seen, socket::Error> {
        let inventory = Inventory::take(host)?;
        let owners: BTreeSet<HoldKey> = inventory.pods.iter().filter_map(|pod| key_of(&pod.owner)).collect();
        // Somebody else may have written over the text that says whose a link is.
        let names: BTreeMap<&str, &Link> =
            inventory.unmarked.iter().map(|link| (link.name.as_str(), link)).collect();
        let is_there = |key: &HoldKey| {
            let name = || pod::host_name(host.settings(), key.container(), key.interface());
            owners.contains(key) || names.contains_key(name().as_str())
        };
        let mut gone: BTreeSet<HoldKey> = interfaces.iter().filter(|key| !is_there(key)).cloned().collect();
        self.present.retain(|path| namespaces.iter().any(|(_, asked)| asked == path));
        gone.extend(namespaces.iter().filter(|(_, path)| self.is_gone(path)).map(|(key, _)| key.clone()));
        let strays = inventory.strays.iter().map(ToString::to_string).collect();
        let unmarked = inventory.unmarked.into_iter().filter(|link| link.alias.is_none());
        let (cut_short, once): (Vec<Link>, Vec<Link>) =
            unmarked.partition(|link| self.unmarked.contains(&link.index));
        self.unmarked = once.iter().map(|link| link.index).collect();
        let links = inventory.pods.into_iter().filter_map(found).collect();
        Ok(Seen { look: Look { links, gone, strays }, cut_short })
    }

    /// Whether a namespace was there and is gone, or its file is missing where it would have to be.
    fn is_gone(&mut self, path: &str) -> bool {
        match NetNs::open(path) {
            Ok(_) => {
                self.present.insert(path.to_owned());
                false
            }
            Err(error) if !error.is_gone() => false,
            Err(_) if self.present.contains(path) => true,
            // A plain file is also what is seen of a namespace that is mounted where we cannot see it.
            Err(netns::Error::Foreign { .. }) => false,
            Err(_) => Path::new(path).parent().is_some_and(Path::is_dir),
        }
    }
}

/// The links that the kernel has of ours, at a start. What does not say whose it is stays until it was looked at twice.
pub(super) fn inventory(host: &mut Host) -> Result<Vec<Found>, socket::Error> {
    Ok(Inventory::take(host)?.pods.into_iter().filter_map(found).collect())
}

fn found(link: PodLink) -> Option<Found> {
    let key = key_of(&link.owner)?;
    let addresses: Vec<IpAddr> = link.addresses;
    Some(Found { key, pod: pod_of(link.owner), addresses: addresses.into_iter().map(Into::into).collect() })
}

/// The holder that a link belongs to.
pub(super) fn key_of(owner: &Identity) -> Option<HoldKey> {
    HoldKey::new(owner.network.clone(), owner.container.clone(), owner.interface.clone()).ok()
}

/// The pod that a link belongs to, as far as it says.
fn pod_of(owner: Identity) -> Pod {
    Pod { namespace: owner.namespace, name: owner.pod, uid: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_gone_only_where_it_could_be_seen() {
        let mut observer = KernelObserver::default();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        assert!(observer.is_gone(&path("cni-1")), "its directory is here, and it is not in it");
        assert!(!observer.is_gone(&path("elsewhere/cni-1")), "its directory cannot be seen");
        assert!(!observer.is_gone("/proc/self/ns/net"));
        std::fs::write(path("cni-2"), "").unwrap();
        assert!(!observer.is_gone(&path("cni-2")), "what is mounted there may be invisible here");
        std::os::unix::fs::symlink("/proc/self/ns/net", path("cni-3")).unwrap();
        assert!(!observer.is_gone(&path("cni-3")));
        std::fs::remove_file(path("cni-3")).unwrap();
        std::fs::write(path("cni-3"), "").unwrap();
        assert!(observer.is_gone(&path("cni-3")), "it was there before");
    }
}
