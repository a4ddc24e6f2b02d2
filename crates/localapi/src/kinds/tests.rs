use serde_json::json;

use super::*;

fn builtin(kind: &str) -> &'static Builtin {
    BUILTINS.iter().find(|builtin| builtin.kind == kind).unwrap()
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "registry/x:1", "unknown": 1}], "volumes": []}},
        },
    })
}

#[test]
fn fields_that_a_kind_does_not_have_are_dropped_and_what_we_read_is_filled_in() {
    let value = builtin("Deployment").coerce(deployment()).unwrap();
    assert_eq!(value["spec"]["replicas"], 1);
    let pod = &value["spec"]["template"]["spec"];
    assert_eq!(pod["containers"], json!([{"name": "c", "image": "registry/x:1"}]));
    assert!(pod.get("volumes").is_none());
}

#[test]
fn a_field_of_the_wrong_type_is_an_error() {
    let mut value = deployment();
    value["spec"]["replicas"] = json!("three");
    let problem = builtin("Deployment").coerce(value).unwrap_err();
    assert!(problem.contains("three") && problem.contains("i32"), "{problem}");
}

#[test]
fn every_builtin_kind_takes_an_empty_object() {
    for builtin in &BUILTINS {
        let value = json!({
            "apiVersion": crate::registry::api_version(builtin.group, VERSION), "kind": builtin.kind,
            "metadata": {"name": "a"},
        });
        let result = builtin.coerce(value);
        assert!(result.is_ok(), "{}: {result:?}", builtin.kind);
    }
}

#[test]
fn a_status_is_written_apart_and_the_generation_counts_the_specs() {
    let workload = builtin("Deployment");
    let mut old = workload.coerce(deployment()).unwrap();
    old["status"] = json!({"replicas": 7});
    prepare_create(workload, &mut old);
    assert_eq!((&old["status"], &old["metadata"]["generation"]), (&json!({}), &json!(1)));
    let mut new = old.clone();
    new["status"] = json!({"replicas": 7});
    prepare_update(workload, &mut new, &old);
    assert_eq!(new, old);
    new["spec"]["replicas"] = json!(2);
    prepare_update(workload, &mut new, &old);
    assert_eq!(new["metadata"]["generation"], 2);
    new["status"] = json!({"replicas": 2});
    prepare_status_update(workload, &mut new, &old);
    assert_eq!((&new["spec"], &new["status"]), (&old["spec"], &json!({"replicas": 2})));
}

#[test]
fn leases_and_events_that_make_no_sense_are_refused() {
    let fields = |kind: &str, object: Value| -> Vec<String> {
        validate(kind, &object).into_iter().map(|cause| cause.field).collect()
    };
    let lease = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
    assert_eq!(fields("Lease", lease), ["spec.leaseDurationSeconds", "spec.leaseTransitions"]);
    let event = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}});
    assert_eq!(fields("Event", event), ["involvedObject.namespace"]);
}
