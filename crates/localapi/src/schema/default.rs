//! Filling in the defaults of a schema.

use serde_json::Value;

use super::node::Node;

/// Sets every missing field that has a default, also inside of defaults, and replaces nulls that are not
/// allowed.
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
                } else if let Some(inner) = node.additional() {
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
