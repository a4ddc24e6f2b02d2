//! What the controller knows.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::IPPool;

use crate::cache::Cache;
use crate::claims::{Claims, Owners, Persistence};
use crate::kind::Kind;
use crate::nodes::is_out_of_service;
use crate::release::MissingNodeRest;
use crate::unreadable::{Stub, Unreadables};
use crate::whereabouts::Ledgers;
use crate::write::Write;

/// So many deleted nodes are remembered before those are forgotten that have left nothing behind.
const MANY: usize = 1024;

/// Pools, blocks, requests and nodes, as far as they are known.
#[derive(Debug, Default)]
pub struct World {
    /// Pools.
    pub pools: Cache<AddressPool>,
    /// Blocks.
    pub blocks: Cache<AddressBlock>,
    /// Requests.
    pub requests: Cache<BlockRequest>,
    /// Whereabouts' ranges.
    pub ledgers: Ledgers,
    /// Claims.
    pub claims: Claims,
    /// Owners of claims.
    pub owners: Owners,
    /// The name of the cluster's default network, if it lets addresses outlive pods.
    pub cluster_network: Option<String>,
    /// How long a pod has to be gone together with its Node object before it counts as ended.
    pub missing_node_rest: MissingNodeRest,
    /// Writes that are in flight.
    pub in_flight: Vec<Write>,
    /// What lets addresses outlive pods.
    pub(crate) persistence: Persistence,
    /// What parts keep of objects that only they watch.
    states: States,
    /// Objects that are there and cannot be read.
    pub(crate) unreadable: Unreadables,
    /// A bug that a test plants, to see that checkers find it.
    #[cfg(test)]
    pub(crate) planted: Option<crate::claims::Planted>,
    /// Tells the worlds of tests apart.
    #[cfg(test)]
    pub(crate) identity: crate::plan::WorldIdentity,
    /// Kinds that the API server does not know.
    lacking: BTreeSet<&'static str>,
    nodes: Cache<Node>,
    /// Nodes whose deletion was seen, and not only their absence.
    deleted_nodes: BTreeSet<String>,
    /// How many of them have left something behind, when that was last looked at.
    deleted_that_matter: usize,
}

/// What parts keep, by its type.
#[derive(Debug, Default)]
struct States(HashMap<TypeId, Box<dyn Any + Send>>);

impl World {
    /// What a part keeps of objects that only it watches; nothing if nothing was observed yet.
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.states.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The same, to be changed.
    pub fn state_mut<T: Any + Default + Send>(&mut self) -> Option<&mut T> {
        self.states.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default()).downcast_mut()
    }

    /// Nothing is known yet but the name of the cluster's default network, if it lets addresses outlive pods.
    pub fn of_cluster_network(cluster_network: Option<String>) -> Self {
        Self { cluster_network, ..Self::default() }
    }

    /// Whether everything that blocks depend on has come in at least once. Before, absence means nothing.
    pub fn is_complete(&self) -> bool {
        self.pools.is_complete()
            && self.blocks.is_complete()
            && self.requests.is_complete()
            && self.nodes.is_complete()
    }

    /// How often something has changed, all in all.
    pub fn changes(&self) -> u64 {
        let Self { pools, blocks, requests, ledgers, claims, owners, nodes, .. } = self;
        let of_blocks = pools.changes() + blocks.changes() + requests.changes() + nodes.changes();
        let of_ranges = ledgers.attachments.changes() + ledgers.slices.changes() + ledgers.pools.changes();
        let of_use = ledgers.reservations.changes() + ledgers.pods.changes();
        let of_claims = claims.all.changes() + claims.namespaces.changes();
        let of_machines = owners.machines.changes() + owners.instances.changes();
        let of_others = owners.stateful_sets.changes() + owners.webhooks.changes();
        of_blocks + of_ranges + of_use + of_claims + of_machines + of_others
    }

    /// Whether the API server does not know this kind.
    pub fn lacks(&self, kind: &'static str) -> bool {
        self.lacking.contains(kind)
    }

    /// The API server does not know this kind, or knows it after all.
    pub fn note_lack(&mut self, kind: &'static str, lacks: bool) {
        if lacks {
            self.unreadable.forget_kind(kind);
            self.lacking.insert(kind);
        } else {
            self.lacking.remove(kind);
        }
    }

    /// An object of this kind cannot be read, or was so and is gone; `kept` if what was last read of it stays.
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

    /// A node as it is.
    pub fn apply_node(&mut self, node: Node) {
        self.deleted_nodes.remove(&node.name_any());
        self.nodes.apply(node);
    }

    /// A node as a list shows it.
    pub fn list_node(&mut self, node: Node) {
        self.deleted_nodes.remove(&node.name_any());
        self.nodes.list(node);
    }

    /// A node was deleted: it will not come back as the same one, so nobody has to wait for a second look.
    pub fn delete_node(&mut self, name: &str, uid: &str) {
        self.nodes.remove(name, uid);
        if self.nodes.get(name).is_none() {
            self.deleted_nodes.insert(name.to_owned());
        }
        // Each look is at everything, so the next is when there are twice as many.
        if self.deleted_nodes.len() > MANY.max(self.deleted_that_matter * 2) {
            let of_blocks = self.blocks.iter().filter_map(AddressBlock::node);
            let of_requests = self.requests.iter().map(|request| request.spec.node_name.as_str());
            let matter: BTreeSet<&str> = of_blocks.chain(of_requests).collect();
            self.deleted_nodes.retain(|node| matter.contains(node.as_str()));
            self.deleted_that_matter = self.deleted_nodes.len();
        }
    }

    /// An `IPPool` as it is.
    pub fn apply_ledger(&mut self, pool: IPPool) {
        let ledger = Ledgers::kept(pool, |node| self.lives(node));
        self.ledgers.pools.apply(ledger);
    }

    /// An `IPPool` as a list shows it.
    pub fn list_ledger(&mut self, pool: IPPool) {
        let ledger = Ledgers::kept(pool, |node| self.lives(node));
        self.ledgers.pools.list(ledger);
    }

    /// Whether there is such a node, and nobody has declared it out of service. One that cannot be read is there.
    pub(crate) fn lives(&self, node: &str) -> bool {
        let nodes = &self.nodes;
        nodes.is_unreadable(node) || nodes.get(node).is_some_and(|node| !is_out_of_service(node))
    }

    /// Whether the deletion of this node was seen.
    pub fn saw_deletion_of(&self, node: &str) -> bool {
        self.deleted_nodes.contains(node)
    }
}
