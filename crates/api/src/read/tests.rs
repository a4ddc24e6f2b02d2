use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::core::{ObjectList, WatchEvent};
use serde_json::json;

use super::*;
use crate::claims::IPAMClaim;
use crate::networks::NetworkAttachmentDefinition;

fn list<K: DeserializeOwned + Clone>(items: &Value) -> Vec<Read<K>> {
    let text = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).to_string();
    serde_json::from_str::<ObjectList<Read<K>>>(&text).unwrap().items
}

#[test]
fn a_definition_without_a_spec_says_nothing_and_hides_no_other() {
    let found: Vec<Read<NetworkAttachmentDefinition>> = list(&json!([
        {"metadata": {"name": "bare", "namespace": "a", "uid": "1"}},
        {"metadata": {"name": "wrong", "namespace": "a", "uid": "2"}, "spec": {"config": {"type": "bridge"}}},
        {"metadata": {"name": "good", "namespace": "b", "uid": "3"}, "spec": {"config": "{}"}},
    ]));
    let said: Vec<_> = found
        .iter()
        .map(|read| (read.name_any(), read.as_result().ok().map(|it| it.spec.config.clone())))
        .collect();
    let (bare, wrong, good) = ("bare".to_owned(), "wrong".to_owned(), "good".to_owned());
    assert_eq!(said, [(bare, Some(String::new())), (wrong, None), (good, Some("{}".to_owned()))]);
    let unreadable = found[1].as_result().unwrap_err();
    assert_eq!(
        unreadable.to_string(),
        "a/wrong cannot be read: spec.config: invalid type: map, expected a string"
    );
    assert_eq!(unreadable.uid(), "2");
}

#[test]
fn the_field_is_named_its_value_and_what_is_accepted() {
    let cases = [
        (
            json!({"metadata": {"name": "c"}, "status": {"ips": 5}}),
            "status.ips: invalid type: integer `5`, expected",
        ),
        (json!({"metadata": {"name": "c"}, "spec": "all"}), "spec: invalid type: string \"all\", expected"),
        (
            json!({"metadata": {"name": "c"}, "status": {"conditions": [{"type": "x"}]}}),
            "status.conditions: missing field",
        ),
        (json!({"metadata": {"name": "c", "labels": 7}}), "metadata.labels: invalid type"),
        (json!([1, 2]), ""),
        (json!("text"), ""),
        (json!(null), ""),
    ];
    for (object, why) in cases {
        let read: Read<IPAMClaim> = serde_json::from_value(object.clone()).unwrap();
        // A field may be wrong in a list, too; then the list is named.
        if let Read::Unreadable(unreadable) = read {
            assert!(unreadable.why.starts_with(why), "{object}: {}", unreadable.why);
        } else {
            assert_eq!(why, "", "{object}");
        }
    }
}

#[test]
fn an_object_is_read_without_what_is_wrong_if_one_asks_for_that() {
    let claim = json!({"metadata": {"name": "c", "uid": "1"}, "spec": {"network": "n", "interface": "net1"}, "status": "held"});
    let Read::Unreadable(unreadable) = serde_json::from_value::<Read<IPAMClaim>>(claim).unwrap() else {
        panic!("a status is no text");
    };
    let rest: IPAMClaim = unreadable.without(&["status"]).unwrap();
    assert_eq!((rest.spec.network.as_str(), rest.status), ("n", None));
}

#[test]
fn metadata_of_the_wrong_shape_still_say_which_object_it_is() {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "1", "resourceVersion": "7", "annotations": {"a": 1}}});
    let read: Read<Pod> = serde_json::from_value(pod).unwrap();
    assert!(read.as_result().is_err());
    let meta = read.meta();
    let which = [&meta.name, &meta.namespace, &meta.uid, &meta.resource_version];
    assert_eq!(which.map(|it| it.as_deref().unwrap()), ["p", "ns", "1", "7"]);
}

#[test]
fn however_deep_an_object_is_the_others_are_read() {
    let deep = format!("{}0{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let wide = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{{"metadata":{{"name":"deep","managedFields":{deep}}},
           "spec":{{"x":{deep},"y":{wide}}}}},{{"metadata":{{"name":"good"}}}}]}}"#
    );
    let found: ObjectList<Read<Node>> = serde_json::from_str(&text).unwrap();
    let names: Vec<_> = found.items.iter().map(|read| (read.name_any(), read.as_result().is_ok())).collect();
    assert_eq!(names, [("deep".to_owned(), true), ("good".to_owned(), true)]);
    let event = format!(r#"{{"type":"ADDED","object":{{"metadata":{{"name":"deep"}},"spec":{deep}}}}}"#);
    let WatchEvent::Added(read) = serde_json::from_str::<WatchEvent<Read<Node>>>(&event).unwrap() else {
        panic!("it was added");
    };
    assert_eq!(read.name_any(), "deep");
}
