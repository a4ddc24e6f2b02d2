//! How a stored object looks through an endpoint: its API version, its form.
//!
//! Most are shown exactly as stored, and then the stored text is sent. The others are another version of
//! their kind, or older than the current schema.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::registry::{Nature, Resource};
use crate::store::Object;

/// Whether the endpoint shows the stored text unchanged.
pub(crate) fn is_as_stored(resource: &Resource, object: &Object) -> bool {
    match &resource.nature {
        Nature::Builtin(_) => true,
        Nature::Custom(custom) => {
            object.version > custom.since && object.value["apiVersion"] == resource.api_version.as_str()
        }
    }
}

/// The object as the endpoint shows it.
pub(crate) fn value<'o>(resource: &Resource, object: &'o Object) -> Cow<'o, Value> {
    if is_as_stored(resource, object) {
        Cow::Borrowed(&object.value)
    } else {
        Cow::Owned(converted(resource, object.value.clone()))
    }
}

/// A stored value as the endpoint shows it.
pub(crate) fn converted(resource: &Resource, mut value: Value) -> Value {
    match &resource.nature {
        Nature::Builtin(_) => value,
        Nature::Custom(custom) => {
            value["apiVersion"] = json!(resource.api_version);
            custom.schema().prune(&mut value);
            custom.schema().default(&mut value);
            value
        }
    }
}

/// The object's text as the endpoint shows it.
pub(crate) fn text(resource: &Resource, object: &Object) -> Bytes {
    if is_as_stored(resource, object) {
        object.json.clone()
    } else {
        converted(resource, object.value.clone()).to_string().into()
    }
}

/// Writes the object as an item of a list, where built-in kinds do not repeat the list's fields.
pub(crate) fn write_item(resource: &Resource, object: &Object, out: &mut Vec<u8>) {
    let builtin = matches!(resource.nature, Nature::Builtin(_));
    if is_as_stored(resource, object) {
        if builtin {
            out.push(b'{');
            out.extend_from_slice(object.rest());
        } else {
            out.extend_from_slice(&object.json);
        }
        return;
    }
    out.extend_from_slice(converted(resource, object.value.clone()).to_string().as_bytes());
}

/// Only the metadata of an object.
pub(crate) fn metadata_of(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}
