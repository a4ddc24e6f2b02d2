//! The claims of one virtual machine.
//!
//! | the owner of a claim | its finalizer goes when |
//! |---|---|
//! | a VirtualMachine that is there | it is being deleted, and its instance is gone |
//! | a VirtualMachine that is gone | its instance is gone, or is being deleted and has no pods |
//! | an instance | it is gone, or is being deleted and has no pods |
//!
//! A UID identifies an owner. A machine that was deleted and recreated under its name is another one: the claims of the first
//! are released although there is a machine of their name, and the second waits for that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_api::claims::{
    DEFAULT_INTERFACE, IPAMClaim, IPAMClaimSpec, KUBEVIRT_FINALIZER, annotation, label,
};

use super::facts::{API_VERSION, INSTANCE, VIRTUAL_MACHINE};
use super::{Beside, Existing, MachineFacts, MachineNetwork, NetworkOf, NetworkSource, Step};
use crate::names;
use crate::reference::CLUSTER_NETWORK;

/// A machine and its instance, of one name. Both lists must be complete: what is missing is gone.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'m> {
    /// The namespace.
    pub namespace: &'m str,
    /// The name of both.
    pub name: &'m str,
    /// The VirtualMachine.
    pub machine: Option<&'m MachineFacts>,
    /// The VirtualMachineInstance.
    pub instance: Option<&'m MachineFacts>,
}

/// The steps for the claims of a machine. `labelled` are those whose label names it, `named` finds one by its
/// name; both in its namespace. `network_of` answers for an attachment definition, or for
/// [`CLUSTER_NETWORK`].
///
/// Must be called for every name of a machine, an instance, or a claim's label: claims are released when
/// neither of the two exists. If KubeVirt's ipam-extensions is active, `labelled` excludes its claims, and
/// only those are created that it does not create.
pub fn machine<'c>(
    of: Machine<'_>,
    labelled: &[&Existing],
    named: &dyn Fn(&str) -> Option<&'c Existing>,
    network_of: NetworkOf<'_>,
    beside: Beside,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for claim in labelled.iter().filter(|claim| claim.is_finalized() && of.lets_go(claim)) {
        steps.push(claim.remove_finalizer());
    }
    let Some(owner) = of.owner() else { return steps };
    for problem in of.sides().flat_map(|side| &side.problems) {
        steps.push(of.problem(problem));
    }
    let networks = of.networks();
    for network in networks.iter().filter(|network| beside.leaves(&network.place)) {
        if let Some(step) = of.want(network, &owner, named, network_of) {
            steps.push(step);
        }
    }
    if of.sides().all(|side| side.problems.is_empty()) {
        steps.extend(of.unplug(&networks, &owner, labelled));
    }
    steps
}

impl<'m> Machine<'m> {
    /// The instance, unless it belongs to another machine that had the same name.
    fn own_instance(&self) -> Option<&'m MachineFacts> {
        let machine = self.machine.map(|machine| machine.uid.as_str());
        let of = |instance: &MachineFacts| instance.owner.as_ref().map(|owner| owner.uid.clone());
        self.instance.filter(|instance| match (machine, of(instance)) {
            (Some(machine), Some(owner)) => machine == owner,
            _ => true,
        })
    }

    /// The objects that describe the machine.
    fn sides(&self) -> impl Iterator<Item = &'m MachineFacts> {
        self.machine.into_iter().chain(self.own_instance())
    }

    /// The owner of new claims; `None` if it is being deleted. An instance whose machine was not seen yet
    /// names its owner.
    fn owner(&self) -> Option<OwnerReference> {
        let reference = |kind: &str, name: &str, uid: &str| OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        match (self.machine, self.instance) {
            (Some(machine), _) if machine.deleting => None,
            (Some(machine), _) => Some(reference(VIRTUAL_MACHINE, &machine.name, &machine.uid)),
            (None, Some(instance)) if instance.deleting => None,
            (None, Some(instance)) => Some(match &instance.owner {
                Some(owner) => reference(VIRTUAL_MACHINE, &owner.name, &owner.uid),
                None => reference(INSTANCE, &instance.name, &instance.uid),
            }),
            (None, None) => None,
        }
    }

    /// The networks that machine or instance have plugged in: a network stays until the instance has released
    /// it.
    fn networks(&self) -> Vec<&'m MachineNetwork> {
        let mut all: Vec<&MachineNetwork> = Vec::new();
        for network in self.sides().flat_map(|side| &side.networks) {
            if !all.iter().any(|known| known.name == network.name) {
                all.push(network);
            }
        }
        all
    }

    fn want<'c>(
        &self,
        network: &MachineNetwork,
        owner: &OwnerReference,
        named: &dyn Fn(&str) -> Option<&'c Existing>,
        network_of: NetworkOf<'_>,
    ) -> Option<Step> {
        let answer = match &network.place {
            NetworkSource::Cluster => network_of(CLUSTER_NETWORK.0, CLUSTER_NETWORK.1),
            NetworkSource::Definition { namespace, name, .. } => network_of(namespace, name),
        };
        let name = names::machine_claim(self.name, &network.name);
        if let Some(existing) = named(&name) {
            if existing.is_of(&owner.uid) {
                return None;
            }
            // Its owner was deleted and left it behind.
            if existing.owners.is_empty()
                && existing.machine.as_deref() == Some(self.name)
                && existing.is_finalized()
            {
                let owners = vec![owner.clone()];
                return Some(Step::Own { claim: name, uid: existing.uid.clone(), owners });
            }
            // If the network does not opt in, nobody waits for the name.
            return (!matches!(answer, Ok(None)))
                .then(|| existing.wait(&format!("{} \"{}\" (UID {})", owner.kind, owner.name, owner.uid)));
        }
        match answer {
            Ok(None) => None,
            Err(words) => Some(self.problem(&format!("network \"{}\": {words}", network.name))),
            Ok(Some(config_name)) => Some(self.create(&name, network, config_name, owner)),
        }
    }

    fn create(
        &self,
        name: &str,
        network: &MachineNetwork,
        config_name: String,
        owner: &OwnerReference,
    ) -> Step {
        if self.name.len() > LONGEST_LABEL {
            return self.problem(&format!(
                "its name has {} characters, and a claim's label {} takes {LONGEST_LABEL}",
                self.name.len(),
                label::VIRTUAL_MACHINE
            ));
        }
        // If a request cannot be read, it must not be replaced by any free address.
        if self.sides().any(|side| !side.problems.is_empty()) {
            return self.problem(&format!("claim \"{name}\" is not made before that is put right"));
        }
        let interface = match network.place {
            NetworkSource::Cluster | NetworkSource::Definition { default: true, .. } => {
                DEFAULT_INTERFACE.to_owned()
            }
            NetworkSource::Definition { .. } => names::machine_interface(&network.name),
        };
        let mut claim = IPAMClaim::new(name, IPAMClaimSpec { network: config_name, interface });
        let meta = &mut claim.metadata;
        meta.namespace = Some(self.namespace.to_owned());
        meta.labels = Some([(label::VIRTUAL_MACHINE.to_owned(), self.name.to_owned())].into());
        meta.owner_references = Some(vec![owner.clone()]);
        meta.finalizers = Some(vec![KUBEVIRT_FINALIZER.to_owned()]);
        if let Some(wish) = self.sides().filter_map(|side| side.wishes.get(&network.name)).last() {
            let wish: Vec<_> = wish.iter().map(ToString::to_string).collect();
            meta.annotations = Some([(annotation::IPS.to_owned(), wish.join(","))].into());
        }
        Step::Create(Box::new(claim))
    }

    /// Claims of interfaces that no longer exist. Their finalizer is removed once they are being deleted: the
    /// record knows whether a pod still uses the address.
    fn unplug(
        &self,
        networks: &[&MachineNetwork],
        owner: &OwnerReference,
        labelled: &[&Existing],
    ) -> Vec<Step> {
        let wanted: Vec<String> =
            networks.iter().map(|network| names::machine_claim(self.name, &network.name)).collect();
        let gone = labelled.iter().filter(|claim| claim.is_of(&owner.uid) && !wanted.contains(&claim.name));
        gone.filter_map(|claim| match (claim.deleting, claim.is_finalized()) {
            (false, _) => Some(claim.delete()),
            (true, true) => Some(claim.remove_finalizer()),
            (true, false) => None,
        })
        .collect()
    }

    /// Whether nothing needs a claim any more.
    fn lets_go(&self, claim: &Existing) -> bool {
        let Some(owner) = claim.machine_owner() else {
            // Its owner was deleted without its dependents. It stays, but can be deleted.
            return claim.owners.is_empty()
                && claim.deleting
                && self.machine.is_none()
                && self.instance.is_none();
        };
        let leaving = |instance: Option<&MachineFacts>| {
            instance.is_none_or(|instance| instance.deleting && !instance.has_pods)
        };
        if owner.kind == INSTANCE {
            return leaving(self.instance.filter(|instance| instance.uid == owner.uid));
        }
        let of_owner =
            |instance: &&MachineFacts| instance.owner.as_ref().is_none_or(|it| it.uid == owner.uid);
        match self.machine.filter(|machine| machine.uid == owner.uid) {
            Some(machine) => machine.deleting && !self.instance.is_some_and(|it| of_owner(&it)),
            // Its instance outlives it for a while when it is deleted in the background. One without an owner
            // belongs to the existing machine, if any.
            None if self.machine.is_some() => {
                leaving(self.instance.filter(of_owner).filter(|it| it.owner.is_some()))
            }
            None => leaving(self.instance.filter(of_owner)),
        }
    }

    fn problem(&self, words: &str) -> Step {
        Step::Problem { words: format!("virtual machine {}/{}: {words}", self.namespace, self.name) }
    }
}

/// The longest label value that Kubernetes accepts.
pub(super) const LONGEST_LABEL: usize = 63;

#[cfg(test)]
mod tests;
