//! The objects that scenarios use: small, valid on the real server, and the same everywhere.

use serde_json::{Value, json};

use super::recorder::{Call, Recorder};
use super::{Outcome, SuiteError};

/// The path of leases in `namespace`: the simplest namespaced built-in kind.
pub(super) fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// The path of pods in `namespace`.
pub(super) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// The path of deployments in `namespace`.
pub(super) fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

/// The path of widgets of `group` in `namespace`.
pub(super) fn widgets(group: &str, namespace: &str) -> String {
    format!("/apis/{group}/v1/namespaces/{namespace}/widgets")
}

/// A lease held by `holder`.
pub(super) fn lease(name: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    })
}

/// A lease with labels.
pub(super) fn labelled_lease(name: &str, labels: &Value) -> Value {
    let mut lease = lease(name, "h");
    lease["metadata"]["labels"] = labels.clone();
    lease
}

/// A pod that nothing starts, with every field set that the real server would default for a container.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "pause", "resources": {}, "imagePullPolicy": "Never",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "automountServiceAccountToken": false,
        },
    })
}

/// A pod on a node.
pub(super) fn pod_on(name: &str, node: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// An empty node.
pub(super) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}})
}

/// A deployment of pods that cannot start, with the real server's defaults.
pub(super) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod(name)["spec"]},
        },
    })
}

/// An owner reference to the object in the answer `owner`.
pub(super) fn owned_by(owner: &Value, blocks: bool) -> Value {
    let mut reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    });
    if blocks {
        reference["blockOwnerDeletion"] = json!(true);
    }
    reference
}

/// The definition of `Widget` in `group`: namespaced, with status and scale subresources, a default, bounds, an enumeration, a
/// list, a map and a part that keeps unknown fields.
pub(super) fn widget_definition(group: &str) -> Value {
    definition(
        group,
        &json!({
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
                "color": {"type": "string", "enum": ["red", "green"]},
                "note": {"type": "string", "maxLength": 10, "pattern": "^[a-z]*$"},
                "tags": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
                "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                "parts": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }),
    )
}

/// The definition of `Widget` in `group` with `spec` as the schema of its spec.
pub(super) fn definition(group: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "properties": {
                        "ready": {"type": "integer"}, "phase": {"type": "string"}, "selector": {"type": "string"}}},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready", "labelSelectorPath": ".status.selector"}},
            }],
        },
    })
}

/// A widget.
pub(super) fn widget(group: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// The group of the widgets that scenarios share.
const SHARED_GROUP: &str = "shared.tenure.test";

/// The path of definitions.
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Recorder {
    /// Installs `definition` and waits until its objects can be written; not recorded.
    pub(super) async fn install(&mut self, definition: &Value) -> Outcome {
        self.define(definition).await?;
        self.served(definition).await
    }

    /// Creates `definition` unless another scenario did; not recorded.
    pub(super) async fn define(&mut self, definition: &Value) -> Outcome {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        if self.peek(Call::new("GET", &format!("{DEFINITIONS}/{name}"))).await?.status() == 200 {
            return Ok(());
        }
        self.prepare(DEFINITIONS, definition).await
    }

    /// Waits until objects of `definition` can be read and written; not recorded.
    pub(super) async fn served(&mut self, definition: &Value) -> Outcome {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = text("/metadata/name");
        let path = format!("{DEFINITIONS}/{name}");
        let established = |body: &Value| {
            let conditions = body.pointer("/status/conditions").and_then(Value::as_array);
            conditions
                .into_iter()
                .flatten()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        self.wait(&path, &format!("{name} to be established"), |answer| established(&answer.body)).await?;
        let (group, version) = (text("/spec/group"), text("/spec/versions/0/name"));
        let plural = text("/spec/names/plural");
        let discovery = format!("/apis/{group}/{version}");
        let listed = |body: &Value| {
            body["resources"].as_array().into_iter().flatten().any(|resource| resource["name"] == plural)
        };
        self.wait(&discovery, &format!("{plural} in {discovery}"), |answer| listed(&answer.body)).await?;
        let collection = format!("{discovery}/{plural}?limit=1");
        self.wait(&collection, &format!("{collection} to answer"), |answer| answer.status == 200).await?;
        // A definition is served before its storage accepts writes: try a dry run.
        let scope = if text("/spec/scope") == "Namespaced" { "namespaces/default/" } else { "" };
        let probe = format!("{discovery}/{scope}{plural}?dryRun=All");
        let mut waited = 0;
        while self.peek(Call::new("POST", &probe).json(&json!({}))).await?.status() == 404 && waited < 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            waited += 1;
        }
        Ok(())
    }

    /// Creates the scenario's own namespace with widgets; not recorded. All scenarios that only use their own namespace share
    /// the definition, because each one takes the real server a second. Returns group and collection.
    pub(super) async fn widgets(&mut self) -> Result<(String, String), SuiteError> {
        self.widgets_in(SHARED_GROUP.to_owned()).await
    }

    /// Like [`Recorder::widgets`], with the scenario's own definition, to change, remove or list across namespaces.
    pub(super) async fn own_widgets(&mut self) -> Result<(String, String), SuiteError> {
        let group = self.own_group();
        self.widgets_in(group).await
    }

    async fn widgets_in(&mut self, group: String) -> Result<(String, String), SuiteError> {
        self.install(&widget_definition(&group)).await?;
        let namespace = self.namespace().await?;
        let collection = widgets(&group, &namespace);
        Ok((group, collection))
    }

    /// Like [`Recorder::widgets`], with `spec` as the schema of a widget's spec.
    pub(super) async fn widgets_of(&mut self, spec: &Value) -> Result<(String, String), SuiteError> {
        let group = self.own_group();
        self.install(&definition(&group, spec)).await?;
        let namespace = self.namespace().await?;
        let collection = widgets(&group, &namespace);
        Ok((group, collection))
    }
}
