//! Generation counts changes of the spec; status is written separately.

use serde_json::json;

use super::super::objects::{
    DEFINITIONS, deployment, deployments, lease, leases, widget, widget_definition, widgets,
};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![generations:
    generation_counts_changes_of_the_spec_only,
    status_is_written_through_its_subresource_only,
    metadata_written_through_status_is_ignored,
    without_a_status_subresource_everything_counts,
    a_deployment_has_a_generation_and_a_lease_has_none,
    a_status_that_breaks_its_schema_is_refused,
];

async fn generation_counts_changes_of_the_spec_only(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({"size": 1}))).await?;
    r.merge(&one, &json!({"spec": {"size": 2}})).await?;
    r.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    r.merge(&one, &json!({"metadata": {"annotations": {"a": "b"}}})).await?;
    r.merge(&one, &json!({"spec": {"size": 2}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"ready": 2}})).await?;
    r.merge(&one, &json!({"spec": {"size": 3}, "metadata": {"generation": 40}})).await?;
    r.merge(&one, &json!({"other": 1})).await?;
    Ok(())
}

async fn status_is_written_through_its_subresource_only(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let mut object = widget(&group, "a", &json!({"size": 1}));
    object["status"] = json!({"ready": 9});
    let created = r.post(&all, &object).await?;
    r.merge(&one, &json!({"status": {"ready": 8}})).await?;
    r.put(&one, &created.with("/status", json!({"ready": 7}))).await?;
    let current = r.get(&format!("{one}/status")).await?;
    let mut both = current.with("/status", json!({"ready": 6}));
    both["spec"]["size"] = json!(50);
    r.put(&format!("{one}/status"), &both).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"phase": "x"}, "spec": {"size": 60}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": null})).await?;
    r.get(&one).await?;
    r.delete(&format!("{one}/status")).await?;
    r.post(&format!("{one}/status"), &object).await?;
    Ok(())
}

async fn metadata_written_through_status_is_ignored(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let patch = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["tenure.test/x"]}, "status": {"ready": 1}});
    r.merge(&format!("{one}/status"), &patch).await?;
    Ok(())
}

async fn without_a_status_subresource_everything_counts(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    definition["spec"]["versions"][0]["subresources"] = json!({});
    r.install(&definition).await?;
    let all = widgets(&group, &r.namespace().await?);
    let one = format!("{all}/a");
    let mut object = widget(&group, "a", &json!({}));
    object["status"] = json!({"ready": 9});
    r.post(&all, &object).await?;
    r.merge(&one, &json!({"status": {"ready": 8}})).await?;
    r.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    r.get(&format!("{one}/status")).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"ready": 7}})).await?;
    r.get(&format!("{one}/scale")).await?;
    r.get(&format!("{DEFINITIONS}/widgets.{group}/status")).await?;
    Ok(())
}

async fn a_deployment_has_a_generation_and_a_lease_has_none(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = deployments(&namespace);
    let one = format!("{all}/a");
    r.prepare(&all, &deployment("a", 0)).await?;
    for (path, change) in [
        (one.clone(), json!({"metadata": {"labels": {"a": "b"}}})),
        (one.clone(), json!({"spec": {"paused": true}})),
        (format!("{one}/status"), json!({"status": {"observedGeneration": 2}})),
    ] {
        let call = Call::new("PATCH", &path).json(&change);
        let answer = r.peek(call.header("content-type", "application/merge-patch+json")).await?;
        let object = json!({"metadata": answer.body["metadata"], "status": answer.body["status"]});
        r.note(&change.to_string(), json!([answer.status(), object]));
    }
    let all = leases(&namespace);
    r.post(&all, &lease("a", "h")).await?;
    r.get(&format!("{all}/a/status")).await?;
    Ok(())
}

async fn a_status_that_breaks_its_schema_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&format!("{all}/a/status"), &json!({"status": {"ready": "many"}})).await?;
    r.merge(&format!("{all}/a/status"), &json!({"status": {"unknown": 1, "ready": 2}})).await?;
    Ok(())
}
