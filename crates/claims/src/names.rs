//! What claims and the interfaces of virtual machines are called.
//!
//! The name of a machine's claim is the one that KubeVirt's own ipam-extensions gives it: machine and network, lower-case, with
//! everything but letters, digits and dashes turned into dots. That forgets: `a_b` and `a.b` become one. Where it does, a
//! short hash of what was meant follows, so that two networks never share a claim; where it does not, nothing does.

use tenure_api::names::{MAX_NAME, is_object_name};

use tenure_api::digest;

/// How many digits of a hash tell apart what was mangled into one name.
const HASH: usize = 8;

/// The name of the claim of a virtual machine for one of its networks, by the network's name in the machine's own list.
pub fn machine_claim(machine: &str, network: &str) -> String {
    mangled(&[machine, network])
}

/// The name of the claim of a StatefulSet's pod for one of its interfaces.
pub fn pod_claim(pod: &str, network: &str, interface: &str) -> String {
    mangled(&[pod, network, interface])
}

/// The interface that KubeVirt gives a launcher pod for a network of its machine, by its name in the machine's own list.
pub fn machine_interface(network: &str) -> String {
    format!("pod{}", digest::hex(network, 11))
}

/// Parts as one object name. Only the first may have dots of its own: otherwise `a.b` and `c` would be called like `a` and `b.c`.
fn mangled(parts: &[&str]) -> String {
    let plain = parts.join(".");
    if is_object_name(&plain) && parts.iter().skip(1).all(|part| !part.contains('.')) {
        return plain;
    }
    let keep = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let lower = plain.to_lowercase();
    let pieces = lower
        .split(|c: char| !keep(c))
        .map(|piece| piece.trim_matches('-'))
        .filter(|piece| !piece.is_empty());
    let hash = digest::hex(&parts.join("\0"), HASH);
    let mut name = pieces.collect::<Vec<_>>().join(".");
    name.truncate(MAX_NAME - HASH - 1);
    let name = name.trim_end_matches(['.', '-']);
    if name.is_empty() { hash } else { format!("{name}.{hash}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_needs_no_mangling_is_exactly_machine_and_network() {
        for (machine, network, name) in [
            ("vm-a", "blue", "vm-a.blue"),
            ("vm.with.dots", "blue-2", "vm.with.dots.blue-2"),
            ("0", "0", "0.0"),
        ] {
            assert_eq!(machine_claim(machine, network), name);
        }
        assert_eq!(pod_claim("web-0", "blue", "net1"), "web-0.blue.net1");
    }

    #[test]
    fn what_is_mangled_alike_is_told_apart_by_a_hash() {
        let names = ["random_net", "random.net", "Random_Net", "random+net", "random_net_"]
            .map(|it| machine_claim("vm", it));
        for (at, name) in names.iter().enumerate() {
            assert!(name.starts_with("vm.random.net.") && is_object_name(name), "{name}");
            assert!(!names[..at].contains(name), "{names:?}");
        }
        assert_ne!(machine_claim("a.b", "c"), machine_claim("a", "b.c"));
        assert_ne!(pod_claim("p-0", "a", "b.c"), pod_claim("p-0", "a.b", "c"));
        assert_eq!(
            machine_claim("vm", "random_net"),
            machine_claim("vm", "random_net"),
            "and always the same"
        );
    }

    #[test]
    fn names_that_are_too_long_keep_their_beginning() {
        let name = machine_claim("vm", &"n".repeat(300));
        assert!(name.len() <= 253 && name.starts_with("vm.nnn") && is_object_name(&name), "{name}");
        assert_ne!(name, machine_claim("vm", &"n".repeat(301)));
    }

    #[test]
    fn a_machines_interface_is_the_one_that_kubevirt_makes() {
        let interface = machine_interface("blue");
        assert_eq!(interface, format!("pod{}", &digest::hex("blue", 64)[..11]));
        assert!(interface.len() < 16, "the kernel takes 15 characters");
    }

    proptest! {
        #[test]
        fn every_name_is_accepted_and_different_networks_never_share_one(
            machine in "[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?", one in "\\PC{0,12}|[a-zA-Z_.-]{1,6}", other in "\\PC{0,12}|[a-zA-Z_.-]{1,6}"
        ) {
            let (a, b) = (machine_claim(&machine, &one), machine_claim(&machine, &other));
            prop_assert!(is_object_name(&a), "{a}");
            prop_assert_eq!(a == b, one == other);
        }
    }
}
