//! The rules of Coil's kinds, in CEL. Each is checked by the API server; nothing else validates.
//!
//! Written for what kube-apiserver and `kube-cel` both evaluate: no `cel.bind`, no two-variable comprehensions,
//! no `optionalOldSelf`. A rule that parses guards itself, so that a bad value is refused once, by the rule on
//! that value, and not again by every rule that would need it to be good. Refusals say what was found and what
//! would be accepted; where several entries are wrong, the first is named.
//!
//! The cost of every rule is bounded by the `maxItems` and `maxLength` of the fields that it reads. kube-apiserver
//! refuses a definition whose estimate is too high, and stops a rule after 10⁶ steps: comparing 128 subnets with
//! each other stays below that, which is where the bound on `spec.subnets` comes from.

use kube::core::{Reason, Rule};

use crate::expressions::{is_cidr, is_cidr_of, says, says_of};

/// A string that must be an IPv4 CIDR.
pub fn ipv4_cidr() -> Rule {
    Rule::new(is_cidr_of("ipv4", "self"))
        .message(says("must be an IPv4 CIDR such as 10.2.0.0/16, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// A string that must be an IPv6 CIDR.
pub fn ipv6_cidr() -> Rule {
    Rule::new(is_cidr_of("ipv6", "self"))
        .message(says("must be an IPv6 CIDR such as fd01:203:405:607::/112, not \"%s\"", &["self"]))
        .reason(Reason::FieldValueInvalid)
}

/// A subnet, or a block, without a family is none.
pub fn has_a_family() -> Rule {
    Rule::new("has(self.ipv4) || has(self.ipv6)")
        .message("needs ipv4, ipv6 or both, such as {\"ipv4\": \"10.2.0.0/16\"}")
        .reason(Reason::FieldValueRequired)
}

/// The addresses of a dual-stack subnet, or block, are pairs.
pub fn families_are_equally_large() -> Rule {
    let both = format!(
        "has(self.ipv4) && has(self.ipv6) && {} && {}",
        is_cidr_of("ipv4", "self.ipv4"),
        is_cidr_of("ipv6", "self.ipv6")
    );
    Rule::new(format!("!({both}) || cidr(self.ipv6).prefixLength() - cidr(self.ipv4).prefixLength() == 96"))
        .message(says(
            "ipv4 and ipv6 must have equally many addresses: beside ipv4 \"%s\" an ipv6 /%s is accepted, not \"%s\"",
            &["self.ipv4", "string(cidr(self.ipv4).prefixLength() + 96)", "self.ipv6"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// Blocks are numbered by it.
pub fn block_size_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "cannot be changed from %s to %s, because blocks are numbered by it; make another pool",
            &["string(oldSelf)", "string(self)"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// An IPv4 subnet is at least one block.
pub fn ipv4_subnets_hold_a_block() -> Rule {
    holds_a_block("ipv4", 32)
}

/// An IPv6 subnet is at least one block.
pub fn ipv6_subnets_hold_a_block() -> Rule {
    holds_a_block("ipv6", 128)
}

fn holds_a_block(family: &str, bits: u8) -> Rule {
    let field = format!("s.{family}");
    let good = is_cidr_of(family, &field);
    let large =
        format!("!has({field}) || !{good} || {bits} - cidr({field}).prefixLength() >= self.blockSizeBits");
    Rule::new(format!("self.subnets.all(s, {large})"))
        .message(says(
            &format!("{family} \"%s\" is smaller than a block of 2^%s addresses; %s is accepted"),
            &[
                &format!("self.subnets.filter(s, !({large}))[0].{family}"),
                "string(self.blockSizeBits)",
                &format!(
                    "self.blockSizeBits > {bits} ? 'blockSizeBits of at most {bits} with an {family} subnet' \
                     : 'a /%s or larger'.format([string({bits} - self.blockSizeBits)])"
                ),
            ],
        ))
        .field_path(".subnets")
        .reason(Reason::FieldValueInvalid)
}

/// Blocks are numbered through the list.
pub fn subnets_are_append_only() -> Rule {
    Rule::new("self.size() >= oldSelf.size() && oldSelf.all(s, self.indexOf(s) == oldSelf.indexOf(s))")
        .message(says_of(
            "oldSelf.filter(s, self.indexOf(s) != oldSelf.indexOf(s))[0]",
            "subnets can only be appended: entry %s, \"%s\", must stay as and where it is",
            &["string(oldSelf.indexOf(it))", "has(it.ipv4) ? it.ipv4 : it.ipv6"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// No IPv4 address is in two subnets.
pub fn ipv4_subnets_are_distinct() -> Rule {
    distinct("ipv4")
}

/// No IPv6 address is in two subnets.
pub fn ipv6_subnets_are_distinct() -> Rule {
    distinct("ipv6")
}

fn distinct(family: &str) -> Rule {
    // Two CIDRs overlap exactly when one contains the other. Every CIDR overlaps itself.
    let overlap = |a: &str, b: &str| format!("({a}.containsCIDR({b}) || {b}.containsCIDR({a}))");
    let (a, b) = (format!("cidr(a.{family})"), format!("cidr(b.{family})"));
    let all_parse =
        format!("self.all(s, !has(s.{family}) || {})", is_cidr_of(family, &format!("s.{family}")));
    let itself_only =
        format!("!has(a.{family}) || self.exists_one(b, has(b.{family}) && {})", overlap(&a, &b));
    let partners = format!("self.filter(b, has(b.{family}) && {})", overlap("cidr(it)", &b));
    Rule::new(format!("!{all_parse} || self.all(a, {itself_only})"))
        .message(says_of(
            &format!("self.filter(a, !({itself_only}))[0].{family}"),
            &format!("subnets must not overlap, but {family} \"%s\" and \"%s\" do"),
            &["it", &format!("{partners}[1].{family}")],
        ))
        // Not `FieldValueDuplicate`: kube-apiserver drops the message of those.
        .reason(Reason::FieldValueInvalid)
}

/// Each entry is an address, a CIDR or a range.
pub fn exclusions_are_addresses() -> Rule {
    let good = format!(
        "isIP(e) || {} || (e.split('-').size() == 2 && isIP(e.split('-')[0]) && isIP(e.split('-')[1]) \
         && ip(e.split('-')[0]).family() == ip(e.split('-')[1]).family())",
        is_cidr("e")
    );
    Rule::new(format!("self.all(e, {good})"))
        .message(says(
            "\"%s\" is none of: an address such as 10.2.0.1, a CIDR such as 10.2.0.0/29, a range of one family \
             such as 10.2.0.10-10.2.0.19",
            &[&format!("self.filter(e, !({good}))[0]")],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// A duration with units, not longer than a day.
pub fn cooling_is_a_duration() -> Rule {
    Rule::new(
        "self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h))+$') && duration(self) <= duration('24h')",
    )
    .message(says("must be a duration from 0s to 24h such as 30s, 1m30s or 500ms, not \"%s\"", &["self"]))
    .reason(Reason::FieldValueInvalid)
}

/// A block carries its pool's name as the value of a label.
pub fn pool_name_fits_a_label() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message(says(
            "metadata.name must have at most 63 characters, because blocks carry it as the value of a label; \
             \"%s\" has %s",
            &["self.metadata.name", "string(self.metadata.name.size())"],
        ))
        .reason(Reason::FieldValueInvalid)
}

/// A request is for one thing.
pub fn request_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "a request cannot be changed from node \"%s\" and pool \"%s\" to node \"%s\" and pool \"%s\"; \
             make another request",
            &["oldSelf.nodeName", "oldSelf.poolName", "self.nodeName", "self.poolName"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// The index of a block is its name and its place.
pub fn block_index_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "the index of a block cannot be changed from %s to %s",
            &["string(oldSelf)", "string(self)"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// The addresses of a block do not change while a node hands them out.
pub fn block_subnet_is_immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message(says(
            "the addresses of a block cannot be changed from \"%s\" to \"%s\"",
            &["oldSelf", "self"],
        ))
        .reason(Reason::FieldValueForbidden)
}

/// Keys are offsets without sign, exponent or leading zero. The field is ours alone: there are none from before.
pub fn claimed_offsets_are_decimal() -> Rule {
    // See `whereabouts::rules::added_offsets_are_decimal` for why it is said in this way.
    Rule::new(
        "self.all(k, k == '0' || (k >= '1' && k < ':' && k.size() <= 39 && (k.size() > 18 || int(k) > 0)))",
    )
    .message(
        "every key must be the decimal offset of an address in the block, such as \"0\" or \"17\": \
         no sign, no leading zero, at most 39 digits",
    )
    .reason(Reason::FieldValueInvalid)
}

/// A block neither gains nor loses a family.
pub fn block_families_are_immutable() -> Rule {
    Rule::new("has(self.ipv4) == has(oldSelf.ipv4) && has(self.ipv6) == has(oldSelf.ipv6)")
        .message(
            "ipv4 and ipv6 of a block can be neither added nor removed; delete the block and carve another",
        )
        .reason(Reason::FieldValueForbidden)
}

/// The name is the lock on the index.
pub fn block_name_ends_in_its_index() -> Rule {
    // Not `endsWith`: the cost of that grows with the suffix, and the length of `string(self.index)` has no bound.
    let digits = "self.metadata.name.substring(self.metadata.name.lastIndexOf('-') + 1)";
    Rule::new(format!(
        "self.metadata.name.matches('.-(0|[1-9][0-9]{{0,18}})$') && uint({digits}) == uint(self.index)"
    ))
    .message(says(
        "metadata.name must be the pool, a dash and the index, such as default-%s, because the name is the lock \
         on the index; not \"%s\"",
        &["string(self.index)", "self.metadata.name"],
    ))
    .reason(Reason::FieldValueInvalid)
}
