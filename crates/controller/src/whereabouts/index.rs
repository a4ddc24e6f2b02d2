//! What changed of ledgers, nodes and attachment definitions since the last plan, and which ledgers belong to a node.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tenure_api::whereabouts::label;
use tenure_handles::Timestamp;
use tenure_whereabouts::slices::{Definition, nodes_meant};

use crate::cache::Known;
use crate::changes::Cursors;
use crate::world::World;

/// The keys of a cache's objects.
pub(super) type Names = BTreeSet<Arc<str>>;

/// Definitions as read, and ledgers by node.
#[derive(Debug, Default)]
pub(super) struct Index {
    cursors: Cursors,
    /// The definitions with a configuration.
    pub(super) definitions: HashMap<Arc<str>, Definition>,
    /// Their `network_name`s, and how often each occurs.
    networks: HashMap<String, usize>,
    /// The same, by name.
    pub(super) network_names: BTreeSet<String>,
    /// Existing nodes, and whether each lives.
    known_nodes: HashMap<Arc<str>, bool>,
    /// Ledgers by the nodes that they may belong to.
    by_node: HashMap<String, Names>,
    /// The reverse.
    nodes_of: HashMap<Arc<str>, Vec<String>>,
    /// Ledgers whose owner only a look at all networks tells.
    without_network: Names,
}

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'a> {
    pub(super) world: &'a World,
    pub(super) index: &'a Index,
    /// What has changed since the last plan.
    pub(super) changes: &'a Changes,
    pub(super) now: Timestamp,
}

/// What has changed since the last plan.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Anything may have changed; the other fields are empty.
    pub(super) all: bool,
    /// Ledgers that were added, removed or changed, or may belong to somebody else because of a changed node or
    /// network.
    pub(super) ledgers: Names,
    /// Nodes that were added or removed, or went out of service.
    pub(super) nodes: Names,
    /// Definitions that were added, removed or changed.
    pub(super) definitions: Names,
}

impl Index {
    /// Makes the next update read everything again.
    pub(super) fn look_at_all(&mut self) {
        *self = Self::default();
    }

    /// Reads what has changed.
    pub(super) fn update(&mut self, world: &World) -> Changes {
        let (cursors, known) = (&mut self.cursors, world.ledgers());
        let ledgers = cursors.read("ledgers", |at| known.pools.changed(at));
        let nodes = cursors.read("nodes", |at| world.nodes().changed(at));
        let attachments = cursors.read("attachments", |at| known.attachments.changed(at));
        if cursors.take_missed() {
            self.read_all(world);
            return Changes { all: true, ..Changes::default() };
        }
        let definitions: Names =
            attachments.into_iter().filter(|key| self.read_definition(world, key)).collect();
        let nodes: Names = nodes.into_iter().filter(|key| self.read_node(world, key)).collect();
        for name in &ledgers {
            self.read_ledger(world, name);
        }
        let mut changes = Changes { all: false, ledgers, nodes, definitions };
        if !changes.definitions.is_empty() && self.read_networks() {
            changes.ledgers.extend(self.without_network.iter().cloned());
        }
        changes.ledgers.extend(changes.nodes.iter().flat_map(|node| self.ledgers_of(node)).cloned());
        changes
    }

    /// The ledgers that may belong to a node.
    pub(super) fn ledgers_of(&self, node: &str) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.get(node).into_iter().flatten()
    }

    fn read_all(&mut self, world: &World) {
        *self = Self { cursors: std::mem::take(&mut self.cursors), ..Self::default() };
        for attachment in world.ledgers().attachments.iter() {
            self.read_definition(world, &attachment.key().into());
        }
        for node in world.nodes().iter() {
            self.read_node(world, &node.key().into());
        }
        for ledger in world.ledgers().pools.iter() {
            self.read_ledger(world, &ledger.key().into());
        }
        self.read_networks();
    }

    /// Whether a definition asks for something else than before.
    fn read_definition(&mut self, world: &World, key: &Arc<str>) -> bool {
        let says = world.ledgers().attachments.get(key).filter(|it| it.says_something());
        let said = self.definitions.get(key);
        if says.map(|it| &it.definition) == said.map(|it| &it.attachment) {
            return false;
        }
        let says = says.map(|it| Definition::read(it.definition.clone(), None));
        let alike = says.as_ref().zip(said).is_some_and(|(says, said)| says.asks_like(said));
        for network in says.iter().flat_map(|it| &it.networks) {
            *self.networks.entry(network.clone()).or_default() += 1;
        }
        let said = match says {
            Some(says) => self.definitions.insert(key.clone(), says),
            None => self.definitions.remove(key),
        };
        for network in said.iter().flat_map(|it| &it.networks) {
            if let Some(count) = self.networks.get_mut(network) {
                *count -= 1;
            }
        }
        !alike
    }

    /// Whether the networks have changed.
    fn read_networks(&mut self) -> bool {
        self.networks.retain(|_, count| *count > 0);
        if self.networks.len() == self.network_names.len()
            && self.networks.keys().all(|network| self.network_names.contains(network))
        {
            return false;
        }
        self.network_names = self.networks.keys().cloned().collect();
        true
    }

    /// Whether a node was added or removed, or changed between in and out of service. A heartbeat does not count.
    fn read_node(&mut self, world: &World, name: &Arc<str>) -> bool {
        let lives = world.lives(name);
        let state = (lives || world.nodes().get(name).is_some()).then_some(lives);
        match state {
            Some(lives) => self.known_nodes.insert(name.clone(), lives) != state,
            None => self.known_nodes.remove(name).is_some(),
        }
    }

    fn read_ledger(&mut self, world: &World, name: &Arc<str>) {
        let ledger = world.ledgers().pools.get(name);
        let labels = ledger.and_then(|ledger| ledger.pool.metadata.labels.as_ref());
        if ledger.is_some() && labels.is_none_or(|labels| !labels.contains_key(label::NETWORK)) {
            self.without_network.insert(name.clone());
        } else {
            self.without_network.remove(name);
        }
        let nodes = ledger.map(|ledger| nodes_meant(&ledger.pool)).unwrap_or_default();
        let before = self.nodes_of.get(name).map(Vec::as_slice).unwrap_or_default();
        if before.iter().eq(&nodes) {
            return;
        }
        for node in self.nodes_of.remove(name).into_iter().flatten() {
            if let Some(ledgers) = self.by_node.get_mut(&node) {
                ledgers.remove(name);
                if ledgers.is_empty() {
                    self.by_node.remove(&node);
                }
            }
        }
        for node in &nodes {
            self.by_node.entry((*node).to_owned()).or_default().insert(name.clone());
        }
        if !nodes.is_empty() {
            self.nodes_of.insert(name.clone(), nodes.into_iter().map(str::to_owned).collect());
        }
    }
}

#[cfg(test)]
impl Changes {
    /// What a planner with this bug hears.
    pub(super) fn without(mut self, deaf: Option<super::Deaf>) -> Self {
        match deaf {
            Some(super::Deaf::Nodes) => self.nodes.clear(),
            Some(super::Deaf::Ledgers) => self.ledgers.clear(),
            Some(super::Deaf::Definitions) => self.definitions.clear(),
            Some(super::Deaf::Tables) | None => {}
        }
        self
    }
}
