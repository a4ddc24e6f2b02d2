//! The rules of alias pools and ledgers, in CEL. See the notes on cost and on the common subset of CEL in [`crate::coil::rules`].

use kube::core::{Reason, Rule};

use crate::expressions::{is_cidr_of, says, says_of};

/// An IPv4 network of a size that a subnet's range can have.
pub(super) fn cidr_is_a_network() -> Rule {
    Rule::new(format!(
        "{} && cidr(self).prefixLength() >= 8 && cidr(self).prefixLength() <= 30",
        is_network("self")
    ))
    .message(says(
        "must be an IPv4 network from a /8 to a /30 without host bits, such as 10.111.0.0/16, not \"%s\"",
        &["self"],
    ))
    .reason(Reason::FieldValueInvalid)
}

fn is_network(of: &str) -> String {
    format!("({} && cidr({of}).masked() == cidr({of}))", is_cidr_of("ipv4", of))
}

/// Records are made by it.
pub(super) fn is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says("cannot be changed from \"%s\" to \"%s\"; make another pool", &["oldSelf", "self"]))
        .reason(Reason::FieldValueForbidden)
}

/// A subnet as the cloud names it.
pub(super) fn subnet_is_a_path() -> Rule {
    Rule::new("self.matches('^(https?://[^ ]+/)?projects/[^/ ]+/regions/[^/ ]+/subnetworks/[^/ ]+$')")
        .message(says("must be projects/PROJECT/regions/REGION/subnetworks/NAME, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// A secondary range as the cloud names it, or none.
pub(super) fn range_name_is_valid() -> Rule {
    Rule::new("self == '' || self.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message(says(
            "must be the name of a secondary range such as live (a letter, then letters, digits and dashes in lower case), or empty \
             for the primary range; not \"%s\"",
            &["self"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// Ledgers are numbered through the list.
pub(super) fn pool_is_append_only() -> Rule {
    let kept = "has(self.ranges) && self.ranges.indexOf(r) == oldSelf.ranges.indexOf(r)";
    Rule::new(format!("!has(oldSelf.ranges) || oldSelf.ranges.all(r, {kept})"))
        .message(says_of(
            &format!("oldSelf.ranges.filter(r, !({kept}))[0]"),
            "ranges can only be appended: entry %s, \"%s\", must stay as and where it is",
            &["string(oldSelf.ranges.indexOf(it))", "it.cidr"],
        ))
        .field_path(".ranges")
        .reason(Reason::FieldValueForbidden)
}

/// No address is in two ranges.
pub(super) fn ranges_are_distinct() -> Rule {
    let overlap = |a: &str, b: &str| format!("(cidr({a}).containsCIDR({b}) || cidr({b}).containsCIDR({a}))");
    let parse = format!("{} && self.ranges.all(r, {})", is_network("self.cidr"), is_network("r.cidr"));
    let alone = format!(
        "!{} && self.ranges.exists_one(o, {})",
        overlap("r.cidr", "self.cidr"),
        overlap("r.cidr", "o.cidr")
    );
    Rule::new(format!("!has(self.ranges) || !({parse}) || self.ranges.all(r, {alone})"))
        .message(says(
            "\"%s\" has addresses of another range of the pool; accepted is a range that overlaps none",
            &[&format!("self.ranges.filter(r, !({alone}))[0].cidr")],
        ))
        .field_path(".ranges")
        .reason(Reason::FieldValueInvalid)
}

/// A block is a part of each range.
pub(super) fn a_block_fits_into_every_range() -> Rule {
    let bits = "(has(self.blockSizeBits) ? self.blockSizeBits : 5)";
    let fits = |of: &str| format!("(!{} || 32 - cidr({of}).prefixLength() >= {bits})", is_network(of));
    let first = fits("self.cidr");
    let more = fits("r.cidr");
    Rule::new(format!(
        "!has(self.attach) || self.attach != 'block' || ({first} && (!has(self.ranges) || self.ranges.all(r, {more})))"
    ))
    .message(says(
        "\"%s\" is smaller than a block of 2^%s addresses; a /%s or larger is accepted",
        &[
            &format!("!{first} ? self.cidr : self.ranges.filter(r, !{more})[0].cidr"),
            &format!("string({bits})"),
            &format!("string(32 - {bits})"),
        ],
    ))
    .field_path(".blockSizeBits")
    .reason(Reason::FieldValueInvalid)
}

/// Keys are offsets within a ledger, without sign or leading zero.
pub(super) fn offsets_are_decimal() -> Rule {
    // See `whereabouts::rules::added_offsets_are_decimal` for why it is said in this way.
    Rule::new("self.all(k, k == '0' || (k >= '1' && k < ':' && k.size() <= 3 && int(k) > 0 && int(k) < 256))")
        .message("every key must be the decimal offset of an address in the ledger, from \"0\" to \"255\": no sign, no leading zero")
        .reason(Reason::FieldValueInvalid)
}
