use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{Cause, Path};

fn create(metadata: &Value, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    validate_create(metadata, NameRule::Subdomain, namespaced, &Path::Text("metadata"), &mut causes);
    causes
}

fn messages(causes: &[Cause]) -> Vec<String> {
    causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn good_names_have_no_problems() {
    for name in ["a", "a-b", "a.b-c.d", "0", "coil-v4.2"] {
        assert!(NameRule::Subdomain.problems(name, false).is_empty(), "{name}");
    }
    assert!(NameRule::Subdomain.problems("pool-", true).is_empty());
    assert!(NameRule::Label.problems("kube-system", false).is_empty());
    assert!(NameRule::PathSegment.problems("system:node", false).is_empty());
}

#[test]
fn bad_names_are_described_in_the_servers_words() {
    assert_eq!(
        NameRule::Subdomain.problems("Bad_Name", false),
        [
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
    assert_eq!(NameRule::Label.problems("a.b", false), ["must not contain dots"]);
    assert_eq!(
        NameRule::Label1035.problems("1a", false),
        [
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ]
    );
    assert_eq!(
        NameRule::Subdomain.problems(&"a".repeat(254), false),
        ["must be no more than 253 characters"]
    );
    assert_eq!(NameRule::PathSegment.problems("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
    assert_eq!(NameRule::PathSegment.problems("..", false), ["may not be '..'"]);
}

#[test]
fn qualified_names_take_one_prefix() {
    assert!(qualified_name_problems("example.com/Name_1").is_empty());
    assert_eq!(qualified_name_problems("/x"), ["prefix part must be non-empty"]);
    assert_eq!(qualified_name_problems("a/")[0], "name part must be non-empty");
    assert!(qualified_name_problems("a/b/c")[0].starts_with("a valid label key must consist of"));
    assert!(qualified_name_problems("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
}

#[test]
fn creation_needs_a_name_and_the_right_namespace() {
    assert_eq!(
        messages(&create(&json!({}), true)),
        [
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value"
        ]
    );
    assert_eq!(
        messages(&create(&json!({"name": "a", "namespace": "b"}), false)),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    assert!(create(&json!({"name": "a", "namespace": "b"}), true).is_empty());
}

#[test]
fn labels_annotations_and_finalizers_are_checked() {
    let causes = create(
        &json!({"name": "a", "labels": {"x": "-"}, "annotations": {"UP/er": "", "a b": ""}, "finalizers": ["orphan", "foregroundDeletion"]}),
        false,
    );
    let found = messages(&causes);
    assert!(
        found[0].starts_with("metadata.labels: Invalid value: \"-\": a valid label must be an empty string")
    );
    assert!(found[1].starts_with("metadata.annotations: Invalid value: \"a b\": name part must consist of"));
    assert_eq!(
        found[2],
        "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
    );
    assert_eq!(found.len(), 3);
}

#[test]
fn annotations_have_a_total_limit() {
    let causes = create(&json!({"name": "a", "annotations": {"k": "x".repeat(262_144)}}), false);
    assert_eq!(messages(&causes), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
}

#[test]
fn owners_are_complete_and_only_one_controls() {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    let causes =
        create(&json!({"name": "a", "ownerReferences": [owner, owner, {"apiVersion": "g/"}]}), false);
    assert_eq!(
        messages(&causes),
        [
            "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"controller\":true,\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\"},{\"apiVersion\":\"v1\",\"controller\":true,\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\"},{\"apiVersion\":\"g/\"}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and Pod/p",
            "metadata.ownerReferences.apiVersion: Invalid value: \"g/\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ]
    );
}

#[test]
fn updates_keep_identity_and_add_no_finalizer_while_deleting() {
    let old = json!({"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["x/y"]});
    let mut new = old.clone();
    new["finalizers"] = json!(["x/y", "x/z"]);
    new["uid"] = json!("2");
    new["generation"] = json!(1);
    new["resourceVersion"] = json!("");
    new["deletionTimestamp"] = Value::Null;
    let mut causes = Vec::new();
    validate_update(&new, &old, &Path::Text("metadata"), &mut causes);
    assert_eq!(
        messages(&causes),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/z\"}",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.uid: Invalid value: \"2\": field is immutable",
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
        ]
    );
}

#[test]
fn unqualified_finalizers_are_warned_about_once() {
    let new = json!({"finalizers": ["old", "plain", "a.b", "x/y", "orphan"]});
    let old = json!({"finalizers": ["old"]});
    assert_eq!(
        finalizer_warnings(&new, Some(&old)),
        [
            "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        ]
    );
}

#[test]
fn coercion_drops_what_metadata_does_not_have() {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"});
    let mut given = json!({"name": "a", "nonsense": 1, "labels": {}, "namespace": null, "managedFields": [],
        "ownerReferences": [owner]});
    given["ownerReferences"][0]["extra"] = json!(true);
    assert_eq!(coerce(&given).unwrap(), json!({"name": "a", "ownerReferences": [owner]}));
    let wrong = coerce(&json!({"labels": {"a": 1}})).unwrap_err();
    assert!(wrong.starts_with("metadata: ") && wrong.contains("expected a string"), "{wrong}");
    assert!(coerce(&json!("text")).is_err());
}

#[derive(serde::Deserialize)]
struct Recorded {
    metadata: Value,
    #[serde(default)]
    causes: Vec<Value>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    stored: Value,
}

/// `fixtures/metadata.json` is a recording of what a real kube-apiserver 1.35.4 said to the creation of custom
/// resources with this metadata.
#[test]
fn every_recorded_refusal_of_metadata_is_ours() {
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../../fixtures/metadata.json")).unwrap();
    for case in recorded {
        let coerced = coerce(&case.metadata);
        assert_eq!(coerced.is_err(), !case.message.is_empty(), "{}: {coerced:?}", case.metadata);
        if let Ok(mut metadata) = coerced {
            for (field, value) in case.stored.as_object().into_iter().flatten() {
                let empty = json!({});
                assert_eq!(metadata.get(field).unwrap_or(&empty), value, "{}", case.metadata);
            }
            if metadata.get("name").is_none() {
                metadata["name"] = json!("generated");
            }
            let mut ours: Vec<Value> = create(&metadata, false)
                .into_iter()
                .map(|c| json!({"field": c.field, "message": c.message, "reason": c.reason}))
                .collect();
            let mut real = case.causes.clone();
            for cause in ours.iter_mut().chain(&mut real) {
                if cause["field"] == "metadata.ownerReferences" {
                    // The real server shows the references in another order of their fields.
                    cause["message"] = Value::Null;
                }
            }
            // The name that the real server made up is not ours to compare.
            let made_up = case.metadata.get("name").is_none();
            real.retain(|c| !made_up || c["field"] != "metadata.name");
            let order = |c: &Value| (c["field"].to_string(), c["message"].to_string());
            ours.sort_by_key(order);
            real.sort_by_key(order);
            assert_eq!(ours, real, "{}", case.metadata);
        }
    }
}

proptest! {
    #[test]
    fn no_name_makes_a_rule_panic(name in "\\PC{0,80}", prefix: bool) {
        for rule in [NameRule::Subdomain, NameRule::Label, NameRule::Label1035, NameRule::PathSegment] {
            let _ = rule.problems(&name, prefix);
        }
        let _ = qualified_name_problems(&name);
        let _ = label_value_problems(&name);
    }

    #[test]
    fn coercion_is_idempotent_and_validation_takes_anything(metadata in crate::schema::proptests::any_json()) {
        let _ = create(&metadata, true);
        validate_update(&metadata, &metadata, &Path::Text("metadata"), &mut Vec::new());
        if let Ok(once) = coerce(&metadata) {
            prop_assert_eq!(coerce(&once), Ok(once));
        }
    }
}
