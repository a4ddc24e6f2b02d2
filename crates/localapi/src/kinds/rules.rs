//! What is refused of a built-in kind, beyond its metadata and the types of its fields.
//!
//! Not all that a cluster refuses: what Tenure writes, and the mistakes that people make.

use serde_json::{Value, json};

use crate::schema::{Cause, Path};

/// Causes for which `object` is refused; `old` is what it replaces.
pub(crate) fn validate(group: &str, kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind {
        "Event" => event(group, object, old, &mut causes),
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
        causes.push(Cause::invalid(&at(&name), &new, "field is immutable"));
    }
}

/// Keys of configuration maps and secrets, and what `immutable` forbids.
fn bag(object: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Vec<Cause>) {
    for field in fields {
        for key in object[*field].as_object().into_iter().flatten().map(|(key, _)| key) {
            for problem in key_problems(key) {
                causes.push(Cause::invalid_text(&at(field).key(key), key, &problem));
            }
            if *field == "data" && fields.contains(&"binaryData") && object["binaryData"].get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                causes.push(Cause::invalid_text(&at(field).key(key), key, detail));
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

fn event(group: &str, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let newer = group == "events.k8s.io";
    let subject = text(&object[if newer { "regarding" } else { "involvedObject" }]["namespace"]);
    let namespace = text(&object["metadata"]["namespace"]);
    let reporter = if newer { "reportingController" } else { "reportingComponent" };
    let misplaced = if object["eventTime"].is_null() {
        if subject.is_empty() { namespace != "default" } else { subject != namespace }
    } else {
        subject.is_empty() && namespace != "default" && namespace != "kube-system"
    };
    if misplaced {
        let path = at("involvedObject.namespace");
        causes.push(Cause::invalid_text(&path, &subject, "does not match event.namespace"));
    }
    if !object["eventTime"].is_null() {
        for (name, limit) in
            [(reporter, usize::MAX), ("reportingInstance", 128), ("action", 128), ("reason", 128)]
        {
            let value = text(&object[name]);
            if value.is_empty() {
                causes.push(Cause::required(&at(name), ""));
            } else if value.chars().count() > limit {
                let detail = format!("can have at most {limit} characters");
                causes.push(Cause::invalid_text(&at(name), "", &detail));
            } else if name == reporter {
                for problem in crate::names::qualified_name_problems(&value) {
                    causes.push(Cause::invalid_text(&at(name), &value, &problem));
                }
            }
        }
    }
    if !newer || old.is_some() {
        return;
    }
    // Those who use the newer API leave the older API's fields alone.
    if object["eventTime"].is_null() {
        causes.push(Cause::required(&at("eventTime"), ""));
    }
    let kind = text(&object["type"]);
    if kind != "Normal" && kind != "Warning" {
        causes.push(Cause::invalid_text(&at("type"), "", &format!("has invalid value: {kind}")));
    }
    let unset = [
        ("firstTimestamp", &object["deprecatedFirstTimestamp"]),
        ("lastTimestamp", &object["deprecatedLastTimestamp"]),
        ("count", &object["deprecatedCount"]),
        ("source", &object["deprecatedSource"]),
    ];
    for (name, value) in unset {
        let empty = value.is_null() || *value == json!(0) || *value == json!({});
        if !empty {
            causes.push(Cause::invalid_text(&at(name), "", "needs to be unset"));
        }
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
