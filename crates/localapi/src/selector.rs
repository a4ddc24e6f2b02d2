//! Label and field selectors of list and watch requests.
//!
//! Owns the two grammars and which field labels a kind supports. A selector that does not parse is refused
//! with the sentence that kube-apiserver answers (as a `BadRequest`).

mod fields;
mod labels;
#[cfg(test)]
mod tests;

pub(crate) use fields::{FieldLabels, FieldSelector};
pub(crate) use labels::LabelSelector;

/// A selector that cannot be used; the text is the whole message of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SelectorError(pub(crate) String);
