//! What makes a schema structural: every field has one type, and conditions only restrict what is declared.

use serde_json::Value;

use super::{said, text};
use crate::schema::{Cause, Path};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Causes for which a schema is not structural, sorted as the real server sorts them.
pub(super) fn check(schema: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    check_node(schema, Level::Root, path, &mut causes);
    check_branches_declared(schema, schema, path, path, &mut causes);
    causes.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

/// A keyword that no structural schema has, wherever in the schema it is.
pub(super) fn unsupported(schema: &Value) -> Option<&'static str> {
    for keyword in
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"]
    {
        let empty = match said(schema, keyword) {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => false,
        };
        if !empty {
            return Some(keyword);
        }
    }
    let below =
        ["items", "additionalProperties", "not"].into_iter().filter_map(|keyword| said(schema, keyword));
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| branches(schema, name));
    let mut all = below
        .chain(branches.map(|(_, branch)| branch))
        .chain(properties(schema).map(|(_, property)| property));
    all.find_map(unsupported)
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// The children of a schema under a keyword.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn branches<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn check_node(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let ty = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    match said(schema, "items") {
        None if ty == "array" => causes.push(Cause::required(&path.child("items"), "must be specified")),
        // A list of schemas is refused elsewhere.
        None | Some(Value::Array(_)) => {}
        Some(items) => check_node(items, Level::Item, &path.child("items"), causes),
    }
    let at = path.child("properties");
    for (name, property) in properties(schema) {
        check_node(property, Level::Field, &at.key(name), causes);
    }
    if let Some(additional) = said(schema, "additionalProperties") {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            causes.push(Cause::forbidden(&at, "must not be used at the root"));
        }
        if additional.is_object() {
            check_node(additional, Level::Field, &at, causes);
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            causes.push(Cause::forbidden(&at, detail));
        }
    }
    for (other, set) in [("preserve-unknown-fields", preserves), ("embedded-resource", embedded)] {
        if int_or_string && set {
            let name = format!("x-kubernetes-{other}");
            let detail = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(&path.child(&name), &Value::Bool(true), detail));
        }
    }
    let skip_any_of = is_int_or_string(schema);
    let skip_first_all_of =
        branches(schema, "allOf").next().is_some_and(|(_, first)| is_int_or_string(first));
    check_conditions(schema, skip_any_of, skip_first_all_of, path, causes);
    check_type(schema, level, path, causes);
    check_metadata(schema, level, embedded, path, causes);
    let empty = properties(schema).next().is_none();
    if embedded && !preserves && empty {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(&path.child("properties"), detail));
    }
}

fn check_type(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let ty = text(schema, "type");
    let at = path.child("type");
    if flag(schema, "x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(match ty {
            "" => Cause::required(&at, detail),
            _ => Cause::invalid_text(&at, ty, detail),
        });
    } else if ty.is_empty()
        && !flag(schema, "x-kubernetes-int-or-string")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        causes.push(Cause::required(&at, &format!("must not be empty {place}")));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        causes.push(Cause::invalid_text(&at, ty, "must be object at the root"));
    }
}

/// A resource's own fields have the types that every resource gives them.
fn check_metadata(schema: &Value, level: Level, embedded: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let resource = level == Level::Root || embedded;
    let at = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.get("properties").and_then(|p| p.get(name))
            && resource
            && text(property, "type") != "string"
        {
            let detail = "must be string";
            causes.push(Cause::invalid_text(&at.key(name).child("type"), text(property, "type"), detail));
        }
    }
    let Some(metadata) = schema.get("properties").and_then(|p| p.get("metadata")) else { return };
    let at = at.key("metadata");
    if resource && text(metadata, "type") != "object" {
        causes.push(Cause::invalid_text(&at.child("type"), text(metadata, "type"), "must be object"));
    }
    let only_names = properties(metadata).all(|(name, _)| name == "name" || name == "generateName");
    let other = metadata.as_object().into_iter().flatten().any(|(key, value)| {
        let harmless = ["type", "properties", "default", "description"].contains(&key.as_str());
        !harmless && !value.is_null()
    });
    if level == Level::Root && (!only_names || other || said(metadata, "description").is_some()) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(&at, detail));
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, in this order and nothing else.
fn is_int_or_string(schema: &Value) -> bool {
    schema
        .get("anyOf")
        .is_some_and(|any| *any == serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

/// `anyOf`, `allOf`, `oneOf`, `not` and `pattern` of a node.
fn check_conditions(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    if !skip_any_of {
        for (index, branch) in branches(schema, "anyOf") {
            check_condition(branch, false, &path.child("anyOf").index(index), causes);
        }
    }
    for (index, branch) in branches(schema, "allOf") {
        let skip = skip_first_all_of && index == 0;
        check_condition(branch, skip, &path.child("allOf").index(index), causes);
    }
    for (index, branch) in branches(schema, "oneOf") {
        check_condition(branch, false, &path.child("oneOf").index(index), causes);
    }
    if let Some(branch) = said(schema, "not") {
        check_condition(branch, false, &path.child("not"), causes);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(problem) = crate::schema::regexp::compile(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {problem}");
        causes.push(Cause::invalid_text(&path.child("pattern"), pattern, &detail));
    }
}

/// A schema inside a condition only restricts; it declares nothing.
fn check_condition(schema: &Value, skip_any_of: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    check_conditions(schema, skip_any_of, false, path, causes);
    if let Some(items) = said(schema, "items") {
        check_condition(items, false, &path.child("items"), causes);
    }
    let at = path.child("properties");
    for (name, property) in properties(schema) {
        check_condition(property, false, &at.key(name), causes);
    }
    let mut forbid = |name: &str, detail: &str| causes.push(Cause::forbidden(&path.child(name), detail));
    if !text(schema, "type").is_empty() {
        forbid("type", "must be empty to be structural");
    }
    if said(schema, "additionalProperties").is_some() {
        forbid("additionalProperties", "must be undefined to be structural");
    }
    if said(schema, "default").is_some() {
        forbid("default", "must be undefined to be structural");
    }
    for name in ["title", "description"] {
        if !text(schema, name).is_empty() {
            forbid(name, "must be empty to be structural");
        }
    }
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(schema, name) {
            forbid(name, "must be false to be structural");
        }
    }
    let lists = ["x-kubernetes-list-map-keys", "x-kubernetes-validations"];
    for name in lists {
        if schema.get(name).and_then(Value::as_array).is_some_and(|items| !items.is_empty()) {
            forbid(name, "must be empty to be structural");
        }
    }
    for name in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if said(schema, name).is_some() {
            forbid(name, "must be undefined to be structural");
        }
    }
    if schema.get("properties").and_then(|p| p.get("metadata")).is_some() {
        let detail = "must not be specified in a nested context";
        causes.push(Cause::forbidden(&path.child("properties").key("metadata"), detail));
    }
}

/// What a condition restricts must be declared outside of conditions.
fn check_branches_declared(
    condition: &Value,
    schema: &Value,
    declared_at: &Path<'_>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    if let Some(branch) = said(condition, "not") {
        check_declared(branch, Some(schema), declared_at, &path.child("not"), causes);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in branches(condition, name) {
            check_declared(branch, Some(schema), declared_at, &path.child(name).index(index), causes);
        }
    }
}

fn check_declared(
    condition: &Value,
    schema: Option<&Value>,
    declared_at: &Path<'_>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    let Some(schema) = schema else {
        causes.push(Cause::required(declared_at, &format!("because it is defined in {path}")));
        return;
    };
    check_branches_declared(condition, schema, declared_at, path, causes);
    if let Some(items) = said(condition, "items") {
        let at = declared_at.child("items");
        check_declared(items, said(schema, "items"), &at, &path.child("items"), causes);
    }
    let (declared, restricted) = (declared_at.child("properties"), path.child("properties"));
    for (name, property) in properties(condition) {
        let found = schema.get("properties").and_then(|p| p.get(name));
        check_declared(property, found, &declared.key(name), &restricted.key(name), causes);
    }
}
