//! A small API server for tests of plans: objects with versions, compare-and-swap, finalizers, and a log that each
//! leader reads as late as the test likes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, IPAMClaimSpec};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, BlockRequestSpec, label};
use tenure_claims::PodFacts;
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::time;
use crate::cache::Cache;
use crate::claims::{Claim, Planted, namespace_seen};
use crate::pods::PodSeen;
use crate::world::World;
use crate::write::Write;

mod leaders;
mod writes;

pub(crate) use leaders::{Leaders, Turn, turn};

#[derive(Clone)]
pub(crate) enum Update {
    Pool(AddressPool),
    Block(AddressBlock),
    Request(BlockRequest),
    Node(Node),
    PoolGone(AddressPool),
    BlockGone(AddressBlock),
    RequestGone(BlockRequest),
    NodeGone(Node),
    Claim(IPAMClaim),
    ClaimGone(IPAMClaim),
    Pod(PodSeen),
    PodGone(PodSeen),
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Conflict,
    AlreadyExists,
}

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) now: u64,
    version: u64,
    pub(crate) pools: BTreeMap<String, AddressPool>,
    pub(crate) blocks: BTreeMap<String, AddressBlock>,
    pub(crate) requests: BTreeMap<String, BlockRequest>,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Claims and pods of the namespace `ns`.
    pub(crate) claims: BTreeMap<String, IPAMClaim>,
    pub(crate) pods: BTreeMap<String, PodSeen>,
    /// Living pods with an address of their node, and their nodes.
    pub(crate) bound: BTreeMap<String, String>,
    pub(crate) log: Vec<Update>,
    /// A bug that a test plants.
    pub(crate) planted: Option<Planted>,
}

/// Applies an object to a world, like a watch.
pub(crate) fn tell(world: &mut World, update: Update) {
    fn gone<K: Resource>(cache: &mut Cache<K>, object: &K) {
        cache.remove(&object.name_any(), &object.uid().unwrap());
    }
    match update {
        Update::Pool(pool) => world.coil_mut().pools.apply(pool),
        Update::Block(block) => world.coil_mut().blocks.apply(block),
        Update::Request(request) => world.coil_mut().requests.apply(request),
        Update::Node(node) => world.apply_node(node),
        Update::PoolGone(pool) => gone(&mut world.coil_mut().pools, &pool),
        Update::BlockGone(block) => gone(&mut world.coil_mut().blocks, &block),
        Update::RequestGone(request) => gone(&mut world.coil_mut().requests, &request),
        Update::NodeGone(node) => world.delete_node(&node.name_any(), &node.uid().unwrap()),
        Update::Claim(claim) => world.claims_mut().all.apply(Claim::of(claim)),
        Update::ClaimGone(claim) => {
            world.claims_mut().all.remove(&Claim::of(claim.clone()).reference(), &claim.uid().unwrap());
        }
        Update::Pod(pod) => world.ledgers_mut().pods.apply(pod),
        Update::PodGone(pod) => world.ledgers_mut().pods.remove(&pod.podref),
    }
}

/// A pool of `blocks` blocks of two addresses, and nodes `a`, `b` and `c`.
pub(crate) fn server(blocks: u32) -> Server {
    let mut server = Server::default();
    let subnet = format!("10.0.0.0/{}", 31 - blocks.ilog2());
    server.pool("p", 1, &[&subnet], &[]);
    for node in ["a", "b", "c"] {
        server.node(node, None);
    }
    server
}

fn namespace(name: &str) -> kube::core::PartialObjectMeta<k8s_openapi::api::core::v1::Namespace> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    kube::core::PartialObjectMeta { metadata, ..kube::core::PartialObjectMeta::default() }
}

impl Server {
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + self.now)
    }

    /// Everything, as a first list shows it.
    pub(crate) fn world(&self) -> World {
        let mut world = World::default();
        world.coil_mut().pools.begin();
        world.coil_mut().blocks.begin();
        world.coil_mut().requests.begin();
        world.begin_nodes();
        self.pools.values().cloned().for_each(|pool| world.coil_mut().pools.apply(pool));
        self.blocks.values().cloned().for_each(|block| world.coil_mut().blocks.apply(block));
        self.requests.values().cloned().for_each(|request| world.coil_mut().requests.apply(request));
        self.nodes.values().cloned().for_each(|node| world.apply_node(node));
        world.coil_mut().pools.finish();
        world.coil_mut().blocks.finish();
        world.coil_mut().requests.finish();
        world.finish_nodes();
        world.claims_mut().cluster_network = Some("cluster".to_owned());
        world.claims_mut().planted = self.planted;
        let ledgers = world.ledgers_mut();
        ledgers.attachments.finish();
        ledgers.pods.begin();
        self.pods.values().cloned().for_each(|pod| ledgers.pods.apply(pod));
        ledgers.pods.finish();
        let claims = world.claims_mut();
        claims.namespaces.apply(namespace_seen(&namespace("ns")));
        claims.namespaces.finish();
        claims.all.begin();
        self.claims.values().cloned().for_each(|claim| claims.all.apply(Claim::of(claim)));
        claims.all.finish();
        world
    }

    /// A claim on the cluster's network.
    pub(crate) fn claim(&mut self, name: &str, wish: Option<&str>) -> String {
        let spec = IPAMClaimSpec { network: "cluster".to_owned(), interface: "eth0".to_owned() };
        let mut claim = IPAMClaim::new(name, spec);
        claim.metadata.namespace = Some("ns".to_owned());
        claim.metadata.annotations =
            wish.map(|ips| BTreeMap::from([("tenure/ips".to_owned(), ips.to_owned())]));
        self.put_claim(claim)
    }

    pub(crate) fn put_claim(&mut self, mut claim: IPAMClaim) -> String {
        self.stamp(&mut claim);
        self.log.push(Update::Claim(claim.clone()));
        self.claims.insert(claim.name_any(), claim.clone());
        claim.uid().unwrap()
    }

    pub(crate) fn delete_claim(&mut self, name: &str) {
        if let Some(claim) = self.claims.remove(name) {
            self.log.push(Update::ClaimGone(claim));
        }
    }

    /// A pod of a node that refers to a claim. Returns its UID.
    pub(crate) fn pod(&mut self, name: &str, claim: &str, node: &str) -> String {
        self.version += 1;
        let facts = PodFacts {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("pod-{}", self.version),
            created: self.timestamp(),
            default_claim: Some(claim.to_owned()),
            node: Some(node.to_owned()),
            ..PodFacts::default()
        };
        let uid = facts.uid.clone();
        let podref = format!("ns/{name}");
        let pod =
            PodSeen { podref, uid: uid.clone(), addresses: None, report: None, facts: Some(Box::new(facts)) };
        self.put_pod(name, pod);
        uid
    }

    pub(crate) fn put_pod(&mut self, name: &str, pod: PodSeen) {
        self.log.push(Update::Pod(pod.clone()));
        self.pods.insert(name.to_owned(), pod);
    }

    /// Somebody overwrites a pod's annotations.
    pub(crate) fn annotate(
        &mut self,
        name: &str,
        addresses: Option<Vec<Address>>,
        default_claim: Option<&str>,
    ) {
        let Some(mut pod) = self.pods.get(name).cloned() else { return };
        pod.addresses = addresses.map(Vec::into_boxed_slice);
        if let Some(facts) = &mut pod.facts {
            facts.default_claim = default_claim.map(str::to_owned);
        }
        self.put_pod(name, pod);
    }

    pub(crate) fn delete_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.log.push(Update::PodGone(pod));
        }
    }

    fn stamp<K: Resource>(&mut self, object: &mut K) {
        self.version += 1;
        let version = self.version.to_string();
        let now = time(self.timestamp());
        let meta = object.meta_mut();
        meta.uid.get_or_insert_with(|| format!("uid-{version}"));
        meta.creation_timestamp.get_or_insert(now);
        meta.resource_version = Some(version);
    }

    pub(crate) fn put_pool(&mut self, mut pool: AddressPool) {
        self.stamp(&mut pool);
        self.log.push(Update::Pool(pool.clone()));
        if pool.metadata.deletion_timestamp.is_some() && pool.finalizers().is_empty() {
            self.pools.remove(&pool.name_any());
            return self.log.push(Update::PoolGone(pool));
        }
        self.pools.insert(pool.name_any(), pool);
    }

    pub(crate) fn pool(&mut self, name: &str, bits: i32, subnets: &[&str], exclude: &[&str]) {
        let subnets: Vec<_> = subnets.iter().map(|subnet| json!({"ipv4": subnet})).collect();
        let spec = json!({"blockSizeBits": bits, "subnets": subnets, "exclude": exclude});
        let mut pool = AddressPool::new(name, serde_json::from_value(spec).unwrap());
        if let Some(known) = self.pools.get(name) {
            let spec = pool.spec;
            pool = known.clone();
            pool.spec = spec;
        }
        self.put_pool(pool);
    }

    pub(crate) fn delete_pool(&mut self, name: &str) {
        if let Some(mut pool) = self.pools.get(name).cloned() {
            pool.metadata.deletion_timestamp = Some(time(self.timestamp()));
            self.put_pool(pool);
        }
    }

    pub(crate) fn node(&mut self, name: &str, taint: Option<&str>) {
        let mut node = self.nodes.get(name).cloned().unwrap_or_default();
        node.metadata.name = Some(name.to_owned());
        let taint = taint.map(|key| Taint {
            key: key.to_owned(),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        });
        node.spec = Some(NodeSpec { taints: Some(taint.into_iter().collect()), ..NodeSpec::default() });
        self.stamp(&mut node);
        self.log.push(Update::Node(node.clone()));
        self.nodes.insert(name.to_owned(), node);
    }

    /// Deletes a node and, like the garbage collector, the requests that it owns.
    pub(crate) fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.log.push(Update::NodeGone(node));
        }
        let owned = self.requests.values().filter(|request| request.spec.node_name == name);
        for request in owned.map(ResourceExt::name_any).collect::<Vec<_>>() {
            self.delete_request(&request);
        }
    }

    /// A node requests a block, and expects the answer in the status.
    pub(crate) fn request(&mut self, name: &str, node: &str, pool: &str) -> String {
        self.request_answered(name, node, pool, false)
    }

    /// The same; the block may be the answer.
    pub(crate) fn request_answered(&mut self, name: &str, node: &str, pool: &str, by_block: bool) -> String {
        let spec = BlockRequestSpec { node_name: node.to_owned(), pool_name: pool.to_owned() };
        let mut request = BlockRequest::new(name, spec);
        if by_block {
            request = request.answered_by_block();
        }
        self.stamp(&mut request);
        self.log.push(Update::Request(request.clone()));
        self.requests.insert(name.to_owned(), request.clone());
        request.uid().unwrap()
    }

    pub(crate) fn delete_request(&mut self, name: &str) {
        if let Some(request) = self.requests.remove(name) {
            self.log.push(Update::RequestGone(request));
        }
    }

    pub(crate) fn put_block(&mut self, mut block: AddressBlock) {
        self.stamp(&mut block);
        self.log.push(Update::Block(block.clone()));
        self.blocks.insert(block.name_any(), block);
    }

    /// A block that an earlier system left behind.
    pub(crate) fn reserve(&mut self, block: &str) {
        let mut block = self.blocks.get(block).cloned().unwrap();
        block.labels_mut().insert(label::RESERVED.to_owned(), String::new());
        self.put_block(block);
    }

    /// The owner returns a block.
    pub(crate) fn return_block(&mut self, name: &str) {
        if let Some(block) = self.blocks.remove(name) {
            self.log.push(Update::BlockGone(block));
        }
    }

    /// The same for a write that may conflict.
    pub(crate) fn try_to_settle(&mut self, planner: &mut super::Planner) {
        let (mut world, mut heard) = (self.world(), self.log.len());
        for _ in 0..20 {
            for write in planner.plan(&world, self.timestamp()) {
                self.write(&write);
            }
            if heard == self.log.len() {
                return;
            }
            heard = self.catch_up(&mut world, heard);
        }
    }

    /// Plans and writes with one leader that knows everything, until there is nothing to do.
    pub(crate) fn settle(&mut self, planner: &mut super::Planner) -> Vec<Write> {
        let mut done = Vec::new();
        let (mut world, mut heard) = (self.world(), self.log.len());
        for _ in 0..20 {
            let writes = planner.plan(&world, self.timestamp());
            if writes.is_empty() {
                return done;
            }
            for write in writes {
                assert_eq!(self.write(&write), Outcome::Done, "{write:?}");
                done.push(write);
            }
            heard = self.catch_up(&mut world, heard);
        }
        panic!("there is always something to do: {:?}", planner.plan(&world, self.timestamp()));
    }

    /// Brings a world that has read this much of the log up to date.
    fn catch_up(&self, world: &mut World, heard: usize) -> usize {
        self.log[heard..].iter().cloned().for_each(|update| tell(world, update));
        self.log.len()
    }
}
