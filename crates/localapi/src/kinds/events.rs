//! Events have two APIs and one store: `events.k8s.io/v1` is kept as `v1`, with other words for the same.

use serde_json::{Map, Value, json};

/// Names in `events.k8s.io/v1` and in `v1`.
const RENAMED: [(&str, &str); 8] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
];

/// An `events.k8s.io/v1` event as it is kept.
pub(crate) fn to_stored(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        rename(fields, RENAMED.iter().copied());
        fields.insert("apiVersion".to_owned(), json!("v1"));
        // Written even when they say nothing.
        for text in ["reportingComponent", "reportingInstance"] {
            fields.entry(text).or_insert_with(|| json!(""));
        }
    }
    value
}

/// A kept event as `events.k8s.io/v1` shows it.
pub(crate) fn from_stored(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        rename(fields, RENAMED.iter().map(|(theirs, ours)| (*ours, *theirs)));
        fields.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
    }
    value
}

fn rename<'n>(fields: &mut Map<String, Value>, names: impl Iterator<Item = (&'n str, &'n str)>) {
    for (from, to) in names.filter(|(from, to)| from != to) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_way_into_the_store_and_back() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"},
            "regarding": {"kind": "Pod", "name": "p"}, "note": "text", "reason": "Why", "action": "Did",
            "reportingController": "c", "reportingInstance": "i", "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
        });
        let stored = to_stored(event.clone());
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(stored["involvedObject"]["name"], "p");
        assert_eq!(stored["message"], "text");
        let back = from_stored(stored);
        for (field, value) in event.as_object().unwrap() {
            assert_eq!(&back[field], value, "{field}");
        }
    }
}
