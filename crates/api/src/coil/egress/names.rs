//! Names and labels of what belongs to an Egress.

use std::collections::BTreeMap;

use super::label;
use crate::digest;
use crate::names::{NameError, is_object_name};

/// The longest value of a label.
const LABEL: usize = 63;
/// So many hexadecimal digits of a digest are in place of what does not fit.
pub(crate) const DIGITS: usize = 32;

/// A name without dots: of a namespace, of an Egress (its Service has the same), of a label's value.
pub(super) fn is_label(name: &str) -> bool {
    name.len() <= LABEL && crate::names::is_label(name)
}

/// The selector of everything that belongs to the gateways of any Egress.
pub const GATEWAYS: &str = "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress";

/// Whether a pod with these labels is a gateway of an Egress.
pub fn is_gateway(labels: &BTreeMap<String, String>) -> bool {
    let has = |name: &str, value: &str| labels.get(name).is_some_and(|it| it == value);
    has(label::APP, "coil") && has(label::COMPONENT, "egress")
}

/// The labels of an Egress's gateways and of what runs them, by which Services and budgets select. Coil's, so that Deployments that
/// Coil made are taken over.
pub fn gateway_labels(egress: &str) -> BTreeMap<String, String> {
    [(label::APP, "coil"), (label::INSTANCE, egress), (label::COMPONENT, "egress")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The same as the API server and autoscalers read it.
pub fn gateway_selector(egress: &str) -> String {
    let labels = gateway_labels(egress);
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// The name of the gateways' account, its role and its binding.
pub fn account_name(egress: &str) -> String {
    format!("tenure-egress-{egress}")
}

/// The value of the label by which the clients of one node are found: its name, shortened where it does not fit.
pub fn node_label(node: &str) -> String {
    if node.len() <= LABEL { node.to_owned() } else { shortened(node, LABEL) }
}

/// The name of the clients of an Egress on a node: `<egress>.<node>`. The name of an Egress has no dots, so what precedes the first
/// one is the Egress. A node's name that is longer than a label is shortened to its beginning and a digest, which together are longer
/// than a label as well: no two pairs have the same name.
pub fn clients_name(egress: &str, node: &str) -> Result<String, NameError> {
    let node_part = if node.len() <= LABEL { node.to_owned() } else { shortened(node, 2 * LABEL) };
    let name = format!("{egress}.{node_part}");
    let (field, value) = if is_label(egress) { ("node", node) } else { ("egress", egress) };
    if field == "node" && is_object_name(node) {
        return Ok(name);
    }
    Err(NameError { object: "the clients of an Egress", field, value: value.to_owned(), name })
}

/// The beginning of a name and a digest of it, together at most `longest` characters.
pub(crate) fn shortened(name: &str, longest: usize) -> String {
    let begin: String = name.chars().take(longest - DIGITS - 1).collect();
    // No part of a name begins with a dash.
    format!("{begin}-{}", digest::hex(name, DIGITS)).replace(".-", "0-")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gateways_are_found_by_coils_labels() {
        assert_eq!(
            gateway_selector("internet"),
            "app.kubernetes.io/component=egress,app.kubernetes.io/instance=internet,app.kubernetes.io/name=coil"
        );
    }

    #[test]
    fn clients_are_named_for_egress_and_node() {
        assert_eq!(clients_name("internet", "node-1.rack-2").unwrap(), "internet.node-1.rack-2");
        let long = format!("{}.{}", "n".repeat(92), "m".repeat(160));
        let name = clients_name(&"e".repeat(63), &long).unwrap();
        assert!(is_object_name(&name) && name.len() > 127, "{name}");
        assert!(is_label(&node_label(&long)) && node_label(&long).starts_with("nnn"));
        assert_eq!(node_label("node-1.rack-2"), "node-1.rack-2");
    }

    #[test]
    fn clients_that_cannot_be_named_say_why() {
        let said = |egress: &str, node: &str| clients_name(egress, node).unwrap_err().to_string();
        assert!(said("a.b", "n").starts_with("naming the clients of an Egress: egress \"a.b\""));
        assert!(said("a", "N_1").starts_with("naming the clients of an Egress: node \"N_1\""));
        assert!(said("a", &"n".repeat(254)).contains("at most 253 characters"));
    }

    proptest! {
        #[test]
        fn no_two_pairs_of_egress_and_node_share_a_name(
            pairs in proptest::collection::vec(("[ab](-?[ab]){0,3}", "[ab](-?[ab.]?[ab]){0,3}|[ab]{60,70}(\\.[ab]{80,90}){0,1}"), 2..30)
        ) {
            let mut seen: HashMap<String, (String, String)> = HashMap::new();
            for (egress, node) in pairs {
                let Ok(name) = clients_name(&egress, &node) else { continue };
                prop_assert!(is_object_name(&name), "{}", name);
                if let Some(other) = seen.insert(name.clone(), (egress.clone(), node.clone())) {
                    prop_assert_eq!(other, (egress, node), "both are named {}", name);
                }
            }
        }
    }
}
