//! The API as its clients see it: raw requests in, status codes and objects out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their helpers may")]

mod harness;

use std::time::Duration;

use futures::StreamExt;
use harness::{Host, crd, widget};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn an_object_can_be_created_read_replaced_patched_and_deleted() {
    let host = Host::new();
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    let (code, created) = host.post("/api/v1/namespaces/default/configmaps", &map).await;
    assert_eq!((code, &created["kind"]), (201, &json!("ConfigMap")), "{created}");
    assert!(created["metadata"]["uid"].is_string() && created["metadata"]["creationTimestamp"].is_string());

    let path = "/api/v1/namespaces/default/configmaps/a";
    let (code, mut read) = host.get(path).await;
    assert_eq!((code, &read), (200, &created));

    read["data"]["k"] = json!("2");
    let (code, replaced) = host.put(path, &read).await;
    assert_eq!((code, &replaced["data"]["k"]), (200, &json!("2")));
    assert_ne!(replaced["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);

    let (code, conflict) = host.put(path, &read).await;
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")), "{conflict}");

    let (code, patched) = host.merge(path, &json!({"data": {"k": null, "l": "3"}})).await;
    assert_eq!((code, &patched["data"]), (200, &json!({"l": "3"})));

    let (code, gone) = host.delete(path).await;
    assert_eq!((code, &gone["status"], &gone["details"]["name"]), (200, &json!("Success"), &json!("a")));
    let (code, missing) = host.get(path).await;
    assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_the_resource_version() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, created) = host.post(path, &json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    let (code, same) = host.merge(&format!("{path}/a"), &json!({"data": {"k": "1"}})).await;
    assert_eq!((code, &same), (200, &created));
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_collisions_refused() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, made) = host.post(path, &json!({"metadata": {"generateName": "x-"}})).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((code, name.len(), &name[..2]), (201, 7, "x-"));
    let (code, status) = host.post(path, &json!({"metadata": {"name": name}})).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
    let (code, status) = host.post(path, &json!({"metadata": {}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_in_a_namespace_that_is_missing_or_leaving() {
    let host = Host::new();
    let map = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    let (code, status) = host.post("/api/v1/namespaces/nowhere/configmaps", &map).await;
    assert_eq!((code, &status["message"]), (404, &json!("namespaces \"nowhere\" not found")));

    host.post("/api/v1/namespaces", &json!({"metadata": {"name": "leaving"}})).await;
    host.post("/api/v1/namespaces/leaving/configmaps", &map).await;
    let (code, leaving) = host.delete("/api/v1/namespaces/leaving").await;
    assert_eq!((code, &leaving["status"]["phase"]), (200, &json!("Terminating")), "{leaving}");
    let other = json!({"metadata": {"name": "b"}});
    let (code, status) = host.post("/api/v1/namespaces/leaving/configmaps", &other).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");

    // Held by a finalizer; once that is gone, so is everything.
    host.eventually(async || {
        let (_, map) = host.get("/api/v1/namespaces/leaving/configmaps/a").await;
        !map["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    host.merge("/api/v1/namespaces/leaving/configmaps/a", &json!({"metadata": {"finalizers": null}})).await;
    host.eventually(async || host.get("/api/v1/namespaces/leaving").await.0 == 404).await;
    let (code, _) = host.delete("/api/v1/namespaces/default").await;
    assert_eq!(code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_an_object_until_it_is_removed() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps/a";
    let map = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    host.post("/api/v1/namespaces/default/configmaps", &map).await;
    let (code, marked) = host.delete(path).await;
    assert_eq!((code, &marked["kind"]), (200, &json!("ConfigMap")));
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let (code, status) = host.merge(path, &more).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    let (code, _) = host.merge(path, &json!({"metadata": {"finalizers": []}})).await;
    assert_eq!(code, 200);
    assert_eq!(host.get(path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_can_insist_on_an_identity() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps/a";
    host.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}})).await;
    let wrong = json!({"preconditions": {"uid": "other"}});
    let (code, status) = host.delete_with(path, &wrong).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(host.delete_with(path, &wrong).await.0, 409);
    assert_eq!(host.delete_with(path, &json!({"dryRun": ["All"]})).await.0, 200);
    assert_eq!(host.get(path).await.0, 200, "a dry run deletes nothing");
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_at_one_resource_version() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    for index in 0..5 {
        let labels = json!({"even": (index % 2 == 0).to_string()});
        host.post(path, &json!({"metadata": {"name": format!("m{index}"), "labels": labels}})).await;
    }
    let (_, first) = host.get(&format!("{path}?limit=2")).await;
    assert_eq!(names(&first), ["m0", "m1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    host.delete(&format!("{path}/m3")).await;
    host.post(path, &json!({"metadata": {"name": "m9"}})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = host.get(&format!("{path}?limit=10&continue={token}")).await;
    assert_eq!(names(&rest), ["m2", "m3", "m4"], "as it was when the list began");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);

    let (_, even) = host.get(&format!("{path}?labelSelector=even%3Dtrue")).await;
    assert_eq!(names(&even), ["m0", "m2", "m4"]);
    let (_, one) = host.get(&format!("{path}?fieldSelector=metadata.name%3Dm1")).await;
    assert_eq!(names(&one), ["m1"]);
    let (code, status) = host.get(&format!("{path}?fieldSelector=data.k%3D1")).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let (code, _) = host.get(&format!("{path}?continue=nonsense")).await;
    assert_eq!(code, 400);
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_there_is_and_then_what_happens() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    host.post(path, &json!({"metadata": {"name": "a", "labels": {"on": "yes"}}})).await;
    let mut events = host.watch(&format!("{path}?watch=1&labelSelector=on%3Dyes")).await;
    assert_eq!(harness::event(&mut events).await, ("ADDED".into(), "a".into()));
    host.post(path, &json!({"metadata": {"name": "unseen"}})).await;
    host.merge(&format!("{path}/a"), &json!({"data": {"k": "1"}})).await;
    assert_eq!(harness::event(&mut events).await, ("MODIFIED".into(), "a".into()));
    host.merge(&format!("{path}/a"), &json!({"metadata": {"labels": {"on": "no"}}})).await;
    assert_eq!(harness::event(&mut events).await, ("DELETED".into(), "a".into()));
    host.merge(&format!("{path}/unseen"), &json!({"metadata": {"labels": {"on": "yes"}}})).await;
    assert_eq!(harness::event(&mut events).await, ("ADDED".into(), "unseen".into()));
    host.delete(&format!("{path}/unseen")).await;
    assert_eq!(harness::event(&mut events).await, ("DELETED".into(), "unseen".into()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_a_resource_version_and_ends_in_time() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, a) = host.post(path, &json!({"metadata": {"name": "a"}})).await;
    host.post(path, &json!({"metadata": {"name": "b"}})).await;
    let version = a["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=true");
    let mut events = host.watch(&query).await;
    assert_eq!(harness::event(&mut events).await, ("ADDED".into(), "b".into()));
    let line = tokio::time::timeout(Duration::from_secs(5), events.next()).await.unwrap().unwrap();
    assert_eq!(line["type"], "BOOKMARK");
    assert!(tokio::time::timeout(Duration::from_secs(5), events.next()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_too_long_ago_is_told_so() {
    let host = Host::with_history(3);
    let path = "/api/v1/namespaces/default/configmaps";
    for index in 0..6 {
        host.post(path, &json!({"metadata": {"name": format!("m{index}")}})).await;
    }
    let mut events = host.watch(&format!("{path}?watch=1&resourceVersion=1")).await;
    let line = events.next().await.unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(line["object"]["reason"], "Expired");
    assert!(events.next().await.is_none());
    let (code, status) = host.get(&format!("{path}?resourceVersion=1&resourceVersionMatch=Exact")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_at_once_with_its_schema() {
    let host = Host::new();
    let (code, made) = host.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()).await;
    assert_eq!(code, 201, "{made}");
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let (code, made) = host.post(path, &widget("a", &json!({"size": 3, "junk": true}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"], json!({"size": 3, "colour": "red"}), "pruned and defaulted");
    assert_eq!(made["metadata"]["generation"], 1);
    let (code, status) = host.post(path, &widget("b", &json!({"size": -1}))).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    assert_eq!(status["details"]["causes"][0]["field"], "spec.size", "{status}");
    let (code, status) =
        host.post(&format!("{path}?fieldValidation=Strict"), &widget("c", &json!({"junk": 1}))).await;
    assert_eq!(code, 400, "{status}");
    assert!(status["message"].as_str().unwrap().contains("unknown field \"spec.junk\""), "{status}");
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_at_their_own_places() {
    let host = Host::new();
    host.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()).await;
    let collection = "/apis/example.com/v1/namespaces/default/widgets";
    let mut both = widget("a", &json!({"size": 1}));
    both["status"] = json!({"ready": true});
    let (_, made) = host.post(collection, &both).await;
    assert!(made.get("status").is_none(), "{made}");
    let path = format!("{collection}/a");
    let change = json!({"spec": {"size": 9}, "status": {"ready": true}});
    let (code, changed) = host.merge(&format!("{path}/status"), &change).await;
    assert_eq!((code, &changed["spec"]["size"], &changed["status"]["ready"]), (200, &json!(1), &json!(true)));
    assert_eq!(changed["metadata"]["generation"], 1);
    let (_, changed) = host.merge(&path, &json!({"spec": {"size": 2}, "status": {"ready": false}})).await;
    assert_eq!((&changed["spec"]["size"], &changed["status"]["ready"]), (&json!(2), &json!(true)));
    assert_eq!(changed["metadata"]["generation"], 2);
    let (code, scale) = host.get(&format!("{path}/scale")).await;
    assert_eq!((code, &scale["spec"]["replicas"], &scale["kind"]), (200, &json!(2), &json!("Scale")));
    let (code, scale) = host.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 7}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(7)), "{scale}");
    assert_eq!(host.get(&path).await.1["spec"]["size"], 7);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_definition_is_the_end_of_its_objects() {
    let host = Host::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    host.post(definitions, &crd()).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    host.post(path, &widget("a", &json!({"size": 1}))).await;
    let (code, _) = host.delete(&format!("{definitions}/widgets.example.com")).await;
    assert_eq!(code, 200);
    host.eventually(async || host.get(&format!("{definitions}/widgets.example.com")).await.0 == 404).await;
    assert_eq!(host.get(path).await.0, 404, "the resource is no more");
    host.post(definitions, &crd()).await;
    assert_eq!(names(&host.get(path).await.1), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, owner) = host.post(path, &json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }]);
    let child = json!({"metadata": {"name": "child", "ownerReferences": reference}});
    host.post(path, &child).await;
    host.delete(&format!("{path}/owner")).await;
    host.eventually(async || host.get(&format!("{path}/child")).await.0 == 404).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, owner) = host.post(path, &json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }]);
    let metadata = json!({"name": "child", "ownerReferences": reference, "finalizers": ["example.com/hold"]});
    host.post(path, &json!({"metadata": metadata})).await;
    let (code, waiting) =
        host.delete_with(&format!("{path}/owner"), &json!({"propagationPolicy": "Foreground"})).await;
    assert_eq!((code, &waiting["metadata"]["finalizers"]), (200, &json!(["foregroundDeletion"])));
    host.eventually(async || {
        let (_, child) = host.get(&format!("{path}/child")).await;
        !child["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    assert_eq!(host.get(&format!("{path}/owner")).await.0, 200);
    host.merge(&format!("{path}/child"), &json!({"metadata": {"finalizers": null}})).await;
    host.eventually(async || host.get(&format!("{path}/owner")).await.0 == 404).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, owner) = host.post(path, &json!({"metadata": {"name": "owner"}})).await;
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    host.post(path, &json!({"metadata": {"name": "child", "ownerReferences": reference}})).await;
    host.delete_with(&format!("{path}/owner"), &json!({"propagationPolicy": "Orphan"})).await;
    host.eventually(async || host.get(&format!("{path}/owner")).await.0 == 404).await;
    let (code, child) = host.get(&format!("{path}/child")).await;
    assert_eq!(code, 200);
    assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_and_changes_nothing() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    let before = host.api.resource_version();
    let (code, made) = host.post(&format!("{path}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((code, &made["metadata"]["name"]), (201, &json!("a")));
    assert_eq!(host.get(&format!("{path}/a")).await.0, 404);
    assert_eq!(host.api.resource_version(), before);
    let (code, status) = host.post(&format!("{path}?dryRun=x"), &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_is_given_time_and_one_on_none_is_not() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        let mut pod = json!({
            "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        pod
    };
    host.post(path, &pod("idle", "")).await;
    let (code, _) = host.delete(&format!("{path}/idle")).await;
    assert_eq!((code, host.get(&format!("{path}/idle")).await.0), (200, 404));
    host.post(path, &pod("busy", "n1")).await;
    let (_, marked) = host.delete(&format!("{path}/busy")).await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30, "{marked}");
    assert_eq!(host.get(&format!("{path}/busy")).await.0, 200);
    host.delete_with(&format!("{path}/busy"), &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(host.get(&format!("{path}/busy")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_collection_can_be_deleted_by_selector() {
    let host = Host::new();
    let path = "/api/v1/namespaces/default/configmaps";
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        host.post(path, &json!({"metadata": {"name": name, "labels": {"l": label}}})).await;
    }
    let (code, deleted) = host.delete(&format!("{path}?labelSelector=l%3Dx")).await;
    assert_eq!((code, names(&deleted)), (200, vec!["a", "c"]));
    assert_eq!(names(&host.get(path).await.1), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn paths_that_name_nothing_and_formats_that_are_not_spoken_are_refused() {
    let host = Host::new();
    for path in ["/nonsense", "/api/v1/nonsense", "/apis/no.group/v1/things", "/api/v1/namespaces/a/nodes"] {
        assert_eq!(host.get(path).await.0, 404, "{path}");
    }
    let (code, _) = host.post("/api/v1/configmaps", &json!({})).await;
    assert_eq!(code, 405);
    let apply = host
        .send("PATCH", "/api/v1/namespaces/default/configmaps/a", "application/apply-patch+yaml", b"{}")
        .await;
    assert_eq!((apply.0, &apply.1["reason"]), (415, &json!("UnsupportedMediaType")), "{}", apply.1);
    let (code, status) =
        host.send("POST", "/api/v1/namespaces/default/configmaps", "application/json", b"{").await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_an_hour() {
    use std::sync::Arc;
    use tenure_handles::{ManualClock, SeededEntropy, Timestamp};
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let api = tenure_localapi::LocalApi::temporary(clock.clone(), SeededEntropy::new(1));
    let host = Host { api };
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
    let path = "/api/v1/namespaces/default/events";
    assert_eq!(host.post(path, &event("old")).await.0, 201);
    clock.advance(Duration::from_mins(40));
    host.post(path, &event("new")).await;
    clock.advance(Duration::from_mins(30));
    host.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "wakes-the-collector"}}))
        .await;
    host.eventually(async || names(&host.get(path).await.1) == ["new"]).await;
}
