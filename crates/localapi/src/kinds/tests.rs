//! What is filled in, dropped and refused of built-in kinds.

use serde_json::{Value, json};

use super::*;

fn builtin(kind: &str) -> &'static Builtin {
    BUILTINS.iter().find(|builtin| builtin.kind == kind).unwrap()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "registry/x:1", "unknown": 1}], "volumes": [{"name": "v"}]},
            },
        },
    })
}

#[test]
fn fields_that_a_kind_does_not_have_are_dropped_and_defaults_filled_in() {
    let value = builtin("Deployment").coerce(deployment()).unwrap();
    let spec = &value["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Always");
    let container = &pod["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert!(container.get("unknown").is_none());
    assert_eq!(pod["volumes"][0]["emptyDir"], json!({}));
}

#[test]
fn a_field_of_the_wrong_type_is_an_error() {
    let mut value = deployment();
    value["spec"]["replicas"] = json!("three");
    let problem = builtin("Deployment").coerce(value).unwrap_err();
    assert_eq!(
        problem,
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
}

#[test]
fn every_builtin_kind_takes_an_empty_object_as_go_does() {
    for builtin in &BUILTINS {
        let value = json!({
            "apiVersion": crate::registry::api_version(builtin.group, builtin.version), "kind": builtin.kind,
            "metadata": {"name": "a"},
        });
        let result = builtin.coerce(value);
        assert!(result.is_ok(), "{}: {result:?}", builtin.kind);
    }
}

#[test]
fn text_of_a_secret_becomes_bytes() {
    let value = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "stringData": {"k": "text"}});
    let value = builtin("Secret").coerce(value).unwrap();
    assert_eq!((&value["data"]["k"], &value["type"]), (&json!("dGV4dA=="), &json!("Opaque")));
    assert!(value.get("stringData").is_none());
}

#[test]
fn the_status_of_a_new_object_is_the_servers() {
    let mut pod = json!({
        "metadata": {"name": "a"}, "status": {"phase": "Running"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    });
    prepare_create("Pod", &mut pod);
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    assert_eq!(pod["metadata"]["generation"], 1);
    let mut namespace = json!({"metadata": {"name": "a"}, "spec": {}});
    prepare_create("Namespace", &mut namespace);
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "a");
}

#[test]
fn a_generation_counts_changes_of_the_spec_only() {
    let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"x": 1}});
    let mut same =
        json!({"metadata": {"generation": 3, "labels": {"l": "1"}}, "spec": {"a": 1}, "status": {}});
    prepare_update("StatefulSet", &mut same, &old);
    assert_eq!((&same["metadata"]["generation"], &same["status"]), (&json!(3), &json!({"x": 1})));
    let mut changed = json!({"metadata": {"generation": 3}, "spec": {"a": 2}});
    prepare_update("StatefulSet", &mut changed, &old);
    assert_eq!(changed["metadata"]["generation"], 4);
}

#[test]
fn refusals_name_the_field_and_the_value() {
    let mut value = builtin("Deployment").coerce(deployment()).unwrap();
    value["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
    value["spec"]["replicas"] = json!(-1);
    let causes = validate("apps", "Deployment", &value, None);
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, ["spec.replicas", "spec.template.metadata.labels"]);
    let lease = json!({"spec": {"leaseDurationSeconds": 0}});
    assert_eq!(
        validate("coordination.k8s.io", "Lease", &lease, None)[0].message,
        "Invalid value: 0: must be greater than 0"
    );
}
