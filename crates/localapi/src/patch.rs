//! The three kinds of patch that a client may send, applied to JSON objects.
//!
//! Owns JSON merge patch (RFC 7386), JSON patch (RFC 6902) and Kubernetes' strategic merge patch for the
//! built-in kinds. Each leaves its target untouched when it fails.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(crate) use json::json_patch;
pub(crate) use strategic::strategic_merge;

/// Why a patch was not applied; the variant says which status the real server answers with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// The patch is not one: `400 BadRequest` with this message.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: `422 Invalid`. kube-apiserver keeps this message to itself and says
    /// that the request was in error.
    #[error("{0}")]
    Unfit(String),
    /// More operations than are allowed: `413 RequestEntityTooLarge` with this message.
    #[error("{0}")]
    TooLarge(String),
    /// The real server does not classify the failure: `500 InternalError` with this message.
    #[error("{0}")]
    Unclassified(String),
}

/// Applies a JSON merge patch: objects merge, `null` removes, everything else replaces.
pub(crate) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if let Value::Object(fields) = target {
        merge_fields(fields, changes);
    } else {
        *target = without_nulls(patch);
    }
}

fn merge_fields(fields: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, change) in changes {
        match (change, fields.get_mut(key)) {
            (Value::Null, _) => {
                fields.remove(key);
            }
            (Value::Object(inner), Some(Value::Object(current))) => merge_fields(current, inner),
            // An object gives way to any other value as it is; only what is new loses its nulls.
            (_, Some(current @ Value::Object(_))) => *current = change.clone(),
            (_, Some(current)) => *current = without_nulls(change),
            (_, None) => {
                fields.insert(key.clone(), without_nulls(change));
            }
        }
    }
}

/// A copy without the null fields of its objects, also of those in lists. Nulls that are list items stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
