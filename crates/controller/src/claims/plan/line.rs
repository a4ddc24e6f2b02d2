//! Which claims wait for what.
//!
//! A waiting claim is planned again only when what it waits for changes. Claims that wait for the same pool or range
//! are served together, oldest first, so a change for one affects all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::coil::split_block_name;

use super::super::index::Look;
use super::super::sets::Names;
use crate::changes::Changed;
use crate::coil::{BlockWrite, Carving};
use crate::world::World;

/// What a claim waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    /// An address of a pool.
    Pool(Arc<str>),
    /// An address of a network's shared ranges.
    Shared(Arc<str>),
    /// An address of a pool of slices.
    Slices(Arc<str>),
    /// A namespace that names the pool. Its claims are not served together.
    Namespace(Arc<str>),
}

impl Awaited {
    /// Whether the claims that wait for it compete.
    fn is_shared_out(&self) -> bool {
        !matches!(self, Self::Namespace(_))
    }
}

/// All waiting claims.
#[derive(Debug, Default)]
pub(super) struct Line {
    awaited: HashMap<Arc<str>, Vec<Awaited>>,
    waiting: BTreeMap<Awaited, Names>,
    /// What changed since the last plan, or was planned and is not yet seen done.
    changed: BTreeSet<Awaited>,
    /// Blocks that the last plan created for nodes, and that were being created for claims.
    promised: BTreeSet<String>,
    coming: BTreeSet<String>,
}

impl Line {
    /// The claim of this name now waits for this and nothing else. Whoever else waits for it, or for what the claim
    /// waited for before, is planned again, too.
    pub(super) fn wait(&mut self, name: &Arc<str>, awaited: Vec<Awaited>) {
        for old in self.awaited.remove(name).unwrap_or_default() {
            if let Some(waiting) = self.waiting.get_mut(&old) {
                waiting.remove(name);
                if waiting.is_empty() {
                    self.waiting.remove(&old);
                }
            }
            if old.is_shared_out() {
                self.changed.insert(old);
            }
        }
        for new in &awaited {
            self.waiting.entry(new.clone()).or_default().insert(name.clone());
            if new.is_shared_out() {
                self.changed.insert(new.clone());
            }
        }
        if !awaited.is_empty() {
            self.awaited.insert(name.clone(), awaited);
        }
    }

    /// Notes a change.
    pub(super) fn note(&mut self, awaited: Awaited) {
        self.changed.insert(awaited);
    }

    /// Adds the names of claims that wait for what changed.
    pub(super) fn take_changed(&mut self, names: &mut Names) {
        for changed in std::mem::take(&mut self.changed) {
            names.extend(self.waiting.get(&changed).into_iter().flatten().cloned());
        }
    }

    /// Notes changes of pools: the pools themselves, their blocks, and what can be carved.
    pub(super) fn pools_changed(&mut self, world: &World, look: &Look, carving: &Carving) {
        let pools = self.waiting.range(Awaited::Pool("".into())..Awaited::Shared("".into()));
        let mut waiting: Vec<Awaited> = pools.map(|(awaited, _)| awaited.clone()).collect();
        let in_flight = world.in_flight.iter().filter_map(|write| write.of::<BlockWrite>());
        let coming: BTreeSet<String> =
            in_flight.filter_map(BlockWrite::block).map(ResourceExt::name_any).collect();
        let promised: BTreeSet<String> = carving.promised.iter().cloned().collect();
        if coming == self.coming && !carving.changed_pools.is_all() {
            let differ = self.promised.symmetric_difference(&promised).map(String::as_str);
            let blocks = look.blocks.iter().map(AsRef::as_ref).chain(differ);
            let mut changed: BTreeSet<&str> =
                blocks.filter_map(|block| Some(split_block_name(block)?.0)).collect();
            changed.extend(look.pools.iter().map(AsRef::as_ref));
            if let Changed::Keys(keys) = &carving.changed_pools {
                changed.extend(keys.iter().map(AsRef::as_ref));
            }
            waiting.retain(|it| matches!(it, Awaited::Pool(pool) if changed.contains(pool.as_ref())));
        }
        self.changed.extend(waiting);
        (self.promised, self.coming) = (promised, coming);
    }

    /// Notes changes of namespaces.
    pub(super) fn namespaces_changed(&mut self, namespaces: &Names) {
        self.changed.extend(namespaces.iter().cloned().map(Awaited::Namespace));
    }

    /// Everything about shared ranges may have changed.
    pub(super) fn all_shared_changed(&mut self) {
        let shared = self.waiting.range(Awaited::Shared("".into())..Awaited::Slices("".into()));
        self.changed.extend(shared.map(|(awaited, _)| awaited.clone()));
    }

    /// Everything about slices may have changed.
    pub(super) fn all_slices_changed(&mut self) {
        let slices = self.waiting.range(Awaited::Slices("".into())..Awaited::Namespace("".into()));
        self.changed.extend(slices.map(|(awaited, _)| awaited.clone()));
    }

    /// Whether anybody waits for it.
    pub(super) fn is_awaited(&self, awaited: &Awaited) -> bool {
        self.waiting.contains_key(awaited)
    }
}
