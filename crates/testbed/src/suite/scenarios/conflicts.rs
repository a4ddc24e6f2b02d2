//! Optimistic concurrency: a write on an old version, or on another object of the same name, is refused.

use serde_json::json;

use super::super::objects::{lease, leases, widget};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![conflicts:
    a_stale_replacement_conflicts,
    a_stale_status_write_conflicts,
    a_replacement_without_version_wins_or_is_refused,
    a_stale_patch_conflicts_only_when_it_names_a_version,
    another_uid_conflicts,
    a_version_that_is_no_number_is_refused,
    a_version_of_the_future_conflicts,
    a_replacement_does_not_bring_back_what_was_deleted,
    a_dry_run_does_not_mind_a_version,
];

async fn a_stale_replacement_conflicts(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let first = r.post(&all, &widget(&group, "a", &json!({"size": 1}))).await?;
    r.put(&format!("{all}/a"), &first.with("/spec/size", json!(2))).await?;
    r.put(&format!("{all}/a"), &first.with("/spec/size", json!(3))).await?;
    let all = leases(&r.own_name());
    let first = r.post(&all, &lease("a", "one")).await?;
    r.put(&format!("{all}/a"), &first.with("/spec/holderIdentity", json!("two"))).await?;
    r.put(&format!("{all}/a"), &first.with("/spec/holderIdentity", json!("three"))).await?;
    r.get(&format!("{all}/a")).await?;
    Ok(())
}

async fn a_stale_status_write_conflicts(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let first = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let ready = first.with("/status", json!({"ready": 1}));
    r.put(&format!("{all}/a/status"), &ready).await?;
    r.put(&format!("{all}/a/status"), &first.with("/status", json!({"ready": 2}))).await?;
    r.put(&format!("{all}/a"), &first.with("/spec/size", json!(4))).await?;
    Ok(())
}

async fn a_replacement_without_version_wins_or_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.put(&format!("{all}/a"), &widget(&group, "a", &json!({"size": 9}))).await?;
    r.put(&format!("{all}/a/status"), &widget(&group, "a", &json!({}))).await?;
    let all = leases(&r.own_name());
    r.post(&all, &lease("a", "one")).await?;
    r.put(&format!("{all}/a"), &lease("a", "two")).await?;
    Ok(())
}

async fn a_stale_patch_conflicts_only_when_it_names_a_version(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let first = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.merge(&one, &json!({"spec": {"size": 5}})).await?;
    let version = first.version()?;
    r.merge(&one, &json!({"metadata": {"resourceVersion": version}, "spec": {"size": 6}})).await?;
    r.merge(
        &format!("{one}/status"),
        &json!({"metadata": {"resourceVersion": version}, "status": {"ready": 6}}),
    )
    .await?;
    let current = r.get(&one).await?.version()?;
    r.merge(&one, &json!({"metadata": {"resourceVersion": current}, "spec": {"size": 7}})).await?;
    let all = leases(&r.own_name());
    let first = r.post(&all, &lease("a", "one")).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"holderIdentity": "two"}})).await?;
    let stale =
        json!({"metadata": {"resourceVersion": first.version()?}, "spec": {"holderIdentity": "three"}});
    r.merge(&format!("{all}/a"), &stale).await?;
    Ok(())
}

async fn another_uid_conflicts(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let other = json!("11111111-2222-4333-8444-555555555555");
    let first = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.put(&format!("{all}/a"), &first.with("/metadata/uid", other.clone())).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"uid": other}, "spec": {"size": 6}})).await?;
    r.put(&format!("{all}/a/status"), &first.with("/metadata/uid", other.clone())).await?;
    let all = leases(&r.own_name());
    let first = r.post(&all, &lease("a", "one")).await?;
    r.put(&format!("{all}/a"), &first.with("/metadata/uid", other)).await?;
    Ok(())
}

async fn a_version_that_is_no_number_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let first = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    for version in ["x", "-1", "0", "1.5"] {
        r.put(&format!("{all}/a"), &first.with("/metadata/resourceVersion", json!(version))).await?;
    }
    r.put(&format!("{all}/a"), &first.with("/metadata/resourceVersion", json!(5))).await?;
    Ok(())
}

async fn a_version_of_the_future_conflicts(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let first = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let future = first.with("/metadata/resourceVersion", json!("9000000000000000"));
    r.put(&format!("{all}/a"), &future).await?;
    Ok(())
}

async fn a_replacement_does_not_bring_back_what_was_deleted(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    let held = r.post(&all, &lease("a", "one")).await?;
    r.delete(&format!("{all}/a")).await?;
    r.put(&format!("{all}/a"), &held.with("/spec/holderIdentity", json!("two"))).await?;
    r.get(&format!("{all}/a")).await?;
    // Without a UID the deletion refers to whatever has the name, and nothing has it.
    let mut object = lease("b", "one");
    object["metadata"]["resourceVersion"] = json!(held.version()?);
    r.put(&format!("{all}/b"), &object).await?;
    let held = r.post(&custom, &widget(&group, "a", &json!({}))).await?;
    r.delete(&format!("{custom}/a")).await?;
    r.put(&format!("{custom}/a"), &held.with("/spec/unknown", json!(1))).await?;
    r.put(&format!("{custom}/a/status"), &held.with("/status", json!({"ready": 1, "unknown": 1}))).await?;
    Ok(())
}

async fn a_dry_run_does_not_mind_a_version(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"]["resourceVersion"] = json!("9000000000000000");
    r.post(&format!("{custom}?dryRun=All"), &object).await?;
    let mut object = lease("a", "h");
    object["metadata"]["resourceVersion"] = json!("9000000000000000");
    r.post(&format!("{}?dryRun=All", leases(&r.own_name())), &object).await?;
    Ok(())
}
