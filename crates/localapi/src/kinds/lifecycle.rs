//! What the server adds to an object of a built-in kind, what updates may change, and what is refused.

use serde_json::{Map, Value, json};

use super::Builtin;
use crate::meta;
use crate::schema::{Cause, Path};

/// Fills in fields that we and `kubectl` read.
pub(super) fn fill_in(kind: &str, object: &mut Value) {
    match kind {
        "Namespace" | "Node" | "Lease" => default(object, &["spec"], json!({})),
        "Pod" => default(object, &["spec", "terminationGracePeriodSeconds"], json!(30)),
        "Deployment" | "ReplicaSet" | "StatefulSet" => default(object, &["spec", "replicas"], json!(1)),
        "Event" => {
            default(object, &["eventTime"], Value::Null);
            default(object, &["reportingComponent"], json!(""));
            default(object, &["reportingInstance"], json!(""));
        }
        "CustomResourceDefinition" => {
            let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            default(object, &["spec", "names", "singular"], json!(kind.to_lowercase()));
            default(object, &["spec", "names", "listKind"], json!(format!("{kind}List")));
            default(object, &["spec", "conversion", "strategy"], json!("None"));
        }
        _ => {}
    }
}

/// Sets the initial fields of a new object, whatever its author wrote there.
pub(crate) fn prepare_create(builtin: &Builtin, object: &mut Value) {
    match builtin.kind {
        "Namespace" => {
            set(object, &["status"], json!({"phase": "Active"}));
            let mut finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
            if !finalizers.contains(&json!("kubernetes")) {
                finalizers.push(json!("kubernetes"));
            }
            set(object, &["spec", "finalizers"], json!(finalizers));
            label_with_name(object);
        }
        "Pod" => set(object, &["status"], json!({"phase": "Pending"})),
        // The kubelet writes the first status of a node, and another module that of a definition.
        "Node" | "CustomResourceDefinition" => {}
        _ if builtin.traits.status => set(object, &["status"], json!({})),
        _ => {}
    }
    if builtin.traits.generation {
        meta::set(object, "generation", json!(1));
    }
}

/// Reverts what an update of the object itself may not change, and counts the generation.
pub(crate) fn prepare_update(builtin: &Builtin, object: &mut Value, old: &Value) {
    if builtin.kind == "Namespace" {
        copy(&mut object["spec"], &old["spec"], "finalizers");
        label_with_name(object);
    }
    if builtin.traits.status {
        copy(object, old, "status");
    }
    if builtin.traits.generation && object["spec"] != old["spec"] {
        meta::set(object, "generation", json!(meta::generation(old) + 1));
    }
}

/// Reverts what an update of the status may not change.
pub(crate) fn prepare_status_update(builtin: &Builtin, object: &mut Value, old: &Value) {
    copy(object, old, "spec");
    match builtin.kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => meta::copy(object, old, "labels"),
        "Pod" => meta::copy(object, old, "ownerReferences"),
        _ => {}
    }
}

/// Why an object is refused, beyond its metadata and the types of its fields: checks of what we write.
pub(crate) fn validate(kind: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind {
        "Lease" => {
            let (duration, changes) =
                (&object["spec"]["leaseDurationSeconds"], &object["spec"]["leaseTransitions"]);
            if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
                let path = Path::Text("spec.leaseDurationSeconds");
                causes.push(Cause::invalid(&path, duration, "must be greater than 0"));
            }
            if changes.as_i64().is_some_and(|changes| changes < 0) {
                let path = Path::Text("spec.leaseTransitions");
                causes.push(Cause::invalid(&path, changes, "must be greater than or equal to 0"));
            }
        }
        "Event" => {
            let subject = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
            let home = if subject.is_empty() { "default" } else { subject };
            if object["eventTime"].is_null() && meta::text(object, "namespace") != home {
                let path = Path::Text("involvedObject.namespace");
                causes.push(Cause::invalid_text(&path, subject, "does not match event.namespace"));
            }
        }
        _ => {}
    }
    causes
}

/// Namespaces have their name as a label, so that selectors can name one.
fn label_with_name(object: &mut Value) {
    let name = meta::text(object, "name").to_owned();
    set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
}

/// Sets the field at `path` unless it exists.
fn default(object: &mut Value, path: &[&str], value: Value) {
    let found = path.iter().try_fold(&*object, |at, name| at.get(name));
    if found.is_none_or(|found| found.is_null() || *found == "") {
        set(object, path, value);
    }
}

/// Sets the field at `path`, and creates the objects on the way.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut at = object;
    for name in path {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(*name).or_insert(Value::Null);
    }
    *at = value;
}

fn copy(object: &mut Value, old: &Value, field: &str) {
    let Value::Object(fields) = object else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}
