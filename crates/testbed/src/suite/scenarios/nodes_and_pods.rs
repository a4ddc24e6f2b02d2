//! Nodes and pods as Tenure reads and writes them: metadata and status, never a kubelet's work.

use serde_json::{Value, json};

use super::super::objects::{node, pod, pod_on, pods};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![nodes_and_pods:
    a_node_is_created_annotated_and_reports_status,
    the_status_of_a_node_is_written_apart,
    a_pod_is_created_annotated_and_reports_status,
    a_pods_spec_cannot_be_changed_by_its_status,
    a_watch_of_one_nodes_pods_sees_only_those,
];

/// The parts of an object that Tenure reads: what it wrote itself, and common metadata.
fn seen(body: &Value, status: &[&str]) -> Value {
    if body["kind"] == "Status" {
        return body.clone();
    }
    let metadata = &body["metadata"];
    let status: serde_json::Map<String, Value> =
        status.iter().map(|field| ((*field).to_owned(), body["status"][*field].clone())).collect();
    json!({
        "apiVersion": body["apiVersion"], "kind": body["kind"], "status": status,
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
            "labels": metadata["labels"], "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        },
    })
}

async fn step(r: &mut Recorder, what: &str, call: Call, status: &[&str]) -> Outcome {
    let answer = r.peek(call).await?;
    r.note(what, json!({"code": answer.status(), "object": seen(&answer.body, status)}));
    Ok(())
}

fn merge(path: &str, patch: &Value) -> Call {
    Call::new("PATCH", path).json(patch).header("content-type", "application/merge-patch+json")
}

async fn a_node_is_created_annotated_and_reports_status(r: &mut Recorder) -> Outcome {
    let name = r.own_name();
    let one = format!("/api/v1/nodes/{name}");
    let fields = ["capacity", "addresses"];
    step(r, "create", Call::new("POST", "/api/v1/nodes").json(&node(&name)), &fields).await?;
    let annotations = json!({"metadata": {"annotations": {"tenure.test/a": "1"}, "labels": {"zone": "a"}, "finalizers": ["tenure.test/x"]}});
    step(r, "annotate", merge(&one, &annotations), &fields).await?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}], "capacity": {"tenure.test/addresses": "64"}}});
    step(r, "report", merge(&format!("{one}/status"), &status), &fields).await?;
    let present = r.peek(Call::new("GET", &one)).await?;
    r.note("spec", json!([present.body["spec"]["podCIDR"], present.body["spec"]["podCIDRs"]]));
    step(r, "delete", Call::new("DELETE", &one), &fields).await?;
    step(r, "let go", merge(&one, &json!({"metadata": {"finalizers": null}})), &fields).await?;
    step(r, "read", Call::new("GET", &one), &fields).await?;
    Ok(())
}

async fn the_status_of_a_node_is_written_apart(r: &mut Recorder) -> Outcome {
    let name = r.own_name();
    let one = format!("/api/v1/nodes/{name}");
    let fields = ["capacity"];
    r.prepare("/api/v1/nodes", &node(&name)).await?;
    step(
        r,
        "status through the object",
        merge(&one, &json!({"status": {"capacity": {"cpu": "9"}}})),
        &fields,
    )
    .await?;
    let both = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}, "status": {"capacity": {"cpu": "4"}}});
    step(r, "object through the status", merge(&format!("{one}/status"), &both), &fields).await?;
    let present = r.peek(Call::new("GET", &one)).await?;
    r.note("unschedulable", present.body["spec"]["unschedulable"].clone());
    Ok(())
}

async fn a_pod_is_created_annotated_and_reports_status(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = pods(&namespace);
    let one = format!("{all}/a");
    let fields = ["phase", "podIP", "podIPs", "conditions"];
    step(r, "create", Call::new("POST", &all).json(&pod("a")), &fields).await?;
    let annotate = json!({"metadata": {"annotations": {"live.cast.ai/ip": "10.0.0.7"}}});
    step(r, "annotate", merge(&one, &annotate), &fields).await?;
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}});
    step(r, "report", merge(&format!("{one}/status"), &status), &fields).await?;
    step(r, "status through the object", merge(&one, &json!({"status": {"phase": "Failed"}})), &fields)
        .await?;
    Ok(())
}

async fn a_pods_spec_cannot_be_changed_by_its_status(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = pods(&namespace);
    let one = format!("{all}/a");
    r.prepare(&all, &pod("a")).await?;
    let both = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n9"}, "status": {"phase": "Running"}});
    step(r, "object through the status", merge(&format!("{one}/status"), &both), &["phase"]).await?;
    let present = r.peek(Call::new("GET", &one)).await?;
    r.note("node", present.body["spec"]["nodeName"].clone());
    Ok(())
}

async fn a_watch_of_one_nodes_pods_sees_only_those(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = pods(&namespace);
    let selector = format!("fieldSelector=spec.nodeName%3D{namespace}-n1");
    let list = r.get(&format!("/api/v1/pods?{selector}")).await?;
    let mut watch = r.watch(&format!("/api/v1/pods?{selector}&resourceVersion={}", list.version()?)).await?;
    r.prepare(&all, &pod_on("here", &format!("{namespace}-n1"))).await?;
    r.prepare(&all, &pod_on("there", &format!("{namespace}-n2"))).await?;
    r.prepare(&all, &pod("nowhere")).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nowhere"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": format!("{namespace}-n1")},
    });
    let bound = r.peek(Call::new("POST", &format!("{all}/nowhere/binding")).json(&binding)).await?;
    r.note("binding", json!({"code": bound.status(), "body": bound.body}));
    r.peek(merge(&format!("{all}/here"), &json!({"metadata": {"labels": {"a": "b"}}}))).await?;
    r.peek(Call::new("DELETE", &format!("{all}/here?gracePeriodSeconds=0"))).await?;
    let mut events = Vec::new();
    while events.len() < 4 {
        match watch.next().await? {
            Some(event) => events.push(json!([
                event["type"],
                event["object"]["metadata"]["name"],
                event["object"]["spec"]["nodeName"]
            ])),
            None => break,
        }
    }
    r.note("events", json!(events));
    Ok(())
}
