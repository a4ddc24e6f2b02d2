//! Invalid requests: both servers refuse each with the same message, and write nothing.

use serde_json::json;

use super::super::objects::{definition, lease, leases, widget, widgets};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![bad_requests:
    malformed_bodies_are_refused,
    another_kind_or_version_is_refused,
    methods_that_a_path_does_not_have_are_refused,
    media_types_that_are_not_understood_are_refused,
    a_body_that_is_too_large_is_refused,
    annotations_that_are_too_large_are_refused,
    values_of_the_wrong_type_are_refused,
    a_namespaced_kind_needs_its_namespace,
];

async fn malformed_bodies_are_refused(r: &mut Recorder) -> Outcome {
    let (_, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for path in [&all, &custom] {
        for text in [
            "{",
            "",
            "[]",
            "null",
            "\"text\"",
            "{}",
            "{\"kind\": 5}",
            "nonsense",
            "{\"apiVersion\": \"v1\"}",
            "{} {}",
        ] {
            let call = Call::new("POST", path).text(text).header("content-type", "application/json");
            let answer = r.peek(call).await?;
            // The message comes from a JSON parser: only code and reason are compared.
            r.note(&format!("{text:?}"), json!({"status": answer.status(), "reason": answer.body["reason"], "kind": answer.body["kind"]}));
        }
    }
    Ok(())
}

async fn another_kind_or_version_is_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for (path, object) in [(&all, lease("a", "h")), (&custom, widget(&group, "a", &json!({})))] {
        for (field, value) in [
            ("kind", "Pod"),
            ("kind", "Gadget"),
            ("apiVersion", "v1"),
            ("apiVersion", "apps/v1"),
            ("apiVersion", "a/b/c"),
            ("apiVersion", "none.example.com/v1"),
        ] {
            let mut other = object.clone();
            other[field] = json!(value);
            r.post(path, &other).await?;
        }
        for field in ["kind", "apiVersion"] {
            let mut other = object.clone();
            if let Some(other) = other.as_object_mut() {
                other.remove(field);
            }
            r.post(&format!("{path}?dryRun=All"), &other).await?;
        }
    }
    Ok(())
}

async fn methods_that_a_path_does_not_have_are_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for collection in [&all, &custom] {
        r.put(collection, &json!({})).await?;
        r.merge(collection, &json!({})).await?;
        r.post(&format!("{collection}/a"), &json!({})).await?;
    }
    r.post(&format!("/apis/{group}/v1"), &json!({})).await?;
    r.delete("/api/v1/namespaces").await?;
    r.send(Call::new("TRACE", &all)).await?;
    let answer = r.peek(Call::new("DELETE", "/apis")).await?;
    r.note("DELETE /apis", json!([answer.status(), answer.body["kind"]]));
    Ok(())
}

async fn media_types_that_are_not_understood_are_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for content_type in ["text/plain", "application/xml", "nonsense"] {
        r.send(Call::new("POST", &all).json(&lease("a", "h")).header("content-type", content_type)).await?;
        r.send(
            Call::new("POST", &custom)
                .json(&widget(&group, "a", &json!({})))
                .header("content-type", content_type),
        )
        .await?;
    }
    for accept in ["text/plain", "application/json;q=0.9, */*", "*/*", "application/xml"] {
        r.send(Call::new("GET", &format!("{all}/none")).header("accept", accept)).await?;
        r.send(Call::new("GET", &format!("{custom}/none")).header("accept", accept)).await?;
    }
    Ok(())
}

async fn a_body_that_is_too_large_is_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    let large = "x".repeat(3 * 1024 * 1024 + 1);
    r.post(&all, &lease("a", &large)).await?;
    r.post(&custom, &widget(&group, "a", &json!({"free": {"x": large}}))).await?;
    Ok(())
}

async fn annotations_that_are_too_large_are_refused(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    for length in [256 * 1024 - 1, 256 * 1024] {
        let mut object = lease("a", "h");
        object["metadata"]["annotations"] = json!({"a": "x".repeat(length)});
        let answer = r.peek(Call::new("POST", &format!("{all}?dryRun=All")).json(&object)).await?;
        let seen = if answer.status() == 201 { json!("accepted") } else { answer.body.clone() };
        r.note(&format!("a lease with {length} bytes"), json!([answer.status(), seen]));
        let mut object = widget(&group, "a", &json!({}));
        object["metadata"]["annotations"] = json!({"a": "x".repeat(length)});
        let answer = r.peek(Call::new("POST", &format!("{custom}?dryRun=All")).json(&object)).await?;
        let seen = if answer.status() == 201 { json!("accepted") } else { answer.body.clone() };
        r.note(&format!("a widget with {length} bytes"), json!([answer.status(), seen]));
    }
    Ok(())
}

async fn values_of_the_wrong_type_are_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (field, value) in [("metadata", json!("x")), ("spec", json!([])), ("spec", json!("x"))] {
        let mut object = lease("a", "h");
        object[field] = value;
        let answer = r.peek(Call::new("POST", &all).json(&object)).await?;
        r.note(field, json!({"status": answer.status(), "reason": answer.body["reason"]}));
    }
    for (field, value) in [
        ("labels", json!({"a": 1})),
        ("labels", json!([])),
        ("finalizers", json!("x")),
        ("name", json!(5)),
        ("ownerReferences", json!({})),
    ] {
        let mut object = lease("a", "h");
        object["metadata"][field] = value;
        let answer = r.peek(Call::new("POST", &all).json(&object)).await?;
        r.note(field, json!({"status": answer.status(), "reason": answer.body["reason"]}));
    }
    Ok(())
}

async fn a_namespaced_kind_needs_its_namespace(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    r.install(&definition(&group, &json!({"type": "object"}))).await?;
    let all = format!("/apis/{group}/v1/widgets");
    r.post(&all, &widget(&group, "a", &json!({}))).await?;
    r.get(&format!("{all}/a")).await?;
    r.delete(&format!("{all}/a")).await?;
    r.post("/apis/coordination.k8s.io/v1/leases", &lease("a", "h")).await?;
    r.get("/apis/coordination.k8s.io/v1/leases/a").await?;
    r.get(&widgets(&group, "Not_A_Namespace")).await?;
    Ok(())
}
