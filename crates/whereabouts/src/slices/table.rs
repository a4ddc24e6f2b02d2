//! What plans remember of a pool's slices, so that a plan costs what changes, not how many slices exist.
//!
//! [`Table::assign`] decides like [`super::assign::assign`] for ordinary pools: the pool is divided as requested,
//! each node has at most one slice, and each ledger lies within one slice. For any other pool it returns nothing, and
//! all slices are walked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tenure_api::claims::SLICE_OWNER;
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec};
use tenure_ipam::{Address, Slices};

use super::assign::{Assigned, Given};
use super::desired::Desired;
use super::find::network_of;
use super::{Floating, PoolFacts};
use crate::ledger::PoolId;

/// How many slices one patch changes at most, with two operations each. A server refuses more than 10,000 operations,
/// and a larger change may as well walk all slices.
const MOST_CHANGES: usize = 1_000;

/// The slices of one pool, indexed for plans. Its owner reports every change of the pool, of ledgers and of nodes.
#[derive(Debug)]
pub struct Table {
    network: String,
    spec: NodeSlicePoolSpec,
    facts: PoolFacts,
    /// The slices as written, each followed by a line break.
    written: String,
    /// Whether the slices are in order and no node has two.
    is_regular: bool,
    /// The node of each slice; empty if it has none.
    nodes: Vec<Arc<str>>,
    /// The slice of each node.
    places: HashMap<Arc<str>, usize>,
    /// Slices without a node.
    free: BTreeSet<usize>,
    /// Slices for claims.
    floating: BTreeSet<usize>,
    /// Slices of nodes that are gone.
    dead: BTreeSet<usize>,
    /// Living nodes without a slice.
    unserved: BTreeSet<Arc<str>>,
    /// Ledgers and their nodes, by slice.
    holders: BTreeMap<usize, BTreeMap<Arc<str>, Arc<str>>>,
    /// Slices without a node that have a ledger.
    held_free: BTreeSet<usize>,
    /// Ledgers that span several slices.
    wide: BTreeSet<Arc<str>>,
}

/// How a pool differs from the last reading.
#[derive(Debug, Default)]
pub struct Difference {
    /// Nodes that got a slice of the pool.
    pub came: Vec<Arc<str>>,
    /// Nodes that lost their slice of the pool.
    pub left: Vec<Arc<str>>,
    /// Whether the table forgot its ledgers: report all of them again.
    pub anew: bool,
    /// Slices of nodes that are given now and were not, or the other way around.
    pub slices: Vec<PoolId>,
}

impl Table {
    /// Reads a pool for the first time. `living` has the living nodes.
    pub fn of(object: &NodeSlicePool, living: &HashSet<String>) -> (Self, Difference) {
        let mut table = Self {
            network: String::new(),
            spec: NodeSlicePoolSpec::default(),
            facts: PoolFacts { cut: None, in_order: false },
            written: String::new(),
            is_regular: false,
            nodes: Vec::new(),
            places: HashMap::new(),
            free: BTreeSet::new(),
            floating: BTreeSet::new(),
            dead: BTreeSet::new(),
            unserved: BTreeSet::new(),
            holders: BTreeMap::new(),
            held_free: BTreeSet::new(),
            wide: BTreeSet::new(),
        };
        let difference = table.read(object, living);
        (table, difference)
    }

    /// What only a walk over all slices tells.
    pub fn facts(&self) -> PoolFacts {
        self.facts
    }

    /// The nodes that have a slice.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.places.keys()
    }

    /// Reads the pool again.
    pub fn read(&mut self, object: &NodeSlicePool, living: &HashSet<String>) -> Difference {
        let slices = object.status.as_ref().map(|status| status.allocations.as_slice()).unwrap_or_default();
        let network = network_of(object);
        if !self.is_regular
            || network != self.network
            || object.spec != self.spec
            || !self.is_divided_like(slices)
        {
            let before: Vec<PoolId> = self.slices().collect();
            (self.network, self.spec, self.facts) = (network, object.spec.clone(), PoolFacts::of(object));
            return self.read_all(slices, living, before);
        }
        let differs =
            |(_, (slice, node)): &(usize, (&NodeSliceAllocation, &Arc<str>))| slice.node_name != ***node;
        let changed = slices.iter().zip(&self.nodes).enumerate().filter(differs);
        let changed: Vec<(usize, Arc<str>)> =
            changed.map(|(place, (slice, _))| (place, slice.node_name.as_str().into())).collect();
        let is_node = |node: &Arc<str>| !node.is_empty() && **node != *SLICE_OWNER;
        let places: HashSet<usize> = changed.iter().map(|(place, _)| *place).collect();
        let mut given: HashSet<&Arc<str>> = HashSet::new();
        let twice = changed.iter().map(|(_, node)| node).filter(|node| is_node(node)).any(|node| {
            !given.insert(node) || self.places.get(node).is_some_and(|place| !places.contains(place))
        });
        if twice {
            let before = self.slices().collect();
            return self.read_all(slices, living, before);
        }
        let mut differ: Vec<PoolId> = changed.iter().filter_map(|(place, _)| self.slice_at(*place)).collect();
        let places: Vec<usize> = changed.iter().map(|(place, _)| *place).collect();
        let mut left: Vec<Arc<str>> = changed.iter().map(|(place, _)| self.nodes[*place].clone()).collect();
        left.retain(is_node);
        let mut came: Vec<Arc<str>> = changed.iter().map(|(_, node)| node.clone()).filter(is_node).collect();
        for (place, _) in &changed {
            self.clear(*place, living);
        }
        for (place, node) in changed {
            self.set(place, node, living);
        }
        let both: HashSet<Arc<str>> = came.iter().filter(|node| left.contains(node)).cloned().collect();
        came.retain(|node| !both.contains(node));
        left.retain(|node| !both.contains(node));
        differ.extend(places.into_iter().filter_map(|place| self.slice_at(place)));
        Difference { came, left, anew: false, slices: differ }
    }

    /// Whether these are the same slices, whoever has them. Compares texts, because building them costs ten times as
    /// much.
    fn is_divided_like(&self, slices: &[NodeSliceAllocation]) -> bool {
        let mut written = self.written.as_str();
        let is_next = |slice: &NodeSliceAllocation| {
            let behind =
                written.strip_prefix(slice.slice_range.as_str()).and_then(|it| it.strip_prefix('\n'));
            written = behind.unwrap_or_default();
            behind.is_some()
        };
        slices.len() == self.nodes.len() && slices.iter().all(is_next)
    }

    /// `had` are the slices that were given before.
    fn read_all(
        &mut self,
        slices: &[NodeSliceAllocation],
        living: &HashSet<String>,
        had: Vec<PoolId>,
    ) -> Difference {
        let before: HashSet<Arc<str>> = self.places.keys().cloned().collect();
        let empty: Arc<str> = "".into();
        self.nodes = vec![empty; slices.len()];
        (self.places, self.floating, self.dead) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        self.free = (0..slices.len()).collect();
        self.unserved = living.iter().map(|node| node.as_str().into()).collect();
        (self.holders, self.held_free, self.wide) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        self.is_regular = self.facts.in_order;
        self.written = slices.iter().flat_map(|slice| [slice.slice_range.as_str(), "\n"]).collect();
        for (place, slice) in slices.iter().enumerate().filter(|(_, slice)| !slice.node_name.is_empty()) {
            self.is_regular &= !self.places.contains_key(slice.node_name.as_str());
            self.set(place, slice.node_name.as_str().into(), living);
        }
        let came = self.places.keys().filter(|node| !before.contains(*node)).cloned().collect();
        let left = before.into_iter().filter(|node| !self.places.contains_key(node)).collect();
        let slices = had.into_iter().chain(self.slices()).collect();
        Difference { came, left, anew: true, slices }
    }

    /// The slices that nodes have.
    pub fn slices(&self) -> impl Iterator<Item = PoolId> {
        self.places.values().filter_map(|place| self.slice_at(*place))
    }

    /// The slice that a node has of this pool.
    pub fn slice_of(&self, node: &str) -> Option<PoolId> {
        self.slice_at(self.place_of(node)?)
    }

    /// Whether it is a slice of this pool, and its node's.
    pub fn gives(&self, id: &PoolId) -> bool {
        self.network == id.network && self.slice_of(&id.node).as_ref() == Some(id)
    }

    /// A slice, if a node has it.
    fn slice_at(&self, place: usize) -> Option<PoolId> {
        let node = self.nodes.get(place).filter(|node| !node.is_empty() && ***node != *SLICE_OWNER)?;
        Some(PoolId::of_node(&self.network, node, self.facts.cut?.get(place as u128)?))
    }

    /// This slice has no node any more.
    fn clear(&mut self, place: usize, living: &HashSet<String>) {
        let node = std::mem::replace(&mut self.nodes[place], "".into());
        self.floating.remove(&place);
        self.dead.remove(&place);
        if self.places.remove(&node).is_some() && living.contains(&*node) {
            self.unserved.insert(node);
        }
        self.free.insert(place);
        if self.holders.contains_key(&place) {
            self.held_free.insert(place);
        }
    }

    /// A slice without a node gets this node, or none.
    fn set(&mut self, place: usize, node: Arc<str>, living: &HashSet<String>) {
        if node.is_empty() {
            return;
        }
        self.free.remove(&place);
        self.held_free.remove(&place);
        if *node == *SLICE_OWNER {
            self.floating.insert(place);
        } else {
            self.unserved.remove(&node);
            if !living.contains(&*node) {
                self.dead.insert(place);
            }
            self.places.insert(node.clone(), place);
        }
        self.nodes[place] = node;
    }

    /// A node lives from now on, or is gone.
    pub fn set_living(&mut self, node: &str, lives: bool) {
        match (self.places.get(node), lives) {
            (Some(place), true) => _ = self.dead.remove(place),
            (Some(place), false) => _ = self.dead.insert(*place),
            (None, true) => _ = self.unserved.insert(node.into()),
            (None, false) => _ = self.unserved.remove(node),
        }
    }

    /// A node's ledger holds these addresses, or may assign them at any time.
    pub fn hold(&mut self, ledger: &Arc<str>, node: &str, (first, last): (Address, Address)) {
        match self.slices_between(first, last) {
            None => {}
            Some((place, other)) if place == other => {
                self.holders.entry(place).or_default().insert(ledger.clone(), node.into());
                if self.free.contains(&place) {
                    self.held_free.insert(place);
                }
            }
            Some(_) => _ = self.wide.insert(ledger.clone()),
        }
    }

    /// A ledger does not hold these addresses any more.
    pub fn release(&mut self, ledger: &Arc<str>, (first, last): (Address, Address)) {
        self.wide.remove(ledger);
        let Some((place, _)) = self.slices_between(first, last) else { return };
        if let Some(ledgers) = self.holders.get_mut(&place) {
            ledgers.remove(ledger);
            if ledgers.is_empty() {
                self.holders.remove(&place);
                self.held_free.remove(&place);
            }
        }
    }

    /// The first and last slice with any of these addresses.
    fn slices_between(&self, first: Address, last: Address) -> Option<(usize, usize)> {
        let cut: Slices = self.facts.cut?;
        let whole = cut.whole();
        if first.family() != whole.family() || last < whole.first() || first > whole.last() {
            return None;
        }
        let place = |address| usize::try_from(cut.index_of_address(address)?).ok();
        Some((place(first.max(whole.first()))?, place(last.min(whole.last()))?))
    }

    /// Whether a ledger of the node lies in the slice.
    fn is_held_by(&self, place: usize, node: &str) -> bool {
        self.holders.get(&place).is_some_and(|ledgers| ledgers.values().any(|holder| **holder == *node))
    }

    /// Nodes that have a slice and are gone, with the number of the slice.
    pub fn missing(&self) -> impl Iterator<Item = (&str, usize)> {
        self.dead.iter().map(|place| (&*self.nodes[*place], *place))
    }

    /// The node of a slice; empty if it has none.
    pub fn node_of(&self, place: usize) -> Option<&str> {
        self.nodes.get(place).map(AsRef::as_ref)
    }

    /// The slice of a node.
    pub fn place_of(&self, node: &str) -> Option<usize> {
        self.places.get(node).copied()
    }

    /// The assignment of slices, if the range may be assigned; `None` if all slices have to be walked.
    pub(super) fn assign<'a>(
        &'a self,
        pool: &Desired<'_>,
        floating: &Floating,
        living: &HashSet<String>,
    ) -> Option<Assigned<'a>> {
        let gives = !self.places.is_empty() || !self.floating.is_empty();
        let fits = self.facts.cut == Some(pool.cut) && self.network == pool.network;
        if !self.is_regular || !fits || !gives || !self.wide.is_empty() {
            return None;
        }
        let mut draft = Draft { table: self, changes: BTreeMap::new(), kept_back: BTreeSet::new(), from: 0 };
        let named =
            |place: usize| pool.cut.get(place as u128).is_some_and(|it| floating.slices.contains(&it));

        // A node keeps its slice while it lives or holds something. Slices for claims are kept separately.
        let unneeded = |place: &&usize| !self.is_held_by(**place, SLICE_OWNER) && !named(**place);
        draft.changes.extend(self.floating.iter().filter(unneeded).map(|place| (*place, "")));
        let left = self.dead.iter().filter(|place| !self.is_held_by(**place, &self.nodes[**place]));
        let left: BTreeSet<usize> = left.copied().collect();
        draft.changes.extend(left.iter().map(|place| (*place, "")));

        // A slice without a node in which something is held goes to the holder, or is withheld.
        let emptied = draft.changes.keys().filter(|place| self.holders.contains_key(place));
        let held: BTreeSet<usize> = self.held_free.iter().chain(emptied).copied().collect();
        let mut holders: BTreeSet<&str> = BTreeSet::new();
        for place in held {
            let all: BTreeSet<&str> =
                self.holders.get(&place).into_iter().flat_map(BTreeMap::values).map(|it| &**it).collect();
            let only = all.first().copied().filter(|_| all.len() == 1);
            let is_served = |node: &str| self.places.get(node).is_some_and(|place| !left.contains(place));
            let gets = match only {
                Some(SLICE_OWNER) => Some(SLICE_OWNER),
                Some(only) if !is_served(only) && holders.insert(only) => Some(only),
                _ => None,
            };
            match gets {
                Some(node) => _ = draft.changes.insert(place, node),
                None => _ = draft.kept_back.insert(place),
            }
        }
        let dead_holders = holders.iter().filter(|holder| !living.contains(**holder)).count();
        let waiting = draft.kept_back.len() + self.dead.len() - left.len() + dead_holders;
        // A slice that a node has left is assigned with a later write.
        draft.kept_back.extend(left);

        for place in floating.slices.iter().filter_map(|it| usize::try_from(pool.cut.index_of(it)?).ok()) {
            if !draft.kept_back.contains(&place) && draft.node(place) == Some("") {
                draft.changes.insert(place, SLICE_OWNER);
            }
        }
        let mut without = Vec::new();
        for node in self.unserved.iter().filter(|node| !holders.contains(&***node)) {
            match draft.next_free(pool) {
                Some(place) => _ = draft.changes.insert(place, node),
                None => without.push(&**node),
            }
        }
        for _ in 0..floating.more {
            let Some(place) = draft.next_free(pool) else { break };
            draft.changes.insert(place, SLICE_OWNER);
        }
        Some(draft.assigned(without, waiting)).filter(|assigned| assigned.is_small(MOST_CHANGES))
    }
}

/// A table and planned changes.
struct Draft<'a> {
    table: &'a Table,
    /// The new node of each slice that changes.
    changes: BTreeMap<usize, &'a str>,
    /// Slices that are withheld.
    kept_back: BTreeSet<usize>,
    /// No slice below can be assigned.
    from: usize,
}

impl<'a> Draft<'a> {
    /// The planned node of a slice.
    fn node(&self, place: usize) -> Option<&'a str> {
        self.changes.get(&place).copied().or_else(|| self.table.node_of(place))
    }

    /// The lowest slice that can be assigned.
    fn next_free(&mut self, pool: &Desired<'_>) -> Option<usize> {
        loop {
            let free = self.table.free.range(self.from..).next();
            let emptied =
                self.changes.range(self.from..).find(|(_, node)| node.is_empty()).map(|(place, _)| place);
            let place = *free.into_iter().chain(emptied).min()?;
            self.from = place + 1;
            let usable = || pool.cut.get(place as u128).is_some_and(|it| pool.range.within(it).is_some());
            if !self.kept_back.contains(&place) && self.node(place) == Some("") && usable() {
                return Some(place);
            }
        }
    }

    fn assigned(mut self, without: Vec<&'a str>, waiting: usize) -> Assigned<'a> {
        let table = self.table;
        self.changes.retain(|place, node| table.node_of(*place) != Some(node));
        let (mut taken, mut floating) = (table.places.len(), table.floating.len());
        for (place, node) in &self.changes {
            match table.node_of(*place).unwrap_or_default() {
                "" => {}
                SLICE_OWNER => floating -= 1,
                _ => taken -= 1,
            }
            match *node {
                "" => {}
                SLICE_OWNER => floating += 1,
                _ => taken += 1,
            }
        }
        let (count, given) = (table.nodes.len(), Given::Changes(self.changes));
        Assigned { given, count, taken, floating, without, waiting }
    }
}

#[cfg(test)]
mod tests;
