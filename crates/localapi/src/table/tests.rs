use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::registry::Registry;
use crate::store::{Draft, Key};

/// A registry with one definition, `widgets.example.com`.
pub(crate) fn registry(columns: &Value) -> Registry {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "uid": "1"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                 "schema": {"openAPIV3Schema": {"type": "object", "description": "A widget.", "properties": {
                    "spec": {"type": "object", "description": "What is wanted.", "properties": {
                        "size": {"type": "integer", "description": "How big."},
                        "port": {"x-kubernetes-int-or-string": true},
                        "note": {"type": "string", "nullable": true},
                        "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}},
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}},
                {"name": "v1beta1", "served": true, "storage": false,
                 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
        "status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]},
    });
    let object = Draft::new(definition).finish(Key::new("", "widgets.example.com"), 7);
    Registry::build(&[Arc::new(object)], None)
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn options<'a>(include: Include, header: bool) -> TableOptions<'a> {
    TableOptions { version: "v1", include, header, now: now() }
}

fn cells(group: &str, version: &str, plural: &str, object: &Value) -> Vec<Value> {
    let registry = registry(&json!([]));
    let resource = registry.find(group, version, plural).unwrap();
    let table = table(resource, &[object], Map::new(), options(Include::None, true));
    table["rows"][0]["cells"].as_array().unwrap().clone()
}

#[test]
fn a_definitions_columns_are_typed() {
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Note", "type": "string", "jsonPath": ".spec.note", "description": "A note.", "priority": 1},
        {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Spec", "type": "string", "jsonPath": ".spec"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
    ]);
    let registry = registry(&columns);
    let resource = registry.find("example.com", "v1", "widgets").unwrap();
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"size": 3},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!("5"));
    let made = table(resource, &[&object], metadata, options(Include::Metadata, true));
    assert_eq!(made["rows"][0]["cells"], json!(["a", 3, null, "60m", "{\"size\":3}", "True"]));
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    assert_eq!(made["metadata"], json!({"resourceVersion": "5"}));
    assert_eq!(made["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(made["rows"][0]["object"]["metadata"]["name"], "a");
    let described = &made["columnDefinitions"];
    assert_eq!(
        described[0],
        json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0})
    );
    assert_eq!(
        described[1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.size"
    );
    assert_eq!((&described[2]["description"], &described[2]["priority"]), (&json!("A note."), &json!(1)));
}

#[test]
fn without_columns_there_is_the_age() {
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:59:00Z"}});
    assert_eq!(cells("example.com", "v1", "widgets", &object), [json!("a"), json!("60s")]);
}

#[test]
fn a_table_carries_as_much_of_the_object_as_asked_for() {
    let registry = registry(&json!([]));
    let resource = registry.find("", "v1", "namespaces").unwrap();
    let object = json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}});
    let whole = table(resource, &[&object], Map::new(), options(Include::Object, false));
    assert_eq!(whole["rows"][0]["object"], object);
    assert_eq!(whole["columnDefinitions"], Value::Null);
    let none = table(resource, &[&object], Map::new(), options(Include::None, true));
    assert_eq!(none["rows"][0]["object"], Value::Null);
    assert_eq!(none["rows"][0]["cells"], json!(["a", "Active", "<unknown>"]));
    for (text, parsed) in [
        ("", Some(Include::Metadata)),
        ("Object", Some(Include::Object)),
        ("None", Some(Include::None)),
        ("x", None),
    ] {
        assert_eq!(Include::parse(text), parsed);
    }
}

#[test]
fn nodes_say_whether_they_are_ready() {
    let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.35.4", "kernelVersion": "6.1"}}});
    assert_eq!(
        cells("", "v1", "nodes", &node),
        [
            "n",
            "Ready,SchedulingDisabled",
            "worker",
            "<unknown>",
            "v1.35.4",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "6.1",
            "<unknown>"
        ]
        .map(|c| json!(c))
    );
}

#[test]
fn pods_sum_up_their_containers() {
    let pod = |status: Value| json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": [{}, {}]}, "status": status});
    let first_four = |status: Value| cells("", "v1", "pods", &pod(status))[1..4].to_vec();
    assert_eq!(first_four(json!({"phase": "Pending"})), ["0/2", "Pending", "0"].map(|c| json!(c)));
    assert_eq!(
        first_four(json!({"phase": "Running", "containerStatuses": [
            {"ready": true, "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:30:00Z"}}},
            {"ready": false, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]})),
        ["1/2", "CrashLoopBackOff", "3 (30m ago)"].map(|c| json!(c))
    );
    assert_eq!(
        first_four(json!({"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {}}}]}))[1],
        json!("Init:0/0")
    );
    assert_eq!(
        first_four(
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]})
        )[1],
        json!("ExitCode:3")
    );
    let mut going = pod(json!({"phase": "Running"}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(cells("", "v1", "pods", &going)[2], json!("Terminating"));
}

#[test]
fn leases_events_and_deployments_have_their_columns() {
    let lease = json!({"metadata": {"name": "l", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"holderIdentity": "me"}});
    assert_eq!(cells("coordination.k8s.io", "v1", "leases", &lease), ["l", "me", "60m"].map(|c| json!(c)));
    let event = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Ran", "message": " done ", "lastTimestamp": "2026-01-01T00:59:50Z",
        "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"}});
    assert_eq!(
        cells("", "v1", "events", &event),
        [
            json!("10s"),
            json!("Normal"),
            json!("Ran"),
            json!("pod/p"),
            json!(""),
            json!("kubelet, n"),
            json!("done"),
            json!("<unknown>"),
            json!(1),
            json!("e")
        ]
    );
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "x"}},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}, "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}});
    assert_eq!(
        cells("apps", "v1", "deployments", &deployment),
        [
            json!("d"),
            json!("2/3"),
            json!(3),
            json!(2),
            json!("<unknown>"),
            json!("c"),
            json!("i"),
            json!("app=x")
        ]
    );
}

proptest! {
    #[test]
    fn no_object_makes_a_table_panic(object in crate::schema::proptests::any_json()) {
        let registry = registry(&json!([{"name": "A", "type": "integer", "jsonPath": ".spec.a"}]));
        for resource in registry.all() {
            let made = table(resource, &[&object], Map::new(), options(Include::Metadata, true));
            let columns = made["columnDefinitions"].as_array().unwrap().len();
            prop_assert_eq!(made["rows"][0]["cells"].as_array().unwrap().len(), columns);
        }
    }
}
