//! Finalizers: deletion waits for them, and no new one can be added.

use serde_json::json;

use super::super::objects::{lease, leases, widget};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![finalizers:
    deletion_waits_for_finalizers,
    the_last_finalizer_removed_by_replacing_completes_deletion,
    no_finalizer_can_be_added_while_deleting,
    the_spec_can_be_changed_while_deleting,
    deleting_twice_changes_nothing,
    status_can_be_written_while_deleting,
    a_name_is_taken_until_deletion_completes,
    removing_a_finalizer_of_a_living_object_keeps_it,
    a_lease_waits_for_finalizers_too,
];

async fn held(r: &mut Recorder, finalizers: &[&str]) -> Result<(String, String), super::super::SuiteError> {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"]["finalizers"] = json!(finalizers);
    r.post(&all, &object).await?;
    Ok((group, format!("{all}/a")))
}

async fn deletion_waits_for_finalizers(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x", "tenure.test/y"]).await?;
    r.delete(&one).await?;
    r.get(&one).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": ["tenure.test/y"]}})).await?;
    r.get(&one).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": []}})).await?;
    r.get(&one).await?;
    Ok(())
}

async fn the_last_finalizer_removed_by_replacing_completes_deletion(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    let deleting = r.delete(&one).await?;
    r.put(&one, &deleting.with("/metadata/finalizers", json!([]))).await?;
    r.get(&one).await?;
    Ok(())
}

async fn no_finalizer_can_be_added_while_deleting(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    r.delete(&one).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": ["tenure.test/x", "tenure.test/new"]}})).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": ["tenure.test/new"]}})).await?;
    r.merge(&one, &json!({"metadata": {"deletionTimestamp": null}})).await?;
    r.get(&one).await?;
    Ok(())
}

async fn the_spec_can_be_changed_while_deleting(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    r.delete(&one).await?;
    r.merge(&one, &json!({"spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}})).await?;
    Ok(())
}

async fn deleting_twice_changes_nothing(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    r.delete(&one).await?;
    r.delete(&one).await?;
    r.delete_with(&one, &json!({"propagationPolicy": "Background"})).await?;
    Ok(())
}

async fn status_can_be_written_while_deleting(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    r.delete(&one).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"phase": "Leaving"}})).await?;
    r.merge(
        &format!("{one}/status"),
        &json!({"metadata": {"finalizers": null}, "status": {"phase": "Left"}}),
    )
    .await?;
    r.get(&one).await?;
    Ok(())
}

async fn a_name_is_taken_until_deletion_completes(r: &mut Recorder) -> Outcome {
    let (group, one) = held(r, &["tenure.test/x"]).await?;
    let all = one.trim_end_matches("/a").to_owned();
    r.delete(&one).await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": null}})).await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    Ok(())
}

async fn removing_a_finalizer_of_a_living_object_keeps_it(r: &mut Recorder) -> Outcome {
    let (_, one) = held(r, &["tenure.test/x"]).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": null}})).await?;
    r.get(&one).await?;
    Ok(())
}

async fn a_lease_waits_for_finalizers_too(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let one = format!("{all}/a");
    let mut object = lease("a", "h");
    object["metadata"]["finalizers"] = json!(["tenure.test/x"]);
    r.post(&all, &object).await?;
    r.delete(&one).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": ["tenure.test/x", "tenure.test/new"]}})).await?;
    r.merge(&one, &json!({"spec": {"holderIdentity": "two"}})).await?;
    r.merge(&one, &json!({"metadata": {"finalizers": null}})).await?;
    r.get(&one).await?;
    Ok(())
}
