//! The metadata of one object: what is allowed at creation, what may change, what is dropped while decoding.

use serde_json::{Map, Value, json};

use super::{NameRule, label_problems, label_value_problems, qualified_name_problems};
use crate::schema::wording;
use crate::schema::{Cause, Path};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Causes for which the metadata of a new object is refused. Its name was generated before.
pub(crate) fn validate_create(
    metadata: &Value,
    rule: NameRule,
    namespaced: bool,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    let generate_name = text(metadata, "generateName");
    if !generate_name.is_empty() {
        for problem in rule.problems(generate_name, true) {
            causes.push(Cause::invalid_text(&path.child("generateName"), generate_name, &problem));
        }
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        causes.push(Cause::required(&path.child("name"), "name or generateName is required"));
    } else {
        for problem in rule.problems(name, false) {
            causes.push(Cause::invalid_text(&path.child("name"), name, &problem));
        }
    }
    let namespace = text(metadata, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required(&path.child("namespace"), "")),
        (true, false) => {
            for problem in label_problems(namespace) {
                causes.push(Cause::invalid_text(&path.child("namespace"), namespace, &problem));
            }
        }
        (false, false) => causes.push(Cause::forbidden(&path.child("namespace"), "not allowed on this type")),
        (false, true) => {}
    }
    let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(&path.child("generation"), &json!(generation), detail));
    }
    validate_labels(metadata, path, causes);
    validate_annotations(metadata, path, causes);
    validate_owners(metadata, path, causes);
    validate_finalizers(metadata, path, causes);
}

/// Causes for which a change of the metadata is refused. `new` has the generation that it will be stored with.
pub(crate) fn validate_update(new: &Value, old: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if present(old, "deletionTimestamp").is_some() {
        let before = texts(old, "finalizers");
        let mut added: Vec<&str> =
            texts(new, "finalizers").into_iter().filter(|f| !before.contains(f)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|f| wording::quote(f)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            causes.push(Cause::forbidden(&path.child("finalizers"), &detail));
        }
    }
    if text(new, "resourceVersion").is_empty() {
        causes.push(Cause::invalid_text(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    let generation = |m: &Value| m.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        let detail = "must not be decremented";
        causes.push(Cause::invalid(&path.child("generation"), &json!(generation(new)), detail));
    }
    for field in ["name", "namespace", "uid"] {
        if text(new, field) != text(old, field) {
            causes.push(Cause::invalid_text(&path.child(field), text(new, field), "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if present(new, field) != present(old, field) {
            let shown = present(new, field).unwrap_or(&Value::Null);
            causes.push(Cause::invalid(&path.child(field), shown, "field is immutable"));
        }
    }
    validate_labels(new, path, causes);
    validate_annotations(new, path, causes);
    validate_owners(new, path, causes);
}

/// Warnings about finalizers that `new` adds, as the real server sends them for custom resources.
pub(crate) fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(|o| texts(o, "finalizers")).unwrap_or_default();
    let mut added: Vec<&str> = texts(new, "finalizers").into_iter().filter(|f| !before.contains(f)).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let shown = wording::quote(finalizer);
        for problem in qualified_name_problems(finalizer) {
            warnings.push(format!("metadata.finalizers: {shown}: {problem}"));
        }
        if finalizer.contains('/') || [ORPHAN, FOREGROUND, "kubernetes"].contains(&finalizer) {
            continue;
        }
        let with_path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "metadata.finalizers: {shown}: prefer a domain-qualified finalizer name{with_path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}

/// Brings metadata into the shape in which it is stored: unknown fields go (their paths are returned), nulls
/// and empty values go; a field of a wrong type is an error in the words of the real server's decoder.
pub(crate) fn coerce(metadata: &mut Value) -> Result<Vec<String>, String> {
    let Value::Object(map) = metadata else {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            json_word(metadata)
        ));
    };
    let mut unknown = Vec::new();
    let keys: Vec<String> = map.keys().cloned().collect();
    for key in keys {
        let Some(shape) = Shape::of(&key) else {
            map.remove(&key);
            unknown.push(format!("metadata.{key}"));
            continue;
        };
        if let Some(value) = map.get(&key) {
            shape.check(&key, value)?;
        }
        if let Some(value) = map.get_mut(&key) {
            shape.tidy(&key, value, &mut unknown);
            if is_empty(value) {
                map.remove(&key);
            }
        }
    }
    unknown.sort();
    Ok(unknown)
}

/// The JSON shape of a metadata field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Time,
    Integer,
    TextMap,
    TextList,
    Owners,
    ManagedFields,
}

const OWNER_FIELDS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

impl Shape {
    fn of(field: &str) -> Option<Self> {
        Some(match field {
            "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion" => Self::Text,
            "creationTimestamp" | "deletionTimestamp" => Self::Time,
            "generation" | "deletionGracePeriodSeconds" => Self::Integer,
            "labels" | "annotations" => Self::TextMap,
            "finalizers" => Self::TextList,
            "ownerReferences" => Self::Owners,
            "managedFields" => Self::ManagedFields,
            _ => return None,
        })
    }

    fn check(self, field: &str, value: &Value) -> Result<(), String> {
        let fail_at = |found: &Value, place: &str, wanted: &str| {
            let number = match found {
                Value::Number(number) if wanted == "int64" => format!(" {number}"),
                _ => String::new(),
            };
            let word = json_word(found);
            Err(format!(
                "json: cannot unmarshal {word}{number} into Go struct field {place} of type {wanted}"
            ))
        };
        let fail =
            |found: &Value, path: &str, wanted: &str| fail_at(found, &format!("ObjectMeta.{path}"), wanted);
        match (self, value) {
            (_, Value::Null) | (Self::Text, Value::String(_)) | (Self::ManagedFields, Value::Array(_)) => {
                Ok(())
            }
            (Self::Time, Value::String(time)) if time.parse::<jiff::Timestamp>().is_ok() => Ok(()),
            (Self::Time, Value::String(time)) => Err(format!(
                "parsing time {} as \"2006-01-02T15:04:05Z07:00\": cannot parse {} as \"2006\"",
                wording::quote(time),
                wording::quote(time)
            )),
            (Self::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
            (Self::TextMap, Value::Object(map)) => {
                match map.values().find(|v| !v.is_string() && !v.is_null()) {
                    Some(wrong) => fail(wrong, field, "string"),
                    None => Ok(()),
                }
            }
            (Self::TextList, Value::Array(items)) => {
                match items.iter().find(|v| !v.is_string() && !v.is_null()) {
                    Some(wrong) => fail(wrong, field, "string"),
                    None => Ok(()),
                }
            }
            (Self::Owners, Value::Array(items)) => items.iter().try_for_each(|item| match item {
                Value::Object(owner) => owner.iter().try_for_each(|(key, value)| {
                    let flag = key == "controller" || key == "blockOwnerDeletion";
                    let known = OWNER_FIELDS.contains(&key.as_str());
                    if !known
                        || value.is_null()
                        || (flag && value.is_boolean())
                        || (!flag && value.is_string())
                    {
                        Ok(())
                    } else {
                        let wanted = match key.as_str() {
                            "uid" => "types.UID",
                            _ if flag => "bool",
                            _ => "string",
                        };
                        fail_at(value, &format!("OwnerReference.ownerReferences.{key}"), wanted)
                    }
                }),
                Value::Null => Ok(()),
                other => fail(other, "ownerReferences", "v1.OwnerReference"),
            }),
            (Self::Text, _) => fail(value, field, if field == "uid" { "types.UID" } else { "string" }),
            (Self::Time, _) => fail(value, field, "string"),
            (Self::Integer, _) => fail(value, field, "int64"),
            (Self::TextMap, _) => fail(value, field, "map[string]string"),
            (Self::TextList, _) => fail(value, field, "[]string"),
            (Self::Owners, _) => fail(value, field, "[]v1.OwnerReference"),
            (Self::ManagedFields, _) => fail(value, field, "[]v1.ManagedFieldsEntry"),
        }
    }

    fn tidy(self, field: &str, value: &mut Value, unknown: &mut Vec<String>) {
        match (self, value) {
            (Self::TextMap, Value::Object(map)) => null_to_empty(map.values_mut()),
            (Self::TextList, Value::Array(items)) => null_to_empty(items.iter_mut()),
            (Self::Owners, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Value::Object(owner) = item {
                        tidy_owner(owner, &format!("metadata.{field}[{index}]"), unknown);
                    }
                }
            }
            _ => {}
        }
    }
}

fn tidy_owner(owner: &mut Map<String, Value>, path: &str, unknown: &mut Vec<String>) {
    let keys: Vec<String> = owner.keys().cloned().collect();
    for key in keys {
        if !OWNER_FIELDS.contains(&key.as_str()) {
            owner.remove(&key);
            unknown.push(format!("{path}.{key}"));
        } else if owner.get(&key).is_some_and(Value::is_null) {
            owner.remove(&key);
        }
    }
}

fn null_to_empty<'a>(values: impl Iterator<Item = &'a mut Value>) {
    for value in values {
        if value.is_null() {
            *value = Value::String(String::new());
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn json_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn validate_labels(metadata: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let path = path.child("labels");
    for (key, value) in sorted(metadata, "labels") {
        for problem in qualified_name_problems(key) {
            causes.push(Cause::invalid_text(&path, key, &problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in label_value_problems(value) {
            causes.push(Cause::invalid_text(&path, value, &problem));
        }
    }
}

fn validate_annotations(metadata: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let path = path.child("annotations");
    let mut size = 0;
    for (key, value) in sorted(metadata, "annotations") {
        for problem in qualified_name_problems(&key.to_lowercase()) {
            causes.push(Cause::invalid_text(&path, key, &problem));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long(&path, i64::try_from(ANNOTATIONS_LIMIT).unwrap_or(i64::MAX)));
    }
}

fn validate_finalizers(metadata: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let path = path.child("finalizers");
    let finalizers = texts(metadata, "finalizers");
    for finalizer in &finalizers {
        for problem in qualified_name_problems(finalizer) {
            causes.push(Cause::invalid_text(&path, finalizer, &problem));
        }
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(Cause::invalid(&path, &json!(finalizers), &detail));
    }
}

fn validate_owners(metadata: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let path = path.child("ownerReferences");
    let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) else { return };
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = text(owner, "apiVersion");
        let kind = text(owner, "kind");
        let version = match api_version.split('/').collect::<Vec<_>>().as_slice() {
            [version] | [_, version] => *version,
            _ => "",
        };
        if version.is_empty() {
            causes.push(Cause::invalid_text(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                causes.push(Cause::invalid_text(&path.child(field), "", "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid_shown(&path, &owner_json(owner), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{kind}/{}", text(owner, "name"));
            match &controller {
                Some(first) => {
                    let shown: Vec<String> = owners.iter().map(owner_json).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    causes.push(Cause::invalid_shown(&path, &format!("[{}]", shown.join(",")), &detail));
                }
                None => controller = Some(this),
            }
        }
    }
}

/// An owner reference in the field order in which the real server prints it.
fn owner_json(owner: &Value) -> String {
    let mut parts = Vec::new();
    for field in OWNER_FIELDS {
        let flag = field == "controller" || field == "blockOwnerDeletion";
        match owner.get(field) {
            Some(value) if !value.is_null() => parts.push(format!("\"{field}\":{}", wording::json(value))),
            _ if flag => {}
            _ => parts.push(format!("\"{field}\":\"\"")),
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn texts<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    match object.get(field) {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn present<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|v| !v.is_null())
}

fn sorted<'a>(object: &'a Value, field: &str) -> Vec<(&'a String, &'a Value)> {
    let mut pairs: Vec<_> = match object.get(field) {
        Some(Value::Object(map)) => map.iter().collect(),
        _ => Vec::new(),
    };
    pairs.sort_by_key(|(key, _)| key.as_str());
    pairs
}
