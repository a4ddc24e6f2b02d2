//! What claims and the interfaces of virtual machines are called.
//!
//! The name of a machine's claim is the one that KubeVirt's own ipam-extensions gives it: machine and network, lower-case, with
//! everything but letters, digits and dashes turned into dots. That forgets: `a_b` and `a.b` become one. Where it does, a
//! short hash of what was meant follows, so that two networks never share a claim; where it does not, nothing does.

use tenure_api::names::{MAX_NAME, is_object_name};

use crate::digest;

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

/// Parts as one object name. Of names with dots in several parts the hash is what tells `a.b` and `c` from `a` and `b.c`.
fn mangled(parts: &[&str]) -> String {
    let plain = parts.join(".");
    // A dot within the last part alone is no ambiguity: the parts before it have none.
    let apart = parts.iter().take(parts.len().saturating_sub(1)).skip(1).all(|part| !part.contains('.'));
    if apart && is_object_name(&plain) {
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
