//! Dropping what a schema does not know.
//!
//! Unknown fields are removed unless the schema preserves them; nulls are removed where they are neither
//! allowed nor defaulted. `apiVersion`, `kind` and `metadata` of a resource always stay.

use serde_json::Value;

use super::node::Node;
use super::path::Path;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes an object of the kind; returns the sorted paths of the dropped fields.
pub(super) fn prune(node: &Node, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if node.preserve_unknown {
        skip(Some(node), true, object, &Path::root(), &mut dropped);
    } else {
        walk(Some(node), true, object, &Path::root(), &mut dropped);
    }
    drop_nulls(Some(node), object);
    dropped.sort();
    dropped
}

fn walk(node: Option<&Node>, resource: bool, value: &mut Value, path: &Path<'_>, dropped: &mut Vec<String>) {
    if let Some(known) = node
        && known.preserve_unknown
    {
        skip(node, resource, value, path, dropped);
        return;
    }
    match value {
        Value::Object(fields) => {
            let at_root = matches!(path, Path::Root);
            fields.retain(|name, field| {
                let Some(node) = node else {
                    dropped.push(path.child(name).to_string());
                    return false;
                };
                if resource && META.contains(&name.as_str()) {
                    return true;
                }
                if let Some(property) = node.properties.get(name) {
                    walk(Some(property), false, field, &path.child(name), dropped);
                    return true;
                }
                if node.additional_properties.is_some() {
                    walk(node.additional(), false, field, &path.child(name), dropped);
                    return true;
                }
                if !at_root || !META.contains(&name.as_str()) {
                    dropped.push(path.child(name).to_string());
                }
                false
            });
        }
        Value::Array(items) => {
            let inner = node.and_then(|n| n.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                walk(inner, false, item, &path.index(index), dropped);
            }
        }
        _ => {}
    }
}

/// Below a node that preserves unknown fields, only declared fields are pruned.
fn skip(node: Option<&Node>, resource: bool, value: &mut Value, path: &Path<'_>, dropped: &mut Vec<String>) {
    let Some(node) = node else { return };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if resource && META.contains(&name.as_str()) {
                    continue;
                }
                if let Some(property) = node.properties.get(name) {
                    walk(Some(property), false, field, &path.child(name), dropped);
                } else if node.additional_properties.is_some() {
                    walk(node.additional(), false, field, &path.child(name), dropped);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                skip(node.items.as_deref(), false, item, &path.index(index), dropped);
            }
        }
        _ => {}
    }
}

fn drop_nulls(node: Option<&Node>, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let inner = node.and_then(|n| n.field(name));
            if field.is_null() && inner.is_some_and(|n| !n.nullable && n.default.is_none()) {
                return false;
            }
            drop_nulls(inner, field);
            true
        }),
        Value::Array(items) => {
            let inner = node.and_then(|n| n.items.as_deref());
            for item in items {
                drop_nulls(inner, item);
            }
        }
        _ => {}
    }
}
