//! Every built-in kind as a whole object: what is filled in, what a status write does, what a deletion answers.

use serde_json::{Value, json};

use super::super::objects::{deployment, deployments, node, pod, pod_on, pods};
use super::super::{Outcome, Recorder};
use super::scenarios;

scenarios![kinds:
    a_pod_as_a_whole,
    a_pod_with_almost_nothing_is_filled_in,
    a_pod_that_changes_is_refused_where_it_must,
    a_node_as_a_whole,
    a_deployment_as_a_whole,
    a_deployment_with_almost_nothing_is_filled_in,
    replica_daemon_and_stateful_sets_as_a_whole,
    config_maps_and_secrets_as_a_whole,
    service_accounts_as_a_whole,
    a_disruption_budget_as_a_whole,
    a_service_with_an_address_as_a_whole,
    a_namespace_as_a_whole,
];

/// Created, read, changed, its status written and read, deleted.
async fn life(
    r: &mut Recorder,
    all: &str,
    object: &Value,
    change: &Value,
    status: Option<&Value>,
) -> Outcome {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let one = format!("{all}/{name}");
    r.post(all, object).await?;
    r.merge(&one, change).await?;
    if let Some(status) = status {
        r.merge(&format!("{one}/status"), &json!({"status": status})).await?;
    }
    r.get(all).await?;
    r.delete(&format!("{one}?gracePeriodSeconds=0")).await?;
    r.get(&one).await?;
    Ok(())
}

fn core(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

async fn a_pod_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let status =
        json!({"phase": "Running", "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]});
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    life(r, &pods(&namespace), &pod_on("a", &namespace), &change, Some(&status)).await
}

async fn a_pod_with_almost_nothing_is_filled_in(r: &mut Recorder) -> Outcome {
    let all = pods(&r.namespace().await?);
    let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "registry.test/a"}]}});
    r.post(&all, &bare).await?;
    let rich = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rich"}, "spec": {
        "automountServiceAccountToken": false, "hostNetwork": true, "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "registry.test/a:v1", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "env": [{"name": "A", "value": "b"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "volumeMounts": [{"name": "run", "mountPath": "/run/tenure"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}}}],
        "volumes": [{"name": "run", "hostPath": {"path": "/run/tenure"}}],
        "tolerations": [{"operator": "Exists"}]}});
    r.post(&all, &rich).await?;
    Ok(())
}

async fn a_pod_that_changes_is_refused_where_it_must(r: &mut Recorder) -> Outcome {
    let all = pods(&r.namespace().await?);
    r.prepare(&all, &pod("a")).await?;
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["tenure.test/x"]}}),
        json!({"metadata": {"finalizers": null}}),
    ] {
        r.merge(&format!("{all}/a"), &patch).await?;
    }
    Ok(())
}

async fn a_node_as_a_whole(r: &mut Recorder) -> Outcome {
    let name = r.own_name();
    let one = format!("/api/v1/nodes/{name}");
    r.post("/api/v1/nodes", &node(&name)).await?;
    r.merge(&one, &json!({"metadata": {"annotations": {"a": "b"}, "labels": {"zone": "a"}}})).await?;
    let status = json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}], "capacity": {"cpu": "2"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
            "lastHeartbeatTime": "2021-01-01T00:00:00Z", "lastTransitionTime": "2021-01-01T00:00:00Z"}]});
    r.merge(&format!("{one}/status"), &json!({"status": status})).await?;
    r.get(&one).await?;
    r.delete(&one).await?;
    r.get(&one).await?;
    let bare = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    r.post("/api/v1/nodes", &bare).await?;
    Ok(())
}

async fn a_deployment_as_a_whole(r: &mut Recorder) -> Outcome {
    let all = deployments(&r.namespace().await?);
    let status = json!({"observedGeneration": 2, "replicas": 1, "readyReplicas": 1});
    life(r, &all, &deployment("a", 0), &json!({"spec": {"replicas": 1}}), Some(&status)).await
}

async fn a_deployment_with_almost_nothing_is_filled_in(r: &mut Recorder) -> Outcome {
    let all = deployments(&r.namespace().await?);
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let bare = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}});
    r.post(&all, &bare).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}))
        .await?;
    Ok(())
}

async fn replica_daemon_and_stateful_sets_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("a")["spec"]});
    let selector = json!({"matchLabels": {"app": "a"}});
    for (plural, kind, spec) in [
        ("replicasets", "ReplicaSet", json!({"replicas": 0, "selector": selector, "template": template})),
        ("daemonsets", "DaemonSet", json!({"selector": selector, "template": template})),
        (
            "statefulsets",
            "StatefulSet",
            json!({"replicas": 0, "serviceName": "s", "selector": selector, "template": template}),
        ),
    ] {
        let all = format!("/apis/apps/v1/namespaces/{namespace}/{plural}");
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let status = json!({"observedGeneration": 1});
        life(r, &all, &object, &json!({"metadata": {"labels": {"a": "b"}}}), Some(&status)).await?;
    }
    Ok(())
}

async fn config_maps_and_secrets_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "aGk="}});
    let all = core(&namespace, "configmaps");
    life(r, &all, &map, &json!({"data": {"k": null, "l": "w"}}), None).await?;
    let frozen = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "frozen"}, "data": {"k": "v"}, "immutable": true});
    r.post(&all, &frozen).await?;
    r.merge(&format!("{all}/frozen"), &json!({"data": {"k": "w"}})).await?;
    let twice = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice"}, "data": {"k": "v"}, "binaryData": {"k": "aGk="}});
    r.post(&all, &twice).await?;
    let all = core(&namespace, "secrets");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"b": "aGk="}});
    life(r, &all, &secret, &json!({"data": {"b": null}}), None).await?;
    Ok(())
}

async fn service_accounts_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let all = core(&namespace, "serviceaccounts");
    r.post(&all, &account).await?;
    r.merge(&format!("{all}/a"), &json!({"automountServiceAccountToken": false})).await?;
    r.delete(&format!("{all}/a")).await?;
    Ok(())
}

async fn a_disruption_budget_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    life(r, &all, &budget, &json!({"spec": {"maxUnavailable": "50%"}}), None).await
}

async fn a_service_with_an_address_as_a_whole(r: &mut Recorder) -> Outcome {
    let namespace = r.namespace().await?;
    let all = core(&namespace, "services");
    // Addresses are the server's choice unless they are named: these are in the range that both servers have.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "10.96.200.7", "selector": {"app": "a"}, "ports": [{"port": 80}]}});
    r.post(&all, &service).await?;
    r.merge(&format!("{all}/a"), &json!({"spec": {"ports": [{"port": 81, "name": "web"}]}})).await?;
    r.delete(&format!("{all}/a")).await?;
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
