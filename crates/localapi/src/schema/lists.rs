//! Uniqueness in lists of type `set` and `map`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::cause::Cause;
use super::node::{ListType, Node};
use super::path::Path;
use super::wording;

/// Causes for items that occur twice.
pub(super) fn validate(node: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !node.has_lists {
        return;
    }
    match value {
        Value::Object(fields) => {
            if let Some(inner) = node.additional.schema() {
                for (name, field) in sorted(fields) {
                    validate(inner, field, &path.key(name), causes);
                }
            }
            for (name, field) in sorted(fields) {
                if let Some(property) = node.properties.get(name) {
                    validate(property, field, &path.child(name), causes);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type {
                ListType::Set => {
                    for index in repeated(items.iter().map(wording::json)) {
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
    for index in repeated(keys.iter().map(wording::json)) {
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

/// The fields of an object by name, so that causes come in the same order on every run.
pub(super) fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut pairs: Vec<_> = fields.iter().collect();
    pairs.sort_by_key(|(name, _)| name.as_str());
    pairs
}

/// An embedded resource needs what every resource needs; its metadata follows the usual rules.
pub(super) fn validate_embedded(node: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !node.has_embedded {
        return;
    }
    match value {
        Value::Object(fields) => {
            if node.embedded {
                validate_resource(fields, path, causes);
            }
            for (name, field) in sorted(fields) {
                if let Some(property) = node.properties.get(name) {
                    validate_embedded(property, field, &path.child(name), causes);
                } else if let Some(inner) = node.additional.schema() {
                    validate_embedded(inner, field, &path.key(name), causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    validate_embedded(inner, item, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

fn validate_resource(fields: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        let at = path.child(name);
        match fields.get(name) {
            None => causes.push(Cause::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid_text(&at, text, "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    causes.push(Cause::invalid_text(&at, text, &detail));
                }
            }
            Some(Value::String(text)) => {
                let problems = crate::names::label1035_problems(&text.to_lowercase());
                if !problems.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                    causes.push(Cause::invalid_text(&at, text, &detail));
                }
            }
            Some(other) => causes.push(Cause::invalid(&at, other, "must be a string")),
        }
    }
    if let Some(metadata) = fields.get("metadata") {
        let at = path.child("metadata");
        let mut known = metadata.clone();
        if let Err(problem) = crate::names::coerce(&mut known) {
            causes.push(Cause::invalid(&at, metadata, &problem));
            return;
        }
        if known.get("name").is_none() {
            // It need not have a name; the rules do not know that.
            known["name"] = json!("fakename");
        }
        let namespaced = known.get("namespace").is_some();
        let rule = crate::names::NameRule::PathSegment;
        crate::names::validate_create(&known, rule, namespaced, &at, causes);
    }
}
