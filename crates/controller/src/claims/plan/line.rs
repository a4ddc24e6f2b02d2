//! Who waits for what.
//!
//! Claims without addresses are looked at again only when what they wait for has changed. Those that take from the same pool or
//! range are served together, the oldest first, so whatever concerns one of them concerns all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

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
    /// An address of the ranges of a network that all nodes share.
    Shared(Arc<str>),
    /// An address of a pool of slices.
    Slices(Arc<str>),
    /// A namespace says which pool. Its claims are not served together.
    Namespace(Arc<str>),
}

impl Awaited {
    /// Whether those that wait for it take from one another.
    fn is_shared_out(&self) -> bool {
        !matches!(self, Self::Namespace(_))
    }
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    awaited: HashMap<Arc<str>, Vec<Awaited>>,
    waiting: BTreeMap<Awaited, Names>,
    /// What has changed since the last plan, or what was planned for and is not seen done yet.
    changed: BTreeSet<Awaited>,
    /// Blocks that the plan before promised or made for nodes, and that were being made for claims.
    promised: BTreeSet<String>,
    coming: BTreeSet<String>,
}

impl Line {
    /// The claim of this name waits for this from now on, and for nothing else. Whoever else waits for it, or for what the claim
    /// waited for before, is to be looked at, too.
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

    /// This has changed.
    pub(super) fn note(&mut self, awaited: Awaited) {
        self.changed.insert(awaited);
    }

    /// Adds the names of those that wait for what has changed.
    pub(super) fn take_changed(&mut self, names: &mut Names) {
        for changed in std::mem::take(&mut self.changed) {
            names.extend(self.waiting.get(&changed).into_iter().flatten().cloned());
        }
    }

    /// What has changed about pools: the pools themselves, their blocks, and what else can be carved of them.
    pub(super) fn pools_changed(&mut self, world: &World, look: &Look, carving: &Carving) {
        let pools = self.waiting.range(Awaited::Pool("".into())..Awaited::Shared("".into()));
        let mut waiting: Vec<Awaited> = pools.map(|(awaited, _)| awaited.clone()).collect();
        let in_flight = world.in_flight.iter().filter_map(|write| write.of::<BlockWrite>());
        let coming: BTreeSet<String> = in_flight.filter_map(BlockWrite::block).map(str::to_owned).collect();
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

    /// What has changed about namespaces.
    pub(super) fn namespaces_changed(&mut self, namespaces: &Names) {
        self.changed.extend(namespaces.iter().cloned().map(Awaited::Namespace));
    }

    /// Anything may have changed about ranges that all nodes share.
    pub(super) fn all_shared_changed(&mut self) {
        let shared = self.waiting.range(Awaited::Shared("".into())..Awaited::Slices("".into()));
        self.changed.extend(shared.map(|(awaited, _)| awaited.clone()));
    }

    /// Anything may have changed about slices.
    pub(super) fn all_slices_changed(&mut self) {
        let slices = self.waiting.range(Awaited::Slices("".into())..Awaited::Namespace("".into()));
        self.changed.extend(slices.map(|(awaited, _)| awaited.clone()));
    }

    /// Whether anybody waits for this.
    pub(super) fn is_awaited(&self, awaited: &Awaited) -> bool {
        self.waiting.contains_key(awaited)
    }
}
