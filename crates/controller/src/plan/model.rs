//! An API server of a few lines, for tests of plans: objects with versions, compare-and-swap, finalizers, and a log
//! from which each leader learns as late as the test likes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, IPAMClaimSpec};
use tenure_api::coil::annotation::WITHHELD_FOR;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, BlockRequestSpec, label};
use tenure_api::release::{RELEASING, mark_of};
use tenure_claims::PodFacts;
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::time;
use crate::cache::Cache;
use crate::claims::{Claim, ClaimId, ClaimWrite, MoveWrite, Planted, PodId, namespace_seen};
use crate::coil::{Because, BlockWrite, locks};
use crate::pods::PodSeen;
use crate::world::World;
use crate::write::{At, Write};

mod leaders;

pub(crate) use leaders::{Leaders, Turn, turn};

#[derive(Clone)]
pub(crate) enum News {
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

/// What became of a write.
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
    /// Pods that live and have an address of their node's, and their nodes.
    pub(crate) bound: BTreeMap<String, String>,
    pub(crate) log: Vec<News>,
    /// A bug that a test plants.
    pub(crate) planted: Option<Planted>,
}

/// Takes an object into a world, as a watch does.
pub(crate) fn tell(world: &mut World, news: News) {
    fn gone<K: Resource>(cache: &mut Cache<K>, object: &K) {
        cache.remove(&object.name_any(), &object.uid().unwrap());
    }
    match news {
        News::Pool(pool) => world.pools.apply(pool),
        News::Block(block) => world.blocks.apply(block),
        News::Request(request) => world.requests.apply(request),
        News::Node(node) => world.apply_node(node),
        News::PoolGone(pool) => gone(&mut world.pools, &pool),
        News::BlockGone(block) => gone(&mut world.blocks, &block),
        News::RequestGone(request) => gone(&mut world.requests, &request),
        News::NodeGone(node) => world.delete_node(&node.name_any(), &node.uid().unwrap()),
        News::Claim(claim) => world.claims.all.apply(Claim::of(claim)),
        News::ClaimGone(claim) => {
            world.claims.all.remove(&Claim::of(claim.clone()).reference(), &claim.uid().unwrap());
        }
        News::Pod(pod) => world.ledgers.pods.apply(pod),
        News::PodGone(pod) => world.ledgers.pods.remove(&pod.podref),
    }
}

fn namespace(name: &str) -> kube::core::PartialObjectMeta<k8s_openapi::api::core::v1::Namespace> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    kube::core::PartialObjectMeta { metadata, ..kube::core::PartialObjectMeta::default() }
}

impl Server {
    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + self.now)
    }

    /// Everything as it is now, as a first list shows it.
    pub(crate) fn world(&self) -> World {
        let mut world = World::default();
        world.pools.begin();
        world.blocks.begin();
        world.requests.begin();
        world.begin_nodes();
        self.pools.values().cloned().for_each(|pool| world.pools.apply(pool));
        self.blocks.values().cloned().for_each(|block| world.blocks.apply(block));
        self.requests.values().cloned().for_each(|request| world.requests.apply(request));
        self.nodes.values().cloned().for_each(|node| world.apply_node(node));
        world.pools.finish();
        world.blocks.finish();
        world.requests.finish();
        world.finish_nodes();
        world.cluster_network = Some("cluster".to_owned());
        world.planted = self.planted;
        let ledgers = &mut world.ledgers;
        ledgers.attachments.finish();
        ledgers.pods.begin();
        self.pods.values().cloned().for_each(|pod| ledgers.pods.apply(pod));
        ledgers.pods.finish();
        let claims = &mut world.claims;
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
        self.log.push(News::Claim(claim.clone()));
        self.claims.insert(claim.name_any(), claim.clone());
        claim.uid().unwrap()
    }

    pub(crate) fn delete_claim(&mut self, name: &str) {
        if let Some(claim) = self.claims.remove(name) {
            self.log.push(News::ClaimGone(claim));
        }
    }

    /// A pod of a node that refers to a claim; its UID.
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
        let pod = PodSeen { podref, uid: uid.clone(), addresses: None, facts: Some(Box::new(facts)) };
        self.put_pod(name, pod);
        uid
    }

    pub(crate) fn put_pod(&mut self, name: &str, pod: PodSeen) {
        self.log.push(News::Pod(pod.clone()));
        self.pods.insert(name.to_owned(), pod);
    }

    /// Somebody writes over what a pod's annotations say.
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
            self.log.push(News::PodGone(pod));
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
        self.log.push(News::Pool(pool.clone()));
        if pool.metadata.deletion_timestamp.is_some() && pool.finalizers().is_empty() {
            self.pools.remove(&pool.name_any());
            return self.log.push(News::PoolGone(pool));
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
        self.log.push(News::Node(node.clone()));
        self.nodes.insert(name.to_owned(), node);
    }

    /// Deletes a node and, as a garbage collector does, the requests that it owns.
    pub(crate) fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.log.push(News::NodeGone(node));
        }
        let owned = self.requests.values().filter(|request| request.spec.node_name == name);
        for request in owned.map(ResourceExt::name_any).collect::<Vec<_>>() {
            self.delete_request(&request);
        }
    }

    pub(crate) fn request(&mut self, name: &str, node: &str, pool: &str) -> String {
        let spec = BlockRequestSpec { node_name: node.to_owned(), pool_name: pool.to_owned() };
        let mut request = BlockRequest::new(name, spec);
        self.stamp(&mut request);
        self.log.push(News::Request(request.clone()));
        self.requests.insert(name.to_owned(), request.clone());
        request.uid().unwrap()
    }

    pub(crate) fn delete_request(&mut self, name: &str) {
        if let Some(request) = self.requests.remove(name) {
            self.log.push(News::RequestGone(request));
        }
    }

    pub(crate) fn put_block(&mut self, mut block: AddressBlock) {
        self.stamp(&mut block);
        self.log.push(News::Block(block.clone()));
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
            self.log.push(News::BlockGone(block));
        }
    }

    fn is_at(object: Option<&impl Resource>, at: &At) -> bool {
        object.is_some_and(|object| {
            object.uid().as_deref() == Some(at.uid.as_str())
                && object.resource_version().as_deref() == Some(at.version.as_str())
        })
    }

    pub(crate) fn write(&mut self, write: &Write) -> Outcome {
        if let Some(write) = write.of::<BlockWrite>() {
            return self.write_block(write);
        }
        if let Some(write) = write.of::<ClaimWrite>() {
            return self.write_claim(write);
        }
        let Some(MoveWrite::Hold { claim, slots, .. }) = write.of::<MoveWrite>() else {
            panic!("nobody asked for {write:?}");
        };
        if !Self::is_at(self.claims.get(&claim.name), claim) {
            return Outcome::Conflict;
        }
        let mut claim = self.claims[&claim.name].clone();
        claim.annotations_mut().insert("tenure/holders".to_owned(), slots.to_annotation());
        self.put_claim(claim);
        Outcome::Done
    }

    fn write_block(&mut self, write: &BlockWrite) -> Outcome {
        match write {
            BlockWrite::Reserve { request, block } => self.update_request(request, |request| {
                request.status.get_or_insert_default().address_block_name = Some(block.clone());
            }),
            BlockWrite::Answer { request, status, unless_exists } => {
                let promised = unless_exists.as_ref().and_then(|block| self.blocks.get(block));
                if promised.is_some_and(|block| block.request_uid() == Some(&request.uid)) {
                    return Outcome::Conflict;
                }
                self.update_request(request, |request| request.status = Some(status.clone()))
            }
            BlockWrite::Create { block } => {
                let pools: Vec<AddressPool> = self.pools.values().cloned().collect();
                let Ok(locks) = locks(&pools, block) else { return Outcome::Conflict };
                if locks.iter().any(|lock| !self.occupy(lock)) {
                    return Outcome::Conflict;
                }
                self.create(block)
            }
            BlockWrite::Unlock { block, pools } => {
                if self.has_any(pools) {
                    return Outcome::Conflict;
                }
                self.delete_block(block)
            }
            BlockWrite::PoolStatus { pool, status } => {
                self.update_pool(pool, |pool| pool.status = Some((**status).clone()))
            }
            BlockWrite::PoolFinalizers { pool, finalizers } => {
                self.update_pool(pool, |pool| pool.metadata.finalizers = Some(finalizers.clone()))
            }
            BlockWrite::MarkBlock { block, node, mark } => {
                if self.is_in_use(node) {
                    return Outcome::Conflict;
                }
                self.annotate_block(block, Some(mark.as_str()))
            }
            BlockWrite::UnmarkBlock { block } => self.annotate_block(block, None),
            BlockWrite::ReleaseBlock { block, node, because, .. } => {
                if *because == Because::NodeIsGone && self.is_in_use(node) {
                    self.annotate_block(block, None);
                    return Outcome::Conflict;
                }
                self.delete_block(block)
            }
        }
    }

    /// Creates a block unless its name is taken.
    pub(crate) fn create(&mut self, block: &AddressBlock) -> Outcome {
        if self.blocks.contains_key(&block.name_any()) {
            return Outcome::AlreadyExists;
        }
        self.put_block(block.clone());
        Outcome::Done
    }

    /// Occupies the name of a block, or finds that it is occupied already; not if somebody has the block.
    pub(crate) fn occupy(&mut self, lock: &AddressBlock) -> bool {
        let Some(there) = self.blocks.get(&lock.name_any()) else {
            self.put_block(lock.clone());
            return true;
        };
        if !there.is_withheld() || there.owner_references() != lock.owner_references() {
            return false;
        }
        let mut all: Vec<&str> = there.withheld_for().collect();
        let missing: Vec<&str> = lock.withheld_for().filter(|uid| !all.contains(uid)).collect();
        if !missing.is_empty() {
            all.extend(missing);
            let all = all.join(",");
            let mut there = there.clone();
            there.annotations_mut().insert(WITHHELD_FOR.to_owned(), all);
            self.put_block(there);
        }
        true
    }

    /// Whether one of these pools is there.
    pub(crate) fn has_any(&self, uids: &[String]) -> bool {
        self.pools.values().filter_map(ResourceExt::uid).any(|uid| uids.contains(&uid))
    }

    /// Whether a node is there, or a pod that lives is bound to it: what is read live before a block is marked or released.
    pub(crate) fn is_in_use(&self, node: &str) -> bool {
        self.nodes.contains_key(node) || self.bound.values().any(|bound| bound == node)
    }

    /// Writes a block's mark, or takes it off.
    pub(crate) fn annotate_block(&mut self, at: &At, mark: Option<&str>) -> Outcome {
        if !Self::is_at(self.blocks.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut block = self.blocks[&at.name].clone();
        match mark {
            Some(mark) => _ = block.annotations_mut().insert(RELEASING.to_owned(), mark.to_owned()),
            None => _ = block.annotations_mut().remove(RELEASING),
        }
        self.put_block(block);
        Outcome::Done
    }

    /// The agent of a node takes the marks off its blocks.
    pub(crate) fn unmark_own(&mut self, node: &str) {
        let own =
            self.blocks.values().filter(|block| block.node() == Some(node) && mark_of(*block).is_some());
        for at in own.map(At::of).collect::<Vec<_>>() {
            self.annotate_block(&at, None);
        }
    }

    /// Deletes a block at a version.
    pub(crate) fn delete_block(&mut self, at: &At) -> Outcome {
        if !Self::is_at(self.blocks.get(&at.name), at) {
            return Outcome::Conflict;
        }
        self.return_block(&at.name);
        Outcome::Done
    }

    fn write_claim(&mut self, write: &ClaimWrite) -> Outcome {
        match write {
            ClaimWrite::Records { block, records, finalizers, gone, named } => {
                let lives = |id: &ClaimId| {
                    self.claims.get(&id.name).and_then(ResourceExt::uid).as_ref() == Some(&id.uid)
                };
                let blind = self.planted == Some(Planted::AnnotationsFree);
                let alive =
                    |id: &PodId| !blind && self.pods.get(&id.name).is_some_and(|pod| pod.uid == id.uid);
                if gone.claims.iter().any(lives)
                    || !named.iter().all(lives)
                    || gone.pods.iter().any(alive)
                    || !Self::is_at(self.blocks.get(&block.name), block)
                {
                    return Outcome::Conflict;
                }
                let mut block = self.blocks[&block.name].clone();
                block.spec.claims.clone_from(records);
                block.metadata.finalizers = Some(finalizers.clone());
                self.put_block(block);
                Outcome::Done
            }
            ClaimWrite::DropBlock { block, .. } => {
                if !Self::is_at(self.blocks.get(&block.name), block) {
                    return Outcome::Conflict;
                }
                self.return_block(&block.name);
                Outcome::Done
            }
            ClaimWrite::Status { claim, status, .. } => {
                if !Self::is_at(self.claims.get(&claim.name), claim) {
                    return Outcome::Conflict;
                }
                let mut claim = self.claims[&claim.name].clone();
                claim.status = Some((**status).clone());
                self.put_claim(claim);
                Outcome::Done
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn update_request(&mut self, at: &At, change: impl FnOnce(&mut BlockRequest)) -> Outcome {
        if !Self::is_at(self.requests.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut request = self.requests[&at.name].clone();
        change(&mut request);
        self.stamp(&mut request);
        self.log.push(News::Request(request.clone()));
        self.requests.insert(at.name.clone(), request);
        Outcome::Done
    }

    fn update_pool(&mut self, at: &At, change: impl FnOnce(&mut AddressPool)) -> Outcome {
        if !Self::is_at(self.pools.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut pool = self.pools[&at.name].clone();
        change(&mut pool);
        self.put_pool(pool);
        Outcome::Done
    }

    /// The same where a write may conflict with what stands in its way.
    pub(crate) fn try_to_settle(&mut self, planner: &mut super::Planner) {
        let mut world = self.world();
        for _ in 0..20 {
            for write in planner.plan(&world, self.timestamp()) {
                let before = self.log.len();
                self.write(&write);
                self.log[before..].iter().cloned().for_each(|news| tell(&mut world, news));
            }
        }
    }

    /// Plans and writes with one leader that knows everything, until there is nothing to do.
    pub(crate) fn settle(&mut self, planner: &mut super::Planner) -> Vec<Write> {
        let (mut done, mut world) = (Vec::new(), self.world());
        for _ in 0..20 {
            let writes = planner.plan(&world, self.timestamp());
            if writes.is_empty() {
                return done;
            }
            for write in writes {
                let before = self.log.len();
                assert_eq!(self.write(&write), Outcome::Done, "{write:?}");
                self.log[before..].iter().cloned().for_each(|news| tell(&mut world, news));
                done.push(write);
            }
        }
        panic!("there is always something to do: {:?}", planner.plan(&world, self.timestamp()));
    }
}
