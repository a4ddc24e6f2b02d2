//! The metadata of one object: what is allowed at creation, what may change, what is dropped while decoding.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{NameRule, label_problems, label_value_problems, qualified_name_problems};
use crate::schema::{Cause, Path};
use crate::status::quote;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Why the metadata of a new object are refused. Its name was generated before.
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

/// Why a change of the metadata is refused. `new` has the generation that it will be stored with.
pub(crate) fn validate_update(new: &Value, old: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if present(old, "deletionTimestamp").is_some() {
        let before = texts(old, "finalizers");
        let mut added: Vec<&str> =
            texts(new, "finalizers").into_iter().filter(|f| !before.contains(f)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|f| quote(f)).collect();
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
        let shown = quote(finalizer);
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

/// Converts metadata to the stored form: removes unknown fields, nulls and empty values. A field of a wrong
/// type is an error.
pub(crate) fn coerce(metadata: &Value) -> Result<Value, String> {
    let typed = ObjectMeta::deserialize(metadata).map_err(|error| format!("metadata: {error}"))?;
    let mut value = serde_json::to_value(typed).map_err(|error| format!("metadata: {error}"))?;
    tidy(&mut value);
    Ok(value)
}

/// Removes empty values from well-typed metadata, and the record of who changed what, which is not kept here.
pub(crate) fn tidy(metadata: &mut Value) {
    let Value::Object(fields) = metadata else { return };
    fields.remove("managedFields");
    fields.remove("selfLink");
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
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
        causes.push(Cause::too_long(&path, ANNOTATIONS_LIMIT));
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
            causes.push(Cause::invalid(&path, owner, detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{kind}/{}", text(owner, "name"));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    causes.push(Cause::invalid(&path, &json!(owners), &detail));
                }
                None => controller = Some(this),
            }
        }
    }
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
