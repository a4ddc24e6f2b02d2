//! OpenAPI documents: what `kubectl explain` reads, and how `kubectl apply` learns what the server can do.
//!
//! Custom resources are described in full, from the schemas of their definitions. Of the built-in kinds the
//! documents only say that they exist: clients know them by heart.

mod schemas;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::registry::{Registry, Resource};

/// The index of documents, at `/openapi/v3`. Each URL carries a hash, so that a client can keep what it has read.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, version) in group_versions(registry) {
        let path = path_of(&group, &version);
        let hash = hash(&document(registry, &group, &version).to_string());
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The document of one group version, at `/openapi/v3/apis/GROUP/VERSION`.
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in registry.all().filter(|r| r.group == group && r.version == version) {
        add_paths(resource, &mut paths);
        schemas::add(resource, "#/components/schemas/", &mut schemas);
    }
    schemas::add_shared("#/components/schemas/", &mut schemas);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Tenure", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Whether there is a document of this group version.
pub(crate) fn has_document(registry: &Registry, group: &str, version: &str) -> bool {
    registry.all().any(|r| r.group == group && r.version == version)
}

/// Everything as one document of the older OpenAPI, at `/openapi/v2`.
pub(crate) fn v2(registry: &Registry) -> Value {
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for resource in registry.all() {
        add_paths(resource, &mut paths);
        schemas::add(resource, "#/definitions/", &mut definitions);
    }
    schemas::add_shared("#/definitions/", &mut definitions);
    for schema in definitions.values_mut() {
        schemas::to_v2(schema);
    }
    for operation in paths.values_mut().flat_map(|path| path.as_object_mut().into_iter().flatten()) {
        operation_to_v2(operation.1);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Tenure", "version": "v0.1.0"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn group_versions(registry: &Registry) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        registry.all().map(|r| (r.group.clone(), r.version.clone())).collect();
    all.sort();
    all.dedup();
    all
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// A hash of a text, as digits of a URL.
fn hash(text: &str) -> String {
    let mut state = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in text.bytes() {
        state = (state ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{state:032X}")
}

fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let base = format!("/{}", path_of(&resource.group, &resource.version));
    let all = format!("{base}/{}", resource.plural);
    let list = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        all.clone()
    };
    let one = format!("{list}/{{name}}");
    let operations = |entries: &[(&str, &str)]| {
        let mut out = Map::new();
        for (method, action) in entries {
            out.insert((*method).to_owned(), operation(resource, method, action));
        }
        Value::Object(out)
    };
    paths.insert(
        list.clone(),
        operations(&[("get", "list"), ("post", "post"), ("delete", "deletecollection")]),
    );
    if list != all {
        paths.insert(all, operations(&[("get", "list")]));
    }
    let change = [("get", "get"), ("put", "put"), ("patch", "patch")];
    paths.insert(
        one.clone(),
        operations(&[("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")]),
    );
    if resource.status {
        paths.insert(format!("{one}/status"), operations(&change));
    }
    if resource.scale.is_some() {
        paths.insert(format!("{one}/scale"), operations(&change));
    }
}

/// An operation, with the parameters that clients look for before they use them.
fn operation(resource: &Resource, method: &str, action: &str) -> Value {
    let parameters: &[&str] = match method {
        "get" if action == "list" => &[
            "allowWatchBookmarks",
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "resourceVersionMatch",
            "sendInitialEvents",
            "timeoutSeconds",
            "watch",
        ],
        "get" => &["resourceVersion"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        _ => &["dryRun", "fieldManager", "fieldValidation"],
    };
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| {
            let ty = match *name {
                "allowWatchBookmarks" | "sendInitialEvents" | "watch" | "force" => "boolean",
                "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
                _ => "string",
            };
            json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
        })
        .collect();
    let mut out = json!({
        "operationId": format!("{action}{}{}", resource.kind, resource.version),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {
            "$ref": format!("#/components/schemas/{}", schemas::name(resource)),
        }}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
    });
    if method == "patch" {
        let body = json!({"schema": {"type": "object"}});
        out["requestBody"] =
            json!({"content": {"application/json-patch+json": body, "application/merge-patch+json": body}});
    }
    out
}

fn operation_to_v2(operation: &mut Value) {
    for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
        if let Some(schema) = parameter.as_object_mut().and_then(|fields| fields.remove("schema")) {
            parameter["type"] = schema["type"].clone();
            parameter["uniqueItems"] = json!(true);
        }
    }
    if let Some(fields) = operation.as_object_mut() {
        fields.remove("requestBody");
        fields.insert("responses".to_owned(), json!({"200": {"description": "OK"}}));
    }
}
