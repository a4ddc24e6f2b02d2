//! Maps: objects of the resource, or made by an expression.

use std::borrow::Cow;
use std::rc::Rc;

use serde_json::Value;

use super::super::super::node::Node;
use super::super::EvalError;
use super::super::escape::{escape, unescape};
use super::{Val, property};

/// A map: an object of the resource, or made by an expression.
#[derive(Clone, Debug)]
pub(in crate::schema) enum Map<'a> {
    /// An object, its schema, and whether it is a resource (so that it has `metadata`).
    Json(&'a serde_json::Map<String, Value>, &'a Node, bool),
    /// Entries in the order in which they were made.
    Owned(Rc<Vec<(Val<'a>, Val<'a>)>>),
}

impl<'a> Map<'a> {
    pub(in crate::schema::cel) fn len(&self) -> usize {
        match self {
            Self::Json(fields, ..) => fields.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    /// The value of a key. Null fields of objects with properties count as absent.
    pub(in crate::schema::cel) fn get(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, EvalError> {
        match self {
            Self::Json(fields, node, resource) => {
                let Val::Text(name) = key else { return Err(EvalError::no_such_overload()) };
                let object = *resource || !node.properties.is_empty();
                let name = if object {
                    match unescape(name) {
                        Some(name) => Cow::Owned(name),
                        None => return Ok(None),
                    }
                } else {
                    name.clone()
                };
                match (fields.get(name.as_ref()), property(node, *resource, &name)) {
                    (Some(Value::Null), _) if object => Ok(None),
                    (Some(value), Some(node)) => Val::of(value, node, false).map(Some),
                    _ => Ok(None),
                }
            }
            Self::Owned(entries) => {
                for (known, value) in entries.iter() {
                    if known.equals(key)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The keys that an expression can see, sorted when they come from the resource.
    pub(in crate::schema::cel) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Json(fields, node, resource) => {
                let object = *resource || !node.properties.is_empty();
                let mut names: Vec<&'a String> =
                    fields.keys().filter(|name| property(node, *resource, name).is_some()).collect();
                names.sort();
                names
                    .into_iter()
                    .map(|name| match escape(name) {
                        Some(escaped) if object => Val::text(escaped),
                        _ => Val::Text(Cow::Borrowed(name.as_str())),
                    })
                    .collect()
            }
            Self::Owned(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    pub(super) fn equals(&self, other: &Map<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let (Self::Json(a, node, resource), Self::Json(b, ..)) = (self, other) {
            // What the schema does not know is compared as it is.
            for (name, value) in a.iter().filter(|(name, _)| property(node, *resource, name).is_none()) {
                if b.get(name).is_some_and(|other| other != value) {
                    return Ok(false);
                }
            }
        }
        for key in self.keys() {
            match (self.get(&key)?, other.get(&key)?) {
                (Some(a), Some(b)) if a.equals(&b)? => {}
                (None, None) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
