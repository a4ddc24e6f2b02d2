//! The facts about an existing claim that its creators need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_api::claims::{IPAMClaim, KUBEVIRT_FINALIZER, label};

use super::Step;
use crate::claim::ClaimFacts;

/// An existing claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its owners.
    pub owners: Vec<Owner>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// The virtual machine of its label.
    pub machine: Option<String>,
    /// The StatefulSet of its label.
    pub stateful_set: Option<String>,
    /// The interface that it is for.
    pub interface: String,
    /// Whether a pod has it now.
    pub in_use: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

impl From<&OwnerReference> for Owner {
    fn from(owner: &OwnerReference) -> Self {
        Self { kind: owner.kind.clone(), name: owner.name.clone(), uid: owner.uid.clone() }
    }
}

impl Existing {
    /// The facts about a claim of which others are known.
    pub fn of(claim: &IPAMClaim, facts: &ClaimFacts) -> Self {
        let meta = &claim.metadata;
        let labels = meta.labels.as_ref();
        Self {
            owners: meta.owner_references.iter().flatten().map(Owner::from).collect(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            stateful_set: labels.and_then(|labels| labels.get(label::STATEFUL_SET)).cloned(),
            in_use: facts.slots.both().next().is_some(),
            name: facts.name.clone(),
            uid: facts.uid.clone(),
            machine: facts.vm.clone(),
            interface: facts.interface.clone(),
            deleting: facts.deleting,
        }
    }

    /// Whether it belongs to the object with this UID.
    pub fn is_of(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == uid)
    }

    /// Whether KubeVirt's ipam-extensions made it.
    pub fn is_of_extensions(&self) -> bool {
        self.is_finalized() && self.interface.is_empty() && self.machine_owner().is_some()
    }

    /// The machine, or the instance of one, that it belongs to.
    pub(super) fn machine_owner(&self) -> Option<&Owner> {
        self.owners
            .iter()
            .find(|owner| owner.kind == super::facts::VIRTUAL_MACHINE || owner.kind == super::facts::INSTANCE)
    }

    pub(super) fn is_finalized(&self) -> bool {
        self.finalizers.iter().any(|name| name == KUBEVIRT_FINALIZER)
    }

    pub(super) fn remove_finalizer(&self) -> Step {
        let stay = self.finalizers.iter().filter(|name| *name != KUBEVIRT_FINALIZER).cloned().collect();
        Step::RemoveFinalizer { claim: self.name.clone(), uid: self.uid.clone(), stay }
    }

    pub(super) fn delete(&self) -> Step {
        Step::Delete { claim: self.name.clone(), uid: self.uid.clone() }
    }

    /// The step for a claim that belongs to another owner.
    pub(super) fn wait(&self, wanted_by: &str) -> Step {
        let owners: Vec<_> = self
            .owners
            .iter()
            .map(|owner| format!("{} \"{}\" (UID {})", owner.kind, owner.name, owner.uid))
            .collect();
        let whose = if owners.is_empty() { "nobody".to_owned() } else { owners.join(" and ") };
        let words = format!(
            "an IPAMClaim \"{}\" is there already and belongs to {whose}, not to {wanted_by}; waiting until it is gone",
            self.name
        );
        Step::Wait { claim: self.name.clone(), words }
    }
}
