//! Schemas of kinds, as clients read them.

use serde_json::{Map, Value, json};

use crate::registry::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The name of a kind's schema: the group backwards, the version, the kind.
pub(super) fn name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = match resource.group.as_str() {
        "" => vec!["core", "api", "k8s", "io"],
        group => group.split('.').collect(),
    };
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

/// Adds the schemas of a kind and of its lists.
pub(super) fn add(resource: &Resource, refs: &str, schemas: &mut Map<String, Value>) {
    let own = name(resource);
    let gvk = |kind: &str| json!([{"group": resource.group, "version": resource.version, "kind": kind}]);
    let mut schema = match resource.custom() {
        Some(custom) => {
            let mut schema = custom.info.versions[custom.index].open_api.clone();
            publish(&mut schema, refs);
            schema
        }
        None => json!({"type": "object", "description": format!("A built-in kind: {}.", resource.kind)}),
    };
    add_resource_fields(&mut schema, refs);
    schema["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
    let mut list = json!({
        "type": "object",
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "required": ["items"],
        "properties": {
            "items": {
                "type": "array",
                "description": format!("List of {}.", resource.plural),
                "items": {"$ref": format!("{refs}{own}")},
            },
        },
        "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
    });
    add_type_fields(&mut list);
    list["properties"]["metadata"] = json!({"description": "Metadata of the list.", "allOf": [{"$ref": format!("{refs}{META}.ListMeta")}]});
    schemas.insert(format!("{own}List"), list);
    schemas.insert(own, schema);
}

/// Brings a definition's schema into the form that clients understand.
fn publish(schema: &mut Value, refs: &str) {
    let Value::Object(fields) = schema else { return };
    if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) && !fields.contains_key("anyOf") {
        fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            publish(inner, refs);
        }
    }
    for property in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        publish(property.1, refs);
    }
    if fields.get("x-kubernetes-embedded-resource") == Some(&json!(true)) {
        add_resource_fields(schema, refs);
    }
}

fn add_type_fields(schema: &mut Value) {
    schema["properties"]["apiVersion"] =
        json!({"type": "string", "description": "Version of this representation of the object."});
    schema["properties"]["kind"] = json!({"type": "string", "description": "Kind of the object."});
}

/// What every resource has.
fn add_resource_fields(schema: &mut Value, refs: &str) {
    if !schema.is_object() {
        *schema = json!({"type": "object"});
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    add_type_fields(schema);
    schema["properties"]["metadata"] = json!({"description": "Metadata of the object.", "allOf": [{"$ref": format!("{refs}{META}.ObjectMeta")}]});
}

/// Adds the schemas that all kinds share.
pub(super) fn add_shared(refs: &str, schemas: &mut Map<String, Value>) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let time =
        |description: &str| json!({"type": "string", "format": "date-time", "description": description});
    let integer =
        |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let texts = |description: &str| json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}});
    schemas.insert(
        format!("{META}.ObjectMeta"),
        json!({"type": "object", "description": "What every stored object has.", "properties": {
            "name": text("Name, unique among the objects of the kind in the namespace."),
            "generateName": text("Beginning of a name that the server completes."),
            "namespace": text("Namespace of the object."),
            "uid": text("Identity of the object, never used again."),
            "resourceVersion": text("Version of the stored object; changes with every write."),
            "generation": integer("Counts the changes of what is wanted."),
            "creationTimestamp": time("When the object was created."),
            "deletionTimestamp": time("When the object's deletion was asked for."),
            "deletionGracePeriodSeconds": integer("Seconds that the object has to end."),
            "labels": texts("Labels, by which objects are selected."),
            "annotations": texts("Notes of programs about the object."),
            "finalizers": {"type": "array", "description": "Who must agree before the object goes.", "items": {"type": "string"}},
            "ownerReferences": {"type": "array", "description": "Objects without which this one goes, too.",
                "items": {"$ref": format!("{refs}{META}.OwnerReference")}},
        }}),
    );
    schemas.insert(
        format!("{META}.OwnerReference"),
        json!({"type": "object", "description": "An object that another one depends on.",
            "required": ["apiVersion", "kind", "name", "uid"], "properties": {
            "apiVersion": text("API version of the owner."),
            "kind": text("Kind of the owner."),
            "name": text("Name of the owner."),
            "uid": text("Identity of the owner."),
            "controller": {"type": "boolean", "description": "Whether the owner manages the object."},
            "blockOwnerDeletion": {"type": "boolean", "description": "Whether a foreground deletion of the owner waits for the object."},
        }}),
    );
    schemas.insert(
        format!("{META}.ListMeta"),
        json!({"type": "object", "description": "What every list has.", "properties": {
            "continue": text("Where the next page begins."),
            "remainingItemCount": integer("How many objects follow."),
            "resourceVersion": text("Version of the store that the list shows."),
        }}),
    );
}

/// Takes out what the older OpenAPI cannot say.
pub(super) fn to_v2(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for key in ["nullable", "oneOf", "anyOf", "allOf", "not"] {
                // A reference wrapped only to carry a description becomes a bare reference.
                let removed = fields.remove(key);
                if let (Some(Value::Array(branches)), "allOf") = (&removed, key)
                    && let [Value::Object(reference)] = branches.as_slice()
                    && let Some(target) = reference.get("$ref")
                {
                    fields.insert("$ref".to_owned(), target.clone());
                }
            }
            fields.values_mut().for_each(to_v2);
        }
        Value::Array(items) => items.iter_mut().for_each(to_v2),
        _ => {}
    }
}
