//! Owners and dependents, and what follows when an owner is deleted.
//!
//! A pure planner: it receives every change and returns tasks. A task may be performed late or twice; whoever performs it checks
//! the object's UID, and every resulting change comes back to the planner.
//!
//! ```text
//!  the owner of a dependent …            and it has no other      and it has another
//!  is gone                               delete it                drop the reference
//!  waits for its dependents (foreground) delete it, in the        drop the reference
//!                                        foreground if it has
//!                                        dependents itself
//! ```
//!
//! An owner with the finalizer `foregroundDeletion` waits for those dependents that block it, one with `orphan` until
//! no dependent refers to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::meta;
use crate::store::{CollectionName, Key, Object};
use crate::write::{FOREGROUND, ORPHAN, Propagation};

/// The location of an object.
pub(crate) type ObjectKey = (CollectionName, Key);

/// A task for one object, if it still has this UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Its location.
    pub(crate) place: ObjectKey,
    /// Its UID.
    pub(crate) uid: String,
    /// The operation.
    pub(crate) operation: Operation,
}

/// An operation on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Delete it.
    Delete(Propagation),
    /// Drop its references to these owners.
    Disown(BTreeSet<String>),
    /// Remove this finalizer.
    Release(&'static str),
    /// Stop its references from blocking their owners, because they wait for each other.
    Unblock,
}

/// The location of the objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KindPlace {
    /// Their collection.
    pub(crate) collection: CollectionName,
    /// Whether they are in namespaces.
    pub(crate) namespaced: bool,
}

#[derive(Clone, Debug)]
struct Node {
    place: ObjectKey,
    owners: Vec<Owner>,
    terminating: bool,
    foreground: bool,
    orphan: bool,
}

#[derive(Clone, Debug)]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    blocks: bool,
}

/// All objects and the references to them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    places: BTreeMap<ObjectKey, String>,
    /// Dependents by their owner's UID.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Objects to check at the next plan.
    suspects: BTreeSet<String>,
}

/// What a reference to an owner leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// An owner that stays, or one that is unknown.
    Solid,
    /// Nothing.
    Dangling,
    /// An owner that waits for its dependents to be deleted.
    Waiting,
}

impl Graph {
    /// Adds or updates an object.
    pub(crate) fn put(&mut self, collection: &CollectionName, object: &Object) {
        let uid = object.uid().to_owned();
        let place = (collection.clone(), object.key.clone());
        let node = Node::of(place.clone(), &object.value);
        if let Some(before) = self.nodes.get(&uid).cloned() {
            for owner in &before.owners {
                if !node.owners.iter().any(|one| one.uid == owner.uid) {
                    self.forget_reference(&uid, &owner.uid);
                }
            }
        }
        if let Some(other) = self.places.get(&place).filter(|other| **other != uid).cloned() {
            // A successor under the same name: dependents of the old one must be checked again.
            self.remove(&other);
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        if !node.owners.is_empty() || node.terminating {
            self.suspects.insert(uid.clone());
        }
        if node.terminating {
            // Its dependents now wait for it, or it for them.
            self.suspects.extend(self.dependents.get(&uid).cloned().unwrap_or_default());
        }
        self.suspects.extend(node.owners.iter().map(|owner| owner.uid.clone()));
        self.places.insert(place, uid.clone());
        self.nodes.insert(uid, node);
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, uid: &str) {
        let Some(node) = self.nodes.remove(uid) else { return };
        if self.places.get(&node.place).is_some_and(|at| at == uid) {
            self.places.remove(&node.place);
        }
        self.suspects.remove(uid);
        for owner in &node.owners {
            self.forget_reference(uid, &owner.uid);
        }
        self.suspects.extend(self.dependents.get(uid).cloned().unwrap_or_default());
    }

    fn forget_reference(&mut self, dependent: &str, owner: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
        self.suspects.insert(owner.to_owned());
    }

    /// Checks an object again at the next plan.
    pub(crate) fn suspect(&mut self, uid: &str) {
        self.suspects.insert(uid.to_owned());
    }

    /// The tasks now. `kind_place` returns where the objects of an API version and kind are, if known.
    pub(crate) fn plan(&mut self, kind_place: impl Fn(&str, &str) -> Option<KindPlace>) -> Vec<Task> {
        let mut tasks = Vec::new();
        for uid in std::mem::take(&mut self.suspects) {
            if let Some(node) = self.nodes.get(&uid) {
                self.examine(&uid, node, &kind_place, &mut tasks);
            }
        }
        tasks
    }

    fn examine(
        &self,
        uid: &str,
        node: &Node,
        kind_place: &impl Fn(&str, &str) -> Option<KindPlace>,
        tasks: &mut Vec<Task>,
    ) {
        let task = |operation| Task { place: node.place.clone(), uid: uid.to_owned(), operation };
        if node.terminating && node.orphan {
            let dependents: Vec<(&String, &Node)> = self.dependents_of(uid).collect();
            if dependents.is_empty() {
                tasks.push(task(Operation::Release(ORPHAN)));
            }
            for (dependent, at) in dependents {
                let operation = Operation::Disown(BTreeSet::from([uid.to_owned()]));
                tasks.push(Task { place: at.place.clone(), uid: dependent.clone(), operation });
            }
            return;
        }
        if node.terminating {
            if node.foreground && !self.is_blocked(uid) {
                tasks.push(task(Operation::Release(FOREGROUND)));
            }
            return;
        }
        let standings: Vec<(&Owner, Standing)> =
            node.owners.iter().map(|owner| (owner, self.standing(node, owner, kind_place))).collect();
        let with = |wanted: Standing| standings.iter().filter(move |(_, standing)| *standing == wanted);
        let lost: BTreeSet<String> = standings
            .iter()
            .filter(|(_, standing)| *standing != Standing::Solid)
            .map(|(owner, _)| owner.uid.clone())
            .collect();
        if lost.is_empty() {
            return;
        }
        if with(Standing::Solid).next().is_some() {
            tasks.push(task(Operation::Disown(lost)));
            return;
        }
        if with(Standing::Waiting).next().is_some() && self.dependents_of(uid).next().is_some() {
            if self.dependents_of(uid).any(|(_, dependent)| dependent.terminating && dependent.foreground) {
                tasks.push(task(Operation::Unblock));
            }
            tasks.push(task(Operation::Delete(Propagation::Foreground)));
            return;
        }
        let propagation = if node.orphan {
            Propagation::Orphan
        } else if node.foreground {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        tasks.push(task(Operation::Delete(propagation)));
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = (&String, &Node)> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter_map(|dependent| self.nodes.get_key_value(dependent))
    }

    /// Whether a blocking dependent still exists.
    fn is_blocked(&self, uid: &str) -> bool {
        self.dependents_of(uid)
            .any(|(_, dependent)| dependent.owners.iter().any(|owner| owner.uid == uid && owner.blocks))
    }

    fn standing(
        &self,
        node: &Node,
        owner: &Owner,
        kind_place: &impl Fn(&str, &str) -> Option<KindPlace>,
    ) -> Standing {
        let Some(kind) = kind_place(&owner.api_version, &owner.kind) else { return Standing::Solid };
        let namespace = node.place.1.namespace();
        if kind.namespaced && namespace.is_empty() {
            // Outside namespaces it is unclear which one is meant.
            return Standing::Solid;
        }
        let key = Key::new(if kind.namespaced { namespace } else { "" }, &owner.name);
        let found = self.places.get(&(kind.collection, key)).filter(|found| **found == owner.uid);
        match found.and_then(|found| self.nodes.get(found)) {
            None => Standing::Dangling,
            Some(owner) if owner.terminating && owner.foreground => Standing::Waiting,
            Some(_) => Standing::Solid,
        }
    }
}

impl Node {
    fn of(place: ObjectKey, value: &Value) -> Self {
        let finalizers = meta::finalizers(value);
        let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let owners = meta::owners(value).iter().map(|owner| Owner {
            api_version: text(owner, "apiVersion"),
            kind: text(owner, "kind"),
            name: text(owner, "name"),
            uid: text(owner, "uid"),
            blocks: owner["blockOwnerDeletion"] == true,
        });
        Self {
            place,
            owners: owners.collect(),
            terminating: meta::is_terminating(value),
            foreground: finalizers.contains(&FOREGROUND),
            orphan: finalizers.contains(&ORPHAN),
        }
    }
}

#[cfg(test)]
mod tests;
