//! JSON merge patch and JSON patch, on objects and on their status; answers to other patch types.

use serde_json::json;

use super::super::objects::{lease, leases, widget};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![patches:
    null_removes_and_lists_are_replaced,
    a_merge_patch_of_status_leaves_the_rest,
    a_patch_that_breaks_the_schema_is_refused,
    a_patch_with_unknown_fields_is_pruned,
    a_patch_of_identity_is_refused,
    a_patch_removes_finalizers_and_owners,
    other_patch_types_are_refused,
    a_malformed_patch_is_refused,
    a_json_patch_adds_removes_replaces_and_tests,
    a_json_patch_that_does_not_fit_is_refused,
];

async fn null_removes_and_lists_are_replaced(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let spec = json!({"color": "red", "tags": ["x", "y"], "limits": {"cpu": 1, "memory": 2}, "parts": [{"name": "p"}]});
    let mut object = widget(&group, "a", &spec);
    object["metadata"]["labels"] = json!({"one": "1", "two": "2"});
    r.post(&all, &object).await?;
    r.merge(&one, &json!({"spec": {"color": null, "tags": ["z"], "limits": {"cpu": null, "disk": 3}}}))
        .await?;
    r.merge(&one, &json!({"metadata": {"labels": {"one": null}}})).await?;
    r.merge(&one, &json!({"metadata": {"labels": null}})).await?;
    r.merge(&one, &json!({"spec": {"size": null}})).await?;
    r.merge(&one, &json!({"spec": null})).await?;
    r.merge(&one, &json!({"spec": {"free": {"deep": {"a": 1, "b": null}}}})).await?;
    let all = leases(&r.own_name());
    r.post(&all, &lease("a", "h")).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": null, "leaseTransitions": 4}})).await?;
    Ok(())
}

async fn a_merge_patch_of_status_leaves_the_rest(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"ready": 1, "phase": "Up"}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"phase": null}})).await?;
    r.merge(&one, &json!({"spec": {"size": 8}})).await?;
    Ok(())
}

async fn a_patch_that_breaks_the_schema_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"size": 101, "color": "blue"}})).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": "text"})).await?;
    r.get(&format!("{all}/a")).await?;
    let all = leases(&r.own_name());
    r.post(&all, &lease("a", "h")).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"leaseDurationSeconds": 0}})).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"leaseDurationSeconds": "long"}})).await?;
    Ok(())
}

async fn a_patch_with_unknown_fields_is_pruned(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&one, &json!({"spec": {"unknown": 1, "color": "red"}})).await?;
    r.merge(&format!("{one}?fieldValidation=Strict"), &json!({"spec": {"unknown": 1, "color": "green"}}))
        .await?;
    r.merge(&format!("{one}?fieldValidation=Ignore"), &json!({"spec": {"unknown": 1, "color": "green"}}))
        .await?;
    Ok(())
}

async fn a_patch_of_identity_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&one, &json!({"kind": "Other"})).await?;
    r.merge(&one, &json!({"apiVersion": "v9"})).await?;
    r.merge(&one, &json!({"metadata": {"name": null}})).await?;
    r.merge(&one, &json!({"metadata": {"uid": null, "creationTimestamp": null}})).await?;
    r.merge(&one, &json!({"metadata": null})).await?;
    Ok(())
}

async fn a_patch_removes_finalizers_and_owners(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let owner = r.post(&all, &widget(&group, "owner", &json!({}))).await?;
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"]["finalizers"] = json!(["tenure.test/a", "tenure.test/b"]);
    object["metadata"]["ownerReferences"] = json!([super::super::objects::owned_by(&owner.body, true)]);
    r.post(&all, &object).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"finalizers": ["tenure.test/b"]}})).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"finalizers": null, "ownerReferences": null}})).await?;
    Ok(())
}

async fn other_patch_types_are_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    for content_type in ["application/strategic-merge-patch+json", "application/json", "text/plain"] {
        let call =
            Call::new("PATCH", &one).json(&json!({"spec": {"size": 2}})).header("content-type", content_type);
        r.send(call).await?;
    }
    r.send(Call::new("PATCH", &one).text("{}")).await?;
    let call = Call::new("PATCH", &one).json(&json!({"spec": {"size": 2}}));
    r.send(call.header("content-type", "application/merge-patch+json; charset=utf-8")).await?;
    Ok(())
}

async fn a_malformed_patch_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    for text in ["{", "[]", "1", "\"x\"", "null", ""] {
        let call = Call::new("PATCH", &one).text(text).header("content-type", "application/merge-patch+json");
        let answer = r.peek(call).await?;
        // The message comes from a JSON library: only code and reason are compared.
        r.note(
            &format!("patch {text:?}"),
            json!({"status": answer.status(), "reason": answer.body["reason"]}),
        );
    }
    Ok(())
}

const JSON_PATCH: &str = "application/json-patch+json";

async fn a_json_patch_adds_removes_replaces_and_tests(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"tags": ["x"], "limits": {"cpu": 1}}))).await?;
    for patch in [
        json!([{"op": "add", "path": "/spec/tags/-", "value": "y"}, {"op": "add", "path": "/spec/tags/0", "value": "w"}]),
        json!([{"op": "test", "path": "/spec/size", "value": 3}, {"op": "replace", "path": "/spec/size", "value": 4}]),
        json!([{"op": "remove", "path": "/spec/limits/cpu"}, {"op": "add", "path": "/spec/limits/a~1b", "value": 2}]),
        json!([{"op": "copy", "from": "/spec/tags/0", "path": "/spec/color"}]),
        json!([{"op": "move", "from": "/spec/tags/0", "path": "/spec/note"}]),
        json!([{"op": "add", "path": "/metadata/finalizers", "value": ["tenure.test/x"]}]),
        json!([{"op": "test", "path": "/metadata/finalizers/0", "value": "tenure.test/x"}, {"op": "remove", "path": "/metadata/finalizers/0"}]),
        json!([]),
    ] {
        r.send(Call::new("PATCH", &one).json(&patch).header("content-type", JSON_PATCH)).await?;
    }
    let status = json!([{"op": "add", "path": "/status", "value": {"ready": 1}}]);
    r.send(Call::new("PATCH", &format!("{one}/status")).json(&status).header("content-type", JSON_PATCH))
        .await?;
    Ok(())
}

async fn a_json_patch_that_does_not_fit_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"tags": ["x"]}))).await?;
    for patch in [
        json!([{"op": "test", "path": "/spec/size", "value": 9}]),
        json!([{"op": "remove", "path": "/spec/none"}]),
        json!([{"op": "replace", "path": "/spec/none/deep", "value": 1}]),
        json!([{"op": "add", "path": "/spec/tags/7", "value": "y"}]),
        json!([{"op": "jump", "path": "/spec"}]),
        json!({"op": "remove", "path": "/spec"}),
        json!([{"op": "replace", "path": "/spec/size", "value": 1000}]),
    ] {
        r.send(Call::new("PATCH", &one).json(&patch).header("content-type", JSON_PATCH)).await?;
    }
    r.get(&one).await?;
    Ok(())
}
