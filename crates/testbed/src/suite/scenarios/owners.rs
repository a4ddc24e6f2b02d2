//! Owner references: what happens to dependents when an owner is deleted. Mostly leases that own leases: the real collector
//! discovers new kinds only every half minute.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::objects::{lease, leases, owned_by, widget};
use super::super::recorder::Call;
use super::super::{Answer, Outcome, Recorder, SuiteError};
use super::scenarios;

scenarios![owners:
    dependents_follow_their_owner_in_the_background,
    a_foreground_deletion_waits_for_blocking_dependents,
    a_foreground_deletion_does_not_wait_for_others,
    orphans_stay_without_their_owner,
    a_dependent_with_two_owners_goes_with_the_last,
    a_dependent_of_a_missing_owner_is_collected,
    a_dependent_of_another_uid_is_collected,
    dependents_of_dependents_follow,
    a_dependent_with_a_finalizer_holds_a_foreground_deletion,
    malformed_owner_references_are_refused,
    two_controllers_are_refused,
    a_deleted_collection_takes_dependents_along,
    dependents_of_a_custom_owner_follow,
    an_owner_in_the_cluster_keeps_its_dependents,
];

/// The collector must have seen all dependents before the owner is deleted, or it finds none.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

fn child_of(owner: &Answer, name: &str, blocks: bool) -> Value {
    let mut child = lease(name, "h");
    child["metadata"]["ownerReferences"] = json!([owned_by(&owner.body, blocks)]);
    child
}

/// An owner and one dependent, as their paths.
async fn family(r: &mut Recorder, blocks: bool) -> Result<(String, String), SuiteError> {
    let all = leases(&r.namespace().await?);
    let owner = r.post(&all, &lease("owner", "h")).await?;
    r.post(&all, &child_of(&owner, "child", blocks)).await?;
    settle().await;
    Ok((format!("{all}/owner"), format!("{all}/child")))
}

async fn dependents_follow_their_owner_in_the_background(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, false).await?;
    r.delete_with(&owner, &json!({"propagationPolicy": "Background"})).await?;
    r.get(&owner).await?;
    r.until_gone(&child).await?;
    Ok(())
}

async fn a_foreground_deletion_waits_for_blocking_dependents(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, true).await?;
    r.delete_with(&owner, &json!({"propagationPolicy": "Foreground"})).await?;
    r.until_gone(&child).await?;
    r.until_gone(&owner).await?;
    Ok(())
}

async fn a_foreground_deletion_does_not_wait_for_others(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, false).await?;
    r.delete_with(&owner, &json!({"propagationPolicy": "Foreground"})).await?;
    r.until_gone(&owner).await?;
    r.until_gone(&child).await?;
    Ok(())
}

async fn orphans_stay_without_their_owner(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, true).await?;
    r.delete_with(&owner, &json!({"propagationPolicy": "Orphan"})).await?;
    r.until_gone(&owner).await?;
    r.get(&child).await?;
    Ok(())
}

async fn a_dependent_with_two_owners_goes_with_the_last(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let first = r.post(&all, &lease("first", "h")).await?;
    let second = r.post(&all, &lease("second", "h")).await?;
    let mut child = lease("child", "h");
    child["metadata"]["ownerReferences"] =
        json!([owned_by(&first.body, false), owned_by(&second.body, false)]);
    r.post(&all, &child).await?;
    settle().await;
    r.delete_with(&format!("{all}/first"), &json!({"propagationPolicy": "Background"})).await?;
    let one_left = |answer: &Answer| {
        let owners = answer.body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners.is_some_and(|owners| owners.len() == 1)
    };
    r.until(&format!("{all}/child"), "the gone owner to be dropped", one_left).await?;
    r.delete_with(&format!("{all}/second"), &json!({"propagationPolicy": "Background"})).await?;
    r.until_gone(&format!("{all}/child")).await?;
    Ok(())
}

async fn a_dependent_of_a_missing_owner_is_collected(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut child = lease("child", "h");
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "never", "uid": "11111111-2222-4333-8444-555555555555",
    }]);
    r.post(&all, &child).await?;
    r.until_gone(&format!("{all}/child")).await?;
    Ok(())
}

async fn a_dependent_of_another_uid_is_collected(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let owner = r.post(&all, &lease("owner", "h")).await?;
    let mut child = child_of(&owner, "child", false);
    child["metadata"]["ownerReferences"][0]["uid"] = json!("11111111-2222-4333-8444-666666666666");
    r.post(&all, &child).await?;
    r.until_gone(&format!("{all}/child")).await?;
    r.get(&format!("{all}/owner")).await?;
    Ok(())
}

async fn dependents_of_dependents_follow(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut owner = r.post(&all, &lease("g0", "h")).await?;
    for name in ["g1", "g2"] {
        owner = r.post(&all, &child_of(&owner, name, true)).await?;
    }
    settle().await;
    r.delete(&format!("{all}/g0")).await?;
    r.until_gone(&format!("{all}/g2")).await?;
    r.until_gone(&format!("{all}/g1")).await?;
    Ok(())
}

async fn a_dependent_with_a_finalizer_holds_a_foreground_deletion(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, true).await?;
    r.merge(&child, &json!({"metadata": {"finalizers": ["tenure.test/x"]}})).await?;
    r.delete_with(&owner, &json!({"propagationPolicy": "Foreground"})).await?;
    let leaving = |answer: &Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    r.until(&child, "the dependent to be deleting", leaving).await?;
    r.get(&owner).await?;
    let free = json!({"metadata": {"finalizers": null}});
    r.peek(Call::new("PATCH", &child).json(&free).header("content-type", "application/merge-patch+json"))
        .await?;
    r.until_gone(&child).await?;
    r.until_gone(&owner).await?;
    Ok(())
}

async fn malformed_owner_references_are_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for reference in [
        json!({"kind": "Widget", "name": "a", "uid": "u"}),
        json!({"apiVersion": "v1", "name": "a", "uid": "u"}),
        json!({"apiVersion": "v1", "kind": "Node", "uid": "u"}),
        json!({"apiVersion": "v1", "kind": "Node", "name": "a"}),
        json!({"apiVersion": "a/b/c", "kind": "Node", "name": "a", "uid": "u"}),
        json!({"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"}),
    ] {
        let mut child = lease("child", "h");
        child["metadata"]["ownerReferences"] = json!([reference]);
        r.post(&format!("{all}?dryRun=All"), &child).await?;
        let mut child = widget(&group, "child", &json!({}));
        child["metadata"]["ownerReferences"] = json!([reference]);
        r.post(&format!("{custom}?dryRun=All"), &child).await?;
    }
    Ok(())
}

async fn two_controllers_are_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut child = lease("child", "h");
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true});
    child["metadata"]["ownerReferences"] = json!([
        owner("a", "11111111-2222-4333-8444-555555555555"),
        owner("b", "11111111-2222-4333-8444-666666666666")
    ]);
    let answer = r.peek(super::super::recorder::Call::new("POST", &all).json(&child)).await?;
    // The message shows both references, in the server's own field order.
    let cause = &answer.body["details"]["causes"][0];
    r.note(
        "two controllers",
        json!([answer.status(), answer.body["reason"], cause["reason"], cause["field"]]),
    );
    Ok(())
}

async fn a_deleted_collection_takes_dependents_along(r: &mut Recorder) -> Outcome {
    let (owner, child) = family(r, false).await?;
    let all = owner.trim_end_matches("/owner").to_owned();
    r.delete_with(&all, &json!({"propagationPolicy": "Background"})).await?;
    r.until_gone(&child).await?;
    Ok(())
}

/// The collector discovers a new kind within half a minute: longer than the usual limit.
async fn dependents_of_a_custom_owner_follow(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    let owner = r.post(&custom, &widget(&group, "owner", &json!({}))).await?;
    r.post(&all, &child_of(&owner, "child", true)).await?;
    let mut grandchild = widget(&group, "grandchild", &json!({}));
    grandchild["metadata"]["ownerReferences"] = json!([owned_by(&owner.body, false)]);
    r.post(&custom, &grandchild).await?;
    settle().await;
    r.delete(&format!("{custom}/owner")).await?;
    for path in [format!("{all}/child"), format!("{custom}/grandchild")] {
        let mut rounds = 0;
        while r.peek(Call::new("GET", &path)).await?.status() != 404 && rounds < 900 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            rounds += 1;
        }
        r.get(&path).await?;
    }
    Ok(())
}

async fn an_owner_in_the_cluster_keeps_its_dependents(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = leases(&namespace);
    let node =
        r.peek(Call::new("POST", "/api/v1/nodes").json(&super::super::objects::node(&namespace))).await?;
    r.note("the node", json!({"metadata": {"uid": node.uid()?}}));
    r.post(&all, &child_of(&node, "child", false)).await?;
    settle().await;
    r.get(&format!("{all}/child")).await?;
    r.peek(Call::new("DELETE", &format!("/api/v1/nodes/{namespace}"))).await?;
    r.until_gone(&format!("{all}/child")).await?;
    Ok(())
}
