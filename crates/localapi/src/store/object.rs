//! A stored object, its JSON text written once, and its events.
//!
//! A draft is serialised before its resource version is known, outside every lock; the version is then
//! inserted into the text. Lists, watches and the disk share that one text.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::key::Key;

/// An object at one resource version. Never changes.
#[derive(Debug)]
pub(crate) struct Object {
    /// Its location.
    pub(crate) key: Key,
    /// Its resource version.
    pub(crate) version: u64,
    /// The object, with `metadata.resourceVersion`.
    pub(crate) value: Value,
    /// The same as text, with `apiVersion` and `kind` first.
    pub(crate) json: Bytes,
    /// The position in `json` after `apiVersion` and `kind`.
    rest_at: usize,
}

impl Object {
    /// The text from the first field after `apiVersion` and `kind` to the closing brace, without a leading comma.
    pub(crate) fn rest(&self) -> &[u8] {
        self.json.get(self.rest_at..).unwrap_or_default()
    }

    /// `metadata`, which every stored object has.
    pub(crate) fn metadata(&self) -> &Value {
        &self.value["metadata"]
    }

    /// Whether a deletion has begun.
    pub(crate) fn is_terminating(&self) -> bool {
        !self.metadata()["deletionTimestamp"].is_null()
    }

    /// `metadata.uid`.
    pub(crate) fn uid(&self) -> &str {
        self.metadata()["uid"].as_str().unwrap_or_default()
    }
}

/// An object that has no resource version yet.
#[derive(Debug)]
pub(crate) struct Draft {
    value: Value,
    head: Vec<u8>,
    tail: Vec<u8>,
    rest_at: usize,
}

impl Draft {
    /// Serialises `value`; any resource version in it is ignored.
    pub(crate) fn new(value: Value) -> Self {
        let empty = Map::new();
        let fields = value.as_object().unwrap_or(&empty);
        let mut head = Vec::with_capacity(512);
        head.extend_from_slice(b"{\"apiVersion\":");
        write_json(&mut head, fields.get("apiVersion").unwrap_or(&Value::Null));
        head.extend_from_slice(b",\"kind\":");
        write_json(&mut head, fields.get("kind").unwrap_or(&Value::Null));
        head.push(b',');
        let rest_at = head.len();
        head.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");

        let mut tail = Vec::with_capacity(1024);
        tail.push(b'"');
        let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        for (name, field) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
            write_field(&mut tail, name, field);
        }
        tail.push(b'}');
        let written_above = ["apiVersion", "kind", "metadata"];
        for (name, field) in fields.iter().filter(|(name, _)| !written_above.contains(&name.as_str())) {
            write_field(&mut tail, name, field);
        }
        tail.push(b'}');
        Self { value, head, tail, rest_at }
    }

    /// The object at `key` with its resource version.
    pub(crate) fn finish(self, key: Key, version: u64) -> Object {
        let Self { mut value, mut head, tail, rest_at } = self;
        let version_text = version.to_string();
        head.reserve_exact(version_text.len() + tail.len());
        head.extend_from_slice(version_text.as_bytes());
        head.extend_from_slice(&tail);
        if let Value::Object(fields) = &mut value {
            let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("resourceVersion".to_owned(), Value::String(version_text));
            }
        }
        Object { key, version, value, json: head.into(), rest_at }
    }
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &Value) {
    out.push(b',');
    write_json(out, &name);
    out.push(b':');
    write_json(out, value);
}

/// Writing JSON values into memory cannot fail: their keys are strings and a vector accepts every byte.
fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        tracing::error!(%error, "an object could not be written as JSON");
        out.extend_from_slice(b"null");
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl EventKind {
    /// The text on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    /// What happened.
    pub(crate) kind: EventKind,
    /// The object after it; for a deletion its last state with the deletion's resource version.
    pub(crate) object: Arc<Object>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Object>>,
    frame: OnceLock<Bytes>,
}

impl Event {
    /// An event about `object`.
    pub(crate) fn new(kind: EventKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind, object, previous, frame: OnceLock::new() }
    }

    /// Its resource version.
    pub(crate) fn version(&self) -> u64 {
        self.object.version
    }

    /// The object after the event: `None` after a deletion.
    pub(crate) fn present(&self) -> Option<&Arc<Object>> {
        (self.kind != EventKind::Deleted).then_some(&self.object)
    }

    /// The line for a watcher that sees everything; made once, shared by all.
    pub(crate) fn frame(&self) -> Bytes {
        self.frame.get_or_init(|| frame(self.kind, &self.object.json)).clone()
    }
}

/// One line of a watch: an event of `kind` about the object whose text is `json`.
pub(crate) fn frame(kind: EventKind, json: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(json.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_str().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(json);
    line.extend_from_slice(b"}\n");
    line.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_the_value_with_its_version() {
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b", "resourceVersion": "stale", "labels": {"x": "\"quoted\""}},
            "data": {"k": "v"},
        });
        let object = Draft::new(value).finish(Key::new("b", "a"), 42);
        let text: Value = serde_json::from_slice(&object.json).unwrap();
        assert_eq!(text, object.value);
        assert_eq!(text["metadata"]["resourceVersion"], "42");
        let rest: Value =
            serde_json::from_str(&format!("{{{}", String::from_utf8_lossy(object.rest()))).unwrap();
        assert_eq!(rest["data"]["k"], "v");
        assert!(rest.get("kind").is_none());
    }

    #[test]
    fn an_object_without_metadata_gets_some() {
        let object = Draft::new(json!({"apiVersion": "v1", "kind": "X"})).finish(Key::new("", "a"), 7);
        assert_eq!(object.value["metadata"]["resourceVersion"], "7");
        let text: Value = serde_json::from_slice(&object.json).unwrap();
        assert_eq!(text, object.value);
    }
}
