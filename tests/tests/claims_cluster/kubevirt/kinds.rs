//! KubeVirt's kinds, as far as its controllers and their callers need them here: their real group and names, and a schema that
//! keeps whatever it is given.

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

/// A kind that the stand-in looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `VirtualMachine`: what a person makes, and starts and stops.
    Machine,
    /// `VirtualMachineInstance`: a machine that runs.
    Instance,
    /// `VirtualMachineInstanceMigration`: the wish to have it on another node.
    Migration,
    /// A pod in which it runs.
    Pod,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Machine, Self::Instance, Self::Migration, Self::Pod];

    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Machine => ("kubevirt.io", "VirtualMachine", "virtualmachines"),
            Self::Instance => ("kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances"),
            Self::Migration => {
                ("kubevirt.io", "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations")
            }
            Self::Pod => ("", "Pod", "pods"),
        }
    }

    pub fn resource(self) -> ApiResource {
        let (group, kind, plural) = self.names();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }

    /// The kind's objects in a namespace.
    pub fn within(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// An owner of this kind, as KubeVirt refers to it.
    pub fn owner(self, object: &DynamicObject) -> Value {
        let (group, kind, _) = self.names();
        json!({
            "apiVersion": format!("{group}/v1"), "kind": kind, "name": object.metadata.name, "uid": object.metadata.uid,
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    fn definition(self) -> Value {
        let (group, kind, plural) = self.names();
        // Instances have no subresource for their status: KubeVirt updates the whole object.
        let subresources = if self == Self::Instance { json!({}) } else { json!({"status": {}}) };
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": anything}, "subresources": subresources,
                }],
            },
        })
    }
}

/// The definitions of KubeVirt's kinds, to be applied.
pub fn definitions() -> String {
    let kinds = [Kind::Machine, Kind::Instance, Kind::Migration].map(Kind::definition);
    json!({"apiVersion": "v1", "kind": "List", "items": kinds}).to_string()
}

/// A network of a machine: its name in the machine's own list, and namespace and name of its attachment definition; or none for
/// the pods' own network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub name: &'static str,
    pub definition: Option<String>,
}

impl Nic {
    /// On the pods' own network.
    pub fn of_pods() -> Self {
        Self { name: "default", definition: None }
    }

    /// On an additional network.
    pub fn on(name: &'static str, definition: &str) -> Self {
        Self { name, definition: Some(definition.to_owned()) }
    }

    /// The interface in the launcher pod.
    pub fn interface(&self) -> Result<&'static str> {
        if self.definition.is_none() {
            return Ok("eth0");
        }
        interface_of(self.name)
    }
}

/// The interface that a launcher pod has for a network: `pod` and the first eleven digits of the SHA-256 of the network's name.
/// A table, so that nothing of the product answers for it.
pub fn interface_of(network: &str) -> Result<&'static str> {
    const TABLE: [(&str, &str); 9] = [
        ("shared4", "pod0afde36a635"),
        ("shared6", "pod33ddd5ff392"),
        ("shared", "poda4d26868017"),
        ("sliced4", "pod4ce58b4601e"),
        ("sliced6", "podc65594df2b3"),
        ("sliced", "pode983034cfd2"),
        ("red", "podb1f51a511f1"),
        ("green", "podba4788b226a"),
        ("blue", "pod16477688c0e"),
    ];
    let found = TABLE.iter().find(|(name, _)| *name == network);
    found.map(|(_, interface)| *interface).with_context(|| format!("no interface is known for {network}"))
}

/// What a machine's template, or an instance, says of its networks.
pub fn devices(nics: &[Nic]) -> Value {
    let interfaces: Vec<Value> = nics
        .iter()
        .map(|nic| match nic.definition {
            None => json!({"name": nic.name, "masquerade": {}}),
            Some(_) => json!({"name": nic.name, "bridge": {}}),
        })
        .collect();
    let networks: Vec<Value> = nics
        .iter()
        .map(|nic| match &nic.definition {
            None => json!({"name": nic.name, "pod": {}}),
            Some(definition) => json!({"name": nic.name, "multus": {"networkName": definition}}),
        })
        .collect();
    json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks})
}
