//! The life cycle of every built-in kind that is served, and the fields that Tenure and `kubectl` read. Other defaults of the
//! real server are ignored.

use serde_json::{Value, json};

use super::super::document::take;
use super::super::objects::{deployment, node, pod, pod_on};
use super::super::recorder::Call;
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![kinds:
    pods_and_nodes_live_and_go,
    workloads_live_and_go,
    plain_objects_live_and_go,
    a_namespace_as_a_whole,
];

/// The metadata that every object has, and these fields.
fn seen(body: &Value, fields: &[&str]) -> Value {
    if body["kind"] == "Status" {
        return json!([body["status"], body["reason"], body["details"]]);
    }
    let fields: Vec<_> = fields.iter().map(|pointer| json!([pointer, body.pointer(pointer)])).collect();
    let mut metadata = body["metadata"].clone();
    // The template generation of a daemon set: only its controller uses it.
    take(&mut metadata, "/annotations/deprecated.daemonset.template.generation");
    if metadata["annotations"] == json!({}) || metadata["annotations"].is_null() {
        take(&mut metadata, "/annotations");
    }
    json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata, "fields": fields})
}

/// Created, changed, its status written, read and deleted.
async fn life(
    r: &mut Recorder,
    all: &str,
    object: &Value,
    change: &Value,
    status: Option<&Value>,
    fields: &[&str],
) -> Outcome {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let one = format!("{all}/{name}");
    let patch = |path: &str, patch: &Value| {
        Call::new("PATCH", path).json(patch).header("content-type", "application/merge-patch+json")
    };
    let mut calls = vec![("create", Call::new("POST", all).json(object)), ("change", patch(&one, change))];
    if let Some(status) = status {
        calls.push(("report", patch(&format!("{one}/status"), &json!({"status": status}))));
        calls.push(("report through the object", patch(&one, &json!({"status": {}}))));
    }
    calls.push(("read", Call::new("GET", &one)));
    calls.push(("delete", Call::new("DELETE", &format!("{one}?gracePeriodSeconds=0"))));
    calls.push(("read again", Call::new("GET", &one)));
    for (what, call) in calls {
        let answer = r.peek(call).await?;
        let kind = object["kind"].as_str().unwrap_or_default();
        r.note(&format!("{what} a {kind}"), json!([answer.status(), seen(&answer.body, fields)]));
    }
    Ok(())
}

async fn pods_and_nodes_live_and_go(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let status =
        json!({"phase": "Running", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]});
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let fields = ["/spec/nodeName", "/spec/terminationGracePeriodSeconds", "/status/phase", "/status/podIPs"];
    let all = format!("/api/v1/namespaces/{namespace}/pods");
    life(r, &all, &pod_on("a", &namespace), &change, Some(&status), &fields).await?;
    let status =
        json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}], "capacity": {"cpu": "2"}});
    let fields = ["/status/addresses", "/status/capacity"];
    life(r, "/api/v1/nodes", &node(&namespace), &change, Some(&status), &fields).await
}

async fn workloads_live_and_go(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("a")["spec"]});
    let selector = json!({"matchLabels": {"app": "a"}});
    let change = json!({"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}});
    let fields =
        ["/spec/replicas", "/spec/selector", "/spec/template/metadata", "/status/observedGeneration"];
    for (plural, kind) in
        [("replicasets", "ReplicaSet"), ("daemonsets", "DaemonSet"), ("statefulsets", "StatefulSet")]
    {
        let all = format!("/apis/apps/v1/namespaces/{namespace}/{plural}");
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"},
            "spec": {"selector": selector, "template": template}});
        life(r, &all, &object, &change, Some(&json!({"observedGeneration": 1})), &fields).await?;
    }
    let all = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let change = json!({"spec": {"replicas": 1}});
    life(r, &all, &deployment("a", 0), &change, Some(&json!({"observedGeneration": 2})), &fields).await?;
    let all = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    let change = json!({"spec": {"maxUnavailable": "50%"}});
    life(r, &all, &budget, &change, None, &["/spec/maxUnavailable", "/spec/selector"]).await
}

async fn plain_objects_live_and_go(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    // The server chooses an address unless one is given: this one is in both servers' range.
    let service = json!({"clusterIP": "10.96.200.7", "selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]});
    for (plural, kind, mut object, change, fields) in [
        (
            "configmaps",
            "ConfigMap",
            json!({"data": {"k": "v"}}),
            json!({"data": {"k": null, "l": "w"}}),
            ["/data"],
        ),
        ("secrets", "Secret", json!({"data": {"b": "aGk="}, "type": "Opaque"}), label.clone(), ["/data"]),
        ("serviceaccounts", "ServiceAccount", json!({}), label.clone(), ["/automountServiceAccountToken"]),
        ("services", "Service", json!({"spec": service}), label.clone(), ["/spec/ports"]),
    ] {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "a"});
        let all = format!("/api/v1/namespaces/{namespace}/{plural}");
        life(r, &all, &object, &change, None, &fields).await?;
    }
    Ok(())
}

async fn a_namespace_as_a_whole(r: &mut Recorder) -> Outcome {
    let name = r.own_name();
    let one = format!("/api/v1/namespaces/{name}");
    r.post(
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"a": "b"}}}),
    )
    .await?;
    r.merge(&one, &json!({"metadata": {"annotations": {"coil.cybozu.com/pool": "p"}}})).await?;
    r.get(&one).await?;
    r.get(&format!("{one}/status")).await?;
    Ok(())
}
