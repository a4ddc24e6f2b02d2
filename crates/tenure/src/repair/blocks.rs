//! Verdicts on pools, blocks and requests.

use std::collections::BTreeSet;

use kube::ResourceExt;
use tenure_api::coil::{
    AddressBlock, AddressPool, EnginePool, FINALIZER, RequestOutcome, block_name, label, split_block_name,
};
use tenure_api::drain::{DRAIN, is_draining};
use tenure_ipam::{Address, Cidr};

use super::step::{Object, Operation, Step, Verdict};
use super::usage::signs;
use crate::check::Difference;
use crate::snapshot::{Snapshot, networks, subnet};

/// How the controller's part in it is said.
const CONTROLLER: &str = "the controller repairs it within minutes, if one leads";

pub(super) fn pool_unprotected(pool: &AddressPool) -> Verdict {
    Step::guarded(
        Object::of(pool),
        Operation::AddFinalizer,
        "the finalizer only keeps the pool until its blocks are gone",
    )
}

/// The label of the pool is missing, or the pool is.
pub(super) fn without_pool(snapshot: &Snapshot, block: &AddressBlock, it: &Difference) -> Verdict {
    if let Some(pool) = block.pool() {
        let users = users(snapshot, block);
        return match block.node() {
            Some(node) if users.is_empty() && snapshot.nodes.contains(node) => Verdict::Heals(format!(
                "the agent of node {node} returns it, because nobody uses it and its pool is gone"
            )),
            _ => Verdict::advised(format!("nobody knows the subnets of pool {pool}{}", and(&users)), it),
        };
    }
    let name = block.name_any();
    let found = split_block_name(&name).and_then(|(pool, index)| {
        let pool = snapshot.pools.iter().find(|it| it.name_any() == pool)?;
        let engine = EnginePool::try_from(&pool.spec).ok()?;
        (engine.pool().index_of(&subnet(block)?) == Some(index)).then(|| pool.name_any())
    });
    match found {
        Some(pool) => Step::guarded(
            Object::of(block),
            Operation::Label(label::POOL, pool.clone()),
            format!(
                "its name and its networks are those of a block of pool {pool}, so no other block has them"
            ),
        ),
        None => Verdict::advised("its name and networks do not say of which pool it is", it),
    }
}

/// The block names no node, or one that does not exist.
pub(super) fn without_node(snapshot: &Snapshot, block: &AddressBlock, it: &Difference) -> Verdict {
    if let Some(node) = block.node() {
        let bound = snapshot.pods.iter().flatten().filter(|pod| pod.node == node && !pod.over);
        let bound: Vec<String> =
            bound.map(|pod| format!("pod {} is bound to the node", pod.label())).collect();
        return if bound.is_empty() {
            Verdict::Heals(
                "the controller deletes it after two observations, two minutes apart, if one leads"
                    .to_owned(),
            )
        } else {
            Verdict::cannot(
                format!("its containers may run although the node's object is gone{}", and(&bound)),
                "make sure that the machine is off, then delete these pods; the controller deletes the block",
            )
        };
    }
    let uid = block.uid().unwrap_or_default();
    let told = || snapshot.agents.iter().filter_map(|(node, told)| Some((node, told.as_ref().ok()?)));
    let silent: Vec<String> = unasked(snapshot);
    let knows: Vec<&String> =
        told().filter(|(_, node)| node.blocks.iter().any(|it| it.uid == uid)).map(|(node, _)| node).collect();
    match knows.as_slice() {
        _ if !silent.is_empty() => Verdict::advised(format!("nobody knows whose it is{}", and(&silent)), it),
        [node] => {
            let mine: Vec<Cidr> = networks(block).collect();
            let signs = signs(snapshot, &mine, Some(node.as_str()));
            if signs.is_empty() {
                Step::if_unused(
                    Object::of(block),
                    Operation::Label(label::NODE, (*node).clone()),
                    format!(
                        "only the agent of node {node} knows this block, and no other node uses an address of it"
                    ),
                )
            } else {
                Verdict::advised(
                    format!("node {node} had it, and it is not the only one that uses it{}", and(&signs)),
                    it,
                )
            }
        }
        [] => unused(snapshot, block, Operation::Delete, it),
        several => {
            let nodes: Vec<&str> = several.iter().map(|node| node.as_str()).collect();
            Verdict::advised(format!("nodes {} know it", nodes.join(" and ")), it)
        }
    }
}

/// A write that only fits a block of which nobody uses an address.
fn unused(snapshot: &Snapshot, block: &AddressBlock, operation: Operation, it: &Difference) -> Verdict {
    let own: Vec<Cidr> = networks(block).collect();
    let signs = signs(snapshot, &own, None);
    if own.is_empty() {
        return Verdict::advised("its networks cannot be read, so nobody knows who uses them", it);
    }
    if signs.is_empty() {
        let safe = "every node was asked, and no agent, pod, claim or record has an address of it";
        return Step::if_unused(Object::of(block), operation, safe);
    }
    Verdict::advised(format!("an address of it may be in use{}", and(&signs)), it)
}

/// Blocks whose addresses should be nobody's: the owner drains them.
pub(super) fn drained(snapshot: &Snapshot, block: &AddressBlock, it: &Difference) -> Verdict {
    let name = block.name_any();
    let Some(node) = block.node() else {
        return Verdict::advised(format!("AddressBlock {name} belongs to no node that could return it"), it);
    };
    if block.is_reserved() || block.is_floating() {
        return Verdict::advised(
            format!("AddressBlock {name} is for claims, or for pods of an earlier system"),
            it,
        );
    }
    if !snapshot.nodes.contains(node) {
        return Verdict::Heals("its node is gone, so the controller deletes it, if one leads".to_owned());
    }
    if is_draining(block) || block.metadata.deletion_timestamp.is_some() {
        let users = users(snapshot, block);
        return if users.is_empty() {
            Verdict::Heals(format!(
                "the agent of node {node} returns AddressBlock {name}, which drains and is empty"
            ))
        } else {
            Verdict::cannot(
                format!(
                    "AddressBlock {name} drains already, and its pods keep their addresses until they end{}",
                    and(&users)
                ),
                "wait until these pods have ended, or delete them",
            )
        };
    }
    Step::guarded(
        Object::of(block),
        Operation::Annotate(DRAIN, "true".to_owned()),
        format!(
            "its owner, node {node}, assigns nothing more from it and returns it once nobody holds an address of it"
        ),
    )
}

/// Of the blocks that share addresses with this one, including it, the youngest is drained.
pub(super) fn overlapping(snapshot: &Snapshot, block: &AddressBlock, it: &Difference) -> Verdict {
    let own: Vec<Cidr> = networks(block).collect();
    let shares = |other: &&AddressBlock| {
        !other.is_withheld() && networks(other).any(|network| own.iter().any(|own| own.overlaps(&network)))
    };
    let age = |block: &AddressBlock| (block.creation_timestamp().map(|at| at.0), block.name_any());
    let youngest = snapshot.blocks.iter().filter(shares).max_by_key(|block| age(block));
    drained(snapshot, youngest.unwrap_or(block), it)
}

/// A pool or block stays in deletion.
pub(super) fn leftover(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let others = |finalizers: &[String]| {
        let others: Vec<String> = finalizers.iter().filter(|it| *it != FINALIZER).cloned().collect();
        others.join(", ")
    };
    let name = |prefix| it.subject.strip_prefix(prefix).unwrap_or_default();
    if let Some(pool) = snapshot.pools.iter().find(|pool| pool.name_any() == name("pool ")) {
        let others = others(pool.finalizers());
        return if others.is_empty() {
            Verdict::Heals(CONTROLLER.to_owned())
        } else {
            Verdict::advised(format!("{others} belongs to another program, which may not be done"), it)
        };
    }
    let Some(block) = snapshot.blocks.iter().find(|block| block.name_any() == name("block ")) else {
        return gone();
    };
    let others = others(block.finalizers());
    let users = users(snapshot, block);
    match block.node() {
        _ if !others.is_empty() => Verdict::cannot(
            format!("{others} belongs to another program, which may not be done"),
            "see to that program",
        ),
        Some(node) if !snapshot.nodes.contains(node) => {
            Verdict::Heals("its node is gone, so the controller releases it, if one leads".to_owned())
        }
        Some(node) if users.is_empty() => {
            Verdict::Heals(format!("the agent of node {node} releases it, because nobody uses it"))
        }
        Some(_) => Verdict::cannot(
            format!("its pods keep their addresses until they end{}", and(&users)),
            "wait until these pods have ended, or delete them",
        ),
        None => unused(snapshot, block, Operation::RemoveFinalizer, it),
    }
}

/// A request that nobody needs.
pub(super) fn request(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let name = it.subject.strip_prefix("request ").unwrap_or_default();
    let Some(request) = snapshot.requests.iter().find(|request| request.name_any() == name) else {
        return gone();
    };
    let node = &request.spec.node_name;
    if !snapshot.nodes.contains(node) {
        return Step::guarded(
            Object::of(request),
            Operation::Delete,
            format!(
                "a request is no address, and there is no node \"{node}\"; if it comes back, it asks again"
            ),
        );
    }
    let block = match request.outcome() {
        RequestOutcome::Block(block) => snapshot.blocks.iter().find(|it| it.name_any() == block),
        RequestOutcome::Pending => snapshot.block_that_answers(request),
        RequestOutcome::Failed { .. } => None,
    };
    match block.filter(|block| block.node() == Some(node)) {
        Some(block) => Step::guarded(
            Object::of(request),
            Operation::Delete,
            format!("block {} is there for node {node}, whose agent sees the block itself", block.name_any()),
        ),
        None => Verdict::advised("its block does not belong to the node that asked", it),
    }
}

/// Holds without a block of their node: the block is carved again for this node, which takes them over.
pub(super) fn lost(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let Some((node, rest)) = it.subject.strip_prefix("node ").and_then(|rest| rest.split_once(": ")) else {
        return gone();
    };
    let Some(Ok(told)) = snapshot.agents.get(node) else { return gone() };
    let Some(address) = held_address(told, it.kind, rest) else {
        return Verdict::advised("the block of this hold does not have its address", it);
    };
    let Some((pool, index)) = snapshot
        .engines()
        .into_iter()
        .find_map(|(name, engine)| Some((name, engine.pool().index_of_address(address)?)))
    else {
        return Verdict::advised(format!("no pool has {address}"), it);
    };
    if let Some(there) = snapshot.blocks.iter().find(|block| crate::snapshot::has(block, address)) {
        let (name, owner) = (there.name_any(), there.node().unwrap_or("nobody"));
        return if owner == node {
            Verdict::cannot(
                format!(
                    "AddressBlock {name} names this node, so nobody else assigns {address}, and its pods keep their addresses"
                ),
                "nothing is urgent: the agent returns the block when these pods have ended",
            )
        } else if there.node().is_none()
            && !there.is_floating()
            && !there.is_withheld()
            && !there.is_reserved()
        {
            Verdict::cannot(
                format!(
                    "AddressBlock {name} names no node; that is a finding of its own (block-without-node)"
                ),
                "run `tenure repair block-without-node`",
            )
        } else {
            Verdict::advised(format!("AddressBlock {name} belongs to {owner}, who may assign {address}"), it)
        };
    }
    carve_again(snapshot, node, &pool, index, it)
}

fn held_address(told: &tenure_view::Node, kind: &str, subject: &str) -> Option<Address> {
    if kind == "held-in-lost-block" {
        let name = subject.strip_prefix("block ")?;
        let block = told.blocks.iter().find(|block| block.name == name && block.fenced.is_some())?;
        return Some(block.networks.first()?.network().into());
    }
    let holds = told.holds.iter().filter(|hold| hold.block.is_none() && hold.claim.is_none());
    let hold = holds.into_iter().find(|hold| hold.holder.to_string() == subject)?;
    hold.addresses.first().map(|ip| Address::from(*ip))
}

fn carve_again(snapshot: &Snapshot, node: &str, pool: &str, index: u128, it: &Difference) -> Verdict {
    let name = block_name(pool, index);
    let Some(pool) = snapshot.pools.iter().find(|known| known.name_any() == pool) else { return gone() };
    let block = match AddressBlock::carve(pool, index, node, None) {
        Ok(block) => block,
        Err(error) => return Verdict::advised(error.to_string(), it),
    };
    let own: Vec<Cidr> = networks(&block).collect();
    let overlaps = |other: &Cidr| own.iter().any(|own| own.overlaps(other));
    let mut against = signs(snapshot, &own, Some(node));
    if !snapshot.nodes.contains(node) {
        against.push(format!("there is no Node {node}"));
    }
    if pool.metadata.deletion_timestamp.is_some() {
        against.push(format!("pool {} is being deleted", pool.name_any()));
    }
    let promised = snapshot.requests.iter().filter(|request| {
        request.status.as_ref().and_then(|status| status.address_block_name.as_deref()) == Some(name.as_str())
    });
    against.extend(promised.map(|request| format!("request {} was promised it", request.name_any())));
    let others = snapshot.blocks.iter().filter(|block| networks(block).any(|network| overlaps(&network)));
    against.extend(others.map(|block| format!("AddressBlock {} has addresses of it", block.name_any())));
    for (other, engine) in snapshot.engines().iter().filter(|(other, _)| **other != pool.name_any()) {
        let mut subnets = engine.pool().subnets().flat_map(|it| [it.ipv4, it.ipv6]).flatten();
        if subnets.any(|network| overlaps(&network)) {
            against.push(format!("pool {other} has addresses of it, too"));
        }
    }
    if against.is_empty() {
        return Verdict::Repair(Box::new(Step {
            object: Object::new(&block),
            safe: format!(
                "its name is free, nobody but node {node} uses an address of it, and the agent takes over its own holds; without the \
                 block another node could get their addresses"
            ),
            operation: Operation::Carve(Box::new(block)),
            evidence: true,
        }));
    }
    Verdict::advised(format!("block {name} cannot be created for this node{}", and(&against)), it)
}

/// Who holds an address of a block, according to its node's agent.
pub(crate) fn users(snapshot: &Snapshot, block: &AddressBlock) -> Vec<String> {
    let told = block.node().and_then(|node| snapshot.agents.get(node)).and_then(|told| told.as_ref().ok());
    let Some(told) = told else { return vec!["its agent could not be asked".to_owned()] };
    let name = block.name_any();
    let holders: BTreeSet<String> = told
        .holds
        .iter()
        .filter(|hold| hold.block.as_deref() == Some(&name))
        .map(|hold| hold.holder.to_string())
        .collect();
    holders.into_iter().map(|holder| format!("{holder} has an address")).collect()
}

/// Nodes that could not be asked.
fn unasked(snapshot: &Snapshot) -> Vec<String> {
    let silent = snapshot
        .nodes
        .iter()
        .filter(|node| !matches!(snapshot.agents.get(*node), Some(Ok(told)) if told.ready));
    silent.map(|node| format!("node {node} could not be asked")).collect()
}

/// The finding is over.
pub(super) fn gone() -> Verdict {
    Verdict::Heals("it is gone already".to_owned())
}

/// The first few of what was found, for people.
pub(crate) fn and(found: &[String]) -> String {
    const SHOWN: usize = 4;
    match found {
        [] => String::new(),
        some if some.len() <= SHOWN => format!(": {}", some.join("; ")),
        many => format!(": {}; and {} more", many[..SHOWN].join("; "), many.len() - SHOWN),
    }
}
