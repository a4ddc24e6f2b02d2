//! Pods as the API has them: a kubelet would make them so, and these clusters have none.

use std::net::IpAddr;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::agent::{Cluster, Machine};

/// A pod that runs on a node and has these addresses.
pub fn object(namespace: &str, name: &str, node: &str, addresses: &[IpAddr]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running", "podIP": addresses.first(), "podIPs": ips,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// The pod of a machine's agent.
pub fn of_agent(machine: &Machine<'_>) -> Value {
    let name = format!("tenured-{}", machine.name);
    let mut pod = object("kube-system", &name, &machine.name, &machine.addresses[..1]);
    pod["metadata"]["labels"] = json!({"app.kubernetes.io/name": "tenured"});
    pod["spec"]["hostNetwork"] = json!(true);
    pod
}

/// Makes a pod. One that is there already stays as it is.
pub fn make(cluster: &Cluster, object: &Value) {
    cluster.runtime.block_on(make_one(cluster, object));
}

/// Makes all of them at once.
pub fn make_all(cluster: &Cluster, objects: &[Value]) {
    cluster.runtime.block_on(join_all(objects.iter().map(|it| make_one(cluster, it))));
}

async fn make_one(cluster: &Cluster, object: &Value) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let pod: Pod = serde_json::from_value(object.clone()).unwrap();
    match pods.create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) if status.code == 409 => return,
        made => made.unwrap(),
    };
    let status = Patch::Merge(json!({"status": object["status"]}));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await.unwrap();
}

/// Makes the account whose tokens agents accept, and the roles of people who use `tenure`.
pub fn admit_viewers(cluster: &Cluster) {
    let viewer = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/viewer.yaml");
    cluster.runtime.block_on(cluster.plane().kubectl(&["apply", "-f", viewer])).unwrap();
}
