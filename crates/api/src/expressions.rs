//! Pieces of CEL that the rules share: what a CIDR is, and the sentence of a refusal.

use kube::core::Message;

/// CEL for "this string is a CIDR".
///
/// The pattern refuses leading zeros in octets and prefix lengths. kube-apiserver's `isCIDR` does so by itself;
/// kube-cel 0.8 parses with `ipnet`, which takes `010.0.0.0/08`.
pub(crate) fn is_cidr(of: &str) -> String {
    format!("(isCIDR({of}) && !{of}.matches('(^|:)0[0-9]+[.]|[.]0[0-9]|/0[0-9]'))")
}

/// CEL for "this string is a CIDR of that family".
pub(crate) fn is_cidr_of(family: &str, of: &str) -> String {
    let number = family.trim_start_matches("ipv");
    format!("({} && cidr({of}).ip().family() == {number})", is_cidr(of))
}

/// A message with `%s` in it. `format` is outermost and numbers go through `string`: kube-apiserver cannot
/// bound the length of what either returns, so concatenating it would exceed every budget.
pub(crate) fn says(text: &str, values: &[&str]) -> Message {
    Message::Expression(format!("{}.format([{}])", quoted(text), values.join(", ")))
}

/// The same about one value that is computed once: `it` in the values.
pub(crate) fn says_of(it: &str, text: &str, values: &[&str]) -> Message {
    Message::Expression(format!("[{it}].map(it, {}.format([{}]))[0]", quoted(text), values.join(", ")))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
