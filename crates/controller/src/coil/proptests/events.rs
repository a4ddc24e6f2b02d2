//! What may happen to objects, in a world small enough that much happens to the same ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use kube::{Resource, ResourceExt};
use proptest::prelude::*;
use serde_json::json;
use tenure_api::coil::annotation::WITHHELD_FOR;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, block_name, label};
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{Allocation, IPPool, IPPoolSpec};
use tenure_handles::Timestamp;

use super::super::CoilObjects;
use super::super::write::BlockWrite;
use crate::cache::{Cache, Known};
use crate::world::World;
use crate::write::{At, Write};

pub(super) const POOLS: [&str; 3] = ["a", "b", "c"];
const NODES: [&str; 2] = ["n", "m"];
const REQUESTS: [&str; 4] = ["r", "s", "t", "u"];
const LEDGERS: [&str; 2] = ["l", "k"];
/// The subnets of pools. Some overlap, and the last is invalid.
const SUBNETS: [[Option<&str>; 2]; 7] = [
    [Some("10.0.0.0/29"), None],
    [Some("10.0.0.8/30"), None],
    [Some("10.0.0.4/30"), Some("fd00::4/126")],
    [None, Some("fd00::/125")],
    [Some("10.0.0.0/28"), None],
    [Some("10.1.0.0/22"), None],
    [Some("10.0.0.0/33"), None],
];
const LARGE: usize = 5;
/// Addresses of blocks that contradict their pool.
const ODD: [&str; 3] = ["10.0.0.6/31", "10.0.0.0/29", "10.9.0.0/31"];

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Pool {
        pool: usize,
        subnets: Vec<usize>,
        bits: u8,
        excludes: bool,
        anew: bool,
        deleting: bool,
    },
    Block {
        number: (usize, u8),
        odd: Option<usize>,
        kind: u8,
        node: usize,
        request: usize,
        marked: bool,
    },
    Request {
        request: usize,
        node: usize,
        pool: usize,
        status: u8,
        index: u8,
        by_block: bool,
    },
    Ledger {
        ledger: usize,
        offsets: Vec<u8>,
        named: bool,
    },
    Node {
        node: usize,
        out_of_service: bool,
    },
    Gone {
        kind: u8,
        which: usize,
    },
    Unreadable {
        number: (usize, u8),
    },
    /// A list arrives that omits one object.
    List {
        kind: u8,
        which: usize,
    },
    ForgetLedgers,
    /// These writes of the last plan are in flight, with creations for claims.
    InFlight {
        writes: Vec<usize>,
        floating: Vec<(usize, u8)>,
    },
    /// These writes of the last plan are done.
    Written(u16),
    Pass(u64),
    Back(u64),
}

/// Anything.
pub(super) fn op() -> impl Strategy<Value = Op> {
    let (pool, node, index) = (0..POOLS.len(), 0..NODES.len(), 0_u8..6);
    let number = (pool.clone(), index.clone());
    prop_oneof![
        4 => (pool.clone(), proptest::collection::vec(0..SUBNETS.len(), 1..3), 0_u8..3, any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(pool, subnets, bits, excludes, anew, deleting)| Op::Pool { pool, subnets, bits, excludes, anew, deleting }),
        8 => (number.clone(), proptest::option::weighted(0.2, 0..ODD.len()), 0_u8..8, node.clone(), 0..REQUESTS.len(), any::<bool>())
            .prop_map(|(number, odd, kind, node, request, marked)| Op::Block { number, odd, kind, node, request, marked }),
        8 => (0..REQUESTS.len(), node.clone(), pool, 0_u8..5, index, any::<bool>())
            .prop_map(|(request, node, pool, status, index, by_block)| Op::Request { request, node, pool, status, index, by_block }),
        3 => (0..LEDGERS.len(), proptest::collection::vec(0_u8..16, 0..5), proptest::bool::weighted(0.2))
            .prop_map(|(ledger, offsets, named)| Op::Ledger { ledger, offsets, named }),
        3 => (node, proptest::bool::weighted(0.3)).prop_map(|(node, out_of_service)| Op::Node { node, out_of_service }),
        6 => (0_u8..5, any::<usize>()).prop_map(|(kind, which)| Op::Gone { kind, which }),
        2 => number.clone().prop_map(|number| Op::Unreadable { number }),
        2 => (0_u8..5, any::<usize>()).prop_map(|(kind, which)| Op::List { kind, which }),
        1 => Just(Op::ForgetLedgers),
        3 => (proptest::collection::vec(any::<usize>(), 0..3), proptest::collection::vec(number, 0..2))
            .prop_map(|(writes, floating)| Op::InFlight { writes, floating }),
        12 => any::<u16>().prop_map(Op::Written),
        3 => (1_u64..90_000).prop_map(Op::Pass),
        1 => (1_u64..90_000).prop_map(Op::Back),
    ]
}

/// The current state.
#[derive(Default)]
pub(super) struct Events {
    pub(super) world: World,
    /// The writes of the last plan.
    pub(super) writes: Vec<Write>,
    version: u64,
    now: u64,
}

fn pick<T: Clone>(all: &[T], which: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[which % all.len()].clone())
}

/// Removes an object.
fn remove<K: Known>(cache: &mut Cache<K>, which: usize) {
    let all: Vec<_> = cache.iter().map(|it| (it.key(), it.known_uid().unwrap_or_default())).collect();
    if let Some((name, uid)) = pick(&all, which) {
        cache.remove(&name, &uid);
    }
}

/// Lists all objects but one.
fn list<K: Known + Clone>(cache: &mut Cache<K>, which: usize) {
    let mut all: Vec<K> = cache.iter().cloned().collect();
    if !all.is_empty() {
        all.swap_remove(which % all.len());
    }
    cache.begin();
    for object in all {
        cache.list(object);
    }
    cache.finish();
}

/// Changes an object if it is still the same.
fn change<K: Resource<DynamicType = ()> + Clone>(
    cache: &mut Cache<K>,
    at: &At,
    version: &str,
    change: impl FnOnce(&mut K),
) {
    if let Some(mut object) = cache.get(&at.name).filter(|object| At::of(*object) == *at).cloned() {
        change(&mut object);
        object.meta_mut().resource_version = Some(version.to_owned());
        cache.apply(object);
    }
}

impl Events {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + self.now)
    }

    /// A new version of an object, or a new object if there is none or `anew` is set.
    fn stamp<K: Resource>(&mut self, object: &mut K, known: Option<&kube::core::ObjectMeta>, anew: bool) {
        self.version += 1;
        let now = crate::plan::time(self.now());
        let meta = object.meta_mut();
        let known = known.filter(|_| !anew);
        meta.uid = known.map_or_else(|| Some(format!("uid-{}", self.version)), |known| known.uid.clone());
        meta.creation_timestamp = known.map_or(Some(now), |known| known.creation_timestamp.clone());
        meta.resource_version = Some(self.version.to_string());
    }

    /// It happens.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Pool { pool, subnets, bits, excludes, anew, deleting } => {
                // The large one is divided into so many blocks that nobody locks them all, or into one.
                let large = subnets.contains(&LARGE);
                let (subnets, bits) = if large { (&vec![LARGE], bits / 2 * 10) } else { (subnets, *bits) };
                let subnets: Vec<_> = subnets
                    .iter()
                    .map(|subnet| json!({"ipv4": SUBNETS[*subnet][0], "ipv6": SUBNETS[*subnet][1]}))
                    .collect();
                let exclude = if *excludes { vec!["10.0.0.4/31"] } else { vec![] };
                let spec = json!({"blockSizeBits": bits, "subnets": subnets, "exclude": exclude});
                let mut object = AddressPool::new(POOLS[*pool], serde_json::from_value(spec).unwrap());
                let known = self.world.coil().pools.get(POOLS[*pool]).cloned();
                self.stamp(&mut object, known.as_ref().map(Resource::meta), *anew);
                if let Some(known) = &known {
                    object.status.clone_from(&known.status);
                    object.metadata.finalizers.clone_from(&known.metadata.finalizers);
                }
                object.metadata.deletion_timestamp = deleting.then(|| crate::plan::time(self.now()));
                self.world.coil_mut().pools.apply(object);
            }
            Op::Block { number, odd, kind, node, request, marked } => {
                self.put_block(*number, *odd, (*kind, *marked), NODES[*node], REQUESTS[*request]);
            }
            Op::Request { request, node, pool, status, index, by_block } => {
                let block = block_name(POOLS[*pool], u128::from(*index));
                let complete = json!([{"type": "Complete", "status": "True"}]);
                let status = match status {
                    0 | 1 => json!(null),
                    2 | 3 => json!({"addressBlockName": block}),
                    _ => json!({"addressBlockName": block, "conditions": complete}),
                };
                let spec = json!({"nodeName": NODES[*node], "poolName": POOLS[*pool]});
                let mut object = BlockRequest::new(REQUESTS[*request], serde_json::from_value(spec).unwrap());
                object.status = serde_json::from_value(status).unwrap();
                if *by_block {
                    object = object.answered_by_block();
                }
                let known =
                    self.world.coil().requests.get(REQUESTS[*request]).map(|known| known.metadata.clone());
                self.stamp(&mut object, known.as_ref(), false);
                self.world.coil_mut().requests.apply(object);
            }
            Op::Ledger { ledger, offsets, named } => {
                let allocations =
                    offsets.iter().map(|offset| (offset.to_string(), Allocation::default())).collect();
                let spec = IPPoolSpec { range: "10.0.0.0/28".to_owned(), allocations };
                let mut object = IPPool::new(LEDGERS[*ledger], spec);
                if *named {
                    let network = tenure_api::whereabouts::label::NETWORK.to_owned();
                    object.metadata.labels = Some(BTreeMap::from([(network, "net".to_owned())]));
                }
                let known =
                    self.world.ledgers().pools.get(LEDGERS[*ledger]).map(|known| known.pool.metadata.clone());
                self.stamp(&mut object, known.as_ref(), false);
                self.world.apply_ledger(object);
            }
            Op::Node { node, out_of_service } => {
                let mut object = Node::default();
                object.metadata.name = Some(NODES[*node].to_owned());
                let key = "node.kubernetes.io/out-of-service".to_owned();
                let taint = Taint { key, effect: "NoExecute".to_owned(), ..Taint::default() };
                let taints = Some(out_of_service.then_some(taint).into_iter().collect());
                object.spec = Some(NodeSpec { taints, ..NodeSpec::default() });
                let known = self.world.nodes().get(NODES[*node]).map(|known| known.metadata.clone());
                self.stamp(&mut object, known.as_ref(), false);
                self.world.apply_node(object);
            }
            Op::Gone { kind, which } => match kind {
                0 => remove(&mut self.world.coil_mut().pools, *which),
                1 => remove(&mut self.world.coil_mut().blocks, *which),
                2 => remove(&mut self.world.coil_mut().requests, *which),
                3 => remove(&mut self.world.ledgers_mut().pools, *which),
                _ => {
                    let nodes: Vec<Node> = self.world.nodes().iter().cloned().collect();
                    if let Some(node) = pick(&nodes, *which) {
                        self.world.delete_node(&node.name_any(), &node.uid().unwrap());
                    }
                }
            },
            Op::Unreadable { number } => {
                let name = block_name(POOLS[number.0], number.1.into());
                let known = self.world.coil().blocks.get(&name).and_then(ResourceExt::uid);
                self.version += 1;
                self.world
                    .coil_mut()
                    .blocks
                    .keep(&name, &known.unwrap_or(format!("unreadable-{}", self.version)));
            }
            Op::List { kind, which } => match kind {
                0 => list(&mut self.world.coil_mut().pools, *which),
                1 => list(&mut self.world.coil_mut().blocks, *which),
                2 => list(&mut self.world.coil_mut().requests, *which),
                3 => list(&mut self.world.ledgers_mut().pools, *which),
                _ => {
                    let mut nodes: Vec<Node> = self.world.nodes().iter().cloned().collect();
                    nodes.pop();
                    self.world.begin_nodes();
                    for node in nodes {
                        self.world.list_node(node);
                    }
                    self.world.finish_nodes();
                }
            },
            Op::ForgetLedgers => self.world.ledgers_mut().pools.forget(),
            Op::InFlight { writes, floating } => {
                let writes = writes.iter().filter_map(|which| pick(&self.writes, *which));
                let pools = &self.world.coil().pools;
                let floating = floating.iter().filter_map(|(pool, index)| {
                    let block =
                        AddressBlock::carve_floating(pools.get(POOLS[*pool])?, (*index).into()).ok()?;
                    Some(BlockWrite::Create { block: Box::new(block) }.into())
                });
                self.world.in_flight = writes.chain(floating).collect();
            }
            Op::Written(which) => {
                let writes = std::mem::take(&mut self.writes);
                for (_, write) in
                    writes.iter().enumerate().filter(|(number, _)| which & (1 << (number % 16)) != 0)
                {
                    self.write(write.of().unwrap());
                }
            }
            Op::Pass(millis) => self.now += millis,
            Op::Back(millis) => self.now = self.now.saturating_sub(*millis),
        }
    }

    /// Performs a write, unless the object has changed since.
    fn write(&mut self, write: &BlockWrite) {
        let version = (self.version + 1).to_string();
        let CoilObjects { pools, blocks, requests } = self.world.coil_mut();
        match write {
            BlockWrite::PoolFinalizers { pool, finalizers } => change(pools, pool, &version, |pool| {
                pool.metadata.finalizers = Some(finalizers.clone());
            }),
            BlockWrite::PoolStatus { pool, status } => {
                change(pools, pool, &version, |pool| pool.status = Some((**status).clone()));
            }
            BlockWrite::Answer { request, status } => {
                change(requests, request, &version, |request| request.status = Some(status.clone()));
            }
            BlockWrite::Create { block } if blocks.get(&block.name_any()).is_none() => {
                let mut block = (**block).clone();
                self.stamp(&mut block, None, true);
                return self.world.coil_mut().blocks.apply(block);
            }
            BlockWrite::Create { .. } => {}
            BlockWrite::MarkBlock { block, mark, .. } => change(blocks, block, &version, |block| {
                block.annotations_mut().insert(RELEASING.to_owned(), mark.clone());
            }),
            BlockWrite::UnmarkBlock { block } => change(blocks, block, &version, |block| {
                block.annotations_mut().remove(RELEASING);
            }),
            BlockWrite::Unlock { block, .. } | BlockWrite::ReleaseBlock { block, .. } => {
                blocks.remove(&block.name, &block.uid);
            }
        }
        self.version += 1;
    }

    fn put_block(
        &mut self,
        (pool, index): (usize, u8),
        odd: Option<usize>,
        (kind, marked): (u8, bool),
        node: &str,
        request: &str,
    ) {
        let Some(of) = self.world.coil().pools.get(POOLS[pool]) else { return };
        let others: Vec<String> = self.world.coil().pools.iter().filter_map(ResourceExt::uid).collect();
        let older = pick(&others, usize::from(index)).unwrap_or_default();
        let request = self.world.coil().requests.get(request).and_then(ResourceExt::uid);
        let index = u128::from(index);
        let block = match kind {
            0 => AddressBlock::carve_floating(of, index),
            1 => AddressBlock::withhold(of, index, &older),
            _ => AddressBlock::carve(of, index, node, request.as_deref().filter(|_| kind < 5)),
        };
        let Ok(mut block) = block else { return };
        if let Some(odd) = odd {
            block.spec.ipv4 = Some(ODD[odd].to_owned());
        }
        if kind == 1 && odd.is_some() {
            block.annotations_mut().insert(WITHHELD_FOR.to_owned(), "nobody".to_owned());
        }
        if kind == 6 {
            block.labels_mut().insert(label::RESERVED.to_owned(), String::new());
        }
        if kind == 7 {
            block.labels_mut().remove(label::POOL);
        }
        if marked {
            let mark = crate::release::mark_at(self.now());
            block.annotations_mut().insert(RELEASING.to_owned(), mark);
        }
        let known = self.world.coil().blocks.get(&block.name_any()).map(|known| known.metadata.clone());
        self.stamp(&mut block, known.as_ref(), odd.is_some());
        self.world.coil_mut().blocks.apply(block);
    }
}
