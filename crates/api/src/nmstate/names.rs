//! Names of pools and enactments, and what captures say.

use crate::coil::egress::{DIGITS, node_label as label_of_node, shortened};
use crate::digest;
use crate::names::{NameError, is_label, is_object_name};

/// The longest value of a label.
const LABEL: usize = 63;
/// The longest node name that leaves room for a policy's name.
const NODE: usize = crate::names::MAX_NAME - 1 - LABEL;

/// The value of the label by which the enactments of one node are found: its name, shortened where it does not fit.
pub fn node_label(node: &str) -> String {
    label_of_node(node)
}

/// The name of a policy's enactment on a node: `<node>.<policy>`, as kubernetes-nmstate has it. What follows the last dot is the
/// policy, so a policy whose own name has dots goes in with dashes and a digest, and a long node name is shortened to its
/// beginning and a digest: no two pairs have the same name.
pub fn enactment_name(node: &str, policy: &str) -> Result<String, NameError> {
    let node_part = if node.len() <= NODE { node.to_owned() } else { shortened(node, NODE) };
    let policy_part = if policy.contains('.') {
        let begin: String = policy.replace('.', "-").chars().take(LABEL - DIGITS - 1).collect();
        format!("{begin}-{}", digest::hex(policy, DIGITS))
    } else {
        policy.to_owned()
    };
    let name = format!("{node_part}.{policy_part}");
    let (field, value) = if is_policy_name(policy) { ("node", node) } else { ("policy", policy) };
    if field == "node" && is_object_name(node) {
        return Ok(name);
    }
    Err(NameError { object: "the enactment of a policy on a node", field, value: value.to_owned(), name })
}

/// The name of the policy that is generated for kubernetes-nmstate from a policy on a node: that of our enactment, shortened to what a
/// policy can be called.
pub fn generated_name(node: &str, policy: &str) -> Result<String, NameError> {
    let name = enactment_name(node, policy)?;
    Ok(if name.len() <= LABEL { name } else { shortened(&name.replace('.', "-"), LABEL) })
}

/// Whether a policy can be called so: an object name that is the value of a label as well.
pub fn is_policy_name(name: &str) -> bool {
    name.len() <= LABEL && is_object_name(name)
}

/// Whether a pool can be called so: the name is a part of a capture.
pub fn is_pool_name(name: &str) -> bool {
    name.len() <= LABEL && is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The pool that a capture takes an address of: `ippool.NAME.allocate`.
pub fn pool_of_capture(capture: &str) -> Option<&str> {
    capture.trim().strip_prefix("ippool.")?.strip_suffix(".allocate").filter(|name| is_pool_name(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn enactments_are_named_for_node_and_policy() {
        assert_eq!(enactment_name("node01", "static-ip").unwrap(), "node01.static-ip");
        assert_eq!(enactment_name("node-1.rack-2", "static-ip").unwrap(), "node-1.rack-2.static-ip");
        let dotted = enactment_name("n", "bond0.100").unwrap();
        assert!(dotted.starts_with("n.bond0-100-") && dotted.matches('.').count() == 1, "{dotted}");
        let long = format!("{}.{}", "n".repeat(92), "m".repeat(160));
        let name = enactment_name(&long, &"p".repeat(63)).unwrap();
        assert!(is_object_name(&name), "{name}");
        for (node, policy, field) in [("n", "P", "policy"), ("N_1", "p", "node")] {
            let said = enactment_name(node, policy).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("naming the enactment of a policy on a node: {field}")),
                "{said}"
            );
        }
    }

    #[test]
    fn generated_policies_have_names_that_policies_can_have() {
        assert_eq!(generated_name("node01", "static-ip").unwrap(), "node01.static-ip");
        let long = generated_name(&"n".repeat(60), "static-ip").unwrap();
        assert!(is_policy_name(&long) && long.len() == 63, "{long}");
        assert_ne!(long, generated_name(&"n".repeat(61), "static-ip").unwrap());
    }

    #[test]
    fn a_capture_names_a_pool() {
        for (capture, pool) in [
            ("ippool.traffic-1.allocate", Some("traffic-1")),
            (" ippool.a.allocate ", Some("a")),
            ("ippool.a.b.allocate", None),
            ("ippool.1a.allocate", None),
            ("ippool..allocate", None),
            ("ippool.a.free", None),
            ("interfaces.name == \"eth1\"", None),
        ] {
            assert_eq!(pool_of_capture(capture), pool, "{capture}");
        }
    }

    proptest! {
        #[test]
        fn no_two_pairs_of_node_and_policy_share_a_name(
            pairs in proptest::collection::vec(("[ab](-?[ab.]?[ab]){0,3}|[ab]{60,70}(\\.[ab]{80,90}){2}", "[ab](-?[ab.]?[ab]){0,3}"), 2..30)
        ) {
            let mut seen: HashMap<String, (String, String)> = HashMap::new();
            for (node, policy) in pairs {
                let Ok(name) = enactment_name(&node, &policy) else { continue };
                prop_assert!(is_object_name(&name), "{}", name);
                if let Some(other) = seen.insert(name.clone(), (node.clone(), policy.clone())) {
                    prop_assert_eq!(other, (node, policy), "both are named {}", name);
                }
            }
        }
    }
}
