//! JSON documents: lenient parsing, traversal, and changes by pointer.

use serde_json::{Map, Value};

/// The document in `bytes`; its text if it is not JSON, null if it is empty.
pub(super) fn parse(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// Sets `value` at `pointer` (a JSON pointer), and creates missing objects on the way.
pub(super) fn put(document: &mut Value, pointer: &str, value: Value) {
    let mut here = document;
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        here = match here {
            Value::Array(items) => match key.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                match other.as_object_mut() {
                    Some(object) => object.entry(key).or_insert(Value::Null),
                    None => return,
                }
            }
        };
    }
    *here = value;
}

/// Removes the value at `pointer`, if any.
pub(super) fn take(document: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(object)) = document.pointer_mut(parent) {
        object.remove(&key.replace("~1", "/").replace("~0", "~"));
    }
}

/// `document` with every string (not keys) replaced by the result of `change`.
pub(super) fn map_strings(document: &mut Value, change: &mut impl FnMut(&str) -> String) {
    match document {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, change)),
        Value::Object(object) => object.values_mut().for_each(|value| map_strings(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Visits every object inside `document`, outermost first.
pub(super) fn each_object(document: &Value, visit: &mut impl FnMut(&Map<String, Value>)) {
    match document {
        Value::Object(object) => {
            visit(object);
            object.values().for_each(|value| each_object(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| each_object(item, visit)),
        _ => {}
    }
}

/// Changes every object inside `document`, outermost first.
pub(super) fn each_object_mut(document: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match document {
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| each_object_mut(value, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_object_mut(item, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn put_makes_the_way_and_take_undoes_it() {
        let mut document = json!({"a": [{"b": 1}]});
        put(&mut document, "/a/0/c/d~1e", json!(2));
        assert_eq!(document, json!({"a": [{"b": 1, "c": {"d/e": 2}}]}));
        take(&mut document, "/a/0/c");
        take(&mut document, "/nothing/here");
        assert_eq!(document, json!({"a": [{"b": 1}]}));
    }

    #[test]
    fn what_is_no_json_is_kept_as_text() {
        assert_eq!(parse(b"404 page not found\n"), json!("404 page not found\n"));
        assert_eq!(parse(b""), Value::Null);
        assert_eq!(parse(b"{\"a\":1}"), json!({"a": 1}));
    }
}
