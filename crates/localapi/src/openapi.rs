//! The OpenAPI documents that `kubectl` requests.
//!
//! `kubectl apply` checks whether the server validates fields itself: whether the patch of the kind accepts
//! the parameter `fieldValidation`. `kubectl explain` reads the schemas of custom resources, which are those
//! of their definitions.

use serde_json::{Map, Value, json};

use crate::registry::{Registry, Resource};

/// The index of documents, at `/openapi/v3`.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for resource in registry.all() {
        let path = path_of(resource);
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
    }
    json!({"paths": paths})
}

/// The document of one group version, at `/openapi/v3/apis/GROUP/VERSION`; `None` if there is no such
/// version.
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in registry.all().filter(|one| one.group == group && one.version == version) {
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let list = format!("/{}{namespace}/{}", path_of(resource), resource.plural);
        let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let operation = |action: &str| {
            json!({
                "operationId": format!("{action}{}", resource.kind),
                "parameters": [parameter],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": kind,
            })
        };
        paths.insert(list.clone(), json!({"post": operation("post")}));
        let one = json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch")});
        paths.insert(format!("{list}/{{name}}"), one);
        let mut schema = match resource.custom() {
            Some(custom) => custom.info.versions[custom.index].open_api.clone(),
            None => json!({"type": "object", "description": format!("A built-in kind: {}.", resource.kind)}),
        };
        schema["x-kubernetes-group-version-kind"] = json!([kind]);
        schemas.insert(format!("{group}.{version}.{}", resource.kind), schema);
    }
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Tenure", "version": "v0.1.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        })
    })
}

fn path_of(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}", resource.api_version)
    }
}
