//! Which machine has an alias address, and for whom.

use tenure_ipam::Address;

use super::{Answer, State};
use crate::snapshot::Snapshot;

/// Searches records, then pools; returns whether it was found. Which pod has it, the agent of the node says, or the record of a move.
pub(super) fn find(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> bool {
    let known = &snapshot.aliases;
    let Some(found) = known.record_of(address) else {
        let Some((pool, usable)) = known.pool_with(address) else { return false };
        (answer.state, answer.summary) = if usable {
            (
                State::Free,
                format!("nobody has {address}: it is free in IPPool {pool}, and an alias of no machine"),
            )
        } else {
            (State::Excluded, format!("nobody has {address}: IPPool {pool} gives it to nobody"))
        };
        answer.pool = Some(pool);
        return true;
    };
    let (pool, node) = (&found.ledger.spec.pool, &found.record.node);
    answer.pool = Some(pool.clone());
    answer.node = Some(node.clone());
    let place = format!("alias of the machine of node {node} (IPPool {pool})");
    (answer.state, answer.summary) = match (found.cools(), found.pods()) {
        (true, _) => {
            (State::Cooling, format!("{address} cools in IPPool {pool}: node {node} has given it back"))
        }
        (false, Some(pods)) => match &pods[..] {
            [] => (State::KeptBack, format!("{address} waits for the pod that moves with it: {place}")),
            [pod] => (State::Held, format!("{address} is held by pod {pod}: {place}")),
            [pod, other, ..] => (
                State::Held,
                format!("{address} is held by pod {pod}, and moves between it and pod {other}: {place}"),
            ),
        },
        (false, None) => match snapshot.agents.get(node) {
            Some(Ok(_)) => (State::Free, format!("nobody has {address}: it is free on node {node}, {place}")),
            Some(Err(problem)) => {
                (State::Unknown, format!("{address} is {place}, and who has it is not known: {problem}"))
            }
            None => (
                State::Unknown,
                format!("{address} is {place}, and who has it is not known: nobody was asked there"),
            ),
        },
    };
    true
}
