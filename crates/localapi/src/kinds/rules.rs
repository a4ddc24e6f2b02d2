//! What is refused of a built-in kind, beyond its metadata and the types of its fields.
//!
//! Not all that a cluster refuses: what Tenure writes, and the mistakes that people make.

use serde_json::{Value, json};

use crate::schema::{Cause, Path};

/// Causes for which `object` is refused; `old` is what it replaces.
pub(crate) fn validate(kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind {
        "ConfigMap" => bag(object, old, &["data", "binaryData"], &mut causes),
        "Secret" => {
            bag(object, old, &["data"], &mut causes);
            if let Some(old) = old {
                immutable(object, old, &["type"], &mut causes);
            }
        }
        "Lease" => lease(object, &mut causes),
        "Pod" => {
            pod_spec(&object["spec"], "spec", &mut causes);
        }
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => workload(object, old, &mut causes),
        "Service" => service(object, &mut causes),
        _ => {}
    }
    causes
}

fn at(text: &str) -> Path<'_> {
    Path::Text(text)
}

fn immutable(object: &Value, old: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    let find = |value: &Value| path.iter().fold(value.clone(), |value, name| value[*name].clone());
    let (new, old) = (find(object), find(old));
    if new != old {
        let name = path.join(".");
        if new.is_object() || new.is_array() {
            causes.push(Cause::invalid(&at(&name), &new, "field is immutable"));
        } else {
            causes.push(Cause::invalid(&at(&name), &new, "field is immutable"));
        }
    }
}

/// Keys of configuration maps and secrets, and what `immutable` forbids.
fn bag(object: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Vec<Cause>) {
    for field in fields {
        for key in object[*field].as_object().into_iter().flatten().map(|(key, _)| key) {
            for problem in key_problems(key) {
                causes.push(Cause::invalid_text(&at(field).key(key), key, &problem));
            }
        }
    }
    let Some(old) = old.filter(|old| old["immutable"] == json!(true)) else { return };
    let detail = "field is immutable when `immutable` is set";
    if object["immutable"] != json!(true) {
        causes.push(Cause::forbidden(&at("immutable"), detail));
    }
    for field in fields.iter().filter(|field| object[**field] != old[**field]) {
        causes.push(Cause::forbidden(&at(field), detail));
    }
}

fn key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 bytes".to_owned());
    }
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    if key == "." {
        problems.push("must not be '.'".to_owned());
    }
    if key == ".." {
        problems.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

fn lease(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let seconds = &spec["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid(&at("spec.leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    let transitions = &spec["leaseTransitions"];
    if transitions.as_i64().is_some_and(|transitions| transitions < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(&at("spec.leaseTransitions"), transitions, detail));
    }
}

fn pod_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let containers = format!("{path}.containers");
    let list = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        causes.push(Cause::required(&at(&containers), ""));
    }
    let mut names = Vec::new();
    for (index, container) in list.iter().enumerate() {
        let path = format!("{containers}[{index}]");
        let name = container["name"].as_str().unwrap_or_default();
        let name_path = format!("{path}.name");
        if name.is_empty() {
            causes.push(Cause::required(&at(&name_path), ""));
        } else {
            for problem in crate::names::label_problems(name) {
                causes.push(Cause::invalid_text(&at(&name_path), name, &problem));
            }
        }
        if !name.is_empty() && names.contains(&name) {
            causes.push(Cause::duplicate(&at(&name_path), &json!(name)));
        }
        names.push(name);
        if container["image"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(&at(&format!("{path}.image")), ""));
        }
    }
}

fn workload(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(&at("spec.replicas"), &spec["replicas"], detail));
    }
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.push(Cause::required(&at("spec.selector"), ""));
    } else if selector.as_object().is_some_and(serde_json::Map::is_empty) {
        causes.push(Cause::invalid_unshown(&at("spec.selector"), "empty selector is invalid for deployment"));
    } else {
        let labels = &spec["template"]["metadata"]["labels"];
        let wanted = selector["matchLabels"].as_object();
        if wanted.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels[key] != *value)) {
            causes.push(Cause::invalid(
                &at("spec.template.metadata.labels"),
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    if let Some(old) = old {
        immutable(object, old, &["spec", "selector"], causes);
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", causes);
}

fn service(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required(&at("spec.ports"), ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(&at(&format!("{path}.name")), ""));
        }
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&at(&format!("{path}.port")), &json!(number), detail));
        }
    }
}
