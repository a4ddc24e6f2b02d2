//! An API server of a few lines, for tests of plans: objects with versions, compare-and-swap, finalizers, and a log
//! from which each leader learns as late as the test likes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, BlockRequestSpec, label};
use tenure_handles::Timestamp;

use super::time;
use crate::cache::Cache;
use crate::world::World;
use crate::write::{At, Because, Write};

#[derive(Clone)]
pub(super) enum News {
    Pool(AddressPool),
    Block(AddressBlock),
    Request(BlockRequest),
    Node(Node),
    PoolGone(AddressPool),
    BlockGone(AddressBlock),
    RequestGone(BlockRequest),
    NodeGone(Node),
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Conflict,
    AlreadyExists,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) now: u64,
    version: u64,
    pub(super) pools: BTreeMap<String, AddressPool>,
    pub(super) blocks: BTreeMap<String, AddressBlock>,
    pub(super) requests: BTreeMap<String, BlockRequest>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) log: Vec<News>,
}

/// Takes an object into a world, as a watch does.
pub(super) fn tell(world: &mut World, news: News) {
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
        News::NodeGone(node) => world.delete_node(&node),
    }
}

impl Server {
    pub(super) fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + self.now)
    }

    /// Everything as it is now, as a first list shows it.
    pub(super) fn world(&self) -> World {
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
        world
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

    pub(super) fn put_pool(&mut self, mut pool: AddressPool) {
        self.stamp(&mut pool);
        self.log.push(News::Pool(pool.clone()));
        if pool.metadata.deletion_timestamp.is_some() && pool.finalizers().is_empty() {
            self.pools.remove(&pool.name_any());
            return self.log.push(News::PoolGone(pool));
        }
        self.pools.insert(pool.name_any(), pool);
    }

    pub(super) fn pool(&mut self, name: &str, bits: i32, subnets: &[&str], exclude: &[&str]) {
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

    pub(super) fn delete_pool(&mut self, name: &str) {
        if let Some(mut pool) = self.pools.get(name).cloned() {
            pool.metadata.deletion_timestamp = Some(time(self.timestamp()));
            self.put_pool(pool);
        }
    }

    pub(super) fn node(&mut self, name: &str, taint: Option<&str>) {
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
    pub(super) fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.log.push(News::NodeGone(node));
        }
        let owned = self.requests.values().filter(|request| request.spec.node_name == name);
        for request in owned.map(ResourceExt::name_any).collect::<Vec<_>>() {
            self.delete_request(&request);
        }
    }

    pub(super) fn request(&mut self, name: &str, node: &str, pool: &str) -> String {
        let spec = BlockRequestSpec { node_name: node.to_owned(), pool_name: pool.to_owned() };
        let mut request = BlockRequest::new(name, spec);
        self.stamp(&mut request);
        self.log.push(News::Request(request.clone()));
        self.requests.insert(name.to_owned(), request.clone());
        request.uid().unwrap()
    }

    pub(super) fn delete_request(&mut self, name: &str) {
        if let Some(request) = self.requests.remove(name) {
            self.log.push(News::RequestGone(request));
        }
    }

    pub(super) fn put_block(&mut self, mut block: AddressBlock) {
        self.stamp(&mut block);
        self.log.push(News::Block(block.clone()));
        self.blocks.insert(block.name_any(), block);
    }

    /// A block that an earlier system left behind.
    pub(super) fn reserve(&mut self, block: &str) {
        let mut block = self.blocks.get(block).cloned().unwrap();
        block.labels_mut().insert(label::RESERVED.to_owned(), String::new());
        self.put_block(block);
    }

    /// The owner returns a block.
    pub(super) fn return_block(&mut self, name: &str) {
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

    pub(super) fn write(&mut self, write: &Write) -> Outcome {
        match write {
            Write::Reserve { request, block } => self.update_request(request, |request| {
                request.status.get_or_insert_default().address_block_name = Some(block.clone());
            }),
            Write::Answer { request, status, unless_exists } => {
                let promised = unless_exists.as_ref().and_then(|block| self.blocks.get(block));
                if promised.is_some_and(|block| block.request_uid() == Some(&request.uid)) {
                    return Outcome::Conflict;
                }
                self.update_request(request, |request| request.status = Some(status.clone()))
            }
            Write::Create { block } if self.blocks.contains_key(&block.name_any()) => Outcome::AlreadyExists,
            Write::Create { block } => {
                self.put_block((**block).clone());
                Outcome::Done
            }
            Write::PoolStatus { pool, status } => {
                self.update_pool(pool, |pool| pool.status = Some((**status).clone()))
            }
            Write::PoolFinalizers { pool, finalizers } => {
                self.update_pool(pool, |pool| pool.metadata.finalizers = Some(finalizers.clone()))
            }
            Write::ReleaseBlock { block, node, because, .. } => {
                let alive = *because == Because::NodeIsGone && self.nodes.contains_key(node);
                if alive || !Self::is_at(self.blocks.get(&block.name), block) {
                    return Outcome::Conflict;
                }
                self.return_block(&block.name);
                Outcome::Done
            }
            Write::Ledger(write) => panic!("nobody asked for {write:?}"),
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

    /// Plans and writes with one leader that knows everything, until there is nothing to do.
    pub(super) fn settle(&mut self, planner: &mut super::Planner) -> Vec<Write> {
        let mut done = Vec::new();
        for _ in 0..20 {
            let writes = planner.plan(&self.world(), self.timestamp());
            if writes.is_empty() {
                return done;
            }
            for write in writes {
                assert_eq!(self.write(&write), Outcome::Done, "{write:?}");
                done.push(write);
            }
        }
        panic!("there is always something to do: {:?}", planner.plan(&self.world(), self.timestamp()));
    }
}
