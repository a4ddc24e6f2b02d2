//! The nodes that have slices or are to have some: those that live, and those that have not been missing for long enough.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::SLICE_OWNER;
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::Difference;

use crate::suspicions::Suspicions;
use crate::world::World;

/// Nodes, as far as slices go.
#[derive(Debug)]
pub(super) struct Living {
    /// Those that live, or have not been missing for long enough. Those that have are kept from losing what their ledgers say
    /// that they hand out of: ledgers are released after two observations of their own.
    pub(super) nodes: HashSet<String>,
    gone: Suspicions,
    /// Of how many pools each node has a slice.
    with_slices: HashMap<Arc<str>, usize>,
    /// Nodes to be looked at.
    changed: BTreeSet<String>,
    /// Whether all are.
    all: bool,
}

impl Living {
    pub(super) fn new(node_gone_after: Duration) -> Self {
        Self {
            nodes: HashSet::new(),
            gone: Suspicions::lasting(node_gone_after),
            with_slices: HashMap::new(),
            changed: BTreeSet::new(),
            all: true,
        }
    }

    /// The next look is at all nodes, and all pools are noted before.
    pub(super) fn look_at_all(&mut self) {
        self.with_slices = HashMap::new();
        (self.changed, self.all) = (BTreeSet::new(), true);
    }

    /// A node came, went, or went out of service.
    pub(super) fn note(&mut self, node: &str) {
        self.changed.insert(node.to_owned());
    }

    /// Notes who has slices of a pool from now on. Returns the nodes that had no slice of any pool and have one, or the other way
    /// around.
    pub(super) fn note_slices(&mut self, Difference { came, left, .. }: Difference) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        for node in came {
            let count = self.with_slices.entry(node.clone()).or_default();
            *count += 1;
            if *count == 1 {
                changed.push(node);
            }
        }
        for node in left {
            let count = self.with_slices.get_mut(&node);
            let more = count.is_some_and(|count| {
                *count -= 1;
                *count > 0
            });
            if !more {
                self.with_slices.remove(&node);
                changed.push(node);
            }
        }
        self.changed.extend(changed.iter().map(ToString::to_string));
        changed
    }

    /// Whether a name is a node's, also if that is gone and only stands in a pool.
    pub(super) fn is_node(&self, world: &World, name: &str) -> bool {
        world.nodes().get(name).is_some() || self.with_slices.contains_key(name)
    }

    /// Looks at the nodes that changed, and at those that have been missing for long enough. Returns those that live and did not
    /// before, or the other way around.
    pub(super) fn look(&mut self, world: &World, now: Timestamp) -> Vec<(String, bool)> {
        let mut look = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.all) {
            self.gone.look_again();
            look = self.nodes.iter().cloned().collect();
            look.extend(self.with_slices.keys().map(ToString::to_string));
            look.extend(world.nodes().iter().map(ResourceExt::name_any));
        } else {
            look.extend(self.gone.due(now));
            for node in &look {
                self.gone.look_again_at(node);
            }
        }
        let mut differ = Vec::new();
        for node in look {
            let lives = self.counts(world, &node, now);
            if lives != self.nodes.contains(&node) {
                if lives {
                    self.nodes.insert(node.clone())
                } else {
                    self.nodes.remove(&node)
                };
                differ.push((node, lives));
            }
        }
        differ
    }

    fn counts(&mut self, world: &World, node: &str, now: Timestamp) -> bool {
        if world.lives(node) {
            return true;
        }
        // One that an administrator has declared out of service needs no rest.
        let missing = world.nodes().get(node).is_none();
        let has_slice = node != SLICE_OWNER && self.with_slices.contains_key(node);
        has_slice && missing && !self.gone.suspect(node.to_owned(), now)
    }

    /// When to look again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.gone.next()
    }
}
