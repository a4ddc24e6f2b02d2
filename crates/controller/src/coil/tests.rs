//! A plan costs what changed, however much exists.

use kube::ResourceExt;
use serde_json::json;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::{Allocation, IPPool, IPPoolSpec};

use super::*;

const BLOCKS_OF_A_NODE: usize = 10;

/// A cluster of this many nodes, each with ten blocks of two pools and a ledger, with nothing to do.
struct Cluster {
    world: World,
    planner: CoilPlanner,
    version: u64,
    nodes: usize,
}

fn object<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn pool(name: &str, bits: u8, subnet: &str) -> AddressPool {
    object(json!({
        "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"blockSizeBits": bits, "subnets": [{"ipv4": subnet}]},
    }))
}

impl Cluster {
    fn of(nodes: usize) -> Self {
        let (world, planner) = (World::default(), CoilPlanner::new(MISSING_NODE_REST));
        let mut cluster = Self { world, planner, version: 0, nodes };
        cluster.put_pool(pool("p", 5, "10.0.0.0/8"));
        cluster.put_pool(pool("q", 5, "11.0.0.0/8"));
        for node in 0..nodes {
            cluster.put_node(node);
            for number in 0..BLOCKS_OF_A_NODE {
                let pool = ["p", "q"][number % 2];
                cluster.put_block(pool, node * BLOCKS_OF_A_NODE / 2 + number / 2, node);
            }
            cluster.put_ledger(node, &["1", "2", "7"]);
        }
        let CoilObjects { pools, blocks, requests } = cluster.world.coil_mut();
        pools.finish();
        blocks.finish();
        requests.finish();
        cluster.world.ledgers_mut().pools.finish();
        cluster.world.finish_nodes();
        cluster.settle();
        cluster
    }

    fn stamped<K: kube::Resource>(&mut self, mut object: K) -> K {
        self.version += 1;
        object.meta_mut().resource_version = Some(self.version.to_string());
        let uid = format!("uid-{}", self.version);
        object.meta_mut().uid.get_or_insert(uid);
        object
    }

    fn put_pool(&mut self, pool: AddressPool) {
        let pool = self.stamped(pool);
        self.world.coil_mut().pools.apply(pool);
    }

    fn put_node(&mut self, number: usize) {
        let mut node = Node::default();
        node.metadata.name = Some(format!("n{number}"));
        node.metadata.uid = Some(format!("n{number}"));
        let node = self.stamped(node);
        self.world.apply_node(node);
    }

    fn put_block(&mut self, pool: &str, index: usize, node: usize) {
        let pool = self.world.coil().pools.get(pool).unwrap();
        let block = AddressBlock::carve(pool, index as u128, &format!("n{node}"), None).unwrap();
        let block = self.stamped(block);
        self.world.coil_mut().blocks.apply(block);
    }

    fn put_ledger(&mut self, node: usize, offsets: &[&str]) {
        let allocations =
            offsets.iter().map(|offset| ((*offset).to_owned(), Allocation::default())).collect();
        // The first of them overlaps a pool.
        let range = if node == 0 {
            "10.255.0.0/28".to_owned()
        } else {
            format!("20.{}.{}.0/28", node / 256, node % 256)
        };
        let ledger = IPPool::new(&format!("ledger-{node}"), IPPoolSpec { range, allocations });
        let ledger = self.stamped(ledger);
        self.world.apply_ledger(ledger);
    }

    fn put_request(&mut self, name: &str, pool: &str, status: &serde_json::Value) {
        let request = self.request(name, pool, status);
        self.world.coil_mut().requests.apply(request);
    }

    fn request(&mut self, name: &str, pool: &str, status: &serde_json::Value) -> BlockRequest {
        let request = json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "BlockRequest", "metadata": {"name": name, "uid": name},
            "spec": {"nodeName": "n1", "poolName": pool}, "status": status,
        });
        self.stamped(object(request))
    }

    /// The block that the plan creates.
    fn planned_block(&mut self) -> AddressBlock {
        let now = Timestamp::from_millis(1_794_000_000_000);
        let writes = self.planner.plan(&self.world, &mut Board::default(), now);
        let block = writes.iter().find_map(|write| write.of::<BlockWrite>()?.block()).unwrap().clone();
        self.stamped(block)
    }

    /// The plan now, and how many objects it looked at.
    fn plan(&mut self) -> (Vec<&'static str>, usize) {
        let now = Timestamp::from_millis(1_794_000_000_000);
        let writes = self.planner.plan(&self.world, &mut Board::default(), now);
        (writes.iter().map(|write| write.verb()).collect(), self.planner.looked_at)
    }

    /// Writes what pools need.
    fn settle(&mut self) {
        for _ in 0..3 {
            let now = Timestamp::from_millis(1_794_000_000_000);
            for write in self.planner.plan(&self.world, &mut Board::default(), now) {
                match write.of::<BlockWrite>().unwrap().clone() {
                    BlockWrite::PoolFinalizers { pool, finalizers } => {
                        let mut pool = self.world.coil().pools.get(&pool.name).unwrap().clone();
                        pool.metadata.finalizers = Some(finalizers);
                        self.put_pool(pool);
                    }
                    BlockWrite::PoolStatus { pool, status } => {
                        let mut pool = self.world.coil().pools.get(&pool.name).unwrap().clone();
                        pool.status = Some(*status);
                        self.put_pool(pool);
                    }
                    other => panic!("nobody asked for {other:?}"),
                }
            }
        }
        assert_eq!(self.plan(), (vec![], 0));
    }
}

/// The plan after each of several events, and how many objects it looked at.
fn looks(nodes: usize) -> Vec<(Vec<&'static str>, usize)> {
    let mut cluster = Cluster::of(nodes);
    let mut seen = Vec::new();
    // Nodes report that they live.
    cluster.put_node(1);
    cluster.put_node(2);
    seen.push(cluster.plan());
    cluster.put_ledger(0, &[]);
    seen.push(cluster.plan());
    cluster.settle();
    cluster.put_ledger(1, &["1", "2", "3"]);
    seen.push(cluster.plan());
    // A node requests a block, gets it, and is told.
    cluster.put_request("r", "p", &json!(null));
    seen.push(cluster.plan());
    let index = cluster.nodes * BLOCKS_OF_A_NODE / 2;
    cluster.put_block("p", index, 1);
    let complete = json!([{"type": "Complete", "status": "True"}]);
    cluster.put_request("r", "p", &json!({"addressBlockName": format!("p-{index}"), "conditions": complete}));
    seen.push(cluster.plan());
    cluster.settle();
    // A block is returned.
    let returned = cluster.world.coil().blocks.get("q-7").and_then(ResourceExt::uid).unwrap();
    cluster.world.coil_mut().blocks.remove("q-7", &returned);
    seen.push(cluster.plan());
    cluster.settle();
    // A node is deleted, and its blocks are marked until it is back.
    cluster.world.delete_node("n3", "n3");
    seen.push(cluster.plan());
    seen.push(cluster.plan());
    cluster.world.begin_nodes();
    cluster.world.finish_nodes();
    seen.push(cluster.plan());
    seen
}

#[test]
fn as_much_is_looked_at_in_a_large_cluster_as_in_a_small_one() {
    let mut small = looks(20);
    let mut large = looks(400);
    // In the end all nodes are gone, which changes everything.
    let (all_small, all_large) = (small.pop().unwrap(), large.pop().unwrap());
    assert!(all_small.1 > 20 * BLOCKS_OF_A_NODE && all_large.1 > 400 * BLOCKS_OF_A_NODE);
    assert_eq!(small, large);
    let marks = vec!["mark"; BLOCKS_OF_A_NODE];
    assert_eq!(
        large,
        [
            (vec![], 2),
            (vec!["pool_status"], 2),
            (vec![], 1),
            (vec!["create"], 2),
            (vec!["pool_status"], 4),
            (vec!["pool_status"], 3),
            (marks.clone(), 11),
            (marks, 10),
        ]
    );
}

#[test]
fn a_pool_is_looked_at_when_a_younger_one_has_more_blocks_there_than_can_be_locked() {
    let mut cluster = Cluster::of(1);
    cluster.put_pool(pool("older", 10, "12.0.0.0/22"));
    cluster.settle();
    cluster.put_pool(pool("younger", 0, "12.0.0.0/22"));
    assert_eq!(cluster.plan().0, ["pool_status", "pool_finalizers"]);
    cluster.settle();
    let free = |pool: &str| {
        let status = cluster.world.coil().pools.get(pool).and_then(|pool| pool.status.as_ref());
        status.and_then(|status| status.blocks.as_ref()).unwrap().free.clone()
    };
    assert_eq!((free("older").as_str(), free("younger").as_str()), ("0", "0"));
}

#[test]
fn a_pool_that_waits_only_for_a_write_in_flight_goes_when_that_is_over() {
    let mut cluster = Cluster::of(1);
    cluster.put_pool(pool("leaves", 1, "12.0.0.0/24"));
    cluster.settle();
    let mut leaves = cluster.world.coil().pools.get("leaves").unwrap().clone();
    let block = Box::new(AddressBlock::carve(&leaves, 0, "n0", None).unwrap());
    cluster.world.in_flight = vec![BlockWrite::Create { block }.into()];
    leaves.metadata.deletion_timestamp.clone_from(&leaves.metadata.creation_timestamp);
    cluster.put_pool(leaves);
    cluster.settle();
    cluster.world.in_flight.clear();
    assert_eq!(cluster.plan().0, ["pool_finalizers"]);
}

#[test]
fn requests_that_have_their_blocks_are_not_looked_at() {
    let mut cluster = Cluster::of(2);
    for number in 0..20 {
        let request =
            cluster.request(&format!("r{number}"), "p", &serde_json::Value::Null).answered_by_block();
        cluster.world.coil_mut().requests.apply(request);
        let block = cluster.planned_block();
        cluster.world.coil_mut().blocks.apply(block);
    }
    cluster.settle();
    // Another node asks: only that is looked at.
    cluster.put_request("another", "q", &serde_json::Value::Null);
    assert_eq!(cluster.plan(), (vec!["create"], 2));
}
