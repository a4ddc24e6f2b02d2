//! A small API server for Whereabouts' objects, nodes and pods, and what a controller has heard of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_api::networks::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{
    Allocation, IPPool, IPPoolSpec, NodeSlicePool, OverlappingRangeIPReservation,
    OverlappingRangeIPReservationSpec,
};
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Act, PoolId, State};
use tenure_whereabouts::slices::GIVEN;

use crate::kind::Kind;
use crate::pods::PodSeen;
use crate::whereabouts::LedgerWrite;
use crate::world::World;
use crate::write::{At, Write};

/// Objects with versions, all known to the world.
pub(super) struct Server {
    pub(super) world: World,
    pub(super) now: Timestamp,
    version: u64,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) definitions: BTreeMap<String, NetworkAttachmentDefinition>,
    pub(super) pools: BTreeMap<String, NodeSlicePool>,
    pub(super) ledgers: BTreeMap<String, IPPool>,
    pub(super) reservations: BTreeMap<String, OverlappingRangeIPReservation>,
    pub(super) pods: BTreeMap<String, PodSeen>,
}

impl Server {
    pub(super) fn new() -> Self {
        let mut server = Self {
            world: World::default(),
            now: Timestamp::from_millis(1_794_000_000_000),
            version: 0,
            nodes: BTreeMap::new(),
            definitions: BTreeMap::new(),
            pools: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            reservations: BTreeMap::new(),
            pods: BTreeMap::new(),
        };
        (0..6).for_each(|kind| server.list(kind));
        server
    }

    /// Lists a kind.
    pub(super) fn list(&mut self, kind: usize) {
        fn list<K: Kind + Clone>(world: &mut World, objects: &BTreeMap<String, K>) {
            K::observe(world, Event::Init);
            for object in objects.values() {
                K::observe(world, Event::InitApply(object.clone()));
            }
            K::observe(world, Event::InitDone);
        }
        let world = &mut self.world;
        match kind {
            0 => list(world, &self.nodes),
            1 => list(world, &self.definitions),
            2 => list(world, &self.pools),
            3 => list(world, &self.ledgers),
            4 => list(world, &self.reservations),
            _ => {
                world.ledgers_mut().pods.begin();
                self.pods.values().for_each(|pod| world.ledgers_mut().pods.apply(pod.clone()));
                world.ledgers_mut().pods.finish();
            }
        }
    }

    fn stamp<K: Resource>(&mut self, mut object: K) -> K {
        self.version += 1;
        let (version, now) = (self.version.to_string(), Time(self.now.to_jiff()));
        let meta = object.meta_mut();
        meta.uid.get_or_insert_with(|| format!("uid-{version}"));
        meta.creation_timestamp.get_or_insert(now);
        meta.resource_version = Some(version);
        object
    }

    pub(super) fn node(&mut self, name: &str, in_service: bool) {
        let mut node = self.nodes.get(name).cloned().unwrap_or_default();
        node.metadata.name = Some(name.to_owned());
        let taint = Taint { key: "node.kubernetes.io/out-of-service".to_owned(), ..Taint::default() };
        let taints = (!in_service).then(|| vec![taint]);
        node.spec = Some(NodeSpec { taints, ..NodeSpec::default() });
        let node = self.stamp(node);
        self.nodes.insert(name.to_owned(), node.clone());
        Node::observe(&mut self.world, Event::Apply(node));
    }

    pub(super) fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            Node::observe(&mut self.world, Event::Delete(node));
        }
    }

    pub(super) fn define(&mut self, name: &str, config: String) {
        let mut it = NetworkAttachmentDefinition::new(name, NetworkAttachmentDefinitionSpec { config });
        it.metadata = self.definitions.get(name).map(|known| known.metadata.clone()).unwrap_or(it.metadata);
        it.metadata.namespace = Some("apps".to_owned());
        it.metadata.generation = Some(it.metadata.generation.unwrap_or(0) + 1);
        let it = self.stamp(it);
        self.definitions.insert(name.to_owned(), it.clone());
        NetworkAttachmentDefinition::observe(&mut self.world, Event::Apply(it));
    }

    pub(super) fn undefine(&mut self, name: &str) {
        if let Some(it) = self.definitions.remove(name) {
            NetworkAttachmentDefinition::observe(&mut self.world, Event::Delete(it));
        }
    }

    /// A ledger with these records. One from another program tells its owner only by its name.
    pub(super) fn ledger(&mut self, id: &PoolId, state: State, records: &[(u8, &str)], labelled: bool) {
        let mut ledger = id.empty_object(0, state).unwrap();
        if !labelled {
            ledger.metadata.labels = None;
        }
        let name = ledger.name_any();
        if let Some(known) = self.ledgers.get(&name) {
            ledger.metadata.uid.clone_from(&known.metadata.uid);
            // A write keeps an existing mark, and what the node was told.
            for kept in [RELEASING, GIVEN] {
                let said = known.annotations().get(kept).cloned();
                ledger.annotations_mut().extend(said.map(|said| (kept.to_owned(), said)));
            }
        }
        let record = |(key, pod): &(u8, &str)| {
            // Whereabouts' own records name no UID.
            let poduid = (key % 2 == 0).then(|| format!("uid-{pod}"));
            let (id, podref) = (format!("c{key}"), format!("ns/{pod}"));
            let record =
                Allocation { id, podref, ifname: Some("net1".to_owned()), poduid, ..Allocation::default() };
            (key.to_string(), record)
        };
        ledger.spec = IPPoolSpec { allocations: records.iter().map(record).collect(), ..ledger.spec };
        self.put_ledger(ledger);
    }

    fn put_ledger(&mut self, ledger: IPPool) {
        let ledger = self.stamp(ledger);
        self.ledgers.insert(ledger.name_any(), ledger.clone());
        IPPool::observe(&mut self.world, Event::Apply(ledger));
    }

    pub(super) fn drop_ledger(&mut self, name: &str) {
        if let Some(ledger) = self.ledgers.remove(name) {
            IPPool::observe(&mut self.world, Event::Delete(ledger));
        }
    }

    pub(super) fn reserve(&mut self, address: &str, pod: &str) {
        let spec = OverlappingRangeIPReservationSpec { podref: format!("ns/{pod}"), ..Default::default() };
        let it = self.stamp(OverlappingRangeIPReservation::new(address, spec));
        self.reservations.insert(address.to_owned(), it.clone());
        OverlappingRangeIPReservation::observe(&mut self.world, Event::Apply(it));
    }

    pub(super) fn unreserve(&mut self, address: &str) {
        if let Some(it) = self.reservations.remove(address) {
            OverlappingRangeIPReservation::observe(&mut self.world, Event::Delete(it));
        }
    }

    /// A pod; the first of its name has the UID that records name.
    pub(super) fn pod(&mut self, name: &str, first: bool, addresses: Option<&[&str]>) {
        let addresses = addresses.map(|all| all.iter().map(|it| it.parse().unwrap()).collect());
        let uid = if first { format!("uid-{name}") } else { "another".to_owned() };
        let pod = PodSeen { podref: format!("ns/{name}"), uid, addresses, report: None, facts: None };
        self.pods.insert(name.to_owned(), pod.clone());
        self.world.ledgers_mut().pods.apply(pod);
    }

    pub(super) fn delete_pod(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            self.world.ledgers_mut().pods.remove(&format!("ns/{name}"));
        }
    }

    /// An object cannot be read any more, until it is written again.
    pub(super) fn garble(&mut self, which: usize) {
        let pick = |names: Vec<&String>| names.get(which % names.len().max(1)).map(|name| (*name).clone());
        if which.is_multiple_of(2) {
            let known = pick(self.pools.keys().collect()).and_then(|name| self.pools.get(&name));
            let known = known.and_then(|known| Some((known.name_any(), known.uid()?)));
            if let Some((name, uid)) = known {
                self.world.ledgers_mut().slices.keep(&name, &uid);
            }
        } else {
            let known = pick(self.ledgers.keys().collect()).and_then(|name| self.ledgers.get(&name));
            let known = known.and_then(|known| Some((known.name_any(), known.uid()?)));
            if let Some((name, uid)) = known {
                self.world.ledgers_mut().pools.keep(&name, &uid);
            }
        }
    }

    /// Performs a planned write, if it still can be done.
    pub(super) fn write(&mut self, write: &Write) {
        let Some(write) = write.of::<LedgerWrite>() else { panic!("nobody asked for {write:?}") };
        match write {
            LedgerWrite::Guard { pool } => {
                if !self.ledgers.contains_key(&pool.name_any()) {
                    self.put_ledger((**pool).clone());
                }
            }
            LedgerWrite::Mark { pool, mark } => {
                let known = self.ledgers.get(&pool.name).and_then(|known| mark.apply(known));
                if let Some(marked) = known {
                    self.put_ledger(marked);
                }
            }
            LedgerWrite::Slices { pool, .. } => {
                let version = |pool: &NodeSlicePool| pool.resource_version();
                if self.pools.get(&pool.name_any()).and_then(version) == version(pool) {
                    let pool = self.stamp((**pool).clone());
                    self.pools.insert(pool.name_any(), pool.clone());
                    NodeSlicePool::observe(&mut self.world, Event::Apply(pool));
                }
            }
            LedgerWrite::ChangeSlices { pool, change, .. } => {
                if let Some(pool) = self.pools.get(&pool.name).and_then(|known| change.apply(known)) {
                    let pool = self.stamp(pool);
                    self.pools.insert(pool.name_any(), pool.clone());
                    NodeSlicePool::observe(&mut self.world, Event::Apply(pool));
                }
            }
            LedgerWrite::DropSlices { pool } => {
                if let Some(pool) = self.pools.remove(&pool.name) {
                    NodeSlicePool::observe(&mut self.world, Event::Delete(pool));
                }
            }
            LedgerWrite::Tell { ledger } => {
                if !self.ledgers.contains_key(&ledger.name_any()) {
                    self.put_ledger((**ledger).clone());
                }
            }
            LedgerWrite::Retell { pool, .. } => {
                if let Some(known) = self.current(pool) {
                    self.put_ledger(write.retell(&known).unwrap());
                }
            }
            LedgerWrite::Untell { pool } => {
                if self.current(pool).is_some() {
                    self.drop_ledger(&pool.name);
                }
            }
            // It is unchanged: no newer version is reported.
            LedgerWrite::Read { pool } => {
                let known = self.ledgers.get(&pool.name).cloned();
                if let Some(known) = known {
                    self.world.apply_ledger(known);
                }
            }
            LedgerWrite::Forget { pool, records, .. } => {
                let Some(mut known) = self.ledgers.get(&pool.name).cloned() else { return };
                for request in records {
                    let Act::Forget { key, record, .. } = &request.act else { continue };
                    known.spec.allocations.retain(|of, it| of != key || it != record);
                }
                self.put_ledger(known);
            }
            LedgerWrite::Unreserve { reservation, .. } => self.unreserve(&reservation.name),
            LedgerWrite::MarkLedger { pool, mark, .. } => {
                let Some(mut known) = self.ledgers.get(&pool.name).cloned() else { return };
                match mark {
                    Some(mark) => _ = known.annotations_mut().insert(RELEASING.to_owned(), mark.clone()),
                    None => _ = known.annotations_mut().remove(RELEASING),
                }
                self.put_ledger(known);
            }
            LedgerWrite::DropLedger { pool, .. } => self.drop_ledger(&pool.name),
        }
    }

    /// A ledger that still has the version at which it was read.
    fn current(&self, at: &At) -> Option<IPPool> {
        let is_it = |known: &&IPPool| known.resource_version().as_ref() == Some(&at.version);
        self.ledgers.get(&at.name).filter(is_it).cloned()
    }

    /// Somebody else writes a node into a slice.
    pub(super) fn meddle(&mut self, which: usize, slice: usize, node: &str) {
        let known = self.pools.values().nth(which % self.pools.len().max(1));
        let Some(mut pool) = known.cloned() else { return };
        let slices = &mut pool.status.get_or_insert_default().allocations;
        let place = slice % slices.len().max(1);
        if let Some(slice) = slices.get_mut(place) {
            node.clone_into(&mut slice.node_name);
        }
        let pool = self.stamp(pool);
        self.pools.insert(pool.name_any(), pool.clone());
        NodeSlicePool::observe(&mut self.world, Event::Apply(pool));
    }

    /// The slice of a node, of any pool.
    pub(super) fn slice_of(&self, node: &str, which: usize) -> Option<PoolId> {
        let pool = self.pools.values().nth(which % self.pools.len().max(1))?;
        let slice = pool.slice_of(node)?.parse().ok()?;
        Some(PoolId::of_node(&tenure_whereabouts::slices::network_of(pool), node, slice))
    }
}

/// The configuration of a network with this IPAM.
pub(super) fn config(name: &str, mut ipam: Value) -> String {
    ipam["type"] = json!("whereabouts");
    json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "ipam": ipam}).to_string()
}
