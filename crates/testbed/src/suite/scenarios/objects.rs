//! Create, read, replace, delete: the life cycle of one object.

use serde_json::json;

use super::super::objects::{leases, pod, pods, widget};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![objects:
    an_object_is_created_read_replaced_and_deleted,
    a_custom_object_is_created_read_replaced_and_deleted,
    creating_a_name_twice_is_refused,
    a_missing_object_is_not_found,
    replacing_a_missing_object_is_refused,
    an_identical_replacement_changes_nothing,
    what_the_server_owns_cannot_be_set_at_creation,
    what_the_server_owns_cannot_be_changed_by_replacing,
    labels_and_annotations_are_replaced_as_a_whole,
    a_dry_run_answers_and_leaves_nothing,
    kind_and_version_may_be_left_out,
    empty_metadata_fields_are_left_out,
    unknown_fields_of_a_built_in_kind_are_dropped,
    a_second_life_has_another_uid,
];

use super::super::objects::lease;

async fn an_object_is_created_read_replaced_and_deleted(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let one = format!("{all}/a");
    let created = r.post(&all, &lease("a", "first")).await?;
    r.get(&one).await?;
    r.put(&one, &created.with("/spec/holderIdentity", json!("second"))).await?;
    r.get(&one).await?;
    r.delete(&one).await?;
    r.get(&one).await?;
    Ok(())
}

async fn a_custom_object_is_created_read_replaced_and_deleted(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let created = r.post(&all, &widget(&group, "a", &json!({"color": "red"}))).await?;
    r.get(&one).await?;
    r.put(&one, &created.with("/spec/color", json!("green"))).await?;
    r.get(&one).await?;
    r.delete(&one).await?;
    r.get(&one).await?;
    Ok(())
}

async fn creating_a_name_twice_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    let all = leases(&r.own_name());
    r.post(&all, &lease("a", "first")).await?;
    r.post(&all, &lease("a", "second")).await?;
    Ok(())
}

async fn a_missing_object_is_not_found(r: &mut Recorder) -> Outcome {
    let (_, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for path in [format!("{all}/none"), format!("{custom}/none"), "/api/v1/nodes/none".to_owned()] {
        r.get(&path).await?;
        r.delete(&path).await?;
        r.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    }
    r.get(&format!("{custom}/none/status")).await?;
    r.get(&format!("{custom}/none/scale")).await?;
    Ok(())
}

async fn replacing_a_missing_object_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "none", &json!({}));
    r.put(&format!("{all}/none"), &object).await?;
    object["metadata"]["resourceVersion"] = json!("9000000000000000");
    r.put(&format!("{all}/none"), &object).await?;
    // A PUT may create a lease, but not a pod.
    let namespace = r.own_name();
    r.put(&format!("{}/none", leases(&namespace)), &lease("none", "h")).await?;
    r.put(&format!("{}/none", pods(&namespace)), &pod("none")).await?;
    Ok(())
}

async fn an_identical_replacement_changes_nothing(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let created = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.put(&format!("{all}/a"), &created.body).await?;
    r.merge(&format!("{all}/a"), &json!({})).await?;
    r.merge(&format!("{all}/a/status"), &json!({})).await?;
    let all = leases(&r.own_name());
    let created = r.post(&all, &lease("a", "h")).await?;
    r.put(&format!("{all}/a"), &created.body).await?;
    Ok(())
}

async fn what_the_server_owns_cannot_be_set_at_creation(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"]["uid"] = json!("11111111-2222-4333-8444-555555555555");
    object["metadata"]["generation"] = json!(7);
    object["metadata"]["creationTimestamp"] = json!("2021-01-01T00:00:00Z");
    object["metadata"]["deletionTimestamp"] = json!("2021-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    object["metadata"]["selfLink"] = json!("/x");
    object["status"] = json!({"phase": "Done"});
    let created = r.post(&all, &object).await?;
    r.note(
        "the uid is the one that was sent",
        json!(created.uid()? == "11111111-2222-4333-8444-555555555555"),
    );
    let time = created.body["metadata"]["creationTimestamp"].clone();
    r.note("the creation time is the one that was sent", json!(time == "2021-01-01T00:00:00Z"));
    object["metadata"]["name"] = json!("b");
    object["metadata"]["resourceVersion"] = json!("9000000000000000");
    r.post(&all, &object).await?;
    let mut object = lease("a", "h");
    object["metadata"]["resourceVersion"] = json!("9000000000000000");
    r.post(&leases(&r.own_name()), &object).await?;
    Ok(())
}

async fn what_the_server_owns_cannot_be_changed_by_replacing(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let created = r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.put(&one, &created.with("/metadata/generation", json!(70))).await?;
    r.put(&one, &created.with("/metadata/creationTimestamp", json!("2021-01-01T00:00:00Z"))).await?;
    r.put(&one, &created.with("/metadata/deletionTimestamp", json!("2021-01-01T00:00:00Z"))).await?;
    r.put(&one, &created.with("/metadata/uid", json!("11111111-2222-4333-8444-555555555555"))).await?;
    r.put(&one, &created.with("/metadata/name", json!("b"))).await?;
    r.put(&one, &created.with("/metadata/namespace", json!("default"))).await?;
    let mut bare = created.body.clone();
    if let Some(metadata) = bare["metadata"].as_object_mut() {
        metadata.retain(|key, _| key == "name" || key == "resourceVersion");
    }
    r.put(&one, &bare).await?;
    Ok(())
}

async fn labels_and_annotations_are_replaced_as_a_whole(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut object = lease("a", "h");
    object["metadata"]["labels"] = json!({"one": "1", "two": "2"});
    object["metadata"]["annotations"] = json!({"tenure.test/one": "some text, any\nlength"});
    let created = r.post(&all, &object).await?;
    let replaced = created.with("/metadata/labels", json!({"two": "3"}));
    r.put(&format!("{all}/a"), &replaced).await?;
    let bare = lease("a", "h");
    r.put(&format!("{all}/a"), &bare).await?;
    Ok(())
}

async fn a_dry_run_answers_and_leaves_nothing(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let one = format!("{all}/a");
    let object = widget(&group, "a", &json!({"color": "red", "unknown": 1}));
    let dry = r.send(Call::new("POST", &format!("{all}?dryRun=All")).json(&object)).await?;
    r.note("a dry run gives a uid", json!(dry.uid().is_ok()));
    r.get(&one).await?;
    r.post(&format!("{all}?dryRun=All"), &widget(&group, "a", &json!({"size": 0}))).await?;
    let created = r.post(&all, &object).await?;
    r.post(&format!("{all}?dryRun=All"), &object).await?;
    r.put(&format!("{one}?dryRun=All"), &created.with("/spec/color", json!("green"))).await?;
    r.merge(&format!("{one}?dryRun=All"), &json!({"spec": {"color": "green"}})).await?;
    r.delete(&format!("{one}?dryRun=All")).await?;
    r.delete_with(&one, &json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})).await?;
    r.get(&one).await?;
    r.post(&format!("{all}?dryRun=Some"), &object).await?;
    Ok(())
}

async fn kind_and_version_may_be_left_out(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let lease_path = leases(&r.own_name());
    let mut object = lease("a", "h");
    if let Some(object) = object.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    r.post(&lease_path, &object).await?;
    let mut object = widget(&group, "a", &json!({}));
    if let Some(object) = object.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    r.post(&all, &object).await?;
    Ok(())
}

async fn empty_metadata_fields_are_left_out(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "a", &json!({"tags": [], "limits": {}, "note": ""}));
    object["metadata"]["labels"] = json!({});
    object["metadata"]["annotations"] = json!(null);
    object["metadata"]["finalizers"] = json!([]);
    object["metadata"]["ownerReferences"] = json!([]);
    object["metadata"]["unknown"] = json!("x");
    r.post(&all, &object).await?;
    let mut object = lease("a", "");
    object["metadata"]["labels"] = json!({});
    object["metadata"]["annotations"] = json!(null);
    object["metadata"]["finalizers"] = json!([]);
    r.post(&leases(&r.own_name()), &object).await?;
    Ok(())
}

async fn unknown_fields_of_a_built_in_kind_are_dropped(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut object = lease("a", "h");
    object["spec"]["unknown"] = json!(1);
    object["other"] = json!({"x": 1});
    r.post(&all, &object).await?;
    object["metadata"]["name"] = json!("b");
    r.post(&format!("{all}?fieldValidation=Strict"), &object).await?;
    r.post(&format!("{all}?fieldValidation=Ignore"), &object).await?;
    r.post(&format!("{all}?fieldValidation=Often"), &object).await?;
    Ok(())
}

async fn a_second_life_has_another_uid(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let object = widget(&group, "a", &json!({}));
    let first = r.post(&all, &object).await?;
    r.delete(&format!("{all}/a")).await?;
    r.post(&all, &object).await?;
    r.put(&format!("{all}/a"), &first.body).await?;
    Ok(())
}
