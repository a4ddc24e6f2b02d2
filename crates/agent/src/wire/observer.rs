//! Observing what the kernel has of ours.
//!
//! It reports that something is gone only if that is certain: a path that leads nowhere may also be one that
//! is not visible from here.

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

/// Earlier observations that matter for the next one.
#[derive(Debug, Default)]
pub(super) struct KernelObserver {
    /// Numbers of links that do not name their owner.
    unmarked: BTreeSet<u32>,
    /// Paths of namespaces that existed.
    present: BTreeSet<String>,
}

/// One observation.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) look: Look,
    /// Links whose creation was interrupted, observed for the second time.
    pub(super) cut_short: Vec<Link>,
}

impl KernelObserver {
    /// Observes all our links and routes, the interfaces of `interfaces` and the namespaces of `namespaces`.
    pub(super) fn look(
        &mut self,
        host: &mut Host,
        interfaces: &[HoldKey],
        namespaces: &[(HoldKey, String)],
    ) -> Result<Seen, socket::Error> {
        let inventory = Inventory::take(host)?;
        let owners: BTreeSet<HoldKey> = inventory.pods.iter().filter_map(|pod| key_of(&pod.owner)).collect();
        // Another program may have overwritten the text that names a link's owner.
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

    /// Whether a namespace existed and is gone, or its file is missing from a visible directory.
    fn is_gone(&mut self, path: &str) -> bool {
        match NetNs::open(path) {
            Ok(_) => {
                self.present.insert(path.to_owned());
                false
            }
            Err(error) if !error.is_gone() => false,
            Err(_) if self.present.contains(path) => true,
            // A namespace that is mounted where we cannot see it also looks like a plain file.
            Err(netns::Error::Foreign { .. }) => false,
            Err(_) => Path::new(path).parent().is_some_and(Path::is_dir),
        }
    }
}

/// Our links in the kernel at a start. A link that does not name its owner stays until two observations.
pub(super) fn inventory(host: &mut Host) -> Result<Vec<Found>, socket::Error> {
    Ok(Inventory::take(host)?.pods.into_iter().filter_map(found).collect())
}

fn found(link: PodLink) -> Option<Found> {
    let key = key_of(&link.owner)?;
    let addresses: Vec<IpAddr> = link.addresses;
    Some(Found { key, pod: pod_of(link.owner), addresses: addresses.into_iter().map(Into::into).collect() })
}

/// The holder that owns a link.
pub(super) fn key_of(owner: &Identity) -> Option<HoldKey> {
    HoldKey::new(owner.network.clone(), owner.container.clone(), owner.interface.clone()).ok()
}

/// The pod of a link, as far as the link names it.
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
