//! The rules of Whereabouts' kinds, in CEL. Whereabouts itself checks nothing here; what it writes passes.
//!
//! See the notes on cost and on the common subset of CEL in [`crate::coil::rules`]. Keys of a map have no bound on
//! their length, so a rule on them may neither match nor concatenate them: their estimate would be infinite.

use kube::core::{Reason, Rule};

use crate::expressions::{is_cidr, says};

/// An address and a prefix length.
pub fn range_is_a_cidr() -> Rule {
    Rule::new(is_cidr("self"))
        .message(says("must be a CIDR such as 192.168.2.0/24 or 2001:db8::/64, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// Allocations are offsets from it.
pub fn range_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "cannot be changed from \"%s\" to \"%s\", because every allocation would move; make another pool",
            &["oldSelf", "self"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// Keys that are added are offsets without sign, exponent or leading zero, below 2^128.
///
/// Only those that are added: a pool with one insane key from before must still take its next allocation. Such a key
/// is reported when the pool is read, and never read as an address.
pub fn added_offsets_are_decimal() -> Rule {
    // Beyond 18 digits a key is not looked at digit by digit: it would not fit CEL's integers.
    Rule::new(
        "self.all(k, k in oldSelf || k == '0' \
         || (k >= '1' && k < ':' && k.size() <= 39 && (k.size() > 18 || int(k) > 0)))",
    )
    .message(
        "every key must be the decimal offset of an address in the range, such as \"0\" or \"17\": \
         no sign, no leading zero, at most 39 digits",
    )
    .reason(Reason::FieldValueInvalid)
}

/// Slices start where the range starts.
pub fn sliced_range_is_a_network() -> Rule {
    Rule::new(format!("{} && cidr(self).masked() == cidr(self)", is_cidr("self")))
        .message(says(
            "must be a network address and a prefix length such as \"%s\", not \"%s\"",
            &["isCIDR(self) ? string(cidr(self).masked()) : '10.0.0.0/8'", "self"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// `/20` or `20`.
pub fn slice_size_is_a_prefix_length() -> Rule {
    Rule::new("self.matches('^/?[0-9]{1,3}$')")
        .message(says("must be a prefix length such as /20 or 20, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// A slice is a part of the range, and there are not more of them than one object can list.
pub fn slices_fit_into_the_range() -> Rule {
    const SIZE: &str = "int(self.sliceSize.replace('/', ''))";
    const LEAST: &str = "cidr(self.range).prefixLength()";
    const MOST: &str = "(cidr(self.range).ip().family() == 4 ? 32 : 128)";
    Rule::new(format!(
        "!{} || !self.sliceSize.matches('^/?[0-9]{{1,3}}$') \
         || ({SIZE} >= {LEAST} && {SIZE} <= {MOST} && {SIZE} - {LEAST} <= 15)",
        is_cidr("self.range")
    ))
    .message(says(
        "slices of \"%s\" can have prefix lengths from /%s to /%s (at most 32768 slices), not \"%s\"",
        &[
            "self.range",
            &format!("string({LEAST})"),
            &format!("string({LEAST} + 15 < {MOST} ? {LEAST} + 15 : {MOST})"),
            "self.sliceSize",
        ],
    ))
    .field_path(".sliceSize")
    .reason(Reason::FieldValueInvalid)
}
