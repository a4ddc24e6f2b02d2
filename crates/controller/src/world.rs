//! What the controller knows: nodes, writes in flight, and what each part keeps of the objects that it watches
//! ([`State`]).

mod lists;
mod states;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::cache::Cache;
use crate::kind::{Kind, Observation};
use crate::nodes::is_out_of_service;
use crate::unreadable::{Stub, Unreadables};
use crate::write::Write;
pub(crate) use lists::Lists;
pub use states::State;
use states::States;

/// How many deleted nodes are remembered before those that left nothing behind are forgotten.
const MANY: usize = 1024;

/// Nodes and the states of all parts.
#[derive(Debug, Default)]
pub struct World {
    /// Writes that are in flight.
    pub in_flight: Vec<Write>,
    /// The states of parts.
    states: States,
    /// Objects that exist but cannot be read.
    pub(crate) unreadable: Unreadables,
    /// Tells the worlds of tests apart.
    #[cfg(test)]
    pub(crate) identity: crate::plan::WorldIdentity,
    /// Lists that began and ended.
    lists: Lists,
    /// While the answer to a write is applied: the lists when it was sent.
    answered: Option<Lists>,
    /// Kinds that the API server does not know.
    lacking: BTreeSet<&'static str>,
    nodes: Cache<Node>,
    /// Nodes whose deletion was seen, not only their absence.
    deleted_nodes: BTreeSet<String>,
    /// How many of them had left something behind at the last check.
    deleted_that_matter: usize,
}

impl World {
    /// The state of a part; empty if nothing was observed yet.
    pub fn state<T: State + Default>(&self) -> &T {
        self.states.get()
    }

    /// The same, mutable.
    pub fn state_mut<T: State + Default>(&mut self) -> &mut T {
        self.states.get_mut()
    }

    /// How many changes there were in total.
    pub fn changes(&self) -> u64 {
        self.nodes.changes() + self.states.iter().map(State::changes).sum::<u64>()
    }

    /// Applies an event of a watch.
    pub(crate) fn observe<K: Kind>(&mut self, event: Event<K>) {
        self.lists.note(&event);
        K::observe(self, event);
    }

    /// The lists that began and ended so far.
    pub(crate) fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// Applies the answer to a write that was sent at `sent`.
    pub(crate) fn answer(&mut self, observed: Observation, sent: Lists) {
        self.answered = Some(sent);
        observed.tell(self);
        self.answered = None;
    }

    /// Whether an observation of a kind counts: not in an answer that may be older than a list
    /// ([`tenure_watch::Epoch`]).
    pub(crate) fn counts(&self, kind: &str) -> bool {
        self.answered.as_ref().is_none_or(|sent| self.lists.are_quiet_since(sent, kind))
    }

    /// Whether the API server does not know this kind.
    pub fn lacks(&self, kind: &'static str) -> bool {
        self.lacking.contains(kind)
    }

    /// Notes that the API server does not know this kind, or knows it after all.
    pub fn note_lack(&mut self, kind: &'static str, lacks: bool) {
        if lacks {
            self.unreadable.forget_kind(kind);
            self.lacking.insert(kind);
        } else {
            self.lacking.remove(kind);
        }
    }

    /// An object of this kind cannot be read, or was so and is gone; `kept` if its last readable state stays.
    pub(crate) fn observe_unreadable<K: Kind>(&mut self, event: Event<Stub>, kept: bool) {
        let (stub, gone) = match event {
            Event::Init | Event::InitDone => return,
            Event::InitApply(stub) | Event::Apply(stub) => (stub, false),
            Event::Delete(stub) => (stub, true),
        };
        if kept {
            K::observe_unreadable(self, &stub, gone);
        }
        if gone {
            self.unreadable.forget(K::NAME, &stub.full_name);
        } else {
            self.unreadable.note(K::NAME, stub);
        }
    }

    /// Nodes.
    pub fn nodes(&self) -> &Cache<Node> {
        &self.nodes
    }

    /// A list of nodes begins.
    pub fn begin_nodes(&mut self) {
        self.nodes.begin();
    }

    /// The list of nodes is complete.
    pub fn finish_nodes(&mut self) {
        self.nodes.finish();
    }

    /// The current state of a node.
    pub fn apply_node(&mut self, node: Node) {
        self.deleted_nodes.remove(&node.name_any());
        self.nodes.apply(node);
    }

    /// A node of a list.
    pub fn list_node(&mut self, node: Node) {
        self.deleted_nodes.remove(&node.name_any());
        self.nodes.list(node);
    }

    /// A node was deleted: it will not come back as the same one, so no second look is needed.
    pub fn delete_node(&mut self, name: &str, uid: &str) {
        self.nodes.remove(name, uid);
        if self.nodes.get(name).is_none() {
            self.deleted_nodes.insert(name.to_owned());
        }
        // Each check walks everything, so the next is at twice the number.
        if self.deleted_nodes.len() > MANY.max(self.deleted_that_matter * 2) {
            let matter: BTreeSet<&str> = self.states.iter().flat_map(State::nodes).collect();
            self.deleted_nodes.retain(|node| matter.contains(node.as_str()));
            self.deleted_that_matter = self.deleted_nodes.len();
        }
    }

    /// Whether such a node exists and is not declared out of service. A node that cannot be read exists.
    pub(crate) fn lives(&self, node: &str) -> bool {
        let nodes = &self.nodes;
        nodes.is_unreadable(node) || nodes.get(node).is_some_and(|node| !is_out_of_service(node))
    }

    /// Whether the deletion of this node was seen.
    pub fn saw_deletion_of(&self, node: &str) -> bool {
        self.deleted_nodes.contains(node)
    }
}
