//! The status of nodes and pools, for people and agents.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use tenure_api::cloud::{
    AliasPool, AliasPoolStatus, FINALIZER, NodeAlias, NodeAliases, NodeAliasesStatus, Ranges, condition,
};
use tenure_cloud::{AliasRange, Attachment};

use super::context::{Context, Planted};
use super::index::{PoolView, cidr_of, records};
use super::known::Machine;
use super::write::CloudWrite;
use super::{moves, refusals};
use crate::plan::time;
use crate::write::{At, Write};

/// The maximum of a field.
const LONGEST: usize = 4096;
const LONGEST_GRANT: usize = 64;
/// A machine that was not read yet is assumed to have the range that the cluster's own network needs.
const OTHERS: usize = 1;

/// How many held ranges a message names.
const NAMED: usize = 20;
/// The reason for a pool in deletion.
pub(super) const DELETING: &str = "Deleting";

/// What a node may get.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    /// How many more ranges.
    pub(super) count: usize,
    /// Why not as many as it wants.
    pub(super) problem: Option<String>,
}

/// How many ranges a node lacks and may get.
pub(super) fn shortage(context: Context<'_>, node: &str) -> Shortage {
    let none = |problem: String| Shortage { count: 0, problem: Some(problem) };
    let Some(aliases) = context.known.nodes.get(node) else { return Shortage::default() };
    let wanted = usize::try_from(aliases.spec.wanted).unwrap_or_default();
    let (mut all, mut of_pool) = (context.index.claimed.of_node(node).count(), 0);
    for (ledger, offset) in context.index.of_node(node) {
        let Some((ledger, record)) = context.record(ledger, *offset) else { continue };
        let Some(range) = context.index.alias(ledger, *offset, record) else { continue };
        let returned = aliases.spec.returned.get(&range.to_string()) == Some(&record.grant);
        if record.freed.is_none() && !returned {
            all += 1;
            let leaves = aliases.spec.leaving.contains_key(&range.cidr.first().to_string());
            let for_any_pod = record.moving.is_none() && !leaves;
            of_pool += usize::from(for_any_pod && ledger.spec.pool == aliases.spec.pool);
        }
    }
    if of_pool >= wanted {
        return Shortage::default();
    }
    let pool = &aliases.spec.pool;
    match context.index.pools.get(pool).map(|pool| (pool.deleting, &pool.ranges)) {
        None => return none(format!("IPPool \"{pool}\" does not exist; create it, or name another one")),
        Some((_, Err(error))) => return none(format!("IPPool \"{pool}\": {error}")),
        Some((true, _)) => {
            return none(format!(
                "IPPool \"{pool}\" is being deleted and gives no more addresses; name another one"
            ));
        }
        Some((false, Ok(_))) => {}
    }
    if !context.world.lives(node) {
        return none("there is no such Node, or it is out of service".to_owned());
    }
    if let Some(Err(error)) = context.world.nodes().get(node).map(Machine::of) {
        return none(error.to_string());
    }
    let view = context.known.machine(node).filter(|view| view.known);
    let others = view.map_or(OTHERS, |view| view.others);
    let limit = view.map_or(context.limit, |view| view.limit);
    let room = limit.saturating_sub(others).saturating_sub(all);
    let lacks = wanted - of_pool;
    if lacks <= room {
        return Shortage { count: lacks, problem: None };
    }
    let problem = format!(
        "{wanted} alias ranges are wanted, and the machine's interface takes {} at most: {others} are of others, which leaves {} for \
         pods; spread the pods over more machines, or attach blocks (attach: block)",
        limit,
        limit.saturating_sub(others)
    );
    Shortage { count: room, problem: Some(problem) }
}

/// Ends the object of a node that is gone, if no record names it, no claim is there, and its machine has nothing of
/// ours.
pub(super) fn forgotten(context: Context<'_>, object: &NodeAliases) -> Option<CloudWrite> {
    let node = object.metadata.name.as_deref()?;
    let nodes = context.world.nodes();
    let gone = nodes.is_complete() && nodes.get(node).is_none() && !nodes.is_unreadable(node);
    let unused =
        context.index.of_node(node).next().is_none() && context.index.claimed.of_node(node).next().is_none();
    let empty = !context.reading
        && match context.known.told(node) {
            Some(told) => {
                let view = context.known.machine(node).filter(|view| view.known && view.turn >= told.turn);
                told.ranges.is_empty() && view.is_some_and(|view| view.ranges.is_empty())
            }
            // Nobody asked to attach anything to it, and no other leader left something: that would have a record.
            None => true,
        };
    (gone && unused && empty).then(|| CloudWrite::Forget { node: At::of(object) })
}

/// The status of a node.
pub(super) fn of_node(
    context: Context<'_>,
    object: &NodeAliases,
    problem: Option<&String>,
) -> NodeAliasesStatus {
    let node = object.metadata.name.as_deref().unwrap_or_default();
    let before = object.status.clone().unwrap_or_default();
    let machine = context.machine_of(node).map(|machine| machine.to_string()).or(before.machine);
    let mut status = NodeAliasesStatus { machine, ..NodeAliasesStatus::default() };
    let view = context.known.machine(node);
    let mut put = |range: &AliasRange, mut alias: NodeAlias| {
        let known = before.aliases.get(&range.to_string()).filter(|known| known.grant == alias.grant);
        match view.map(|view| (view.known, view.ranges.get(&range.cidr))) {
            Some((true, Some(Attachment::Attached))) => alias.attached = true,
            Some((_, Some(Attachment::Refused(why)))) => alias.problem = Some(cut(why)),
            Some((true, _)) => {}
            // A leader that has not read the machine yet knows no better than the previous one.
            _ => {
                alias.attached = known.is_some_and(|known| known.attached);
                alias.problem = known.and_then(|known| known.problem.clone());
            }
        }
        status.aliases.insert(range.to_string(), alias);
    };
    for (ledger, offset) in context.index.of_node(node) {
        let Some((ledger, record)) = context.record(ledger, *offset) else { continue };
        let Some(pool) = context.index.pools.get(&ledger.spec.pool) else { continue };
        let Some(range) = context.index.alias(ledger, *offset, record).filter(|_| record.freed.is_none())
        else {
            continue;
        };
        let alias = NodeAlias {
            grant: record.grant.clone(),
            pod: moves::reserved_for(record, pool, context.now),
            ..NodeAlias::default()
        };
        put(&range, alias);
    }
    for (address, claim) in context.index.claimed.of_node(node) {
        let Some(range) = context.index.alias_of_claim(*address) else { continue };
        let grant = claim.uid.chars().take(LONGEST_GRANT).collect();
        put(&range, NodeAlias { grant, claim: Some(claim.name.clone()), ..NodeAlias::default() });
    }
    status.attached = status.aliases.values().map(|alias| i32::from(alias.attached)).sum();
    let refused = || status.aliases.values().find_map(|alias| alias.problem.clone());
    status.problem = problem.map(|text| cut(text)).or_else(refused);
    status
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST / 4).collect()
}

/// The status of a pool.
pub(super) fn of_pool(context: Context<'_>, object: &AliasPool, pool: &PoolView) -> AliasPoolStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.observed_generation = object.metadata.generation;
    let number = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
    let capacity = pool.ranges.as_ref().map_or(0, tenure_api::cloud::Ranges::capacity);
    let taken = context.index.taken(&pool.name);
    let (withheld, of_them) =
        pool.ranges.as_ref().map_or((0, 0), |ranges| context.index.withheld(pool, ranges));
    let available = capacity.saturating_sub(withheld).saturating_sub(taken.saturating_sub(of_them));
    status.capacity = number(capacity);
    status.allocated = number(taken);
    status.available = number(available);
    let mut set = |type_: &str, is: bool, reason: &str, message: String| {
        status.set_condition(Condition {
            type_: type_.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: object.metadata.generation,
            last_transition_time: time(context.now),
        });
    };
    let overlap = context.index.overlaps.problem(&pool.name);
    let refusal = refusals::of_pool(context, object, pool);
    let (is, reason, message) = match (&pool.ranges, &overlap) {
        _ if pool.deleting => {
            let refusal = refusal.map(|(_, message)| format!("; {message}")).unwrap_or_default();
            (false, DELETING, remaining(context, pool) + &refusal)
        }
        (Err(error), _) => (false, "Invalid", error.clone()),
        (Ok(_), Some(overlap)) if capacity == withheld => (false, condition::OVERLAPPING, overlap.clone()),
        (Ok(_), _) => match refusal {
            Some((reason, message)) => (false, reason, message),
            None => (true, "Attaching", "nodes get alias ranges of this pool".to_owned()),
        },
    };
    set(condition::READY, is, reason, message.chars().take(LONGEST).collect());
    let neighbour = context.index.overlaps.neighbour(&pool.name);
    match (overlap, neighbour) {
        (Some(overlap), _) => set(condition::OVERLAPPING, true, "OverlapsPool", overlap),
        (None, Some(neighbour)) => set(condition::OVERLAPPING, true, "OverlapsRange", neighbour),
        (None, None) => {
            let message = "no other pool has these addresses".to_owned();
            set(condition::OVERLAPPING, false, "Distinct", message);
        }
    }
    let count = format!("{taken} of {capacity} addresses are allocated");
    let reason = if available == 0 { "NoneFree" } else { "SomeFree" };
    set(condition::EXHAUSTED, available == 0, reason, count);
    status
}

/// What keeps a pool in deletion.
fn remaining(context: Context<'_>, pool: &PoolView) -> String {
    let (mut held, mut freed) = (Vec::new(), 0);
    for (number, name) in context.index.of_pool(&pool.name) {
        let part = pool.ranges.as_ref().ok().and_then(|ranges| ranges.ledger(*number));
        for (offset, record) in context.known.ledgers.get(name).into_iter().flat_map(records) {
            let range = part.and_then(|(cidr, _)| cidr_of(cidr, offset, record));
            let Some(range) = range.filter(|_| record.freed.is_none()) else {
                freed += 1;
                continue;
            };
            let pods = moves::pods_of(record);
            let pods =
                if pods.is_empty() { String::new() } else { format!(", for pod {}", pods.join(" and ")) };
            held.push(format!("{range} (node \"{}\"{pods})", record.node));
        }
    }
    let more = held.len().saturating_sub(NAMED);
    held.truncate(NAMED);
    let held = match (held.is_empty(), more) {
        (true, _) => "no address is held".to_owned(),
        (false, 0) => format!("held are {}", held.join(", ")),
        (false, more) => format!("held are {} and {more} more", held.join(", ")),
    };
    let attached = match pool.ranges.as_ref() {
        Ok(ranges) if ranges.networks().any(|(cidr, _)| context.known.is_any_within(cidr)) => {
            "; machines have aliases of it"
        }
        _ if context.reading => "; machines are being read",
        _ => "",
    };
    format!(
        "the pool goes when nobody has an address of it: {held}; {freed} cool or are being removed{attached}. End the pods that have them"
    )
}

/// Our finalizer is on a living pool, and is removed in deletion once nobody holds anything of it.
pub(super) fn finalizer(context: Context<'_>, object: &AliasPool, pool: &PoolView) -> Option<CloudWrite> {
    let mut finalizers = object.finalizers().to_vec();
    match (pool.is_kept, pool.deleting) {
        (false, false) => finalizers.push(FINALIZER.to_owned()),
        (true, true) if is_unused(context, pool) => finalizers.retain(|it| it != FINALIZER),
        _ => return None,
    }
    Some(CloudWrite::Finalizers { pool: At::of(object), finalizers, last: pool.deleting })
}

/// Whether a pool has no ledgers and no ranges on machines.
fn is_unused(context: Context<'_>, pool: &PoolView) -> bool {
    let mut writes = context.world.in_flight.iter().filter_map(Write::of::<CloudWrite>);
    let attached = pool.ranges.iter().flat_map(Ranges::networks);
    if context.has(Planted::DropsPool) {
        return true;
    }
    context.index.of_pool(&pool.name).next().is_none()
        && !writes.any(|write| write.pool() == Some(&pool.name))
        && !context.reading
        && !attached.map(|(cidr, _)| cidr).any(|cidr| context.known.is_any_within(cidr))
}

/// Why nodes that are left in the queue get nothing.
pub(super) fn exhausted(context: Context<'_>, pool: &PoolView, left: &[String]) -> BTreeMap<String, String> {
    let overlap = context.index.overlaps.problem(&pool.name);
    let text = format!(
        "no address of IPPool \"{}\" is free; add a range to it (spec.ranges), or end pods that use it{}",
        pool.name,
        overlap.map(|overlap| format!("; {overlap}")).unwrap_or_default()
    );
    left.iter().map(|node| (node.clone(), text.clone())).collect()
}
