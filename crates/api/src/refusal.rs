//! What a rule says when it refuses: CEL that makes the sentence.

use kube::core::Message;

/// A message with `%s` in it. `format` goes outermost and numbers go through `string`: kube-apiserver cannot bound
/// the length of what either returns, so concatenating it would exceed every budget.
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
