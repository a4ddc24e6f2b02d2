//! Which part of the old object corresponds to a part of the new object.
//!
//! Fields correlate by name, items of keyed lists by their keys, items of other lists not at all. The real
//! server ignores errors in unchanged parts ("ratcheting"); this module says what did not change.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::node::{ListType, Node};

/// A part of the new object, the part of the old one that it corresponds to, and their schema.
pub(super) struct Correlated<'a> {
    node: &'a Node,
    pub(super) new: &'a Value,
    pub(super) old: &'a Value,
    old_items: OnceCell<KeyedItems<'a>>,
    unchanged: Cell<Option<bool>>,
}

impl<'a> Correlated<'a> {
    pub(super) fn new(node: &'a Node, new: &'a Value, old: &'a Value) -> Self {
        Self { node, new, old, old_items: OnceCell::new(), unchanged: Cell::new(None) }
    }

    /// The field of this name, if both objects have it and the schema knows it.
    pub(super) fn field(&self, name: &str) -> Option<Correlated<'a>> {
        let (Value::Object(new), Value::Object(old)) = (self.new, self.old) else { return None };
        Some(Self::new(self.node.field(name)?, new.get(name)?, old.get(name)?))
    }

    /// The item at this index of the new list, if the list is keyed and the old list has its keys.
    pub(super) fn item(&self, index: usize) -> Option<Correlated<'a>> {
        let (Value::Array(new), Value::Array(old)) = (self.new, self.old) else { return None };
        if self.node.list_type != ListType::Map {
            return None;
        }
        let item = new.get(index)?;
        let old = self.old_items.get_or_init(|| KeyedItems::new(self.node, old)).get(item)?;
        Some(Self::new(self.node.items.as_deref()?, item, old))
    }

    /// Whether nothing changed here; the order of a keyed list does not count.
    pub(super) fn unchanged(&self) -> bool {
        if let Some(known) = self.unchanged.get() {
            return known;
        }
        let result = self.compare();
        self.unchanged.set(Some(result));
        result
    }

    fn compare(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.node.list_type != ListType::Map {
                    return new == old;
                }
                (0..new.len()).all(|index| self.item(index).is_some_and(|item| item.unchanged()))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.field(name).is_some_and(|field| field.unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of a keyed list by their keys; the first one for equal keys.
pub(super) struct KeyedItems<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
}

impl<'a> KeyedItems<'a> {
    pub(super) fn new(node: &'a Node, items: &'a [Value]) -> Self {
        let mut found = Self { keys: &node.list_map_keys, items: HashMap::new() };
        if node.list_type == ListType::Map && !found.keys.is_empty() {
            for item in items {
                if let Some(key) = found.key(item) {
                    found.items.entry(key).or_insert(item);
                }
            }
        }
        found
    }

    /// The item with the same keys.
    pub(super) fn get(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&self.key(item)?).copied()
    }

    fn key(&self, item: &Value) -> Option<String> {
        composite_key(item.as_object()?, self.keys)
    }
}

/// The key values of an item as one text; `None` if a key is missing or not a scalar.
pub(super) fn composite_key(item: &Map<String, Value>, keys: &[String]) -> Option<String> {
    let mut out = String::new();
    for key in keys {
        match item.get(key)? {
            value @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                out.push('\0');
                out.push_str(&value.to_string());
            }
            _ => return None,
        }
    }
    Some(out)
}
