//! What kube-apiserver 1.35.4 said about definitions, and that we say the same.
//!
//! `fixtures/definitions.json` is a recording of dry-run creations. Where a rule does not compile, the real
//! server adds where in the expression; we say what is wrong without the place.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    definition: Value,
    #[serde(default)]
    causes: Vec<RecordedCause>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
struct RecordedCause {
    field: String,
    message: String,
    reason: String,
}

/// Compilation errors of rules are compared without their places, and only the first of them.
fn comparable(cause: RecordedCause) -> RecordedCause {
    let Some((head, rest)) = cause.message.split_once("compilation failed: ERROR: ") else { return cause };
    let first = rest.lines().next().unwrap_or_default();
    let problem = match first.strip_prefix("<input>:") {
        Some(placed) => placed.splitn(3, ':').nth(2).unwrap_or_default().trim(),
        None => first,
    };
    // Each parser has its own words for what it cannot read.
    let problem = if problem.starts_with("Syntax error") { "Syntax error" } else { problem };
    RecordedCause { message: format!("{head}compilation failed: {problem}"), ..cause }
}

fn causes(definition: &Value) -> Vec<RecordedCause> {
    let found = CrdInfo::parse(definition).err().unwrap_or_default();
    let mut found: Vec<RecordedCause> = found
        .into_iter()
        .map(|cause| RecordedCause { field: cause.field, message: cause.message, reason: cause.reason })
        .map(comparable)
        .collect();
    found.sort();
    found
}

#[test]
fn every_recorded_refusal_of_a_definition_is_ours() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../fixtures/definitions.json")).unwrap();
    let mut different = Vec::new();
    for case in cases {
        let mut expected: Vec<RecordedCause> = case.causes.into_iter().map(comparable).collect();
        // The rules for metadata are applied elsewhere.
        expected
            .retain(|cause| cause.field != "metadata.name" || cause.message.contains("spec.names.plural"));
        expected.sort();
        let ours = causes(&case.definition);
        if ours != expected {
            let only = |a: &[RecordedCause], b: &[RecordedCause]| -> Vec<String> {
                let missing = a.iter().filter(|cause| !b.contains(cause));
                missing.map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect()
            };
            different.push(format!(
                "{}\n   only real {:#?}\n   only ours {:#?}",
                case.name,
                only(&expected, &ours),
                only(&ours, &expected)
            ));
        }
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true,
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}},
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                 "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
                 "selectableFields": [{"jsonPath": ".spec.color"}]},
                {"name": "v1alpha1", "served": false, "storage": false, "deprecated": true,
                 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
    })
}

#[test]
fn a_definition_gives_everything_that_serving_needs() {
    let info = CrdInfo::parse(&definition()).unwrap();
    assert_eq!((info.group.as_str(), info.namespaced), ("example.com", true));
    assert_eq!((info.names.singular.as_str(), info.names.list_kind.as_str()), ("widget", "WidgetList"));
    let [first, second] = info.versions.as_slice() else { panic!("two versions") };
    assert!(first.served && first.storage && first.status && !second.served && !second.status);
    assert_eq!(first.scale.as_ref().unwrap().spec_replicas, ".spec.size");
    assert_eq!(first.selectable_fields, ["spec.color"]);
    assert_eq!((first.columns[0].name.as_str(), first.columns[0].priority), ("Size", 1));
    assert_eq!(
        (first.deprecation.is_none(), second.deprecation.as_deref()),
        (true, Some("example.com/v1alpha1 Widget is deprecated"))
    );
    assert_eq!(first.schema.validate(&json!({"spec": {"size": "x"}}), None).len(), 1);
}

#[test]
fn errors_of_versions_that_differ_are_reported_at_the_version() {
    let mut definition = definition();
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["type"] = json!("string");
    let fields: Vec<String> = causes(&definition).into_iter().map(|c| c.field).collect();
    assert_eq!(fields, ["spec.versions[1].schema.openAPIV3Schema.type"]);
}

proptest! {
    #[test]
    fn no_definition_makes_us_panic(schema in crate::schema::proptests::any_json(), spec in crate::schema::proptests::any_json()) {
        let mut with_schema = definition();
        with_schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        let _ = CrdInfo::parse(&with_schema);
        let _ = CrdInfo::parse(&json!({"spec": spec}));
        let _ = CrdInfo::parse(&spec);
    }
}
