//! Deletion: preconditions, options, collections.

use serde_json::json;

use super::super::objects::{labelled_lease, lease, leases, pod, pod_on, pods, widget};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![deletion:
    a_deletion_with_another_uid_conflicts,
    a_deletion_with_a_stale_version_conflicts,
    a_deletion_with_matching_preconditions_succeeds,
    deletion_options_may_come_in_the_query,
    nonsense_deletion_options_are_refused,
    a_collection_is_deleted_by_selector,
    a_collection_is_deleted_as_a_whole,
    objects_with_finalizers_of_a_deleted_collection_stay,
    an_unscheduled_pod_is_deleted_at_once,
    a_scheduled_pod_is_deleted_gracefully,
    a_missing_object_with_preconditions_is_not_found,
];

async fn a_deletion_with_another_uid_conflicts(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    r.post(&all, &lease("a", "h")).await?;
    r.post(&custom, &widget(&group, "a", &json!({}))).await?;
    let options = json!({"preconditions": {"uid": "11111111-2222-4333-8444-555555555555"}});
    r.delete_with(&format!("{all}/a"), &options).await?;
    r.delete_with(&format!("{custom}/a"), &options).await?;
    Ok(())
}

async fn a_deletion_with_a_stale_version_conflicts(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    let first = r.post(&all, &lease("a", "h")).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    r.delete_with(&format!("{all}/a"), &json!({"preconditions": {"resourceVersion": first.version()?}}))
        .await?;
    let first = r.post(&custom, &widget(&group, "a", &json!({}))).await?;
    r.merge(&format!("{custom}/a"), &json!({"spec": {"size": 4}})).await?;
    r.delete_with(&format!("{custom}/a"), &json!({"preconditions": {"resourceVersion": first.version()?}}))
        .await?;
    let both = json!({"preconditions": {"resourceVersion": first.version()?, "uid": "11111111-2222-4333-8444-555555555555"}});
    r.delete_with(&format!("{custom}/a"), &both).await?;
    Ok(())
}

async fn a_deletion_with_matching_preconditions_succeeds(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let created = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": {"uid": created.uid()?, "resourceVersion": created.version()?},
    });
    r.delete_with(&format!("{all}/a"), &options).await?;
    r.get(&format!("{all}/a")).await?;
    Ok(())
}

async fn deletion_options_may_come_in_the_query(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    r.post(&all, &lease("a", "h")).await?;
    r.delete(&format!("{all}/a?propagationPolicy=Foreground")).await?;
    r.until_gone(&format!("{all}/a")).await?;
    r.post(&all, &lease("b", "h")).await?;
    r.delete(&format!("{all}/b?gracePeriodSeconds=0")).await?;
    r.get(&format!("{all}/b")).await?;
    Ok(())
}

async fn nonsense_deletion_options_are_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    for options in [
        json!({"propagationPolicy": "Sideways"}),
        json!({"propagationPolicy": "Background", "orphanDependents": true}),
        json!({"dryRun": ["Some"]}),
        json!({"kind": "Widget", "apiVersion": "v1"}),
        json!({"gracePeriodSeconds": "x"}),
        json!({"gracePeriodSeconds": -1}),
    ] {
        r.delete_with(&one, &options).await?;
        r.prepare(&all, &widget(&group, "a", &json!({}))).await?;
    }
    let answer =
        r.peek(Call::new("DELETE", &one).text("{").header("content-type", "application/json")).await?;
    r.note("malformed options", json!({"status": answer.status(), "reason": answer.body["reason"]}));
    Ok(())
}

async fn a_collection_is_deleted_by_selector(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (name, side) in [("a", "left"), ("b", "right"), ("c", "left")] {
        r.post(&all, &labelled_lease(name, &json!({"side": side}))).await?;
    }
    r.delete(&format!("{all}?labelSelector=side%3Dleft")).await?;
    r.get(&all).await?;
    r.delete(&format!("{all}?fieldSelector=metadata.name%3Dnone")).await?;
    r.delete(&format!("{all}?labelSelector=%3D%3D")).await?;
    Ok(())
}

async fn a_collection_is_deleted_as_a_whole(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    for name in ["a", "b", "c"] {
        r.post(&all, &widget(&group, name, &json!({}))).await?;
    }
    r.delete_with(&all, &json!({"propagationPolicy": "Background"})).await?;
    r.get(&all).await?;
    r.delete(&all).await?;
    // Only within one namespace.
    r.delete(&format!("/apis/{group}/v1/widgets")).await?;
    Ok(())
}

async fn objects_with_finalizers_of_a_deleted_collection_stay(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let mut object = widget(&group, "b", &json!({}));
    object["metadata"]["finalizers"] = json!(["tenure.test/x"]);
    r.post(&all, &object).await?;
    let answer = r.peek(Call::new("DELETE", &all)).await?;
    r.note("deleted", json!({"status": answer.status(), "kind": answer.body["kind"]}));
    r.get(&all).await?;
    Ok(())
}

async fn an_unscheduled_pod_is_deleted_at_once(r: &mut Recorder) -> Outcome {
    let all = pods(&r.namespace().await?);
    r.prepare(&all, &pod("a")).await?;
    let answer = r.peek(Call::new("DELETE", &format!("{all}/a"))).await?;
    r.note("answer", json!({"status": answer.status(), "kind": answer.body["kind"]}));
    r.get(&format!("{all}/a")).await?;
    Ok(())
}

async fn a_scheduled_pod_is_deleted_gracefully(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = pods(&namespace);
    let one = format!("{all}/a");
    r.prepare("/api/v1/nodes", &super::super::objects::node(&namespace)).await?;
    r.prepare(&all, &pod_on("a", &namespace)).await?;
    let deleting = r.peek(Call::new("DELETE", &one)).await?;
    r.note("deleting", deletion_of(&deleting.body));
    let present = r.peek(Call::new("GET", &one)).await?;
    r.note("afterwards", deletion_of(&present.body));
    let sooner = r.peek(Call::new("DELETE", &one).json(&json!({"gracePeriodSeconds": 5}))).await?;
    r.note("with a shorter grace period", deletion_of(&sooner.body));
    // What a kubelet does when the containers are gone.
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": present.uid()?}});
    let gone = r.peek(Call::new("DELETE", &one).json(&options)).await?;
    r.note("at once", json!({"status": gone.status(), "kind": gone.body["kind"]}));
    r.get(&one).await?;
    Ok(())
}

fn deletion_of(body: &serde_json::Value) -> serde_json::Value {
    let metadata = &body["metadata"];
    json!({
        "kind": body["kind"], "deleting": metadata["deletionTimestamp"].is_string(),
        "grace period": metadata["deletionGracePeriodSeconds"],
    })
}

async fn a_missing_object_with_preconditions_is_not_found(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let options = json!({"preconditions": {"uid": "11111111-2222-4333-8444-555555555555"}});
    r.delete_with(&format!("{all}/none"), &options).await?;
    Ok(())
}
