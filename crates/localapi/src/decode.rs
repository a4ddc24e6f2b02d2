//! From a body to an object of a kind: JSON, kind and version, known fields, defaults.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::registry::{Nature, Resource};
use crate::status::{Status, quote};
use crate::{json, names};

/// How to handle fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse.
    Strict,
}

/// A decoded object of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Shaped {
    /// The object with defaults and without unknown fields.
    pub(crate) value: Value,
    /// Messages about dropped fields, such as `unknown field "spec.x"`.
    pub(crate) complaints: Vec<String>,
}

/// Reads a JSON object; an empty body is an empty object.
pub(crate) fn parse(kind: &str, body: &[u8]) -> Result<Value, Status> {
    let problem = match json::read(body) {
        Ok(Value::Null) => return Ok(Value::Object(Map::new())),
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(_) => "it is no JSON object".to_owned(),
        Err(problem) => problem,
    };
    Err(Status::bad_request(format!("the body is no {kind}: {problem}")))
}

/// Reads a body as an object of the resource's kind; the caller handles the complaints.
pub(crate) fn decode(resource: &Resource, body: &[u8]) -> Result<Shaped, Status> {
    let mut value = parse(&resource.kind, body)?;
    check_kind(resource, &mut value)?;
    shape(resource, value).map_err(|problem| Status::bad_request(cannot_handle(resource, &problem)))
}

/// The message about an object that does not fit its kind.
pub(crate) fn cannot_handle(resource: &Resource, problem: &str) -> String {
    format!(
        "{0} in version {1} cannot be handled as a {0}: {problem}",
        resource.kind,
        quote(&resource.version)
    )
}

/// The error about unknown fields for a strict client.
pub(crate) fn strict_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}

/// A built-in kind need not be named; a custom kind must be, and a wrong name is refused later.
fn check_kind(resource: &Resource, value: &mut Value) -> Result<(), Status> {
    let builtin = resource.builtin().is_some();
    for (field, expected) in [("apiVersion", &resource.api_version), ("kind", &resource.kind)] {
        let missing = matches!(value.get(field), None | Some(Value::Null)) || value[field] == "";
        if missing && builtin {
            value[field] = json!(expected);
        } else if missing && field == "kind" || !missing && !value[field].is_string() {
            return Err(Status::bad_request(format!("the object has no {field}; give {expected}")));
        } else if value[field] != expected.as_str() && (builtin || field == "apiVersion") {
            return Err(Status::bad_request(format!(
                "the {field} in the data ({}) does not match the expected {field} ({expected})",
                value[field].as_str().unwrap_or_default()
            )));
        }
    }
    Ok(())
}

/// Converts a value to the form of the resource's kind.
pub(crate) fn shape(resource: &Resource, mut value: Value) -> Result<Shaped, String> {
    let Value::Object(fields) = &mut value else { return Err("it is no object".to_owned()) };
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let (after, mut unknown) = match &resource.nature {
        Nature::Builtin(builtin) => {
            let mut after = builtin.coerce(value.clone())?;
            names::tidy(&mut after["metadata"]);
            let unknown = lost("", &value, &after);
            (after, unknown)
        }
        Nature::Custom(custom) => {
            let known = names::coerce(metadata)?;
            let mut unknown = lost("metadata", metadata, &known);
            *metadata = known;
            unknown.extend(custom.schema().prune(&mut value));
            custom.schema().default(&mut value);
            (value, unknown)
        }
    };
    // Those of the metadata come first.
    unknown.sort_by_key(|path| (!path.starts_with("metadata."), path.clone()));
    let complaints = unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    Ok(Shaped { value: after, complaints })
}

/// The paths of what is in `before` and not in `after`, below `path`.
fn lost(path: &str, before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    find_lost(before, after, &mut path.to_owned(), &mut found);
    found
}

fn find_lost(before: &Value, after: &Value, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                match after.get(name) {
                    Some(kept) => find_lost(value, kept, path, found),
                    None if is_nothing(value) || is_dropped(path) => {}
                    None => found.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (value, kept)) in before.iter().zip(after).enumerate() {
                // Writing to a string does not fail.
                let _ = write!(path, "[{index}]");
                find_lost(value, kept, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Known fields that are not stored.
fn is_dropped(path: &str) -> bool {
    ["stringData", "metadata.managedFields", "metadata.selfLink"].contains(&path)
}

/// Known fields without content are dropped, too.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
