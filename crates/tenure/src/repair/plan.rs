//! From what `check` found to a plan, without I/O.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::Serialize;
use tenure_api::whereabouts::IPPool;
use tenure_whereabouts::slices::Told;

use super::kinds::{self, Does};
use super::step::{Object, Operation, Step, Verdict};
use super::{blocks, ranges};
use crate::check::Difference;
use crate::snapshot::{Snapshot, subnet};

/// What to do about each finding, in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Plan {
    pub(crate) findings: Vec<Row>,
}

/// A finding, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) difference: Difference,
    pub(crate) plan: Verdict,
}

/// The plan for these findings. It changes an object at most once.
pub(crate) fn plan<'a>(snapshot: &Snapshot, differences: impl IntoIterator<Item = &'a Difference>) -> Plan {
    let mut written: BTreeSet<Object> = BTreeSet::new();
    let mut planned: Vec<Step> = Vec::new();
    let findings = differences.into_iter().map(|difference| {
        let mut plan = verdict(snapshot, difference);
        if let Verdict::Repair(step) = &plan {
            if planned.iter().any(|it| it == step.as_ref()) {
                plan = Verdict::Heals("a step of another finding repairs it".to_owned());
            } else if !written.insert(step.object.clone()) {
                plan = Verdict::cannot(
                    "another step of this plan changes the same object",
                    "run `tenure repair` again afterwards",
                );
            } else {
                planned.push(step.as_ref().clone());
            }
        }
        Row { difference: difference.clone(), plan }
    });
    Plan { findings: findings.collect() }
}

/// What to do about one finding.
pub(crate) fn verdict(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let block = || {
        let name = it.subject.strip_prefix("block ")?;
        snapshot.blocks.iter().find(|block| block.name_any() == name)
    };
    match it.kind {
        "pool-unprotected" => {
            let name = it.subject.strip_prefix("pool ").unwrap_or_default();
            let pool = snapshot.pools.iter().find(|pool| pool.name_any() == name);
            pool.map_or_else(blocks::gone, blocks::pool_unprotected)
        }
        "block-without-pool" => {
            block().map_or_else(blocks::gone, |block| blocks::without_pool(snapshot, block, it))
        }
        "block-without-node" => {
            block().map_or_else(blocks::gone, |block| blocks::without_node(snapshot, block, it))
        }
        "block-outside-pool" => {
            block().map_or_else(blocks::gone, |block| blocks::drained(snapshot, block, it))
        }
        "blocks-overlap" => {
            block().map_or_else(blocks::gone, |block| blocks::overlapping(snapshot, block, it))
        }
        "leftover-finalizer" => blocks::leftover(snapshot, it),
        "request-without-node" | "request-left-over" => blocks::request(snapshot, it),
        "held-in-lost-block" | "hold-outside-blocks" => blocks::lost(snapshot, it),
        "block-unknown-to-agent" | "block-unknown-to-api" | "block-of-two-nodes" | "slice-unknown-to-api" => {
            restart(snapshot, it)
        }
        "ledger-invalid" => ranges::invalid(snapshot, it),
        "record-senseless" => ranges::senseless(snapshot, it),
        "record-without-reservation" => ranges::unreserved(snapshot, it),
        "node-pool-record" => ranges::node_pool(snapshot, it),
        name => match kinds::of(name).map(|kind| kind.does) {
            Some(Does::Heals(who)) => Verdict::Heals(who.to_owned()),
            Some(Does::Explains(because) | Does::Writes(because)) => Verdict::advised(because, it),
            None => Verdict::advised("this program does not know such a finding", it),
        },
    }
}

/// Whether a node's own `IPPool` tells it that the slice is its own.
fn is_given(ledger: &IPPool) -> bool {
    matches!(Told::by(ledger), Told::Given(_))
}

/// A restart of the agent makes it read everything again.
fn restart(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let node = it.subject.strip_prefix("node ").and_then(|rest| rest.split_once(": "));
    let Some((node, subject)) = node else { return blocks::gone() };
    let block = subject
        .strip_prefix("block ")
        .and_then(|name| snapshot.blocks.iter().find(|block| block.name_any() == name));
    if it.kind == "block-unknown-to-agent" && block.is_some_and(|block| subnet(block).is_none()) {
        return Verdict::cannot(
            "the networks of the block cannot be read, so no agent can use it",
            "delete it when no pod has an address of it; the node asks for another one",
        );
    }
    if it.kind == "block-of-two-nodes" && block.is_some_and(|block| block.node().is_none()) {
        return Verdict::Heals("the block names no node at all, and that finding comes first".to_owned());
    }
    if it.kind == "slice-unknown-to-api"
        && let Some(name) = subject.strip_prefix("block ")
        && snapshot.ranges.ledgers.iter().any(|ledger| ledger.name_any() == name && is_given(ledger))
    {
        return Verdict::Heals(format!(
            "IPPool {name} still tells the node that the slice is its own, and an agent that starts would wait for the controller to tell it \
             otherwise; it does so within minutes, if one leads"
        ));
    }
    if snapshot.pods.is_none() {
        return Verdict::cannot(
            "this host has no Kubernetes that would start the agent again",
            "restart tenured: pods keep running",
        );
    }
    Step::guarded(
        Object::agent(node),
        Operation::RestartAgent,
        "an agent that starts assigns nothing before it has read its journal, the kernel and all objects; pods keep running",
    )
}
