//! Reading and setting the metadata of an object.
//!
//! Decoded and stored objects always have metadata; on anything else these functions do nothing.

use serde_json::{Value, json};

/// A text of the metadata; empty if it is missing.
pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Sets a field of the metadata.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert(field.to_owned(), value);
    }
}

/// Removes a field of the metadata.
pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove(field);
    }
}

/// Copies a field of the metadata from another object, or removes it.
pub(crate) fn copy(object: &mut Value, other: &Value, field: &str) {
    match other["metadata"].get(field) {
        Some(value) => set(object, field, value.clone()),
        None => remove(object, field),
    }
}

/// Whether a deletion has begun.
pub(crate) fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The generation; 0 if there is none.
pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces the finalizers; removes the field if there are none.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
    } else {
        set(object, "finalizers", json!(finalizers));
    }
}

/// Removes one finalizer; returns whether it was there.
pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let before = finalizers(object);
    let after: Vec<String> =
        before.iter().filter(|one| **one != finalizer).map(|one| (*one).to_owned()).collect();
    let found = after.len() < before.len();
    if found {
        set_finalizers(object, &after);
    }
    found
}

/// The owner references.
pub(crate) fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Replaces the owner references; removes the field if there are none.
pub(crate) fn set_owners(object: &mut Value, owners: Vec<Value>) {
    if owners.is_empty() {
        remove(object, "ownerReferences");
    } else {
        set(object, "ownerReferences", Value::Array(owners));
    }
}
