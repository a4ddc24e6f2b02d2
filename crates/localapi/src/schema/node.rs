//! One node of a structural schema, read from the OpenAPI JSON of a CRD version.
//!
//! Owns the shape: what a node may say, in types that validation can use without looking at JSON again. What
//! a schema *must* say to be structural is checked where CRDs are checked.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::format::Format;
use super::path::Path;
use super::regexp;
use super::rule::Rule;

/// Why a schema cannot be used: where, and what would be accepted there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compile schema at {path}: {problem}")]
pub(crate) struct SchemaError {
    /// Path inside the schema, for example `properties[spec].items.type`.
    pub(crate) path: String,
    /// The value found there and what would be accepted.
    pub(crate) problem: String,
}

/// A schema node.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the keywords of a schema, read by name")]
pub(crate) struct Node {
    /// `type`, empty when absent; `integer,string` for int-or-string.
    pub(super) ty: String,
    pub(super) nullable: bool,
    /// `format` as written, for conversions that depend on its name.
    pub(super) format_name: String,
    /// `format`, when it is one that is checked.
    pub(super) format: Option<Format>,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,

    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) int_or_string: bool,
    pub(super) list_type: ListType,
    pub(super) list_map_keys: Vec<String>,

    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<i64>,
    pub(super) min_length: Option<i64>,
    pub(super) pattern: Option<(String, Regex)>,
    pub(super) max_items: Option<i64>,
    pub(super) min_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) max_properties: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) enumeration: Vec<Value>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,

    pub(super) rules: Vec<Rule>,
    /// Whether this node or one below has rules; nothing is evaluated where it is false.
    pub(super) has_rules: bool,
    /// Whether this node or one below has a keyed list or a set.
    pub(super) has_lists: bool,
    /// Whether this node or one below embeds a resource.
    pub(super) has_embedded: bool,
}

/// `additionalProperties`.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Not said.
    #[default]
    Absent,
    /// `true` or `false`.
    Allowed(bool),
    /// Values follow a schema.
    Schema(Box<Node>),
}

impl Additional {
    pub(super) fn schema(&self) -> Option<&Node> {
        match self {
            Self::Schema(node) => Some(node),
            _ => None,
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One value; the default.
    #[default]
    Atomic,
    /// Items are unique.
    Set,
    /// Items are unique by their keys.
    Map,
}

impl Node {
    /// Reads a schema node and everything below it, rules included.
    pub(super) fn compile(schema: &Value, path: &Path<'_>) -> Result<Self, SchemaError> {
        Self::read(schema, path, true)
    }

    /// Reads a schema node and everything below it, without rules.
    pub(super) fn compile_without_rules(schema: &Value, path: &Path<'_>) -> Result<Self, SchemaError> {
        Self::read(schema, path, false)
    }

    /// The schema of a field: its property, or what `additionalProperties` says.
    pub(super) fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or_else(|| self.additional.schema())
    }

    fn read(schema: &Value, path: &Path<'_>, rules: bool) -> Result<Self, SchemaError> {
        let reader = Reader { fields: object(schema, path)?, path };
        let int_or_string = reader.flag("x-kubernetes-int-or-string")?;
        let mut node = Self {
            ty: if int_or_string { "integer,string".to_owned() } else { reader.text("type")? },
            nullable: reader.flag("nullable")?,
            format_name: reader.text("format")?,
            default: reader.fields.get("default").filter(|v| !v.is_null()).cloned(),
            preserve_unknown: reader.flag("x-kubernetes-preserve-unknown-fields")?,
            embedded: reader.flag("x-kubernetes-embedded-resource")?,
            int_or_string,
            list_map_keys: reader.texts("x-kubernetes-list-map-keys")?,
            maximum: reader.float("maximum")?,
            exclusive_maximum: reader.flag("exclusiveMaximum")?,
            minimum: reader.float("minimum")?,
            exclusive_minimum: reader.flag("exclusiveMinimum")?,
            multiple_of: reader.float("multipleOf")?,
            max_length: reader.integer("maxLength")?,
            min_length: reader.integer("minLength")?,
            max_items: reader.integer("maxItems")?,
            min_items: reader.integer("minItems")?,
            unique_items: reader.flag("uniqueItems")?,
            max_properties: reader.integer("maxProperties")?,
            min_properties: reader.integer("minProperties")?,
            required: reader.texts("required")?,
            enumeration: reader.list("enum")?.to_vec(),
            ..Self::default()
        };
        node.format = Format::named(&node.format_name);
        node.list_type = match reader.text("x-kubernetes-list-type")?.as_str() {
            "set" => ListType::Set,
            "map" => ListType::Map,
            _ => ListType::Atomic,
        };
        let pattern = reader.text("pattern")?;
        if !pattern.is_empty() {
            let regex = regexp::compile(&pattern).map_err(|problem| reader.error("pattern", &problem))?;
            node.pattern = Some((pattern, regex));
        }
        node.read_children(&reader, rules)?;
        if rules {
            node.compile_rules(schema, path)?;
        }
        Ok(node)
    }

    fn read_children(&mut self, reader: &Reader<'_>, rules: bool) -> Result<(), SchemaError> {
        let path = reader.path;
        if let Some(properties) = reader.present("properties") {
            let at = path.child("properties");
            for (name, property) in object(properties, &at)? {
                let node = Self::read(property, &at.key(name), rules)?;
                self.properties.insert(name.clone(), node);
            }
        }
        self.additional = match reader.present("additionalProperties") {
            None => Additional::Absent,
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(schema) => {
                let at = path.child("additionalProperties");
                Additional::Schema(Box::new(Self::read(schema, &at, rules)?))
            }
        };
        if let Some(items) = reader.present("items") {
            self.items = Some(Box::new(Self::read(items, &path.child("items"), rules)?));
        }
        for (name, nodes) in
            [("allOf", &mut self.all_of), ("anyOf", &mut self.any_of), ("oneOf", &mut self.one_of)]
        {
            for (index, schema) in reader.list(name)?.iter().enumerate() {
                nodes.push(Self::read(schema, &path.child(name).index(index), false)?);
            }
        }
        if let Some(schema) = reader.present("not") {
            self.not = Some(Box::new(Self::read(schema, &path.child("not"), false)?));
        }
        let below = || self.properties.values().chain(self.items.as_deref()).chain(self.additional.schema());
        self.has_rules = below().any(|n| n.has_rules);
        self.has_lists = below().any(|n| n.has_lists) || self.list_type != ListType::Atomic;
        self.has_embedded = below().any(|n| n.has_embedded) || self.embedded;
        Ok(())
    }

    fn compile_rules(&mut self, schema: &Value, path: &Path<'_>) -> Result<(), SchemaError> {
        let Some(rules) = schema.get("x-kubernetes-validations").filter(|v| !v.is_null()) else {
            return Ok(());
        };
        let at = path.child("x-kubernetes-validations");
        let Value::Array(rules) = rules else {
            return Err(wrong(&at, rules, "a list of rules"));
        };
        let mut compiled = Vec::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            compiled.push(Rule::compile(rule, self, &at.index(index))?);
        }
        self.has_rules |= !compiled.is_empty();
        self.rules = compiled;
        Ok(())
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    path: &'a Path<'a>,
}

impl<'a> Reader<'a> {
    fn present(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|v| !v.is_null())
    }

    fn error(&self, name: &str, problem: &str) -> SchemaError {
        SchemaError { path: self.path.child(name).to_string(), problem: problem.to_owned() }
    }

    fn flag(&self, name: &str) -> Result<bool, SchemaError> {
        match self.present(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(wrong(&self.path.child(name), other, "true or false")),
        }
    }

    fn text(&self, name: &str) -> Result<String, SchemaError> {
        match self.present(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(wrong(&self.path.child(name), other, "a text")),
        }
    }

    fn list(&self, name: &str) -> Result<&'a [Value], SchemaError> {
        match self.present(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(wrong(&self.path.child(name), other, "a list")),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, SchemaError> {
        let mut texts = Vec::new();
        for item in self.list(name)? {
            match item {
                Value::String(text) => texts.push(text.clone()),
                other => return Err(wrong(&self.path.child(name), other, "a list of texts")),
            }
        }
        Ok(texts)
    }

    fn float(&self, name: &str) -> Result<Option<f64>, SchemaError> {
        match self.present(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(float) => Ok(Some(float)),
                None => Err(wrong(&self.path.child(name), value, "a number")),
            },
        }
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, SchemaError> {
        match self.present(name) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(integer) => Ok(Some(integer)),
                None => Err(wrong(&self.path.child(name), value, "an integer")),
            },
        }
    }
}

fn object<'a>(value: &'a Value, path: &Path<'_>) -> Result<&'a Map<String, Value>, SchemaError> {
    value.as_object().ok_or_else(|| wrong(path, value, "an object"))
}

fn wrong(path: &Path<'_>, value: &Value, wanted: &str) -> SchemaError {
    SchemaError { path: path.to_string(), problem: format!("{value} is not {wanted}") }
}
