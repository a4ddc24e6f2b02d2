//! The facts about a pod: which claims it refers to, and the signals that it should be the active one.
//!
//! All of this is metadata, so that a watch of metadata is enough, except for two facts that the caller adds:
//! the node, and whether the pod has finished.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::claims::annotation;
use tenure_api::cloud::annotation as alias;
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Family, Notation};

use crate::selection::{self, Selection, SelectionError};
use crate::stamp::Stamp;

/// The namespace in which Multus looks for the definition of a default network that is named without one.
const MULTUS_NAMESPACE: &str = "kube-system";

/// The facts about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts, each of which is so or not whatever the others are"
)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a pod of the same name with another UID is another pod.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// Its node. Not metadata: the caller fills it in if known.
    pub node: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it has succeeded or failed. Not metadata: the caller fills it in if known.
    pub finished: bool,
    /// Whether it uses its node's own network. Not metadata: the caller fills it in if known.
    pub host_network: bool,
    /// Facts about it as a KubeVirt launcher pod.
    pub launcher: Option<Launcher>,
    /// The StatefulSet that it belongs to, if that opts in.
    pub stateful_set: Option<String>,
    /// When another mover said that it should be active.
    pub mover_stamp: Option<Stamp>,
    /// It names an alias address and no mover says when it should be active: that it is there is the signal.
    pub arrives: bool,
    /// Its additional networks; also empty if they cannot be read.
    pub selections: Vec<Selection>,
    /// The network that replaces the cluster's default network, if it names one.
    pub default_network: Option<DefaultNetwork>,
    /// The claim for its interface on the cluster's default network, by our annotation.
    pub default_claim: Option<String>,
    /// The alias address that it is to have, if it names one.
    pub alias: Option<Address>,
    /// The instance that this address is attached to, as it says.
    pub original_instance: Option<String>,
    /// Whether it is marked as moving out: its alias address stays when it ends.
    pub moves_out: bool,
    /// What could not be read, as text, by annotation.
    pub problems: BTreeMap<&'static str, String>,
}

/// A pod in which KubeVirt runs a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launcher {
    /// The VirtualMachineInstance that owns the pod.
    pub vmi: String,
    /// When KubeVirt found the machine ready to run in this pod, after a migration. Only this is the signal:
    /// KubeVirt's label with the node comes with the end of the migration or after it.
    pub ready_at: Option<Stamp>,
}

/// A network that replaces the cluster's default network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultNetwork {
    /// The namespace of its attachment definition.
    pub namespace: String,
    /// The selection in the annotation.
    pub selection: Selection,
}

impl PodFacts {
    /// The facts about a pod from its metadata. Never fails: unreadable parts are recorded as problems.
    pub fn of(meta: &ObjectMeta) -> Self {
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        let mut facts = Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map(|time| Timestamp::from_jiff(time.0))
                .unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            ..Self::default()
        };
        facts.selections = facts.networks(annotations, annotation::NETWORKS);
        facts.default_network = facts.default_network(annotations);
        facts.default_claim = facts.claim(annotations);
        facts.mover_stamp = facts.stamp(annotations, annotation::ACTIVE);
        facts.aliases(annotations);
        let owner = |kind: &str, group: &str| {
            let owners = meta.owner_references.iter().flatten();
            let mut ours = owners.filter(|owner| {
                owner.kind == kind && owner.api_version.split_once('/').is_some_and(|(it, _)| it == group)
            });
            ours.next().map(|owner| owner.name.clone())
        };
        if let Some(vmi) = owner("VirtualMachineInstance", "kubevirt.io") {
            let ready_at = facts.stamp(annotations, annotation::KUBEVIRT_READY);
            facts.launcher = Some(Launcher { vmi, ready_at });
        }
        if annotations.get(annotation::KEEP_ADDRESSES).is_some_and(|value| value == "true") {
            facts.stateful_set = owner("StatefulSet", "apps");
        }
        facts
    }

    fn networks(&mut self, annotations: &BTreeMap<String, String>, name: &'static str) -> Vec<Selection> {
        let Some(text) = annotations.get(name) else { return Vec::new() };
        selection::parse(name, text).unwrap_or_else(|error| {
            self.problems.insert(name, error.to_string());
            Vec::new()
        })
    }

    fn default_network(&mut self, annotations: &BTreeMap<String, String>) -> Option<DefaultNetwork> {
        let mut all = self.networks(annotations, annotation::DEFAULT_NETWORK);
        if all.len() > 1 {
            let error = SelectionError {
                annotation: annotation::DEFAULT_NETWORK,
                problem: format!("it has {} networks", all.len()),
                accepted: "one network",
            };
            self.problems.insert(annotation::DEFAULT_NETWORK, error.to_string());
            return None;
        }
        let selection = all.pop()?;
        let namespace = selection.namespace.clone().unwrap_or_else(|| MULTUS_NAMESPACE.to_owned());
        Some(DefaultNetwork { namespace, selection })
    }

    fn claim(&mut self, annotations: &BTreeMap<String, String>) -> Option<String> {
        let claim = annotations.get(annotation::CLAIM)?.trim();
        if tenure_api::names::is_object_name(claim) {
            return Some(claim.to_owned());
        }
        let error = SelectionError {
            annotation: annotation::CLAIM,
            problem: format!("\"{}\" is no name of a claim", claim.chars().take(96).collect::<String>()),
            accepted: "the name of an IPAMClaim in the pod's own namespace",
        };
        self.problems.insert(annotation::CLAIM, error.to_string());
        None
    }

    /// What is said about alias addresses. A pod that names one is to have it as soon as it is there: its creation is the signal.
    fn aliases(&mut self, annotations: &BTreeMap<String, String>) {
        // Any value marks, as in the prototype; an explicit refusal does not.
        self.moves_out = annotations.get(alias::MOVE_OUT).is_some_and(|value| value.trim() != "false");
        self.original_instance = annotations
            .get(alias::ORIGINAL_INSTANCE)
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty());
        let Some(text) = annotations.get(alias::ADDRESS) else { return };
        match Notation::Strict.address(text.trim()) {
            Ok(address) if address.family() == Family::V4 => {
                self.alias = Some(address);
                if self.mover_stamp.is_none() && !annotations.contains_key(annotation::ACTIVE) {
                    let created = i128::from(self.created.as_millis()) * 1_000_000;
                    self.mover_stamp = Some(Stamp::new(created));
                    self.arrives = true;
                }
            }
            _ => {
                let problem = SelectionError {
                    annotation: alias::ADDRESS,
                    problem: format!("\"{}\" is no address", text.chars().take(64).collect::<String>()),
                    accepted: "an IPv4 address of an IPPool such as 10.111.0.5",
                };
                self.problems.insert(alias::ADDRESS, problem.to_string());
            }
        }
    }

    /// Whether it names an alias address, or is marked to leave one.
    pub fn moves_an_alias(&self) -> bool {
        self.alias.is_some() || self.moves_out || self.problems.contains_key(alias::ADDRESS)
    }

    fn stamp(&mut self, annotations: &BTreeMap<String, String>, name: &'static str) -> Option<Stamp> {
        match annotations.get(name)?.parse() {
            Ok(stamp) => Some(stamp),
            Err(error) => {
                self.problems.insert(name, format!("annotation {name}: {error}"));
                None
            }
        }
    }

    /// Whether it refers to a claim on any network, or has an owner for which claims are created.
    pub fn may_refer(&self) -> bool {
        self.launcher.is_some()
            || self.stateful_set.is_some()
            || self.names_default_claim()
            || self.selections.iter().any(|selection| selection.claim.is_some())
    }

    /// Whether it names a claim for its interface on the default network.
    pub fn names_default_claim(&self) -> bool {
        let of_multus = self.default_network.as_ref().and_then(|network| network.selection.claim.as_ref());
        self.default_claim.is_some() || of_multus.is_some()
    }

    /// Whether it no longer uses addresses, or soon will not.
    pub fn is_leaving(&self) -> bool {
        self.deleting || self.finished
    }
}

#[cfg(test)]
mod tests;
