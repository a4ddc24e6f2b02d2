//! Events: what of a change of an object, of an agent's answer or of the findings is worth a line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;
use tenure_api::claims::IPAMClaim;
use tenure_api::cloud::{AliasPool, NodeAliases};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, Egress, RequestOutcome};
use tenure_api::drain::is_draining;
use tenure_api::nmstate::{NodeIPPool, NodeNetworkConfigurationEnactment};
use tenure_api::whereabouts::{IPPool, NodeSlicePool};
use tenure_claims::{ClaimFacts, Slot};
use tenure_view::{Hold, Node};
use tenure_whereabouts::ledger::State as LedgerState;

use crate::check::Findings;
use crate::ranges::records_of;
use crate::snapshot::{self, networks};

/// What events are about: the first word of their names.
pub(crate) const TOPICS: [&str; 12] = [
    "block",
    "slice",
    "request",
    "hold",
    "claim",
    "pool",
    "node-address",
    "egress",
    "alias",
    "node",
    "agent",
    "finding",
];

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct News {
    /// When it was seen.
    pub(crate) time: Timestamp,
    /// What happened, as one stable word: a topic and a verb.
    pub(crate) event: &'static str,
    /// To what.
    pub(crate) subject: String,
    /// The rest, for people.
    pub(crate) message: String,
}

/// Collects them.
type All = Vec<News>;

fn tell(all: &mut All, event: &'static str, subject: impl Display, message: impl Display) {
    let (subject, message) = (subject.to_string(), message.to_string());
    all.push(News { time: snapshot::now(), event, subject, message });
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    items.into_iter().map(|it| it.to_string()).collect::<Vec<_>>().join(" and ")
}

pub(crate) fn of_block(old: Option<&AddressBlock>, new: Option<&AddressBlock>, all: &mut All) {
    let subject = |block: &AddressBlock| format!("block {}", block.name_any());
    let whose = |block: &AddressBlock| match block.node() {
        Some(node) => format!("node {node}"),
        None if block.is_floating() => "claims".to_owned(),
        None => "nobody".to_owned(),
    };
    let what = |block: &AddressBlock| {
        format!("{} of pool {}", list(networks(block)), block.pool().unwrap_or_default())
    };
    match (old, new) {
        (None, Some(block)) if !block.is_withheld() => {
            tell(all, "block-granted", subject(block), format!("{}, to {}", what(block), whose(block)));
        }
        (Some(block), None) if !block.is_withheld() => {
            tell(all, "block-returned", subject(block), format!("{}, by {}", what(block), whose(block)));
        }
        (Some(old), Some(new)) => {
            if whose(old) != whose(new) {
                tell(all, "block-moved", subject(new), format!("from {} to {}", whose(old), whose(new)));
            }
            if !is_draining(old) && is_draining(new) {
                tell(
                    all,
                    "block-drained",
                    subject(new),
                    format!("{} assigns nothing more from it", whose(new)),
                );
            }
        }
        _ => {}
    }
}

pub(crate) fn of_request(old: Option<&BlockRequest>, new: Option<&BlockRequest>, all: &mut All) {
    let refused = |it: Option<&BlockRequest>| match it.map(BlockRequest::outcome) {
        Some(RequestOutcome::Failed { message, .. }) => Some(message.to_owned()),
        _ => None,
    };
    if let (Some(request), None, Some(message)) = (new, refused(old), refused(new)) {
        let whose = format!("node {}", request.spec.node_name);
        tell(
            all,
            "request-refused",
            whose,
            format!("no block of pool {}: {message}", request.spec.pool_name),
        );
    }
}

pub(crate) fn of_slices(old: Option<&NodeSlicePool>, new: Option<&NodeSlicePool>, all: &mut All) {
    let Some(pool) = new.or(old).map(ResourceExt::name_any) else { return };
    let given = |it: Option<&NodeSlicePool>| -> BTreeMap<(String, String), String> {
        let given = it.iter().filter_map(|it| it.status.as_ref()).flat_map(|status| &status.allocations);
        let given = given.filter(|slice| !slice.node_name.is_empty());
        given.map(|it| ((it.slice_range.clone(), it.node_name.clone()), it.node_name.clone())).collect()
    };
    let (before, after) = (given(old), given(new));
    for ((slice, node), _) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        tell(
            all,
            "slice-returned",
            format!("slice {slice}"),
            format!("of NodeSlicePool {pool}, by node {node}"),
        );
    }
    for ((slice, node), _) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        tell(
            all,
            "slice-granted",
            format!("slice {slice}"),
            format!("of NodeSlicePool {pool}, to node {node}"),
        );
    }
    let conditions = |it: Option<&NodeSlicePool>| {
        it.and_then(|it| it.status.as_ref()).map(|it| it.conditions.clone()).unwrap_or_default()
    };
    of_pool_like(
        "NodeSlicePool",
        &pool,
        (old.is_some(), &conditions(old)),
        (new.is_some(), &conditions(new)),
        all,
    );
}

/// Records of ranges that nodes share; what nodes assign from their own slices, their agents say.
pub(crate) fn of_ledger(old: Option<&IPPool>, new: Option<&IPPool>, all: &mut All) {
    let Some(ledger) = new.or(old).filter(|it| LedgerState::of(it) != LedgerState::Owned) else { return };
    let range = format!("IPPool {}", ledger.name_any());
    let records = |it: Option<&IPPool>| -> BTreeMap<String, String> {
        let records = it.into_iter().flat_map(|it| records_of(it).collect::<Vec<_>>());
        records.map(|(address, record)| (address.to_string(), record.podref.clone())).collect()
    };
    let (before, after) = (records(old), records(new));
    for (address, pod) in before.iter().filter(|(address, pod)| after.get(*address) != Some(pod)) {
        tell(all, "hold-released", address, format!("by {pod} ({range})"));
    }
    for (address, pod) in after.iter().filter(|(address, pod)| before.get(*address) != Some(pod)) {
        tell(all, "hold-assigned", address, format!("to {pod} ({range})"));
    }
}

pub(crate) fn of_claim(old: Option<&IPAMClaim>, new: Option<&IPAMClaim>, all: &mut All) {
    let (before, after) = (old.map(ClaimFacts::of), new.map(ClaimFacts::of));
    let Some(subject) =
        after.as_ref().or(before.as_ref()).map(|it| format!("claim {}/{}", it.namespace, it.name))
    else {
        return;
    };
    let on = |slot: &Slot| format!("pod {} on node {}", slot.pod, slot.node);
    let Some(after) = after else {
        return tell(all, "claim-deleted", subject, before.map(|it| addresses_of(&it)).unwrap_or_default());
    };
    if before.is_none() {
        tell(all, "claim-created", &subject, format!("for network {}", after.network));
    }
    let before =
        before.unwrap_or_else(|| ClaimFacts { slots: tenure_claims::Slots::default(), ..empty(&after) });
    if after.held && (!before.held || before.addresses != after.addresses) {
        tell(all, "claim-assigned", &subject, addresses_of(&after));
    }
    if let Some(problem) = after.problem.as_ref().filter(|it| before.problem.as_ref() != Some(it)) {
        tell(all, "claim-refused", &subject, problem);
    }
    let same = |one: &Option<Slot>, other: &Option<Slot>| {
        one.as_ref().map(|it| &it.uid) == other.as_ref().map(|it| &it.uid)
    };
    let (was, is) = (&before.slots, &after.slots);
    match (&was.active, &is.active) {
        (Some(from), Some(to)) if !same(&was.active, &is.active) => {
            tell(all, "claim-moved", &subject, format!("from {} to {}", on(from), on(to)));
        }
        (None, Some(to)) => tell(all, "claim-used", &subject, format!("by {}", on(to))),
        (Some(from), None) => tell(all, "claim-unused", &subject, format!("by {} no longer", on(from))),
        _ => {}
    }
    // After a move, the one that had it stays for a while in the second slot.
    if let Some(to) = is.incoming.as_ref().filter(|_| same(&was.active, &is.active))
        && !same(&was.incoming, &is.incoming)
    {
        tell(all, "claim-moves", &subject, format!("to {}", on(to)));
    }
}

/// A claim that has nothing yet.
fn empty(it: &ClaimFacts) -> ClaimFacts {
    ClaimFacts { addresses: Vec::new(), held: false, problem: None, ..it.clone() }
}

fn addresses_of(claim: &ClaimFacts) -> String {
    list(claim.addresses.iter().map(|(address, _)| address))
}

pub(crate) fn of_pool(old: Option<&AddressPool>, new: Option<&AddressPool>, all: &mut All) {
    let Some(name) = new.or(old).map(ResourceExt::name_any) else { return };
    let conditions = |it: Option<&AddressPool>| {
        it.and_then(|it| it.status.as_ref()).map(|it| it.conditions.clone()).unwrap_or_default()
    };
    of_pool_like(
        "AddressPool",
        &name,
        (old.is_some(), &conditions(old)),
        (new.is_some(), &conditions(new)),
        all,
    );
}

pub(crate) fn of_node_pool(old: Option<&NodeIPPool>, new: Option<&NodeIPPool>, all: &mut All) {
    let Some(name) = new.or(old).map(ResourceExt::name_any) else { return };
    let conditions = |it: Option<&NodeIPPool>| {
        it.and_then(|it| it.status.as_ref()).map(|it| it.conditions.clone()).unwrap_or_default()
    };
    of_pool_like(
        "NodeIPPool",
        &name,
        (old.is_some(), &conditions(old)),
        (new.is_some(), &conditions(new)),
        all,
    );
}

pub(crate) fn of_alias_pool(old: Option<&AliasPool>, new: Option<&AliasPool>, all: &mut All) {
    let Some(name) = new.or(old).map(ResourceExt::name_any) else { return };
    let conditions = |it: Option<&AliasPool>| {
        it.and_then(|it| it.status.as_ref()).map(|it| it.conditions.clone()).unwrap_or_default()
    };
    let (before, after) = ((old.is_some(), &*conditions(old)), (new.is_some(), &*conditions(new)));
    of_pool_like("IPPool of alias addresses", &name, before, after, all);
}

fn of_pool_like(
    kind: &str,
    name: &str,
    (was, before): (bool, &[Condition]),
    (is, after): (bool, &[Condition]),
    all: &mut All,
) {
    let subject = format!("{kind} {name}");
    match (was, is) {
        (false, true) => tell(all, "pool-created", &subject, ""),
        (true, false) => tell(all, "pool-deleted", &subject, ""),
        _ => {}
    }
    of_conditions("pool-condition", &subject, before, after, all);
}

fn of_conditions(
    event: &'static str,
    subject: &str,
    before: &[Condition],
    after: &[Condition],
    all: &mut All,
) {
    let known = |it: &&Condition| {
        before.iter().any(|old| (&old.type_, &old.status, &old.reason) == (&it.type_, &it.status, &it.reason))
    };
    for it in after.iter().filter(|it| !known(it)) {
        tell(all, event, subject, format!("{} {} ({}): {}", it.type_, it.status, it.reason, it.message));
    }
}

pub(crate) fn of_enactment(
    old: Option<&NodeNetworkConfigurationEnactment>,
    new: Option<&NodeNetworkConfigurationEnactment>,
    all: &mut All,
) {
    let Some(it) = new.or(old) else { return };
    let (node, policy) =
        (it.node().unwrap_or_default().to_owned(), it.policy().unwrap_or_default().to_owned());
    let held = |it: Option<&NodeNetworkConfigurationEnactment>| -> BTreeMap<String, String> {
        let pools = it.iter().filter_map(|it| it.status.as_ref()).flat_map(|status| &status.ippool);
        let each =
            pools.flat_map(|(pool, held)| held.allocated.iter().map(move |it| (it.clone(), pool.clone())));
        each.collect()
    };
    let (before, after) = (held(old), held(new));
    let whose = |pool: &str| format!("node {node} by policy {policy} (NodeIPPool {pool})");
    for (address, pool) in before.iter().filter(|(address, _)| !after.contains_key(*address)) {
        tell(all, "node-address-released", address, format!("by {}", whose(pool)));
    }
    for (address, pool) in after.iter().filter(|(address, _)| !before.contains_key(*address)) {
        tell(all, "node-address-assigned", address, format!("to {}", whose(pool)));
    }
    for type_ in ["Available", "Failing"] {
        let now = new.and_then(|it| it.condition(type_)).filter(|it| it.is_true());
        let then = old.and_then(|it| it.condition(type_)).filter(|it| it.is_true());
        if let (Some(now), None) = (now, then) {
            let event = if type_ == "Available" { "node-address-available" } else { "node-address-failing" };
            let message = now.message.as_deref().unwrap_or_default();
            tell(all, event, format!("policy {policy} on node {node}"), message);
        }
    }
}

pub(crate) fn of_aliases(old: Option<&NodeAliases>, new: Option<&NodeAliases>, all: &mut All) {
    let Some(node) = new.or(old).map(ResourceExt::name_any) else { return };
    let has = |it: Option<&NodeAliases>| -> Vec<String> {
        let aliases = it.iter().filter_map(|it| it.status.as_ref()).flat_map(|status| &status.aliases);
        aliases.filter(|(_, alias)| alias.attached).map(|(range, _)| range.clone()).collect()
    };
    let (before, after) = (has(old), has(new));
    for range in before.iter().filter(|range| !after.contains(range)) {
        tell(all, "alias-detached", range, format!("from node {node}"));
    }
    for range in after.iter().filter(|range| !before.contains(range)) {
        tell(all, "alias-attached", range, format!("to node {node}"));
    }
}

pub(crate) fn of_egress(old: Option<&Egress>, new: Option<&Egress>, all: &mut All) {
    let Some(it) = new.or(old) else { return };
    let subject = format!("Egress {}/{}", it.namespace().unwrap_or_default(), it.name_any());
    match (old, new) {
        (None, Some(new)) => tell(all, "egress-created", &subject, format!("{} gateways", new.spec.replicas)),
        (Some(_), None) => tell(all, "egress-deleted", &subject, ""),
        _ => {}
    }
    let serving =
        |it: Option<&Egress>| it.and_then(|it| it.status.as_ref()).map_or(0, |status| status.replicas);
    if let Some(new) = new.filter(|new| serving(Some(new)) != serving(old)) {
        let message = format!("{} of {} gateways serve", serving(Some(new)), new.spec.replicas);
        tell(all, "egress-gateways", &subject, message);
    }
    let conditions = |it: Option<&Egress>| {
        it.and_then(|it| it.status.as_ref()).map(|it| it.conditions.clone()).unwrap_or_default()
    };
    of_conditions("egress-condition", &subject, &conditions(old), &conditions(new), all);
}

pub(crate) fn of_node(old: Option<&str>, new: Option<&str>, all: &mut All) {
    match (old, new) {
        (None, Some(node)) => tell(all, "node-added", format!("node {node}"), ""),
        (Some(node), None) => tell(all, "node-gone", format!("node {node}"), ""),
        _ => {}
    }
}

/// What an agent says, compared with what it said before.
pub(crate) fn of_agent(
    name: &str,
    old: Option<&Result<Node, String>>,
    new: &Result<Node, String>,
    all: &mut All,
) {
    let (old, new) = match (old, new) {
        (Some(Ok(_)) | None, Err(problem)) => {
            return tell(all, "agent-silent", format!("node {name}"), problem);
        }
        (Some(Err(_)), Ok(_)) => return tell(all, "agent-answers", format!("node {name}"), ""),
        (Some(Ok(old)), Ok(new)) => (old, new),
        _ => return,
    };
    let held = |node: &Node| -> BTreeMap<(String, Vec<IpAddr>), Hold> {
        let holds = node.holds.iter();
        holds.map(|hold| ((hold.holder.to_string(), hold.addresses.clone()), hold.clone())).collect()
    };
    let (before, after) = (held(old), held(new));
    let on = |holder: &str, hold: &Hold| format!("{holder} on node {name} (pool {})", hold.pool);
    for ((holder, addresses), hold) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        tell(all, "hold-released", list(addresses), format!("by {}", on(holder, hold)));
    }
    for ((holder, addresses), hold) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        tell(all, "hold-assigned", list(addresses), format!("to {}", on(holder, hold)));
    }
    if let Some(problem) = new.problem.as_ref().filter(|it| old.problem.as_ref() != Some(it)) {
        tell(all, "agent-problem", format!("node {name}"), problem);
    }
}

/// What `check` found twice; the first time, everything is new.
pub(crate) fn of_findings(old: Option<&Findings>, new: &Findings, all: &mut All) {
    let before = old.map(|it| it.differences.as_slice()).unwrap_or_default();
    for it in before.iter().filter(|it| !new.differences.contains(it)) {
        tell(all, "finding-gone", format!("{}: {}", it.kind, it.subject), "");
    }
    for it in new.differences.iter().filter(|it| !before.contains(it)) {
        tell(all, "finding-new", format!("{}: {}", it.kind, it.subject), &it.problem);
    }
}

#[cfg(test)]
mod tests;
