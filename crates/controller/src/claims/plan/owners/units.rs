//! Owners of claims, and the claims and definitions that each decision about an owner depended on.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tenure_claims::owners::Existing;

use super::super::super::index::Look;
use super::super::super::sets::{Names, Sets};
use crate::changes::{Changed, Cursor};
use crate::world::World;

/// An owner, by `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Unit {
    /// A machine and its instance, which have the same name.
    Machine(Arc<str>),
    StatefulSet(Arc<str>),
}

impl Unit {
    /// Its key among both.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Machine(key) => format!("machine {key}"),
            Self::StatefulSet(key) => format!("set {key}"),
        }
    }
}

/// What a decision depended on.
#[derive(Debug, Default)]
pub(super) struct Asked {
    claims: BTreeSet<String>,
    definitions: BTreeSet<String>,
}

impl Asked {
    /// The claim of this name, if there is one.
    pub(super) fn claim<'w>(
        &mut self,
        world: &'w World,
        namespace: &str,
        name: &str,
    ) -> Option<&'w Existing> {
        let key = format!("{namespace}/{name}");
        let claim = world.claims().all.get(&key).map(|claim| &claim.existing);
        self.claims.insert(key);
        claim
    }

    /// A definition of this name.
    pub(super) fn definition(&mut self, namespace: &str, name: &str) {
        self.definitions.insert(format!("{namespace}/{name}"));
    }
}

/// Owners by what affects them.
#[derive(Debug, Default)]
pub(super) struct OwnerIndex {
    cursors: [Cursor; 4],
    asked: HashMap<Unit, Asked>,
    by_claim: Sets<Unit>,
    by_definition: Sets<Unit>,
    /// Claims by the owner that their labels name.
    labelled: HashMap<Unit, Names>,
    labels: HashMap<Arc<str>, Vec<Unit>>,
    /// Claims that KubeVirt's ipam-extensions created.
    of_extensions: Names,
    /// Whether it runs.
    extensions: bool,
    /// Attachment definitions that replace the pods' own network, by namespace.
    primary: Sets<Arc<str>>,
}

impl OwnerIndex {
    /// Reads what changed. Returns the affected owners.
    pub(super) fn look(&mut self, world: &World, look: &Look) -> BTreeSet<Unit> {
        let owners = world.owners();
        let [machines, instances, sets, webhooks] = &mut self.cursors;
        let changed = [
            owners.machines.changed(machines),
            owners.instances.changed(instances),
            owners.stateful_sets.changed(sets),
            owners.webhooks.changed(webhooks),
        ];
        let all = look.all || changed.iter().any(Changed::is_all);
        if all {
            *self = Self { cursors: self.cursors, extensions: self.extensions, ..Self::default() };
        }
        let mut units = BTreeSet::new();
        if all {
            world
                .claims()
                .all
                .iter()
                .for_each(|claim| self.note_claim(world, &claim.reference().into(), &mut units));
            let definitions = world.ledgers().attachments.iter().map(|it| &it.definition);
            definitions
                .for_each(|it| self.note_primary(world, &format!("{}/{}", it.namespace, it.name).into()));
            units.extend(self.machines(world));
            let sets = owners.stateful_sets.iter().map(|it| &it.facts);
            units.extend(sets.map(|set| Unit::StatefulSet(format!("{}/{}", set.namespace, set.name).into())));
            return units;
        }
        for key in &look.claims {
            self.note_claim(world, key, &mut units);
            units.extend(self.by_claim.of(key).cloned());
        }
        for key in &look.attachments {
            units.extend(self.by_definition.of(key).cloned());
            let namespace = key.split_once('/').unwrap_or_default().0;
            let before = self.has_primary(namespace);
            self.note_primary(world, key);
            if before != self.has_primary(namespace) {
                let in_namespace = |unit: &Unit| matches!(unit, Unit::Machine(key) if key.split_once('/').unwrap_or_default().0 == namespace);
                units.extend(self.machines(world).filter(in_namespace));
            }
        }
        let [machines, instances, sets, _] = changed.map(|changed| match changed {
            Changed::All => Names::new(),
            Changed::Keys(keys) => keys,
        });
        units.extend(machines.into_iter().chain(instances).map(Unit::Machine));
        units.extend(sets.into_iter().map(Unit::StatefulSet));
        units
    }

    /// All machines, instances, and machines that labels of claims name.
    pub(super) fn machines(&self, world: &World) -> impl Iterator<Item = Unit> {
        let all = world.owners().machines.iter().chain(world.owners().instances.iter());
        let all = all.map(|it| Unit::Machine(format!("{}/{}", it.facts.namespace, it.facts.name).into()));
        all.chain(self.labelled.keys().filter(|unit| matches!(unit, Unit::Machine(_))).cloned())
    }

    /// Updates whether KubeVirt's ipam-extensions runs. Returns whether that changed.
    pub(super) fn note_extensions(&mut self, at_work: bool) -> bool {
        std::mem::replace(&mut self.extensions, at_work) != at_work
    }

    /// Whether KubeVirt's ipam-extensions runs.
    pub(super) fn has_extensions(&self) -> bool {
        self.extensions
    }

    /// The claims of machines that KubeVirt's ipam-extensions created.
    pub(super) fn of_extensions(&self) -> impl Iterator<Item = &Arc<str>> {
        self.of_extensions.iter()
    }

    /// Whether an attachment definition of a namespace replaces the pods' own network.
    pub(super) fn has_primary(&self, namespace: &str) -> bool {
        self.primary.of(namespace).next().is_some()
    }

    /// The claims that were created for an owner.
    pub(super) fn labelled<'w>(&self, world: &'w World, unit: &Unit) -> impl Iterator<Item = &'w Existing> {
        let keys = self.labelled.get(unit).into_iter().flatten();
        keys.filter_map(|key| world.claims().all.get(key)).map(|claim| &claim.existing)
    }

    /// What the decision about an owner depended on.
    pub(super) fn depends(&mut self, unit: &Unit, asked: Asked) {
        if let Some(old) = self.asked.remove(unit) {
            old.claims.iter().for_each(|key| self.by_claim.remove(key, unit));
            old.definitions.iter().for_each(|key| self.by_definition.remove(key, unit));
        }
        asked.claims.iter().for_each(|key| self.by_claim.add(key, unit.clone()));
        asked.definitions.iter().for_each(|key| self.by_definition.add(key, unit.clone()));
        self.asked.insert(unit.clone(), asked);
    }

    fn note_claim(&mut self, world: &World, key: &Arc<str>, units: &mut BTreeSet<Unit>) {
        for old in self.labels.remove(key).unwrap_or_default() {
            if let Some(keys) = self.labelled.get_mut(&old) {
                keys.remove(key);
                if keys.is_empty() {
                    self.labelled.remove(&old);
                }
            }
            units.insert(old);
        }
        self.of_extensions.remove(key);
        let Some(claim) = world.claims().all.get(key) else { return };
        let full = |name: &String| Arc::from(format!("{}/{name}", claim.facts.namespace));
        let machine = claim.existing.machine.as_ref().map(|name| Unit::Machine(full(name)));
        if machine.is_some() && claim.existing.is_of_extensions() {
            self.of_extensions.insert(key.clone());
        }
        let set = claim.existing.stateful_set.as_ref().map(|name| Unit::StatefulSet(full(name)));
        let new: Vec<Unit> = machine.into_iter().chain(set).collect();
        for unit in &new {
            self.labelled.entry(unit.clone()).or_default().insert(key.clone());
            units.insert(unit.clone());
        }
        if !new.is_empty() {
            self.labels.insert(key.clone(), new);
        }
    }

    fn note_primary(&mut self, world: &World, key: &Arc<str>) {
        let namespace = key.split_once('/').unwrap_or_default().0;
        match world.ledgers().attachments.get(key).filter(|it| it.primary) {
            Some(_) => self.primary.add(namespace, key.clone()),
            None => self.primary.remove(namespace, key),
        }
    }
}
