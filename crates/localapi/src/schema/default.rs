//! Filling in what a schema gives a default for, and whether a schema's defaults are good.

use serde_json::Value;

use super::cause::Cause;
use super::node::Node;
use super::path::Path;
use super::{lists, prune, rules, validate as values};

/// Sets every missing field that has a default, also inside of defaults, and nulls that may not be null.
pub(super) fn apply(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                if let Some(default) = &property.default
                    && fields.get(name).is_none_or(|v| v.is_null() && !property.nullable)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    apply(property, field);
                } else if let Some(inner) = node.additional.schema() {
                    fill_null(inner, field);
                    apply(inner, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for item in items {
                    fill_null(inner, item);
                    apply(inner, item);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}

/// Causes for which the defaults of a schema are refused: each must follow the schema that it is a default of.
pub(super) fn validate(node: &Node, root: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(default) = &node.default {
        let at = path.child("default");
        let mut pruned = default.clone();
        if !prune::prune_part(node, &mut pruned).is_empty() {
            causes.push(Cause::invalid(&at, default, "must not have unknown fields"));
        }
        let before = causes.len();
        lists::validate_embedded(node, default, &at, causes);
        if causes.len() == before {
            values::validate(node, default, None, &at.to_string(), causes);
        }
        // As an update from itself, and as something new.
        for old in [Some(default), None] {
            if causes.len() == before {
                rules::validate_part(node, default, old, &at, causes);
            }
        }
    }
    if let Some(items) = &node.items {
        validate(items, false, &path.child("items"), causes);
    }
    let properties = path.child("properties");
    for (name, property) in &node.properties {
        // What a resource's own fields default to is refused elsewhere.
        if !(root && ["metadata", "kind", "apiVersion"].contains(&name.as_str())) {
            validate(property, false, &properties.key(name), causes);
        }
    }
}
