//! The facts about a VirtualMachine and a VirtualMachineInstance (`kubevirt.io/v1`), read as plain JSON:
//! nothing of KubeVirt is compiled in. Never fails: unreadable parts become problems, and nothing is decided
//! about them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use tenure_api::claims::annotation;
use tenure_ipam::Address;

use super::Owner;
use crate::claim::address_of;

pub(super) const VIRTUAL_MACHINE: &str = "VirtualMachine";
pub(super) const INSTANCE: &str = "VirtualMachineInstance";
pub(super) const API_VERSION: &str = "kubevirt.io/v1";

/// The facts about a machine, or an instance of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// For an instance: the machine that it belongs to.
    pub owner: Option<Owner>,
    /// Its networks, without those whose interface is being unplugged.
    pub networks: Vec<MachineNetwork>,
    /// For an instance: whether it still has a running pod.
    pub has_pods: bool,
    /// The addresses that it requests, by the name of the network.
    pub wishes: BTreeMap<String, Vec<Address>>,
    /// What could not be read, as text.
    pub problems: Vec<String>,
}

/// A network of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineNetwork {
    /// Its name in the machine's own list.
    pub name: String,
    /// The source of the network.
    pub place: NetworkSource,
}

/// The source of a machine's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSource {
    /// The cluster's default network.
    Cluster,
    /// An attachment definition.
    Definition {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Whether it replaces the cluster's default network.
        default: bool,
    },
}

impl MachineFacts {
    /// The facts about a VirtualMachine.
    pub fn of_machine(object: &Value) -> Self {
        let template = at(object, &["spec", "template"]);
        Self::read(object, at(template, &["spec"]), &[at(object, &["metadata"]), at(template, &["metadata"])])
    }

    /// The facts about a VirtualMachineInstance.
    pub fn of_instance(object: &Value) -> Self {
        let mut facts = Self::read(object, at(object, &["spec"]), &[at(object, &["metadata"])]);
        let owners = at(object, &["metadata", "ownerReferences"]).as_array();
        facts.owner =
            owners.into_iter().flatten().find(|owner| text(owner, "kind") == VIRTUAL_MACHINE).map(|owner| {
                Owner { kind: VIRTUAL_MACHINE.to_owned(), name: text(owner, "name"), uid: text(owner, "uid") }
            });
        facts.has_pods =
            at(object, &["status", "activePods"]).as_object().is_some_and(|pods| !pods.is_empty());
        facts
    }

    fn read(object: &Value, spec: &Value, annotated: &[&Value]) -> Self {
        let meta = at(object, &["metadata"]);
        let mut facts = Self {
            namespace: text(meta, "namespace"),
            name: text(meta, "name"),
            uid: text(meta, "uid"),
            deleting: meta.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            ..Self::default()
        };
        let unplugged = unplugged(spec);
        let networks = at(spec, &["networks"]).as_array();
        for network in networks.into_iter().flatten().filter_map(Value::as_object) {
            match facts.network(network) {
                Ok(Some(network)) if !unplugged.contains(network.name.as_str()) => {
                    facts.networks.push(network);
                }
                Ok(_) => {}
                Err(words) => facts.problems.push(words),
            }
        }
        for meta in annotated {
            if let Some(wishes) = at(meta, &["annotations", annotation::KUBEVIRT_ADDRESSES]).as_str() {
                facts.wish(wishes);
            }
        }
        facts
    }

    /// A network with an interface in the pod, if it has one.
    fn network(&self, network: &Map<String, Value>) -> Result<Option<MachineNetwork>, String> {
        let name = network.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if network.get("pod").is_some_and(Value::is_object) {
            return Ok(Some(MachineNetwork { name, place: NetworkSource::Cluster }));
        }
        let Some(multus) = network.get("multus").filter(|multus| multus.is_object()) else { return Ok(None) };
        let reference = text(multus, "networkName");
        let (namespace, definition) = match reference.split_once('/') {
            Some((namespace, definition)) => (namespace, definition),
            None => (self.namespace.as_str(), reference.as_str()),
        };
        if namespace.is_empty() || definition.is_empty() || definition.contains('/') {
            return Err(format!(
                "network \"{name}\": multus.networkName is \"{reference}\"; accepted is [namespace/]name of a \
                 NetworkAttachmentDefinition"
            ));
        }
        let default = multus.get("default").and_then(Value::as_bool).unwrap_or(false);
        let place = NetworkSource::Definition {
            namespace: namespace.to_owned(),
            name: definition.to_owned(),
            default,
        };
        Ok(Some(MachineNetwork { name, place }))
    }

    /// `{"<network>": ["<address>", ...]}`
    fn wish(&mut self, annotation: &str) {
        const ACCEPTED: &str = "accepted is {\"<network>\": [\"<address>\", ...]}";
        let shown: String = annotation.chars().take(96).collect();
        let Ok(Value::Object(wishes)) = serde_json::from_str(annotation) else {
            self.problems.push(format!(
                "annotation {}: \"{shown}\" is no JSON object; {ACCEPTED}",
                annotation::KUBEVIRT_ADDRESSES
            ));
            return;
        };
        for (network, addresses) in wishes {
            let read = |list: &Vec<Value>| {
                list.iter().map(|it| Some(address_of(it.as_str()?)?.0)).collect::<Option<Vec<Address>>>()
            };
            match addresses.as_array().and_then(read) {
                Some(addresses) if addresses.is_empty() => {}
                Some(addresses) => _ = self.wishes.insert(network, addresses),
                None => self.problems.push(format!(
                    "annotation {}: \"{network}\" has \"{}\"; {ACCEPTED}",
                    annotation::KUBEVIRT_ADDRESSES,
                    addresses.to_string().chars().take(96).collect::<String>(),
                )),
            }
        }
    }
}

/// The networks whose interface is being unplugged, or was.
fn unplugged(spec: &Value) -> BTreeSet<&str> {
    let interfaces = at(spec, &["domain", "devices", "interfaces"]).as_array();
    let absent = interfaces.into_iter().flatten().filter(|it| text(it, "state") == "absent");
    absent.filter_map(|interface| interface.get("name")?.as_str()).collect()
}

fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(value, |value, key| value.get(key).unwrap_or(&Value::Null))
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
