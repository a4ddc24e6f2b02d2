//! One policy: which nodes it selects, their enactments, whose turn it is, and its status. Without I/O.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use tenure_api::nmstate::condition::{self, reason};
use tenure_api::nmstate::{FINALIZER, NodeNetworkConfigurationEnactment, label, node_label};
use tenure_handles::Timestamp;

use super::belongs::NodeFacts;
use super::conditions::{of_enactment, of_policy};
use super::known::{EnactmentFacts, NodeAddresses, PolicyFacts};
use super::write::{NodeAddressWrite, Promise};
use crate::plan::time;
use crate::release::{Releases, Step, mark_at};
use crate::write::At;

/// The input for policies.
pub(super) struct Context<'a> {
    pub(super) known: &'a NodeAddresses,
    pub(super) nodes: &'a BTreeMap<String, NodeFacts>,
    /// Nodes that exist but cannot be read.
    pub(super) unread: &'a dyn Fn(&str) -> bool,
    /// Whether an enactment's address is free in its pool, or another's.
    pub(super) is_freed: &'a dyn Fn(&EnactmentFacts) -> bool,
    /// The name of the enactment of a policy on a node.
    pub(super) name: fn(&str, &str) -> Option<String>,
    pub(super) now: Timestamp,
}

/// The outcome for a policy.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) writes: Vec<NodeAddressWrite>,
    /// How many enactments are to be created.
    pub(super) to_come: usize,
}

/// Looks at a policy, which may be gone, and at its enactments.
pub(super) fn look(
    context: &Context<'_>,
    name: &str,
    policy: Option<&PolicyFacts>,
    enactments: &[&EnactmentFacts],
    releases: &mut Releases,
) -> Look {
    let mut look = Look::default();
    let policy = policy.filter(|policy| policy.object.metadata.deletion_timestamp.is_none());
    let selected: BTreeMap<&str, &NodeFacts> = match policy {
        Some(policy) => {
            let nodes = context.nodes.iter().filter(|(_, node)| policy.selects(&node.labels));
            nodes.map(|(name, node)| (name.as_str(), node)).collect()
        }
        None => BTreeMap::new(),
    };
    let mut staying: BTreeMap<&str, &EnactmentFacts> = BTreeMap::new();
    let mut occupied: BTreeSet<&str> = BTreeSet::new();
    let mut replaced: BTreeMap<&str, NodeAddressWrite> = BTreeMap::new();
    for facts in enactments.iter().copied() {
        occupied.insert(&facts.at.name);
        match fate(context, facts, policy, &selected, releases) {
            Fate::Stays => _ = staying.insert(&facts.node, facts),
            Fate::Leaves(write) => look.writes.extend(write),
            Fate::GetsOthers(write) => {
                staying.insert(&facts.node, facts);
                replaced.insert(&facts.node, write);
            }
        }
    }
    let Some(policy) = policy else { return look };
    let most = limit(policy.object.spec.max_unavailable.as_ref(), selected.len());
    let mut room = most.saturating_sub(unavailable(context, policy, name, &selected, &staying));
    for (node, write) in replaced {
        // A node that is not ready is unavailable with or without its addresses.
        let ready = selected.get(node).is_some_and(|it| it.ready);
        let finished = staying.get(node).is_some_and(|it| !is_busy(it, policy.object.metadata.generation));
        if ready && finished && room == 0 {
            continue;
        }
        room -= usize::from(ready && finished);
        staying.remove(node);
        look.writes.push(write);
    }
    let reset = distribute_reset(policy, &staying);
    look.writes.extend(reset);
    for (node, facts) in selected.iter().filter(|(node, _)| !staying.contains_key(*node)) {
        if let Some(enactment) = (context.name)(node, name)
            && !occupied.contains(enactment.as_str())
        {
            look.to_come += 1;
            look.writes.push(create(enactment, name, node, facts));
        }
    }
    look.writes.extend(turns(context, policy, &selected, &staying));
    look.writes.extend(status(policy, &selected, &staying, context.now));
    look
}

enum Fate {
    Stays,
    /// It is deleted so that another one of its name gets other addresses, when it is the node's turn.
    GetsOthers(NodeAddressWrite),
    Leaves(Option<NodeAddressWrite>),
}

/// Whether an enactment stays, and what to do about one that does not.
fn fate(
    context: &Context<'_>,
    facts: &EnactmentFacts,
    policy: Option<&PolicyFacts>,
    selected: &BTreeMap<&str, &NodeFacts>,
    releases: &mut Releases,
) -> Fate {
    let enactment = || facts.at.clone();
    let node = context.nodes.get(&facts.node);
    let missing = node.is_none() && !(context.unread)(&facts.node);
    if facts.deleting && facts.is_released() {
        let finish = facts.is_kept() && (context.is_freed)(facts);
        let finalizers = || facts.finalizers.iter().filter(|it| *it != FINALIZER).cloned().collect();
        return Fate::Leaves(
            finish.then(|| NodeAddressWrite::Finish { enactment: enactment(), finalizers: finalizers() }),
        );
    }
    if missing {
        let node = facts.node.clone();
        let write = match releases.step(&facts.at.uid, facts.mark.as_deref(), context.now) {
            Step::Mark => {
                Some(NodeAddressWrite::Mark { enactment: enactment(), node, mark: mark_at(context.now) })
            }
            Step::Wait => None,
            Step::Release if facts.deleting => {
                Some(NodeAddressWrite::Abandon { enactment: enactment(), node })
            }
            Step::Release => Some(delete(facts, format!("node \"{node}\" is gone"))),
        };
        return Fate::Leaves(write);
    }
    if facts.mark.is_some() {
        return Fate::Leaves(Some(NodeAddressWrite::Unmark { enactment: enactment() }));
    }
    if facts.deleting {
        let write = (!facts.withdrawing).then(|| delete(facts, "somebody deletes it".to_owned()));
        return Fate::Leaves(write);
    }
    if let Some(why) = reason_to_leave(facts, policy, selected) {
        return Fate::Leaves(Some(delete(facts, why)));
    }
    match policy.and_then(|policy| reason_for_others(context, facts, policy)) {
        Some(why) => Fate::GetsOthers(delete(facts, why)),
        None => Fate::Stays,
    }
}

fn delete(facts: &EnactmentFacts, why: String) -> NodeAddressWrite {
    NodeAddressWrite::Delete { enactment: facts.at.clone(), node: facts.node.clone(), why }
}

/// Why a node should return its addresses.
fn reason_to_leave(
    facts: &EnactmentFacts,
    policy: Option<&PolicyFacts>,
    selected: &BTreeMap<&str, &NodeFacts>,
) -> Option<String> {
    if policy.is_none() {
        return Some("the policy is gone".to_owned());
    }
    let Some(node) = selected.get(facts.node.as_str()) else {
        return Some("the policy no longer selects the node".to_owned());
    };
    if node.uid != facts.node_uid {
        return Some("the node was made again".to_owned());
    }
    None
}

/// Why a node that stays selected should get other addresses.
fn reason_for_others(context: &Context<'_>, facts: &EnactmentFacts, policy: &PolicyFacts) -> Option<String> {
    if facts.addresses.is_empty() {
        return None;
    }
    // Nobody is reset before all of its policy are asked, so that none is asked twice.
    if let Some(pool) = facts.reset.as_ref().filter(|_| policy.reset().is_none())
        && facts.addresses.contains_key(pool)
    {
        return Some(format!("its addresses of NodeIPPool \"{pool}\" are reset"));
    }
    let counts: BTreeMap<&str, usize> =
        facts.addresses.iter().map(|(pool, held)| (pool.as_str(), held.len())).collect();
    let wanted: BTreeMap<&str, usize> =
        policy.pools.iter().map(|(pool, count)| (pool.as_str(), *count)).collect();
    if counts != wanted {
        return Some("the policy takes addresses of other pools".to_owned());
    }
    facts.addresses.keys().find_map(|pool| {
        let range = context.known.pools.get(pool)?.facts.range.as_ref().ok()?;
        let lost = facts.addresses_of(pool).find(|address| range.offset(*address).is_err())?;
        Some(format!("{lost} is not in NodeIPPool \"{pool}\" any more"))
    })
}

/// Asks every node of a policy for its addresses of a pool; then the policy has done its part.
fn distribute_reset(
    policy: &PolicyFacts,
    staying: &BTreeMap<&str, &EnactmentFacts>,
) -> Vec<NodeAddressWrite> {
    let mut writes = Vec::new();
    if let Some(pool) = policy.reset() {
        let have = staying.values().filter(|it| it.addresses.contains_key(pool));
        let unasked = have.filter(|it| it.reset.as_deref() != Some(pool));
        writes.extend(unasked.map(|it| NodeAddressWrite::AskForReset {
            enactment: it.at.clone(),
            pool: Some(pool.to_owned()),
        }));
        if writes.is_empty() {
            writes.push(NodeAddressWrite::PolicyIsReset { policy: At::of(&policy.object) });
        }
    } else {
        // If the node has nothing of the pool, it is already done.
        let has = |it: &EnactmentFacts, pool: &String| it.addresses.contains_key(pool);
        let idle = staying.values().filter(|it| it.reset.as_ref().is_some_and(|pool| !has(it, pool)));
        writes.extend(idle.map(|it| NodeAddressWrite::AskForReset { enactment: it.at.clone(), pool: None }));
    }
    writes
}

/// The enactment of a policy on a node that has none.
fn create(name: String, policy: &str, node: &str, facts: &NodeFacts) -> NodeAddressWrite {
    let labels = [(label::POLICY, policy.to_owned()), (label::NODE, node_label(node))];
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: facts.uid.clone(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
        owner_references: Some(vec![owner]),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..ObjectMeta::default()
    };
    let enactment =
        NodeNetworkConfigurationEnactment { metadata, ..NodeNetworkConfigurationEnactment::default() };
    NodeAddressWrite::Create { enactment: Box::new(enactment) }
}

/// Whether a node has applied what it should, or failed to.
fn is_finished(facts: &EnactmentFacts, generation: Option<i64>) -> bool {
    let applied = facts.applied.as_ref().and_then(|it| it.policy_generation) == generation;
    facts.generation == generation
        && applied
        && (facts.is(condition::AVAILABLE).is_some() || facts.is(condition::FAILING).is_some())
}

/// Whether a node is being changed: it waits for addresses or its turn, or has not applied what it should. A node
/// that was told why it gets no address is not.
fn is_busy(facts: &EnactmentFacts, generation: Option<i64>) -> bool {
    match facts.generation {
        None => facts.is(condition::FAILING).is_none(),
        current => current == generation && !is_finished(facts, generation),
    }
}

/// How many of the selected nodes are being changed, or have no enactment because an earlier one is in deletion.
fn unavailable(
    context: &Context<'_>,
    policy: &PolicyFacts,
    name: &str,
    selected: &BTreeMap<&str, &NodeFacts>,
    staying: &BTreeMap<&str, &EnactmentFacts>,
) -> usize {
    let ready = selected.iter().filter(|(node, facts)| facts.ready && (context.name)(node, name).is_some());
    let generation = policy.object.metadata.generation;
    ready.filter(|(node, _)| staying.get(*node).is_none_or(|it| is_busy(it, generation))).count()
}

/// How many nodes may be changed at once.
fn limit(max: Option<&IntOrString>, nodes: usize) -> usize {
    let share = |percent: usize| (nodes * percent).div_ceil(100);
    let count = match max {
        None => share(50),
        Some(IntOrString::Int(count)) => usize::try_from(*count).unwrap_or(0),
        Some(IntOrString::String(text)) => share(text.trim_end_matches('%').parse().unwrap_or(50)),
    };
    count.max(1)
}

/// Records the reservations of pools in enactments, and gives turns.
fn turns(
    context: &Context<'_>,
    policy: &PolicyFacts,
    selected: &BTreeMap<&str, &NodeFacts>,
    staying: &BTreeMap<&str, &EnactmentFacts>,
) -> Vec<NodeAddressWrite> {
    let generation = policy.object.metadata.generation;
    let most = limit(policy.object.spec.max_unavailable.as_ref(), selected.len());
    let busy = staying.values().filter(|it| it.generation == generation && !is_finished(it, generation));
    let mut room = most.saturating_sub(busy.count());
    let mut writes = Vec::new();
    for (node, facts) in staying.iter().filter(|(_, it)| it.generation != generation) {
        let recorded = policy.pools.is_empty() || !facts.addresses.is_empty();
        let promises = if recorded { Ok(Vec::new()) } else { promises(context.known, policy, facts) };
        let enactment = facts.at.clone();
        let promises = match promises {
            Ok(promises) => promises,
            Err(None) => continue,
            Err(Some(why)) => {
                let says = (condition::FAILING, reason::FAILED, why.as_str());
                let conditions = of_enactment(&facts.conditions, says, context.now);
                if facts.generation.is_none() && conditions != facts.conditions {
                    let conditions = Some(conditions);
                    writes.push(NodeAddressWrite::Turn { enactment, generation: None, conditions });
                }
                continue;
            }
        };
        let ready = selected.get(node).is_some_and(|it| it.ready);
        let turn = (ready && room > 0).then_some(generation).flatten();
        room -= usize::from(turn.is_some());
        let why = if ready {
            format!("{most} of {} nodes may be changed at once", selected.len())
        } else {
            format!("node \"{node}\" is not ready")
        };
        let says = if turn.is_some() {
            (condition::PROGRESSING, reason::CONFIGURING, "the node applies the policy")
        } else {
            (condition::PENDING, reason::MAX_UNAVAILABLE, why.as_str())
        };
        // What a node reported of an earlier generation stays until its turn.
        let conditions = (turn.is_some() || facts.generation.is_none())
            .then(|| of_enactment(&facts.conditions, says, context.now))
            .filter(|conditions| *conditions != facts.conditions);
        if !recorded {
            let captured = captured(policy, &promises);
            writes.push(NodeAddressWrite::Record {
                enactment,
                promises,
                captured,
                generation: turn,
                conditions,
            });
        } else if turn.is_some() || conditions.is_some() {
            writes.push(NodeAddressWrite::Turn { enactment, generation: turn, conditions });
        }
    }
    writes
}

/// The reservations of all pools of a policy for an enactment; or why one pool has none, if it says so.
fn promises(
    known: &NodeAddresses,
    policy: &PolicyFacts,
    facts: &EnactmentFacts,
) -> Result<Vec<Promise>, Option<String>> {
    let mut promises = Vec::new();
    let mut waits = None;
    for (name, count) in &policy.pools {
        let Some(pool) = known.pools.get(name) else {
            let there = known.pools.is_unreadable(name);
            let what = if there { "cannot be read" } else { "does not exist" };
            return Err(Some(format!("NodeIPPool \"{name}\" {what}")));
        };
        let Ok(range) = &pool.facts.range else { return Err(said_of(&pool.facts.object)) };
        let status = pool.facts.object.status.as_ref();
        let of = status.into_iter().flat_map(|it| &it.promised).filter(|it| it.uid == facts.at.uid);
        let mut offsets: Vec<i64> = of.map(|it| it.offset).collect();
        offsets.sort_unstable();
        let addresses = offsets.iter().filter_map(|offset| range.address(u128::try_from(*offset).ok()?).ok());
        let addresses: Vec<String> = addresses.map(|it| it.to_string()).collect();
        if addresses.len() != *count || offsets.len() != *count {
            waits = waits.or(Some(said_of(&pool.facts.object)));
            continue;
        }
        let uid = pool.facts.object.uid().unwrap_or_default();
        promises.push(Promise { pool: name.clone(), uid, offsets, addresses, prefix: range.prefix() });
    }
    waits.map_or(Ok(promises), Err)
}

/// Why a pool assigns no address, if it says so.
fn said_of(pool: &tenure_api::nmstate::NodeIPPool) -> Option<String> {
    let condition = pool.status.as_ref()?.condition(condition::AVAILABLE)?;
    let (name, reason) = (pool.name_any(), &condition.reason);
    (condition.status == "False" && condition.reason != reason::COLLISION)
        .then(|| format!("NodeIPPool \"{name}\" gives no address ({reason}): {}", condition.message))
}

/// The values of captures: the addresses of a pool go to its captures in the order of their names.
fn captured(policy: &PolicyFacts, promises: &[Promise]) -> BTreeMap<String, (String, u8)> {
    let mut given: BTreeMap<&str, std::slice::Iter<'_, String>> =
        promises.iter().map(|it| (it.pool.as_str(), it.addresses.iter())).collect();
    let prefixes: BTreeMap<&str, u8> = promises.iter().map(|it| (it.pool.as_str(), it.prefix)).collect();
    let values = policy.object.spec.pools().filter_map(|(capture, pool)| {
        let address = given.get_mut(pool)?.next()?.clone();
        Some((capture.to_owned(), (address, *prefixes.get(pool)?)))
    });
    values.collect()
}

/// The new status of a policy, if it differs.
fn status(
    policy: &PolicyFacts,
    selected: &BTreeMap<&str, &NodeFacts>,
    staying: &BTreeMap<&str, &EnactmentFacts>,
    now: Timestamp,
) -> Option<NodeAddressWrite> {
    let generation = policy.object.metadata.generation;
    let before = policy.object.status.clone().unwrap_or_default();
    let (total, mut done, mut failed, mut first) = (selected.len(), 0_usize, 0_usize, None);
    let mut busy = 0;
    for (node, facts) in staying {
        let current = facts.generation == generation;
        let failing = facts.is(condition::FAILING).filter(|_| current || facts.generation.is_none());
        if is_finished(facts, generation) && facts.is(condition::AVAILABLE).is_some() {
            done += 1;
        } else if let Some(failing) = failing {
            failed += 1;
            let message = failing.message.clone().unwrap_or_default();
            first.get_or_insert_with(|| format!("node \"{node}\": {message}"));
        }
        busy += i32::from(current && !is_finished(facts, generation));
    }
    let first = first.unwrap_or_default();
    let (type_, reason, message) = if total == 0 {
        (condition::IGNORED, reason::NO_MATCHING_NODE, "Policy does not match any node".to_owned())
    } else if done == total {
        (condition::AVAILABLE, reason::CONFIGURED, format!("{done}/{total} nodes successfully configured"))
    } else if failed > 0 && done + failed == total {
        (condition::DEGRADED, reason::FAILED, format!("{failed}/{total} nodes failed to configure: {first}"))
    } else {
        let words = format!("Policy is progressing {}/{total} nodes finished", done + failed);
        (condition::PROGRESSING, reason::CONFIGURING, words)
    };
    let mut after = before.clone();
    after.conditions = of_policy(&before.conditions, (type_, reason, &message), now);
    after.unavailable_node_count = Some(busy);
    after.unavailable_node_count_map = generation.map(|it| (it.to_string(), busy)).into_iter().collect();
    if before.unavailable_node_count != after.unavailable_node_count {
        after.last_unavailable_node_count_update = Some(time(now));
    }
    (after != before)
        .then(|| NodeAddressWrite::Policy { policy: At::of(&policy.object), status: Box::new(after) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nodes_is_rounded_up_and_never_none() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (max, nodes, expected) in [
            (None, 3, 2),
            (None, 200, 100),
            (Some(IntOrString::Int(0)), 5, 1),
            (Some(IntOrString::Int(7)), 5, 7),
            (Some(text("10%")), 5, 1),
            (Some(text("100%")), 5, 5),
            (Some(text("0%")), 5, 1),
        ] {
            assert_eq!(limit(max.as_ref(), nodes), expected, "{max:?} of {nodes}");
        }
    }
}
