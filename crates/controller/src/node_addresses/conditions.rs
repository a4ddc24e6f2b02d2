//! Conditions of pools, policies and enactments, in the words of the prototype and of kubernetes-nmstate.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tenure_api::nmstate::condition::{self, reason};
use tenure_api::nmstate::{NodeCondition, set_condition};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use crate::plan::time;

/// The types that an enactment has.
const OF_ENACTMENT: [&str; 5] = [
    condition::AVAILABLE,
    condition::FAILING,
    condition::PENDING,
    condition::PROGRESSING,
    condition::ABORTED,
];
/// The types that a policy has.
const OF_POLICY: [&str; 4] =
    [condition::AVAILABLE, condition::DEGRADED, condition::PROGRESSING, condition::IGNORED];
/// How many nodes a message names; the others are counted.
const NAMED: usize = 3;

/// The first entries of a list; the others are counted.
fn some(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let named = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// One condition is true; the others are false.
fn only(
    types: &[&str],
    before: &[NodeCondition],
    (type_, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut after = before.to_vec();
    for other in types {
        let is = *other == type_;
        let said = if is { message } else { "" };
        set_condition(
            &mut after,
            NodeCondition::new(other, if is { "True" } else { "False" }, reason, said, time(now)),
        );
    }
    after
}

/// The conditions of an enactment, one of them true.
pub(super) fn of_enactment(
    before: &[NodeCondition],
    says: (&str, &str, &str),
    now: Timestamp,
) -> Vec<NodeCondition> {
    only(&OF_ENACTMENT, before, says, now)
}

/// The conditions of a policy, one of them true.
pub(super) fn of_policy(
    before: &[NodeCondition],
    says: (&str, &str, &str),
    now: Timestamp,
) -> Vec<NodeCondition> {
    only(&OF_POLICY, before, says, now)
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Said {
    fn not(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    pub(super) fn reconciled() -> Self {
        Self { status: "True", reason: reason::RECONCILED, message: "The pool is up to date".to_owned() }
    }

    pub(super) fn reconciling() -> Self {
        Self {
            status: "Unknown",
            reason: reason::RECONCILING,
            message: "The pool is being updated".to_owned(),
        }
    }

    pub(super) fn unsynchronized(why: &str) -> Self {
        let said = "Failed re constructing the IP pool, it may be not in sync with nodes.";
        Self::not(reason::UNSYNCHRONIZED, format!("{said} {why}"))
    }

    pub(super) fn overlapping(kind: &str, name: &str, pool: &str) -> Self {
        let message = format!(
            "The {kind} {name} is overlapping with this one. Nodes get no further address of NodeIPPool \"{pool}\" until one of the two \
             is made again with other addresses."
        );
        Self::not(reason::OVERLAPPING, message)
    }

    pub(super) fn shared(kind: &str, name: &str, pool: &str) -> Self {
        let message = format!(
            "The {kind} {name} of Whereabouts is overlapping with this one. Nodes get no address that a pod has there, but a pod can get \
             one that a node has: exclude the addresses of NodeIPPool \"{pool}\" in the network's configuration, or make the pool \
             again with other addresses."
        );
        Self { status: "True", reason: reason::OVERLAPPING, message }
    }

    pub(super) fn collision(address: &str, node: &str, interface: &str, other: &str) -> Self {
        let message = format!(
            "The IP address {address} at node {node} and interface {interface} is colliding with node {other}"
        );
        Self::not(reason::COLLISION, message)
    }

    pub(super) fn exhausted(pool: &str, waiting: &[(&str, &str)]) -> Self {
        let named =
            some(waiting.iter().map(|(node, policy)| format!("node \"{node}\" (policy \"{policy}\")")));
        let message = format!(
            "The IP pool has being depleted, manual intervention needed to modify NodeIPPool. NodeIPPool \"{pool}\" has no free address \
             for {named}; let spec.range.end grow, or make it again with a larger range."
        );
        Self::not(reason::EXHAUSTED, message)
    }

    /// Nodes have addresses, with interfaces, that were excluded later.
    pub(super) fn excluded(pool: &str, held: &[(Address, &str, &str)]) -> Self {
        let named = some(held.iter().map(|(address, node, interface)| {
            format!("{address} on node \"{node}\" (interface {interface})")
        }));
        let message = format!(
            "spec.range.exclude of NodeIPPool \"{pool}\" lists addresses that nodes have: {named}. They stay until they are freed, and \
             no other node gets them. To free one, annotate its NodeNetworkConfigurationEnactment with nmstate.io/reset-ippool: {pool}."
        );
        Self::not(reason::EXCLUDED_HELD, message)
    }

    /// The condition of a pool that says so.
    pub(super) fn condition(&self, type_: &str, generation: Option<i64>, now: Timestamp) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: generation,
            last_transition_time: time(now),
        }
    }
}
