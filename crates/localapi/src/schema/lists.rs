//! Uniqueness in lists of type `set` and `map`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::cause::Cause;
use super::node::{ListType, Node};
use super::path::Path;

/// Causes for items that occur twice.
pub(super) fn validate(node: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !node.has_lists {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(property) = node.properties.get(name) {
                    validate(property, field, &path.child(name), causes);
                } else if let Some(inner) = node.additional() {
                    validate(inner, field, &path.key(name), causes);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type {
                ListType::Set => {
                    for index in repeated(items.iter().map(Value::to_string)) {
                        causes.push(Cause::duplicate(&path.index(index), &items[index]));
                    }
                }
                ListType::Map => validate_keys(node, items, path, causes),
                ListType::Atomic => {}
            }
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    validate(inner, item, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

fn validate_keys(node: &Node, items: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    let wrong = items.iter().enumerate().find(|(_, item)| !item.is_null() && !item.is_object());
    if let Some((index, item)) = wrong {
        let detail = "must be an object for an array of list-type map";
        causes.push(Cause::invalid(&path.index(index), item, detail));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let mut key = Map::new();
            for name in &node.list_map_keys {
                if let Some(value) = item.get(name) {
                    key.insert(name.clone(), value.clone());
                }
            }
            Value::Object(key)
        })
        .collect();
    for index in repeated(keys.iter().map(Value::to_string)) {
        causes.push(Cause::duplicate(&path.index(index), &keys[index]));
    }
}

/// The indices of second occurrences; a third is not reported again.
fn repeated(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut found = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_insert(0);
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
