//! Label and field selectors of list and watch requests.
//!
//! This module has the two grammars and the field labels of each kind. It selects what the real server
//! selects, and refuses what that refuses.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::Value;

use crate::names::{label_value_problems, qualified_name_problems};
use crate::status::quote;

/// An invalid selector; the text is the complete message of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SelectorError(String);

/// Requirements on labels that must all hold: `a=b, c!=d, e in (f,g), h notin (i), j, !k`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    /// Whether the requirement is negated.
    not: bool,
    /// The values; `None` if any value matches.
    values: Option<Vec<String>>,
}

impl LabelSelector {
    /// Reads the value of a `labelSelector` parameter.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self { requirements });
        }
        for part in split_outside_brackets(text) {
            let requirement = Requirement::parse(part.trim()).map_err(|problem| {
                SelectorError(format!("unable to parse requirement {}: {problem}", quote(part.trim())))
            })?;
            requirements.push(requirement);
        }
        Ok(Self { requirements })
    }

    /// Whether an object's `metadata.labels` match every requirement.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.requirements.iter().all(|requirement| {
            let found = labels.get(&requirement.key).and_then(Value::as_str);
            let fits = match (found, &requirement.values) {
                (Some(found), Some(values)) => values.iter().any(|value| value == found),
                (found, None) => found.is_some(),
                (None, Some(_)) => false,
            };
            fits != requirement.not
        })
    }

    /// Whether the selector selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// The parts between commas outside of brackets.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut inside = false;
    let separates = |c: char| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    };
    text.split(separates).collect()
}

impl Requirement {
    fn parse(part: &str) -> Result<Self, String> {
        let (key, not, values) = if let Some(key) = part.strip_prefix('!') {
            (key.trim(), true, None)
        } else if let Some((key, value)) = part.split_once("!=") {
            (key.trim(), true, Some(vec![value.trim()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key.trim(), false, Some(vec![value.trim()]))
        } else if let Some((head, values)) = part.split_once('(') {
            let values = values.strip_suffix(')').ok_or("the list has no end: give (a,b)")?;
            match head.split_whitespace().collect::<Vec<_>>().as_slice() {
                [key, "in"] => (*key, false, Some(values.split(',').map(str::trim).collect())),
                [key, "notin"] => (*key, true, Some(values.split(',').map(str::trim).collect())),
                _ => {
                    return Err("give key, key=value, key!=value, key in (a,b) or key notin (a,b)".to_owned());
                }
            }
        } else {
            (part, false, None)
        };
        let mut problems = qualified_name_problems(key);
        problems.extend(values.iter().flatten().flat_map(|value| label_value_problems(value)));
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        let values = values.map(|values| values.into_iter().map(str::to_owned).collect());
        Ok(Self { key: key.to_owned(), not, values })
    }
}

/// Terms on fields that must all hold: `metadata.name=a,status.phase!=Running`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

/// The field labels that a kind can be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldLabels(Vec<String>);

impl FieldLabels {
    /// The labels of a built-in kind: those that we and `kubectl` use.
    pub(crate) fn of(group: &str, kind: &str) -> Self {
        let own: &[&str] = match (group, kind) {
            ("", "Pod") => &["spec.hostNetwork", "spec.nodeName", "status.phase", "status.podIP"],
            ("", "Event") => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "reason",
                "type",
            ],
            _ => &[],
        };
        let all = ["metadata.name", "metadata.namespace"];
        Self(all.iter().chain(own).map(|label| (*label).to_owned()).collect())
    }

    /// The labels of a custom resource: its name, its namespace if it has one, and its `selectableFields`
    /// (as paths without the leading dot).
    pub(crate) fn custom(namespaced: bool, selectable: &[String]) -> Self {
        let mut labels = vec!["metadata.name".to_owned()];
        labels.extend(namespaced.then(|| "metadata.namespace".to_owned()));
        labels.extend(selectable.iter().cloned());
        Self(labels)
    }
}

impl FieldSelector {
    /// Reads the value of a `fieldSelector` parameter for a kind.
    pub(crate) fn parse(text: &str, labels: &FieldLabels) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, equal, value) = if let Some((field, value)) = part.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, true, value)
            } else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            if !labels.0.iter().any(|label| label == field) {
                let accepted = labels.0.join(", ");
                return Err(SelectorError(format!(
                    "field label not supported: {field}; this kind is selected by {accepted}"
                )));
            }
            terms.push(Term { field: field.to_owned(), equal, value: value.to_owned() });
        }
        Ok(Self { terms })
    }

    /// Whether the object matches every term; a missing field counts as the empty text.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let found = term.field.split('.').try_fold(object, |value, step| value.get(step));
            let text = match found.unwrap_or(&Value::Null) {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                Value::Null => Cow::Borrowed(""),
                other => Cow::Owned(other.to_string()),
            };
            (text == term.value) == term.equal
        })
    }

    /// Whether the selector selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
