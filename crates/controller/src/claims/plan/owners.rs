//! Claims for machines and StatefulSets: what [`tenure_claims::owners`] decides, as writes.
//!
//! Level-triggered, and nothing is remembered but what people were told: a claim that is missing is made, one that nobody needs
//! is let go, whenever that is found. Where KubeVirt's ipam-extensions is at work, its claims are its own, and only those are made
//! that it does not make: for machines' interfaces on the cluster's default network.

use std::collections::{BTreeMap, BTreeSet};

use tenure_claims::CLUSTER_NETWORK;
use tenure_claims::owners::{Beside, Existing, Machine, Step, extensions_at_work, machine, stateful_set};

use super::super::events::{of_machine, of_stateful_set};
use super::super::owners::{CLAIM, INSTANCE, MACHINE, MachineSeen, STATEFUL_SET, WEBHOOK};
use super::super::write::{Owner, OwnerWrite};
use crate::events::{Note, Standing};
use crate::world::World;
use crate::write::{At, Write};

/// Plans claims for others. It remembers only what it has told people.
#[derive(Debug, Default)]
pub(in crate::claims) struct OwnerPlanner {
    standing: Standing,
}

/// Claims by namespace and by the name of whom they were made for.
type Labelled<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Existing>>;

impl OwnerPlanner {
    /// The next steps; nothing while it is not known which networks opt in and which claims there are.
    pub(in crate::claims) fn plan(&mut self, world: &World) -> Vec<Write> {
        if world.lacks(CLAIM) {
            return vec![Write::from(OwnerWrite::Define)];
        }
        if !world.knows_networks() || !world.claims.all.is_complete() {
            return Vec::new();
        }
        self.standing.look_again();
        let (mut of_machines, mut of_sets) = (Labelled::new(), Labelled::new());
        for claim in world.claims.all.iter() {
            let (namespace, existing) = (claim.facts.namespace.as_str(), &claim.existing);
            if let Some(set) = &existing.stateful_set {
                of_sets.entry((namespace, set)).or_default().push(existing);
            }
            if let Some(machine) = &existing.machine {
                of_machines.entry((namespace, machine)).or_default().push(existing);
            }
        }
        let mut writes = self.for_machines(world, &of_machines);
        writes.extend(self.for_stateful_sets(world, &of_sets));
        writes
    }

    /// What people should know and no write tells.
    pub(in crate::claims) fn take_notes(&mut self) -> Vec<Note> {
        self.standing.take()
    }

    fn for_machines(&mut self, world: &World, labelled: &Labelled<'_>) -> Vec<Write> {
        let owners = &world.owners;
        let known = |complete: bool, kind: &'static str| complete || world.lacks(kind);
        if !known(owners.machines.is_complete(), MACHINE)
            || !known(owners.instances.is_complete(), INSTANCE)
            || !known(owners.webhooks.is_complete(), WEBHOOK)
        {
            return Vec::new();
        }
        let webhook =
            owners.webhooks.is_complete().then(|| owners.webhooks.iter().any(|it| it.facts.is_of_extensions));
        let extensions = extensions_at_work(webhook, labelled.values().flatten().copied());
        let all = owners.machines.iter().chain(owners.instances.iter()).map(full_name);
        let all: BTreeSet<(&str, &str)> = all.chain(labelled.keys().copied()).collect();
        let mut writes = Vec::new();
        for (namespace, name) in all {
            let key = format!("{namespace}/{name}");
            // What it asks for is not known; what it has stays.
            if owners.machines.is_unreadable(&key) || owners.instances.is_unreadable(&key) {
                continue;
            }
            let of = Machine {
                namespace,
                name,
                machine: owners.machines.get(&key).map(|seen| &seen.facts),
                instance: owners.instances.get(&key).map(|seen| &seen.facts),
            };
            let mut labelled = labelled.get(&(namespace, name)).cloned().unwrap_or_default();
            labelled.retain(|claim| !extensions || !claim.is_of_extensions());
            let beside = if extensions {
                Beside::Extensions { primary: has_primary(world, namespace) }
            } else {
                Beside::Nobody
            };
            let named = |claim: &str| world.claims.get(namespace, claim).map(|claim| &claim.existing);
            let network = |namespace: &str, name: &str| network_of(world, namespace, name);
            let steps = machine(of, &labelled, &named, &network, beside);
            let owner = || Owner::Machine {
                name: name.to_owned(),
                machine: of.machine.cloned().map(Box::new),
                instance: of.instance.cloned().map(Box::new),
            };
            let about = || of_machine(of);
            writes.extend(
                steps.into_iter().filter_map(|step| self.carry_out(world, namespace, step, &owner, &about)),
            );
        }
        writes
    }

    fn for_stateful_sets(&mut self, world: &World, labelled: &Labelled<'_>) -> Vec<Write> {
        let sets = &world.owners.stateful_sets;
        if !sets.is_complete() && !world.lacks(STATEFUL_SET) {
            return Vec::new();
        }
        let mut writes = Vec::new();
        for seen in sets.iter() {
            let set = &seen.facts;
            if sets.is_unreadable(&format!("{}/{}", set.namespace, set.name)) {
                continue;
            }
            let labelled = labelled.get(&(set.namespace.as_str(), set.name.as_str()));
            if !set.keeps_addresses && labelled.is_none() {
                continue;
            }
            let labelled = labelled.map(Vec::as_slice).unwrap_or_default();
            let named = |claim: &str| world.claims.get(&set.namespace, claim).map(|claim| &claim.existing);
            let steps =
                stateful_set(set, labelled, &named, &|namespace, name| network_of(world, namespace, name));
            let owner = || Owner::StatefulSet(Box::new(set.clone()));
            let about = || of_stateful_set(set);
            let steps = steps.into_iter();
            writes
                .extend(steps.filter_map(|step| self.carry_out(world, &set.namespace, step, &owner, &about)));
        }
        writes
    }

    fn carry_out(
        &mut self,
        world: &World,
        namespace: &str,
        step: Step,
        owner: &dyn Fn() -> Owner,
        about: &dyn Fn() -> k8s_openapi::api::core::v1::ObjectReference,
    ) -> Option<Write> {
        let namespace = namespace.to_owned();
        // The claim that was decided about, and no later one of that name.
        let found = |name: &str, uid: &str| {
            world
                .claims
                .get(&namespace, name)
                .filter(|claim| claim.facts.uid == uid)
                .map(|claim| At::of(&claim.object))
        };
        let write = match step {
            Step::Create(claim) => {
                let name = format!("{namespace}/{}", claim.metadata.name.as_deref().unwrap_or_default());
                OwnerWrite::Create { name, claim }
            }
            Step::RemoveFinalizer { claim, uid, stay } => {
                let claim = found(&claim, &uid)?;
                OwnerWrite::Finalizers { namespace, claim, stay, owner: owner() }
            }
            Step::Own { claim, uid, owners } => {
                let claim = found(&claim, &uid)?;
                OwnerWrite::Owners { namespace, claim, owners, owner: owner() }
            }
            Step::Delete { claim, uid } => {
                let claim = found(&claim, &uid)?;
                OwnerWrite::Delete { namespace, claim, owner: owner() }
            }
            Step::Wait { words, .. } => {
                self.standing.say(Note::warning(about(), "ClaimNameTaken", &words));
                return None;
            }
            Step::Problem { words } => {
                self.standing.say(Note::warning(about(), "ClaimNotMade", &words));
                return None;
            }
        };
        Some(write.into())
    }
}

/// Whether an attachment definition of a namespace takes the place of the pods' own network.
fn has_primary(world: &World, namespace: &str) -> bool {
    world.ledgers.attachments.iter().any(|it| it.primary && it.definition.namespace == namespace)
}

/// Namespace and name.
fn full_name(seen: &MachineSeen) -> (&str, &str) {
    (&seen.facts.namespace, &seen.facts.name)
}

/// The name of a network if it opts in; words where nobody can say, so that no machine starts without its claim in silence.
fn network_of(world: &World, namespace: &str, attachment: &str) -> Result<Option<String>, String> {
    if (namespace, attachment) == CLUSTER_NETWORK {
        return Ok(world.cluster_network.clone());
    }
    match world.ledgers.attachments.get(&format!("{namespace}/{attachment}")) {
        Some(known) => known.opted_in.clone().map_err(|error| error.to_string()),
        None => Err(format!("there is no NetworkAttachmentDefinition {namespace}/{attachment}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_claims_is_brought_while_the_server_does_not_know_the_kind() {
        let mut world = World::default();
        let mut planner = OwnerPlanner::default();
        assert!(planner.plan(&world).is_empty(), "nothing is known yet");
        world.note_lack(CLAIM, true);
        assert_eq!(planner.plan(&world)[0].of(), Some(&OwnerWrite::Define));
        world.note_lack(CLAIM, false);
        assert!(planner.plan(&world).is_empty());
    }
}
