//! The rules of `Egress` and `EgressClients`, in CEL. See the notes on cost and on the common subset of CEL in
//! [`crate::coil::rules`].
//!
//! Keys of a map have no bound on their length, so a rule may neither match nor split them: their estimate would be infinite. It
//! may look at single characters ([`keys_are_qualified_names`]).

use kube::core::{Reason, Rule};

use crate::expressions::{is_cidr, says};

/// Each entry is a network.
pub(super) fn destinations_are_networks() -> Rule {
    let good = is_cidr("d");
    Rule::new(format!("self.all(d, {good})"))
        .message(says(
            "\"%s\" is no network; accepted are an address and a prefix length such as 0.0.0.0/0 or fd02::/120",
            &[&format!("self.filter(d, !({good}))[0]")],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// The Service of an Egress has its name, and so do labels.
pub(super) fn name_fits_a_service() -> Rule {
    Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message(says(
            "metadata.name must be that of a Service: a letter, then letters, digits and dashes, at most 63 characters in lower case, \
             the last no dash; not \"%s\"",
            &["self.metadata.name"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// A count from 0, or a percentage up to 100.
pub(crate) fn is_a_number_or_a_percentage() -> Rule {
    Rule::new("self == string(self) ? self.matches('^0*([0-9]|[1-9][0-9]|100)%$') : self >= 0")
        .message(says(
            "must be a number from 0 or a percentage from 0%% to 100%%, not \"%s\"",
            &["string(self)"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// A budget says one thing.
pub(super) fn budget_is_one_of_two() -> Rule {
    Rule::new("!has(self.minAvailable) || !has(self.maxUnavailable)")
        .message(says(
            "accepted is one of minAvailable and maxUnavailable, not both \"%s\" and \"%s\"",
            &["string(self.minAvailable)", "string(self.maxUnavailable)"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// A Deployment takes no such two.
pub(super) fn recreation_is_not_rolling() -> Rule {
    Rule::new("self.type != 'Recreate' || !has(self.rollingUpdate)")
        .message("rollingUpdate is accepted only where type is RollingUpdate, not where it is \"Recreate\"")
        .reason(Reason::FieldValueInvalid)
}

/// A Deployment takes no such two.
pub(super) fn rolling_update_moves() -> Rule {
    let zero = |field: &str| format!("has(self.{field}) && string(self.{field}) in ['0', '0%']");
    Rule::new(format!("!({} && {})", zero("maxUnavailable"), zero("maxSurge")))
        .message("maxUnavailable and maxSurge must not both be 0, because nothing could be replaced; accepted is 1 or more for one")
        .reason(Reason::FieldValueInvalid)
}

/// Keys of labels and annotations: an optional prefix with a slash, and a name of at most 63 characters. That a prefix is the name
/// of a domain is left to the API server, which sees the key again with the Deployment.
pub(crate) fn keys_are_qualified_names(what: &str) -> Rule {
    // Each digit of an index is a loop of its own, because a list of three hundred numbers is no better to read.
    let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let index = "h * 100 + t * 10 + u";
    let every = |holds: &str| {
        format!("[0, 1, 2, 3].all(h, {digits}.all(t, {digits}.all(u, {index} >= k.size() || {holds})))")
    };
    let alphanumeric = "(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9')";
    let allowed = every(&format!("[k.charAt({index})].all(c, {alphanumeric} || c in ['-', '_', '.', '/'])"));
    let ends = format!("[k.charAt(0), k.charAt(k.size() - 1)].all(c, {alphanumeric})");
    let slash = "k.charAt(t * 10 + u) == '/'";
    // The first 63 characters from the end have a slash, or there is nothing before them.
    let name = format!(
        "(k.size() <= 63 || [0, 1, 2, 3, 4, 5, 6].exists(t, {digits}.exists(u, t * 10 + u <= 63 \
         && k.charAt(k.size() - 1 - t * 10 - u) == '/')))"
    );
    let one_slash = format!(
        "[0, 1, 2, 3].map(h, {digits}.map(t, {digits}.filter(u, {index} < k.size() && {}).size()).sum()).sum() <= 1",
        slash.replace("t * 10 + u", index)
    );
    let good = format!("k.size() > 0 && k.size() <= 317 && {allowed} && {ends} && {name} && {one_slash}");
    Rule::new(format!("self.all(k, {good})"))
        .message(says(
            &format!(
                "\"%s\" is no key of {}; accepted are letters, digits, '-', '_' and '.', at most 63 with a letter or digit at both ends, and \
                 before that a domain and a slash, such as example.com/name",
                if what == "label" { "a label" } else { "an annotation" }
            ),
            &[&format!("self.filter(k, !({good}))[0]")],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// Values of labels.
pub(crate) fn values_are_label_values() -> Rule {
    let good = "self[k].matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')";
    Rule::new(format!("self.all(k, {good})"))
        .message(says(
            "\"%s\" is no value of a label; accepted are at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            &[&format!("self[self.filter(k, !{good})[0]]")],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// The name says which node wrote it, so that no node occupies the name of another.
pub(super) fn clients_are_named_for_their_node() -> Rule {
    let node = "self.metadata.name.substring(self.metadata.name.indexOf('.') + 1)";
    Rule::new(format!(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]{{0,61}}[a-z0-9])?[.]') && (self.spec.nodeName.size() <= 63 \
         ? {node} == self.spec.nodeName : {node}.size() > 63)"
    ))
    .message(says(
        "metadata.name must be the name of the Egress, a dot and spec.nodeName \"%s\", shortened with a digest if it is longer than 63 \
         characters; not \"%s\"",
        &["self.spec.nodeName", "self.metadata.name"],
    ))
    .reason(Reason::FieldValueInvalid)
}

/// Another node's clients are another object.
pub(super) fn node_of_clients_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says("cannot be changed from \"%s\" to \"%s\"; make another object", &["oldSelf", "self"]))
        .reason(Reason::FieldValueForbidden)
}

/// Each entry is an address, written as usual.
pub(super) fn addresses_are_addresses() -> Rule {
    Rule::new("self.all(a, isIP(a))")
        .message(says(
            "\"%s\" is no address; accepted are IPv4 such as 10.1.2.3 and IPv6 such as fd00::1",
            &["self.filter(a, !isIP(a))[0]"],
        ))
        .reason(Reason::FieldValueInvalid)
}
