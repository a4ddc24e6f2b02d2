//! Compares objects with each other: pools, blocks, requests and nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, EnginePool, FINALIZER, RequestOutcome};
use tenure_api::overlap::overlaps;
use tenure_ipam::{Cidr, IntervalSet};

use super::Findings;
use crate::snapshot::{Snapshot, networks, subnet};

/// The controller answers in milliseconds; after this many seconds it is late.
const LATE: i64 = 60;
/// A node deletes its requests at once; after this many seconds one with an answer in its status is left over. One that its block answers
/// is after [`LATE`]: if the block goes, the controller carves another one for it.
const LEFT_OVER: i64 = 300;

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    let engines = snapshot.engines();
    pools(snapshot, &engines, findings);
    for block in &snapshot.blocks {
        one_block(snapshot, block, &engines, findings);
    }
    blocks_overlap(snapshot, findings);
    for request in &snapshot.requests {
        one_request(snapshot, request, findings);
    }
}

fn pools(snapshot: &Snapshot, engines: &BTreeMap<String, EnginePool>, findings: &mut Findings) {
    let overlaps = overlaps(&snapshot.pools);
    for (name, error) in &overlaps.invalid {
        findings.differ(
            "pool-invalid",
            format!("pool {name}"),
            error.to_string(),
            "replace the pool; nothing is assigned from it",
        );
    }
    for (name, overlap) in &overlaps.younger {
        findings.differ(
            "pools-overlap",
            format!("pool {name}"),
            overlap.message(),
            "give the younger pool other subnets, or delete one of the pools",
        );
    }
    for pool in &snapshot.pools {
        one_pool(snapshot, pool, engines, findings);
    }
}

fn one_pool(
    snapshot: &Snapshot,
    pool: &AddressPool,
    engines: &BTreeMap<String, EnginePool>,
    findings: &mut Findings,
) {
    let name = pool.name_any();
    let of_pool = || snapshot.blocks.iter().filter(|block| block.pool() == Some(&name));
    let kept = pool.finalizers().iter().any(|it| it == FINALIZER);
    if of_pool().next().is_some() && !kept && pool.metadata.deletion_timestamp.is_none() {
        findings.differ(
            "pool-unprotected",
            format!("pool {name}"),
            format!("has blocks, and no finalizer {FINALIZER}"),
            "see whether a controller leads (kubectl -n kube-system get lease coil-ipam-leader)",
        );
    }
    if is_stuck(pool, snapshot.now, LATE) && of_pool().next().is_none() {
        let finalizers = pool.finalizers().join(", ");
        findings.differ(
            "leftover-finalizer",
            format!("pool {name}"),
            format!("is being deleted, has no blocks, and is kept by {finalizers}"),
            "see whether a controller leads; if this finalizer is somebody else's, that one has to remove it",
        );
    }
    let status = pool.status.as_ref().and_then(|status| status.blocks.as_ref());
    if let (Some(engine), Some(status)) = (engines.get(&name), status) {
        let own = of_pool().filter(|block| !block.is_withheld());
        let indexes = own.filter_map(|block| engine.pool().index_of(&subnet(block)?));
        let carved: IntervalSet = indexes.map(|index| index..=index).collect();
        if status.allocated != carved.len().to_string() {
            findings.differ(
                "pool-status",
                format!("pool {name}"),
                format!(
                    "its status says that {} blocks are allocated, and there are {}",
                    status.allocated,
                    carved.len()
                ),
                "see whether a controller leads (kubectl -n kube-system get lease coil-ipam-leader)",
            );
        }
    }
}

fn one_block(
    snapshot: &Snapshot,
    block: &AddressBlock,
    engines: &BTreeMap<String, EnginePool>,
    findings: &mut Findings,
) {
    let subject = format!("block {}", block.name_any());
    let pool = block.pool().and_then(|name| snapshot.pools.iter().find(|pool| pool.name_any() == name));
    match (block.pool(), pool) {
        (None, _) => findings.differ(
            "block-without-pool",
            &subject,
            "names no pool",
            "label it with its pool (coil.cybozu.com/pool), or delete it if no pod uses it",
        ),
        (Some(name), None) => findings.differ(
            "block-without-pool",
            &subject,
            format!("is of pool \"{name}\", which does not exist"),
            "create the pool again with the same subnets, or delete the block when no pod uses it",
        ),
        (Some(name), Some(_)) => {
            let index =
                engines.get(name).map(|engine| subnet(block).and_then(|it| engine.pool().index_of(&it)));
            if index.is_some_and(|index| index != u128::try_from(block.spec.index).ok()) {
                findings.differ(
                    "block-outside-pool",
                    &subject,
                    format!("{} is not block {} of pool {name}", shown(block), block.spec.index),
                    "delete the block when no pod uses it; nodes ask for another one",
                );
            }
        }
    }
    match block.node() {
        _ if block.is_reserved() => {}
        // It belongs to the controller, for claims.
        None if block.is_floating() => {}
        // It belongs to nobody: an older pool has its addresses.
        None if block.is_withheld() => {}
        None => findings.differ(
            "block-without-node",
            &subject,
            "names no node",
            "delete it if it was made by hand; label it coil.cybozu.com/reserved if nobody may assign from it",
        ),
        Some(node) if !snapshot.nodes.contains(node) => findings.differ(
            "block-without-node",
            &subject,
            format!("belongs to node \"{node}\", which does not exist"),
            "the controller deletes it by itself; if it stays, see whether a controller leads",
        ),
        Some(_) => {}
    }
    if is_stuck(block, snapshot.now, LATE) {
        let finalizers = block.finalizers().join(", ");
        findings.differ(
            "leftover-finalizer",
            &subject,
            format!("is being deleted, and is kept by {finalizers}"),
            "its node's agent releases it when no pod uses it any more; see `tenure node` of its node",
        );
    }
}

/// Blocks that share addresses. Networks are nested or disjoint, so in sorted order the one that contains the
/// next is the last one that has not ended yet.
fn blocks_overlap(snapshot: &Snapshot, findings: &mut Findings) {
    let carved = snapshot.blocks.iter().filter(|block| !block.is_withheld());
    let with_networks = carved.flat_map(|block| networks(block).map(move |it| (it, block)));
    let mut sorted: Vec<(Cidr, &AddressBlock)> = with_networks.collect();
    sorted.sort_by_key(|(network, block)| (*network, block.name_any()));
    let mut around: Vec<(Cidr, &AddressBlock)> = Vec::new();
    for (network, block) in sorted {
        while around.pop_if(|(outer, _)| !outer.covers(&network)).is_some() {}
        if let Some((outer, other)) = around.last() {
            findings.differ(
                "blocks-overlap",
                format!("block {}", block.name_any()),
                format!("{network} is also of block {} ({outer})", other.name_any()),
                "delete the younger of the two when no pod uses it; addresses of both may be held twice until then",
            );
        }
        around.push((network, block));
    }
}

fn one_request(snapshot: &Snapshot, request: &BlockRequest, findings: &mut Findings) {
    let subject = format!("request {}", request.name_any());
    let (node, pool) = (&request.spec.node_name, &request.spec.pool_name);
    let age = request.creation_timestamp().map_or(0, |at| snapshot.now.as_second() - at.0.as_second());
    if !snapshot.nodes.contains(node) {
        findings.differ(
            "request-without-node",
            &subject,
            format!("is of node \"{node}\", which does not exist"),
            "kubectl delete blockrequest it; a node that exists asks again",
        );
        return;
    }
    let left_over = |block: &str| {
        (
            format!("was answered with block {block}, and node {node} has not taken it away"),
            format!("see whether the agent of node {node} runs; then kubectl delete blockrequest it"),
        )
    };
    match request.outcome() {
        RequestOutcome::Pending
            if age > LATE
                && let Some(block) = snapshot.block_that_answers(request) =>
        {
            let (problem, advice) = left_over(&block.name_any());
            findings.differ("request-left-over", &subject, problem, advice);
        }
        RequestOutcome::Pending if age > LATE => findings.differ(
            "request-unanswered",
            &subject,
            format!("node {node} has asked for a block of pool {pool} for more than {LATE} s"),
            "see whether a controller leads (kubectl -n kube-system get lease coil-ipam-leader)",
        ),
        RequestOutcome::Failed { message, .. } => findings.differ(
            "request-failed",
            &subject,
            format!("node {node} gets no block of pool {pool}: {message}"),
            "append a subnet to the pool, or delete pods",
        ),
        RequestOutcome::Block(block) if age > LEFT_OVER => {
            let (problem, advice) = left_over(block);
            findings.differ("request-left-over", &subject, problem, advice);
        }
        _ => {}
    }
}

/// Whether the deletion of an object takes longer than this.
fn is_stuck<K: Resource>(object: &K, now: Timestamp, seconds: i64) -> bool {
    let since = object.meta().deletion_timestamp.as_ref();
    since.is_some_and(|since| now.as_second() - since.0.as_second() > seconds)
}

fn shown(block: &AddressBlock) -> String {
    let networks = [&block.spec.ipv4, &block.spec.ipv6];
    networks.into_iter().flatten().cloned().collect::<Vec<_>>().join(" and ")
}
