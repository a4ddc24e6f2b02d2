use serde_json::json;

use super::*;
use crate::table::tests::registry;

#[test]
fn the_index_names_a_document_for_each_version() {
    let registry = registry(&json!([]));
    let index = index(&registry);
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(url.starts_with("/openapi/v3/apis/example.com/v1?hash="), "{url}");
    assert!(index["paths"]["api/v1"].is_object());
    assert!(has_document(&registry, "example.com", "v1") && !has_document(&registry, "example.com", "v9"));
}

#[test]
fn a_hash_changes_with_the_document() {
    let before = index(&registry(&json!([])));
    assert_eq!(before, index(&registry(&json!([]))));
    assert_ne!(hash("a"), hash("b"));
}

#[test]
fn a_definitions_schema_is_published_with_what_every_resource_has() {
    let document = document(&registry(&json!([])), "example.com", "v1");
    let widget = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["description"], "How big.");
    assert_eq!(widget["properties"]["kind"]["type"], "string");
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(widget["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
    );
    assert_eq!(
        widget["properties"]["spec"]["properties"]["port"]["anyOf"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    assert_eq!(
        widget["properties"]["spec"]["properties"]["inner"]["properties"]["metadata"]["allOf"][0]["$ref"],
        meta
    );
    let list = &document["components"]["schemas"]["com.example.v1.WidgetList"];
    assert_eq!(list["properties"]["items"]["items"]["$ref"], "#/components/schemas/com.example.v1.Widget");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|inner| references(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }
    let registry = registry(&json!([]));
    for (group, version) in [("example.com", "v1"), ("example.com", "v1beta1"), ("", "v1"), ("apps", "v1")] {
        let document = document(&registry, group, version);
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference} of {group}/{version}");
        }
    }
    let old = v2(&registry);
    let mut found = Vec::new();
    references(&old, &mut found);
    assert!(found.iter().all(|reference| old.pointer(reference.trim_start_matches('#')).is_some()));
}

#[test]
fn clients_find_the_parameters_that_they_ask_for() {
    let document = document(&registry(&json!([])), "example.com", "v1");
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"));
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");
    assert!(
        document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"].is_object()
    );
    assert!(document["paths"]["/apis/example.com/v1/widgets"]["get"].is_object());
}

#[test]
fn the_older_form_leaves_out_what_it_cannot_say() {
    let old = v2(&registry(&json!([])));
    let note = &old["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]["note"];
    assert_eq!(*note, json!({"type": "string"}));
    assert_eq!(old["swagger"], "2.0");
}
