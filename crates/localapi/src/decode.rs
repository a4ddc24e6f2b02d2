//! From a body to an object of a kind: JSON, kind and version, known fields, defaults.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::registry::{Nature, Resource};
use crate::status::{Status, quote};
use crate::{json, names};

/// What is done about fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse.
    Strict,
}

/// An object in the shape of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Shaped {
    /// The object, with defaults, without what its kind does not know.
    pub(crate) value: Value,
    /// Complaints about what was dropped, such as `unknown field "spec.x"`.
    pub(crate) complaints: Vec<String>,
}

/// Reads a JSON object; where there is nothing, an empty one.
pub(crate) fn parse(kind: &str, body: &[u8]) -> Result<json::Read, Status> {
    let problem = match json::read(body) {
        Ok(mut read) if read.value.is_null() => {
            read.value = Value::Object(Map::new());
            return Ok(read);
        }
        Ok(read) if read.value.is_object() => return Ok(read),
        Ok(read) => format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            json::word(&read.value)
        ),
        Err(problem) => problem,
    };
    Err(unrecognized(kind, &format!("couldn't get version/kind; json parse error: {problem}"), body))
}

fn unrecognized(kind: &str, problem: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {problem} ({})",
        summary(body)
    ))
}

/// Reads a body as an object of the resource's kind; complaints are the caller's to act on.
pub(crate) fn decode(resource: &Resource, body: &[u8]) -> Result<Shaped, Status> {
    let json::Read { mut value, duplicates } = parse(&resource.kind, body)?;
    check_kind(resource, &mut value, body)?;
    let mut shaped =
        shape(resource, value).map_err(|problem| Status::bad_request(cannot_handle(resource, &problem)))?;
    shaped.complaints.splice(..0, duplicates.iter().map(|path| duplicate_field(path)));
    Ok(shaped)
}

/// The complaint about a field that came twice.
pub(crate) fn duplicate_field(path: &str) -> String {
    format!("duplicate field {}", quote(path))
}

/// The sentence about an object that its kind cannot hold.
pub(crate) fn cannot_handle(resource: &Resource, problem: &str) -> String {
    format!(
        "{0} in version {1} cannot be handled as a {0}: {problem}",
        resource.kind,
        quote(&resource.version)
    )
}

/// What a strict client is told about unknown fields.
pub(crate) fn strict_error(complaints: &[String]) -> String {
    format!("strict decoding error: {}", complaints.join(", "))
}

fn check_kind(resource: &Resource, value: &mut Value, body: &[u8]) -> Result<(), Status> {
    for field in ["apiVersion", "kind"] {
        if !value[field].is_string() && !value[field].is_null() {
            let problem = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                json::word(&value[field])
            );
            return Err(unrecognized(&resource.kind, &problem, body));
        }
    }
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version.matches('/').count() > 1 {
        let problem = format!("unexpected GroupVersion string: {api_version}");
        return Err(unrecognized(&resource.kind, &problem, body));
    }
    if resource.builtin().is_some() {
        let api_version = if api_version.is_empty() { resource.api_version.clone() } else { api_version };
        let kind = if kind.is_empty() { resource.kind.clone() } else { kind };
        if api_version != resource.api_version || kind != resource.kind {
            return Err(Status::bad_request(foreign(resource, &api_version, &kind)));
        }
        value["apiVersion"] = json!(api_version);
        value["kind"] = json!(kind);
        return Ok(());
    }
    if kind.is_empty() {
        let problem = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(unrecognized(&resource.kind, &problem, body));
    }
    if api_version != resource.api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    Ok(())
}

/// Another kind than the path names.
fn foreign(resource: &Resource, api_version: &str, kind: &str) -> String {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let known = crate::kinds::BUILTINS.iter().any(|builtin| {
        builtin.kind == kind && crate::registry::api_version(builtin.group, builtin.version) == api_version
    });
    if known && kind == resource.kind {
        return format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version
        );
    }
    if known {
        return format!(
            "{kind} in version {} cannot be handled as a {}: converting ({version}.{kind}) to ({}.{}): unknown conversion",
            quote(version),
            resource.kind,
            if resource.group.is_empty() {
                "core"
            } else {
                resource.group.split('.').next().unwrap_or_default()
            },
            resource.kind
        );
    }
    format!(
        "{kind} in version {} cannot be handled as a {}: no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(version),
        resource.kind,
        quote(kind),
        quote(api_version)
    )
}

/// Brings a value into the shape of the resource's kind.
pub(crate) fn shape(resource: &Resource, mut value: Value) -> Result<Shaped, String> {
    let Value::Object(fields) = &mut value else { return Err("it is no object".to_owned()) };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let mut unknown = names::coerce(metadata)?;
    unknown.sort();
    if let Value::Object(metadata) = metadata {
        // Who changed what is not tracked here.
        metadata.remove("managedFields");
        metadata.remove("selfLink");
    }
    let mut lost_elsewhere = Vec::new();
    let after = match &resource.nature {
        Nature::Builtin(builtin) => {
            let before = value.clone();
            let mut after = builtin.coerce(value)?;
            // The typed round trip knows the same metadata, in other spellings of empty.
            after["metadata"] = merge_metadata(&before["metadata"], &after["metadata"]);
            lost(&before, &after, &mut String::new(), &mut lost_elsewhere);
            after
        }
        Nature::Custom(custom) => {
            lost_elsewhere.extend(custom.schema().prune(&mut value));
            custom.schema().default(&mut value);
            value
        }
    };
    lost_elsewhere.sort();
    unknown.append(&mut lost_elsewhere);
    let complaints = unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    Ok(Shaped { value: after, complaints })
}

/// The metadata as it was, and what a default added to its labels.
fn merge_metadata(before: &Value, after: &Value) -> Value {
    let mut merged = before.clone();
    if let Some(labels) = after.get("labels") {
        merged["labels"] = labels.clone();
    }
    merged
}

/// The paths of what is in `before` and not in `after`.
fn lost(before: &Value, after: &Value, path: &mut String, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                match after.get(name) {
                    Some(kept) => lost(value, kept, path, found),
                    None if is_nothing(value) || path == "stringData" => {}
                    None => found.push(path.clone()),
                }
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (value, kept)) in before.iter().zip(after).enumerate() {
                let length = path.len();
                // Writing to a string does not fail.
                let _ = write!(path, "[{index}]");
                lost(value, kept, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Known fields that say nothing are dropped, too.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The beginning of a body, as an error shows it.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = body.get(..SHOWN.min(body.len())).unwrap_or_default();
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let mut text = String::new();
            for byte in head {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
            }
            text + more
        }
    }
}
