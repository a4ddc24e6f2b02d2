//! The rules of pools and policies, in CEL. See the notes on cost and on the common subset of CEL in [`crate::coil::rules`].
//!
//! CEL cannot compare addresses; [`is_not_above`] can.

use kube::core::{Reason, Rule};

use crate::expressions::{is_cidr, says};

/// The name is a part of `ippool.NAME.allocate`.
pub(super) fn pool_name_fits_a_capture() -> Rule {
    Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message(says(
            "metadata.name must fit into the capture ippool.NAME.allocate: a letter, then letters, digits and dashes, at most 63 characters \
             in lower case, the last no dash; not \"%s\"",
            &["self.metadata.name"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// The name is the value of a label.
pub(super) fn policy_name_fits_a_label() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message(says(
            "metadata.name must have at most 63 characters, because enactments carry it as the value of a label; \"%s\" has %s",
            &["self.metadata.name", "string(self.metadata.name.size())"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// An address and a prefix length.
pub(super) fn cidr_is_a_network() -> Rule {
    Rule::new(is_cidr("self"))
        .message(says("must be a CIDR such as 10.10.10.0/24 or 2001:db8::/64, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// Offsets and prefix lengths depend on it.
pub(super) fn cidr_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "cannot be changed from \"%s\" to \"%s\"; delete the pool and make it again: nodes keep addresses that still fit",
            &["oldSelf", "self"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// One address.
pub(super) fn is_an_address() -> Rule {
    Rule::new("isIP(self)")
        .message(says("must be an address such as 10.10.10.1 or 2001:db8::1, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// The first address is one of the network.
pub(super) fn start_is_inside() -> Rule {
    is_inside("start")
}

/// The last address is one of the network.
pub(super) fn end_is_inside() -> Rule {
    is_inside("end")
}

fn is_inside(field: &str) -> Rule {
    let parses = format!("has(self.{field}) && isIP(self.{field}) && {}", is_cidr("self.cidr"));
    Rule::new(format!("!({parses}) || cidr(self.cidr).containsIP(self.{field})"))
        .message(says(
            "must be an address of cidr \"%s\", not \"%s\"",
            &["self.cidr", &format!("self.{field}")],
        ))
        .field_path(format!(".{field}"))
        .reason(Reason::FieldValueInvalid)
}

/// There is something between them.
pub(super) fn start_is_not_above_end() -> Rule {
    let both = "has(self.start) && has(self.end) && isIP(self.start) && isIP(self.end) && ip(self.start).family() == ip(self.end).family()";
    Rule::new(format!("!({both}) || {}", is_not_above("self.start", "self.end")))
        .message(says(
            "must not be below start \"%s\", but \"%s\" is; accepted are \"%s\" and later addresses",
            &["self.start", "self.end", "self.start"],
        ))
        .field_path(".end")
        .reason(Reason::FieldValueInvalid)
}

/// Offsets are counted from it.
pub(super) fn start_is_immutable() -> Rule {
    Rule::new("has(self.start) == has(oldSelf.start) && (!has(self.start) || self.start == oldSelf.start)")
        .message(says(
            "cannot be changed from \"%s\" to \"%s\", because offsets are counted from it; delete the pool and make it again: nodes keep \
             addresses that still fit",
            &["has(oldSelf.start) ? oldSelf.start : ''", "has(self.start) ? self.start : ''"],
        ))
        .field_path(".start")
        .reason(Reason::FieldValueForbidden)
}

/// A pool only grows.
pub(super) fn end_only_grows() -> Rule {
    let comparable =
        "isIP(self.end) && isIP(oldSelf.end) && ip(self.end).family() == ip(oldSelf.end).family()";
    Rule::new(format!(
        "!has(self.end) || (has(oldSelf.end) && (!({comparable}) || {}))",
        is_not_above("oldSelf.end", "self.end")
    ))
    .message(says(
        "can only grow: \"%s\" cannot become \"%s\"; delete the pool and make it again: nodes keep addresses that still fit",
        &["has(oldSelf.end) ? oldSelf.end : 'the last address of ' + oldSelf.cidr", "self.end"],
    ))
    .field_path(".end")
    .reason(Reason::FieldValueForbidden)
}

/// Exclusions are of the network.
pub(super) fn exclusions_are_inside() -> Rule {
    let network = "cidr(self.cidr)";
    let ends = |end: usize| format!("e.split('-')[{end}]");
    let range = format!(
        "(e.split('-').size() == 2 && isIP({0}) && isIP({1}) ? {network}.containsIP({0}) && {network}.containsIP({1}) : true)",
        ends(0),
        ends(1)
    );
    let inside = format!(
        "(isIP(e) ? {network}.containsIP(e) : {} ? {network}.containsCIDR(e) : {range})",
        is_cidr("e")
    );
    Rule::new(format!("!has(self.exclude) || !{} || self.exclude.all(e, {inside})", is_cidr("self.cidr")))
        .message(says(
            "\"%s\" is not inside cidr \"%s\"; accepted are its addresses, networks and ranges",
            &[&format!("self.exclude.filter(e, !{inside})[0]"), "self.cidr"],
        ))
        .field_path(".exclude")
        .reason(Reason::FieldValueInvalid)
}

/// What is excluded stays so.
pub(super) fn exclusions_are_only_added() -> Rule {
    let kept = "has(self.exclude) && e in self.exclude";
    Rule::new(format!("!has(oldSelf.exclude) || oldSelf.exclude.all(e, {kept})"))
        .message(says(
            "entries can be added, not removed: \"%s\" must stay; delete the pool and make it again: nodes keep addresses that still fit",
            &[&format!("oldSelf.exclude.filter(e, !({kept}))[0]")],
        ))
        .field_path(".exclude")
        .reason(Reason::FieldValueForbidden)
}

/// Captures are as they were made, as kubernetes-nmstate has it.
pub(super) fn captures_are_immutable() -> Rule {
    Rule::new(
        "has(self.capture) == has(oldSelf.capture) && (!has(self.capture) || self.capture == oldSelf.capture)",
    )
    .message("cannot be changed, because nodes have addresses by it; delete the policy and make it again")
    .field_path(".capture")
    .reason(Reason::FieldValueForbidden)
}

/// What looks like a pool's address is one.
pub(super) fn captures_name_pools() -> Rule {
    let good = "!self[k].startsWith('ippool') || self[k].matches('^ippool[.][a-z]([-a-z0-9]{0,61}[a-z0-9])?[.]allocate$')";
    Rule::new(format!("self.all(k, {good})"))
        .message(says(
            "\"%s\" takes no address of a pool; accepted is ippool.NAME.allocate with the name of a NodeIPPool, such as ippool.traffic-1.allocate",
            &[&format!("self[self.filter(k, !({good}))[0]]")],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// CEL for "the first address is not above the second", of two that parse and have the same family.
///
/// IPv4 addresses are compared as numbers. For IPv6 that would cost more than kube-apiserver allows, but networks tell the order: the
/// first is above exactly if there is a prefix length at which both are in one network and one bit further they are not, and the
/// second is in the lower half. The prefix lengths are pairs of text, `/63/64`, because kube-apiserver can bound neither what
/// `string` returns nor what is taken out of a list of lists.
fn is_not_above(first: &str, second: &str) -> String {
    let number = |of: &str| {
        let octet = |at: usize| format!("int({of}.split('.')[{at}])");
        format!("{} * 16777216 + {} * 65536 + {} * 256 + {}", octet(0), octet(1), octet(2), octet(3))
    };
    let lengths: Vec<String> = (0..128).map(|bits| format!("'/{bits}/{}'", bits + 1)).collect();
    let network = |of: &str| format!("cidr({of} + p.substring(0, p.lastIndexOf('/')))");
    let half = |of: &str| format!("cidr({of} + p.substring(p.lastIndexOf('/')))");
    let inverted = format!(
        "{}.containsIP({second}) && !{}.containsIP({second}) && {}.containsIP({}.masked().ip())",
        network(first),
        half(first),
        half(second),
        network(second)
    );
    format!(
        "(ip({first}).family() == 4 ? {} <= {} : ![{}].exists(p, {inverted}))",
        number(first),
        number(second),
        lengths.join(",")
    )
}
