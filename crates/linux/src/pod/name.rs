//! Names and Ethernet addresses derived from an interface's owner. The link is found without listing all links, and a retry
//! uses the same names.

use super::Identity;
use super::identity::LINK_NAME_MAX;
use crate::{Mac, Settings};

/// The name of the host end of a holder's link: the configured prefix and a hash.
///
/// 48 bits with the default prefix: among 1,000 pods on a node, two share a name once in half a billion nodes. Then the second
/// setup is refused, because the alias names another owner.
pub fn host_name(settings: &Settings, container: &str, interface: &str) -> String {
    let hash = format!("{:016x}", hash(container, interface));
    let room = LINK_NAME_MAX.saturating_sub(settings.port_prefix.len()).min(hash.len());
    format!("{}{}", settings.port_prefix, &hash[..room])
}

/// The Ethernet address of a pod's end, unless the plan sets one.
pub(super) fn pod_mac(identity: &Identity) -> Mac {
    Mac::local(hash(&identity.container, &identity.interface))
}

/// FNV-1a and a final mix that spreads the last bytes over all bits. It must never change: it finds the links of earlier
/// versions.
fn hash(container: &str, interface: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in container.bytes().chain([b'/']).chain(interface.bytes()) {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_stay_what_they_were() {
        let settings = Settings::default();
        assert_eq!(host_name(&settings, "c0ffee", "eth0"), "tnr7b30cd678838");
        let long = Settings { port_prefix: "tenure-".into(), ..settings };
        assert_eq!(host_name(&long, "c0ffee", "eth0").len(), 15);
    }

    #[test]
    fn neighbouring_containers_and_interfaces_have_different_names_and_addresses() {
        let settings = Settings::default();
        let mut names = BTreeSet::new();
        let mut macs = BTreeSet::new();
        for container in 0..10_000 {
            for interface in ["eth0", "net1"] {
                names.insert(host_name(&settings, &format!("container-{container}"), interface));
                macs.insert(Mac::local(hash(&format!("container-{container}"), interface)));
            }
        }
        assert_eq!((names.len(), macs.len()), (20_000, 20_000));
    }
}
