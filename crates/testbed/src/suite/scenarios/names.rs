//! Names: given, generated, and refused.

use serde_json::json;

use super::super::objects::{lease, leases, node, pod, pods, widget};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![names:
    a_name_is_generated_from_its_base,
    a_given_name_wins_over_a_base,
    a_long_base_is_cut_to_leave_room,
    an_object_without_a_name_is_refused,
    names_that_are_no_dns_subdomain_are_refused,
    namespace_names_that_are_no_dns_label_are_refused,
    labels_and_annotations_with_bad_keys_are_refused,
    path_and_body_must_name_the_same_object,
];

async fn a_name_is_generated_from_its_base(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "", &json!({}));
    object["metadata"] = json!({"generateName": "part-"});
    let first = r.post(&all, &object).await?;
    let second = r.post(&all, &object).await?;
    r.note("two generated names differ", json!(first.name()? != second.name()?));
    let suffix = first.name()?.trim_start_matches("part-").to_owned();
    let alphabet = suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    r.note("the suffix", json!({"length": suffix.len(), "without vowels and look-alikes": alphabet}));
    let mut object = lease("", "h");
    object["metadata"] = json!({"generateName": "part-"});
    r.post(&leases(&r.own_name()), &object).await?;
    Ok(())
}

async fn a_given_name_wins_over_a_base(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut object = lease("given", "h");
    object["metadata"]["generateName"] = json!("part-");
    r.post(&all, &object).await?;
    r.post(&all, &object).await?;
    Ok(())
}

async fn a_long_base_is_cut_to_leave_room(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    let mut object = lease("", "h");
    object["metadata"] = json!({"generateName": "x".repeat(62)});
    let created = r.peek(Call::new("POST", &all).json(&object)).await?;
    let name = created.name()?;
    r.note("name", json!({"status": created.status(), "length": name.len(), "base kept": name.starts_with(&"x".repeat(58))}));
    object["metadata"] = json!({"generateName": "Bad_"});
    let refused = r.peek(Call::new("POST", &all).json(&object)).await?;
    r.note("a bad base", json!({"status": refused.status(), "reason": refused.body["reason"]}));
    Ok(())
}

async fn an_object_without_a_name_is_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let mut object = widget(&group, "", &json!({}));
    object["metadata"] = json!({});
    r.post(&all, &object).await?;
    let mut object = lease("", "h");
    object["metadata"] = json!({});
    r.post(&leases(&r.own_name()), &object).await?;
    Ok(())
}

async fn names_that_are_no_dns_subdomain_are_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let lease_path = leases(&r.own_name());
    let long = "x".repeat(254);
    for name in ["Upper", "under_score", "-start", "end-", "a..b", "a b", long.as_str()] {
        r.post(&all, &widget(&group, name, &json!({}))).await?;
        r.post(&lease_path, &lease(name, "h")).await?;
    }
    for name in ["a/b", "a%b", "..", "."] {
        r.post(&all, &widget(&group, name, &json!({}))).await?;
    }
    r.post(&all, &widget(&group, "10.0.0.0-24", &json!({}))).await?;
    r.post("/api/v1/nodes", &node("Upper")).await?;
    r.post(&pods(&r.own_name()), &pod("Upper")).await?;
    Ok(())
}

async fn namespace_names_that_are_no_dns_label_are_refused(r: &mut Recorder) -> Outcome {
    let long = "x".repeat(64);
    for name in ["a.b", "Upper", long.as_str()] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        r.post("/api/v1/namespaces", &namespace).await?;
    }
    Ok(())
}

async fn labels_and_annotations_with_bad_keys_are_refused(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let lease_path = leases(&r.own_name());
    let long = "x".repeat(64);
    for (field, entries) in [
        ("labels", json!({"a b": "x"})),
        ("labels", json!({"a/b/c": "x"})),
        ("labels", json!({"Bad.Prefix_/a": "x"})),
        ("labels", json!({"a": "x y"})),
        ("labels", json!({"a": long})),
        ("labels", json!({(long.as_str()): "a"})),
        ("labels", json!({"": "a"})),
        ("annotations", json!({"a b": "x"})),
        ("annotations", json!({"tenure.test/UPPER": "accepted"})),
        ("finalizers", json!(["no-domain"])),
        ("finalizers", json!(["bad domain/x"])),
    ] {
        let mut object = widget(&group, "a", &json!({}));
        object["metadata"][field] = entries.clone();
        r.post(&format!("{all}?dryRun=All"), &object).await?;
        let mut object = lease("a", "h");
        object["metadata"][field] = entries;
        r.post(&format!("{lease_path}?dryRun=All"), &object).await?;
    }
    Ok(())
}

async fn path_and_body_must_name_the_same_object(r: &mut Recorder) -> Outcome {
    let (group, all) = r.widgets().await?;
    let lease_path = leases(&r.own_name());
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.post(&lease_path, &lease("a", "h")).await?;
    r.put(&format!("{all}/a"), &widget(&group, "b", &json!({}))).await?;
    r.put(&format!("{lease_path}/a"), &lease("b", "h")).await?;
    let mut object = widget(&group, "c", &json!({}));
    object["metadata"]["namespace"] = json!("default");
    r.post(&all, &object).await?;
    let mut object = lease("c", "h");
    object["metadata"]["namespace"] = json!("default");
    r.post(&lease_path, &object).await?;
    r.put(&format!("{lease_path}/a"), &object).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"name": "b"}})).await?;
    r.merge(&format!("{all}/a"), &json!({"metadata": {"namespace": "default"}})).await?;
    r.merge(&format!("{lease_path}/a"), &json!({"metadata": {"name": "b"}})).await?;
    // Whether a replacement may omit the name, the server decides.
    let mut object = widget(&group, "a", &json!({}));
    object["metadata"] = json!({});
    r.put(&format!("{all}/a"), &object).await?;
    Ok(())
}
