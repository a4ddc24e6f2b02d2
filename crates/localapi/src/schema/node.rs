//! One node of a structural schema, read from the OpenAPI JSON of a CRD version.
//!
//! This module reads a node into types that validation can use without looking at JSON again. A keyword that
//! would be ignored is an error: an object must not be accepted because a check is missing here.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::path::Path;
use super::rules::Rules;

/// Why a schema cannot be used: where, and what would be accepted there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compile schema at {path}: {problem}")]
pub(crate) struct SchemaError {
    /// Path inside the schema, for example `properties[spec].items`.
    pub(crate) path: String,
    /// The value found there and what would be accepted.
    pub(crate) problem: String,
}

/// A schema node.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the keywords of a schema, read by name")]
pub(crate) struct Node {
    /// `type`; empty if absent.
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) nullable: bool,
    pub(super) format: String,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional_properties: Option<Additional>,
    pub(super) items: Option<Box<Node>>,

    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub(super) preserve_unknown: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub(super) int_or_string: bool,
    #[serde(rename = "x-kubernetes-list-type")]
    pub(super) list_type: ListType,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_map_keys: Vec<String>,

    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) max_length: Option<usize>,
    pub(super) min_length: Option<usize>,
    pub(super) pattern: Option<Pattern>,
    pub(super) max_items: Option<usize>,
    pub(super) min_items: Option<usize>,
    pub(super) max_properties: Option<usize>,
    pub(super) min_properties: Option<usize>,
    pub(super) required: Vec<String>,
    #[serde(rename = "enum")]
    pub(super) enumeration: Vec<Value>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,

    /// The validation rules of this node.
    #[serde(skip)]
    pub(super) rules: Option<Rules>,
    /// Whether this node or one below has rules; nothing is evaluated where it is false.
    #[serde(skip)]
    pub(super) has_rules: bool,
    /// Whether this node or one below has a keyed list or a set.
    #[serde(skip)]
    pub(super) has_lists: bool,
}

/// `additionalProperties`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Additional {
    /// `true` or `false`.
    Allowed(bool),
    /// Values follow a schema.
    Schema(Box<Node>),
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListType {
    /// One value; the default.
    #[default]
    Atomic,
    /// Items are unique.
    Set,
    /// Items are unique by their keys.
    Map,
}

/// `pattern`, compiled.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Pattern(pub(super) Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(pattern: String) -> Result<Self, String> {
        let compiled = regex::RegexBuilder::new(&pattern).size_limit(1 << 22).build();
        compiled.map(Self).map_err(|error| format!("pattern `{pattern}` is no regular expression: {error}"))
    }
}

/// Keywords that restrict values and that none of our definitions uses.
const UNSUPPORTED: [&str; 8] = [
    "$ref",
    "additionalItems",
    "definitions",
    "dependencies",
    "multipleOf",
    "patternProperties",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
];

const TYPES: [&str; 7] = ["", "array", "boolean", "integer", "number", "object", "string"];

impl Node {
    /// Reads a schema node and everything below it, rules included.
    pub(super) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let mut node = Self::deserialize(schema)
            .map_err(|error| SchemaError { path: "schema".to_owned(), problem: error.to_string() })?;
        node.prepare(schema, &Path::root(), true)?;
        Ok(node)
    }

    /// The schema of values that `additionalProperties` describes.
    pub(super) fn additional(&self) -> Option<&Node> {
        match &self.additional_properties {
            Some(Additional::Schema(node)) => Some(node),
            _ => None,
        }
    }

    /// The schema of a field: its property, or that of `additionalProperties`.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or_else(|| self.additional())
    }

    /// Checks the keywords and compiles the rules of a node that was read from `schema`.
    fn prepare(&mut self, schema: &Value, path: &Path<'_>, rules: bool) -> Result<(), SchemaError> {
        let fail = |problem: String| Err(SchemaError { path: path.to_string(), problem });
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let said =
            |name: &&&str| fields.get(**name).is_some_and(|v| !v.is_null() && *v != Value::Bool(false));
        if let Some(keyword) = UNSUPPORTED.iter().find(said) {
            return fail(format!("{keyword} is not supported"));
        }
        if !TYPES.contains(&self.ty.as_str()) {
            return fail(format!("type {:?} is none of {}", self.ty, TYPES[1..].join(", ")));
        }
        for (name, property) in &mut self.properties {
            property.prepare(&fields["properties"][name], &path.child("properties").key(name), rules)?;
        }
        if let Some(Additional::Schema(node)) = &mut self.additional_properties {
            node.prepare(&fields["additionalProperties"], &path.child("additionalProperties"), rules)?;
        }
        if let Some(node) = &mut self.items {
            node.prepare(&fields["items"], &path.child("items"), rules)?;
        }
        let branches =
            [("allOf", &mut self.all_of), ("anyOf", &mut self.any_of), ("oneOf", &mut self.one_of)];
        for (name, nodes) in branches {
            for (index, node) in nodes.iter_mut().enumerate() {
                node.prepare(&fields[name][index], &path.child(name).index(index), false)?;
            }
        }
        if let Some(node) = &mut self.not {
            node.prepare(&fields["not"], &path.child("not"), false)?;
        }
        if rules {
            self.rules = Rules::compile(schema).map_err(|problem| SchemaError {
                path: path.child("x-kubernetes-validations").to_string(),
                problem,
            })?;
        }
        let below = || self.properties.values().chain(self.items.as_deref()).chain(self.additional());
        let has_rules = below().any(|n| n.has_rules) || self.rules.is_some();
        let has_lists = below().any(|n| n.has_lists) || self.list_type != ListType::Atomic;
        (self.has_rules, self.has_lists) = (has_rules, has_lists);
        Ok(())
    }
}
