//! Label and field selectors: every operator, and every syntax error.

use serde_json::json;

use super::super::objects::{labelled_lease, leases, pod, pods, widget, widget_definition, widgets};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![selectors:
    every_label_operator_selects,
    a_bad_label_selector_is_refused,
    field_selectors_by_name_and_namespace,
    unsupported_field_selectors_are_refused,
    pods_are_selected_by_node_and_phase,
    custom_fields_are_selectable_when_declared,
    selectors_combine,
];

/// Characters that a query must escape.
fn query(selector: &str) -> String {
    selector.chars().fold(String::new(), |text, c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' => format!("{text}{c}"),
        other => format!("{text}%{:02X}", u32::from(other)),
    })
}

async fn names(r: &mut Recorder, path: &str, selector: &str) -> Outcome {
    let list = r.peek(super::super::recorder::Call::new("GET", path)).await?;
    let names: Vec<_> =
        list.body["items"].as_array().into_iter().flatten().map(|item| &item["metadata"]["name"]).collect();
    let seen = if list.status() == 200 { json!(names) } else { list.body.clone() };
    r.note(&format!("selected by {selector:?}"), seen);
    Ok(())
}

async fn every_label_operator_selects(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (name, labels) in [
        ("a", json!({"tier": "web", "size": "3"})),
        ("b", json!({"tier": "db", "size": "10", "tenure.test/pinned": ""})),
        ("c", json!({"tier": "db"})),
        ("d", json!({})),
    ] {
        r.post(&all, &labelled_lease(name, &labels)).await?;
    }
    for selector in [
        "tier=web",
        "tier==web",
        "tier!=web",
        "tier in (web,db)",
        "tier notin (web)",
        "tier",
        "!tier",
        "tier,!size",
        "tenure.test/pinned",
        "tenure.test/pinned=",
        "tier in (web, db),size",
        "tier=",
        "tier in ()",
        "",
        " tier = db ",
        "none=none",
        "tier!=web,tier!=db",
        "tier in (db,)",
        "in=x",
        "tier in (in,notin)",
    ] {
        names(r, &format!("{all}?labelSelector={}", query(selector)), selector).await?;
    }
    Ok(())
}

async fn a_bad_label_selector_is_refused(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for selector in [
        "tier=a b",
        "=x",
        "tier in web",
        "tier in (web",
        "!tier=web",
        "a/b/c=x",
        "tier=-x",
        ",",
        "tier=x,,",
        "tier==",
        "tier=<",
        "tier notin",
        "tier!",
    ] {
        r.get(&format!("{all}?labelSelector={}", query(selector))).await?;
    }
    Ok(())
}

async fn field_selectors_by_name_and_namespace(r: &mut Recorder) -> Outcome {
    let (group, custom) = r.widgets().await?;
    let namespace = r.own_name();
    let all = leases(&namespace);
    for name in ["a", "b"] {
        r.post(&all, &labelled_lease(name, &json!({}))).await?;
        r.post(&custom, &widget(&group, name, &json!({}))).await?;
    }
    for collection in [&all, &custom] {
        for selector in [
            "metadata.name=a",
            "metadata.name==b",
            "metadata.name!=a",
            &format!("metadata.namespace={namespace}"),
            "metadata.namespace=other",
            "metadata.name=a,metadata.name=b",
            "metadata.name=none",
            "",
        ] {
            names(r, &format!("{collection}?fieldSelector={}", query(selector)), selector).await?;
        }
    }
    Ok(())
}

async fn unsupported_field_selectors_are_refused(r: &mut Recorder) -> Outcome {
    let (_, custom) = r.widgets().await?;
    let all = leases(&r.own_name());
    let pod_path = pods(&r.own_name());
    for collection in [&all, &custom, &pod_path] {
        for selector in
            ["spec.color=red", "metadata.labels.a=b", "metadata.name", "metadata.name in (a)", "=x"]
        {
            r.get(&format!("{collection}?fieldSelector={}", query(selector))).await?;
        }
    }
    Ok(())
}

async fn pods_are_selected_by_node_and_phase(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = pods(&namespace);
    for (name, node) in [("a", Some("n1")), ("b", Some("n2")), ("c", None)] {
        let mut object = pod(name);
        if let Some(node) = node {
            object["spec"]["nodeName"] = json!(format!("{namespace}-{node}"));
        }
        r.prepare(&all, &object).await?;
    }
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}]}});
    let report = super::super::recorder::Call::new("PATCH", &format!("{all}/b/status")).json(&status);
    r.peek(report.header("content-type", "application/merge-patch+json")).await?;
    for selector in [
        &format!("spec.nodeName={namespace}-n1"),
        "spec.nodeName=",
        "spec.nodeName!=",
        "status.phase=Pending",
        "status.phase=Running",
        "status.phase!=Running",
        "status.podIP=10.0.0.5",
    ] {
        names(r, &format!("{all}?fieldSelector={}", query(selector)), selector).await?;
    }
    names(
        r,
        &format!("/api/v1/pods?fieldSelector={}", query(&format!("spec.nodeName={namespace}-n2"))),
        "node, all namespaces",
    )
    .await?;
    Ok(())
}

async fn custom_fields_are_selectable_when_declared(r: &mut Recorder) -> Outcome {
    let group = r.own_group();
    let mut definition = widget_definition(&group);
    definition["spec"]["versions"][0]["selectableFields"] =
        json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    r.install(&definition).await?;
    let all = widgets(&group, &r.namespace().await?);
    for (name, spec) in [
        ("a", json!({"color": "red", "size": 1})),
        ("b", json!({"color": "green"})),
        ("c", json!({"size": 1})),
    ] {
        r.post(&all, &widget(&group, name, &spec)).await?;
    }
    for selector in [
        "spec.color=red",
        "spec.color!=red",
        "spec.color=",
        "spec.size=1",
        "spec.size=3",
        "spec.color=red,spec.size=1",
        "spec.note=x",
    ] {
        names(r, &format!("{all}?fieldSelector={}", query(selector)), selector).await?;
    }
    Ok(())
}

async fn selectors_combine(r: &mut Recorder) -> Outcome {
    let all = leases(&r.namespace().await?);
    for (name, side) in [("a", "left"), ("b", "right"), ("c", "left")] {
        r.post(&all, &labelled_lease(name, &json!({"side": side}))).await?;
    }
    r.get(&format!("{all}?labelSelector=side%3Dleft&fieldSelector=metadata.name%21%3Da")).await?;
    Ok(())
}
