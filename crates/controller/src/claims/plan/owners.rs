//! Claims for machines and StatefulSets: turns what [`tenure_claims::owners`] decides into writes.
//!
//! Planning is level-triggered: it creates a claim that is missing and deletes one that nobody needs. It remembers
//! only which events were published and what each decision depended on. Where KubeVirt's ipam-extensions runs, that
//! creates claims; this part adds only those that it does not create: for machines' interfaces on the cluster's
//! default network.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_claims::CLUSTER_NETWORK;
use tenure_claims::owners::{Beside, Existing, Machine, Step, extensions_at_work, machine, stateful_set};

use super::super::events::{of_machine, of_stateful_set};
use super::super::owners::{CLAIM, INSTANCE, MACHINE, STATEFUL_SET, WEBHOOK};
use super::super::write::{Owner, OwnerWrite};
use super::Inputs;
use crate::events::{Note, Standing};
use crate::world::World;
use crate::write::{At, Write};

mod units;

use units::{Asked, OwnerIndex, Unit};

/// Plans claims for owners.
#[derive(Debug, Default)]
pub(in crate::claims) struct OwnerPlanner {
    standing: Standing,
    index: OwnerIndex,
    /// Owners for which something was planned.
    pending: BTreeSet<Unit>,
    /// How many owners the last plan has looked at.
    #[cfg(test)]
    pub(in crate::claims) looked_at: usize,
}

impl OwnerPlanner {
    /// The next steps; none until networks and claims are known.
    pub(in crate::claims) fn plan(&mut self, inputs: Inputs<'_>) -> Vec<Write> {
        let Inputs { world, look, .. } = inputs;
        if world.lacks(CLAIM) {
            return vec![Write::from(OwnerWrite::Define)];
        }
        if !world.knows_networks() || !world.claims().all.is_complete() {
            return Vec::new();
        }
        let mut units = self.index.look(world, look);
        units.append(&mut self.pending);
        let of_extensions = self.extensions(world);
        if self.index.note_extensions(of_extensions) {
            units.extend(self.index.machines(world));
        }
        if look.all {
            self.standing.look_again();
        }
        #[cfg(test)]
        {
            self.looked_at = units.len();
        }
        let mut writes = Vec::new();
        for unit in units {
            if !look.all {
                self.standing.look_again_at(&unit.key());
            }
            let planned = match &unit {
                Unit::Machine(key) => self.for_machine(world, &unit, key),
                Unit::StatefulSet(key) => self.for_stateful_set(world, &unit, key),
            };
            if !planned.is_empty() {
                self.pending.insert(unit);
            }
            writes.extend(planned);
        }
        writes
    }

    /// What people should know and no write reports.
    pub(in crate::claims) fn take_notes(&mut self) -> Vec<Note> {
        self.standing.take()
    }

    /// Whether KubeVirt's ipam-extensions runs.
    fn extensions(&self, world: &World) -> bool {
        let webhooks = &world.owners().webhooks;
        let webhook = webhooks.is_complete().then(|| webhooks.iter().any(|it| it.facts.is_of_extensions));
        let claims = self.index.of_extensions().filter_map(|key| world.claims().all.get(key));
        extensions_at_work(webhook, claims.map(|claim| &claim.existing))
    }

    fn for_machine(&mut self, world: &World, unit: &Unit, key: &Arc<str>) -> Vec<Write> {
        let owners = world.owners();
        let known = |complete: bool, kind: &'static str| complete || world.lacks(kind);
        if !known(owners.machines.is_complete(), MACHINE)
            || !known(owners.instances.is_complete(), INSTANCE)
            || !known(owners.webhooks.is_complete(), WEBHOOK)
        {
            return Vec::new();
        }
        // What it asks for is not known, so it keeps what it has.
        if owners.machines.is_unreadable(key) || owners.instances.is_unreadable(key) {
            return Vec::new();
        }
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let of = Machine {
            namespace,
            name,
            machine: owners.machines.get(key).map(|seen| &seen.facts),
            instance: owners.instances.get(key).map(|seen| &seen.facts),
        };
        let extensions = self.index.has_extensions();
        let mut labelled: Vec<&Existing> = self.index.labelled(world, unit).collect();
        labelled.retain(|claim| !extensions || !claim.is_of_extensions());
        let beside = if extensions {
            Beside::Extensions { primary: self.index.has_primary(namespace) }
        } else {
            Beside::Nobody
        };
        let asked = RefCell::new(Asked::default());
        let named = |claim: &str| asked.borrow_mut().claim(world, namespace, claim);
        let network = |namespace: &str, name: &str| {
            asked.borrow_mut().definition(namespace, name);
            network_of(world, namespace, name)
        };
        let steps = machine(of, &labelled, &named, &network, beside);
        self.index.depends(unit, asked.into_inner());
        let owner = || Owner::Machine {
            name: name.to_owned(),
            machine: of.machine.cloned().map(Box::new),
            instance: of.instance.cloned().map(Box::new),
        };
        let about = || of_machine(of);
        let steps = steps.into_iter();
        steps.filter_map(|step| self.carry_out(world, (unit, namespace), step, &owner, &about)).collect()
    }

    fn for_stateful_set(&mut self, world: &World, unit: &Unit, key: &Arc<str>) -> Vec<Write> {
        let sets = &world.owners().stateful_sets;
        if (!sets.is_complete() && !world.lacks(STATEFUL_SET)) || sets.is_unreadable(key) {
            return Vec::new();
        }
        let Some(set) = sets.get(key).map(|seen| &seen.facts) else { return Vec::new() };
        let labelled: Vec<&Existing> = self.index.labelled(world, unit).collect();
        if !set.keeps_addresses && labelled.is_empty() {
            return Vec::new();
        }
        let asked = RefCell::new(Asked::default());
        let named = |claim: &str| asked.borrow_mut().claim(world, &set.namespace, claim);
        let network = |namespace: &str, name: &str| {
            asked.borrow_mut().definition(namespace, name);
            network_of(world, namespace, name)
        };
        let steps = stateful_set(set, &labelled, &named, &network);
        self.index.depends(unit, asked.into_inner());
        let owner = || Owner::StatefulSet(Box::new(set.clone()));
        let about = || of_stateful_set(set);
        let steps = steps.into_iter();
        steps.filter_map(|step| self.carry_out(world, (unit, &set.namespace), step, &owner, &about)).collect()
    }

    fn carry_out(
        &mut self,
        world: &World,
        (unit, namespace): (&Unit, &str),
        step: Step,
        owner: &dyn Fn() -> Owner,
        about: &dyn Fn() -> k8s_openapi::api::core::v1::ObjectReference,
    ) -> Option<Write> {
        let namespace = namespace.to_owned();
        // Exactly the claim that was decided about, not a later one of that name.
        let found = |name: &str, uid: &str| {
            world
                .claims()
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
                self.standing.say(&unit.key(), Note::warning(about(), "ClaimNameTaken", &words));
                return None;
            }
            Step::Problem { words } => {
                self.standing.say(&unit.key(), Note::warning(about(), "ClaimNotMade", &words));
                return None;
            }
        };
        Some(write.into())
    }
}

/// The name of a network if it opts in; an error if that cannot be decided, so that no machine silently starts
/// without its claim.
fn network_of(world: &World, namespace: &str, attachment: &str) -> Result<Option<String>, String> {
    if (namespace, attachment) == CLUSTER_NETWORK {
        return Ok(world.claims().cluster_network.clone());
    }
    match world.ledgers().attachments.get(&format!("{namespace}/{attachment}")) {
        Some(known) => known.opted_in.clone().map_err(|error| error.to_string()),
        None => Err(format!("there is no NetworkAttachmentDefinition {namespace}/{attachment}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::index::Index;
    use super::*;

    fn plan(planner: &mut OwnerPlanner, world: &World) -> Vec<Write> {
        let (mut index, now) = (Index::default(), tenure_handles::Timestamp::default());
        let look = index.look(world, true);
        planner.plan(Inputs { world, index: &index, look: &look, now })
    }

    #[test]
    fn the_definition_of_claims_is_brought_while_the_server_does_not_know_the_kind() {
        let mut world = World::default();
        let mut planner = OwnerPlanner::default();
        assert!(plan(&mut planner, &world).is_empty(), "nothing is known yet");
        world.note_lack(CLAIM, true);
        assert_eq!(plan(&mut planner, &world)[0].of(), Some(&OwnerWrite::Define));
        world.note_lack(CLAIM, false);
        assert!(plan(&mut planner, &world).is_empty());
    }
}
