//! Launcher pods: what KubeVirt writes on them, and what it reads from them. Nothing runs in them.

use anyhow::{Context as _, Result};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::cluster::images;

use super::kinds::{self, Kind};

/// The pod's additional networks.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// What became of them.
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// When the machine was ready to run in the target of a migration.
pub(super) const READY: &str = "kubevirt.io/migration-target-ready-timestamp";
/// The launcher ends when this file appears: its machine runs somewhere else.
pub(super) const DONE: &str = "/tmp/done";

/// A launcher pod that was seen.
pub(super) struct Launcher<'s>(pub(super) &'s DynamicObject);

impl Launcher<'_> {
    pub(super) fn node(&self) -> Option<&str> {
        self.0.data["spec"]["nodeName"].as_str()
    }

    fn phase(&self) -> &str {
        self.0.data["status"]["phase"].as_str().unwrap_or_default()
    }

    pub(super) fn finished(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.phase())
    }

    /// UID and node of one that lives.
    pub(super) fn place(&self) -> Option<(String, String)> {
        let node = self.node().filter(|_| !self.finished())?;
        Some((self.0.uid()?, node.to_owned()))
    }

    /// The migration that it is the target of.
    pub(super) fn migration(&self) -> Option<&String> {
        self.0.labels().get("kubevirt.io/migrationJobUID")
    }

    pub(super) fn is_target(&self) -> bool {
        self.migration().is_some()
    }

    /// The networks that it asks for.
    pub(super) fn selected(&self) -> String {
        self.0.annotations().get(NETWORKS).cloned().unwrap_or_default()
    }

    /// Whether it has an interface, as its network status says.
    pub(super) fn has(&self, interface: &str) -> bool {
        self.interfaces().iter().any(|it| it == interface)
    }

    fn interfaces(&self) -> Vec<String> {
        let status = self.0.annotations().get(STATUS).map_or("[]", String::as_str);
        let status: Vec<Value> = serde_json::from_str(status).unwrap_or_default();
        status.iter().filter_map(|it| it["interface"].as_str().map(str::to_owned)).collect()
    }

    /// Whether it runs and has all its networks.
    pub(super) fn attached(&self) -> bool {
        let selected: Vec<Value> = serde_json::from_str(&self.selected()).unwrap_or_default();
        let all = selected.iter().filter_map(|it| it["interface"].as_str()).all(|it| self.has(it));
        self.phase() == "Running" && self.0.metadata.deletion_timestamp.is_none() && all
    }
}

/// The annotation by which the pod of an instance asks for its networks: those that are not absent.
pub(super) fn networks(instance: &DynamicObject) -> Result<String> {
    let spec = &instance.data["spec"];
    let interfaces = spec["domain"]["devices"]["interfaces"].as_array().cloned().unwrap_or_default();
    let absent = |name: &Value| interfaces.iter().any(|it| it["name"] == *name && it["state"] == "absent");
    let mut selected = Vec::new();
    for network in spec["networks"].as_array().into_iter().flatten().filter(|it| !absent(&it["name"])) {
        let Some(definition) = network["multus"]["networkName"].as_str() else { continue };
        let own = instance.namespace().unwrap_or_default();
        let (namespace, name) = definition.split_once('/').unwrap_or((&own, definition));
        let interface = kinds::interface_of(network["name"].as_str().context("a network's name")?)?;
        selected.push(json!({"name": name, "namespace": namespace, "interface": interface}));
    }
    Ok(json!(selected).to_string())
}

/// A launcher pod, for the start of an instance or for a migration away from a node. Its name ends with what it is made for, so
/// that it is made once.
pub(super) fn pod(
    instance: &DynamicObject,
    made_for: &str,
    migration: Option<&str>,
    away_from: &str,
) -> Result<Value> {
    let name = instance.name_any();
    let end: String = made_for.chars().filter(char::is_ascii_alphanumeric).rev().take(5).collect();
    let mut labels = json!({
        "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": instance.uid(), "vm.kubevirt.io/name": name,
        "kubevirt.io/vm": name,
    });
    let mut annotations = json!({
        "kubevirt.io/domain": name, "kubevirt.io/migrationTransportUnix": "true",
        "kubectl.kubernetes.io/default-container": "compute", NETWORKS: networks(instance)?,
    });
    let mut affinity = json!({});
    if let Some(migration) = migration {
        labels["kubevirt.io/migrationJobUID"] = json!(made_for);
        annotations["kubevirt.io/migrationJobName"] = json!(migration);
        let elsewhere = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [away_from]});
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]});
        affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    }
    let wait = format!("trap 'exit 0' TERM; until [ -e {DONE} ]; do sleep 0.2 & wait $!; done");
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("virt-launcher-{name}-{end}"), "labels": labels, "annotations": annotations,
            "ownerReferences": [Kind::Instance.owner(instance)],
        },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
            "nodeSelector": instance.data["spec"]["nodeSelector"], "affinity": affinity,
            "containers": [{"name": "compute", "image": images::BUSYBOX, "command": ["sh", "-c", wait]}],
        },
    }))
}
