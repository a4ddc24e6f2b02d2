//! The record of one pool: what is used by whom, and what cools. Without I/O.
//!
//! ```text
//!             an enactment waits: promise            it names the address
//!    free ───────────────────────────────▶ promised ─────────────────────▶ held ──┐
//!     ▲                                       │ the enactment is gone             │ the enactment is deleted,
//!     │                                       ▼                                   │ the node has removed it
//!     └───────────── its time is over ──── cooling ◀──────────────────────────────┘
//! ```
//!
//! What enactments say counts, whatever the record says: an offset that the record has lost is taken again. An offset
//! that the record has and nobody holds is freed at the second observation. [`tenure_ipam::Block`] decides which
//! address a node gets.

mod allocate;
mod promises;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::coil::PoolUsage;
use tenure_api::nmstate::condition::{AVAILABLE, EXCLUDED, reason};
use tenure_api::nmstate::{CoolingOffsets, KeptOffset, NodeIPPoolStatus, NodeRange, PromisedOffset};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use self::allocate::{allocate, bound, still_cooling};
use self::promises::{Kept, PROMISES, is_kept_promise, open_promises, waiting};
use super::conditions::Said;
use super::known::{EnactmentFacts, PoolFacts};
use super::write::NodeAddressWrite;
use crate::plan::time;
use crate::shared::Shared;
use crate::write::At;

/// How long an offset must have been without a holder before it is freed.
const STALE: Duration = Duration::from_secs(10);

/// Stands for an interface that the node has not named.
const NOT_APPLIED: &str = "(not applied yet)";

/// An enactment that has addresses of the pool, or should.
pub(super) struct Member<'a> {
    pub(super) facts: &'a EnactmentFacts,
    /// How many addresses its policy asks for.
    pub(super) asks: usize,
    /// How many of these it can have: none while another pool of the policy can give it nothing.
    pub(super) wants: usize,
}

impl Member<'_> {
    /// Whether the next enactment gets the same addresses of a pool: it needs as many, and nobody asks for others.
    fn keeps(&self, pool: &str) -> bool {
        let held = self.facts.addresses.get(pool).map_or(0, Vec::len);
        held > 0 && self.facts.is_released() && self.asks == held && self.facts.reset.as_deref() != Some(pool)
    }
}

/// What else a pool depends on.
#[derive(Default)]
pub(super) struct Around<'a> {
    /// An older pool with some of the same addresses: kind and name.
    pub(super) older: Option<(&'static str, String)>,
    /// Addresses of the pool that nodes report, with node and interface.
    pub(super) reported: Vec<(Address, &'a str, &'a str)>,
    /// A range of Whereabouts with some of the same addresses.
    pub(super) shared: Option<Shared>,
    /// Addresses of the pool that nodes have, or will get, from other pools.
    pub(super) elsewhere: Vec<Address>,
    /// Addresses of the pool that pods have, as intervals.
    pub(super) of_pods: Vec<(Address, Address)>,
    /// An enactment that cannot be read.
    pub(super) unreadable: Option<&'a str>,
    /// More enactments are about to be created: what they need goes into the same write.
    pub(super) more_to_come: bool,
}

/// Since when which offsets of a pool are used without a holder.
pub(super) type Stale = BTreeMap<u128, Timestamp>;

/// Enactments by UID.
type ByUid<'a> = BTreeMap<&'a str, &'a Member<'a>>;

/// The outcome for a pool.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) write: Option<NodeAddressWrite>,
    /// When to look again.
    pub(super) due: Option<Timestamp>,
}

/// What enactments say, as offsets.
#[derive(Debug, Default)]
struct Use {
    /// Held, and by which enactment.
    held: BTreeMap<u128, usize>,
    /// Freed by their nodes.
    freed: BTreeSet<u128>,
    /// Two enactments have the same address.
    duplicate: Option<String>,
}

/// Looks at a pool.
pub(super) fn look(
    facts: &PoolFacts,
    members: &[Member<'_>],
    around: &Around<'_>,
    stale: &mut Stale,
    rest: Duration,
    now: Timestamp,
) -> Look {
    let pool = &facts.object;
    let (name, before) = (pool.name_any(), pool.status.clone().unwrap_or_default());
    let range = match &facts.range {
        Ok(range) => range,
        Err(why) => return Look { write: said(pool, &before, &Said::unsynchronized(why), now), due: None },
    };
    let record = range.decode(&before);
    let usage = usage(range, &name, members);
    let by_uid: ByUid<'_> = members.iter().map(|member| (member.facts.at.uid.as_str(), member)).collect();
    let open = open_promises(range, &before, &by_uid, &name);
    let mut taken: BTreeSet<u128> = usage.held.keys().copied().collect();
    taken.extend(open.iter().filter_map(|it| u128::try_from(it.offset).ok()));
    let mut kept = Kept::of(range, &before, members, (&name, &usage, around), &open);
    taken.extend(kept.sure.iter().filter_map(|it| u128::try_from(it.offset).ok()));

    // Offsets of the record without a holder: freed by the node, or stale.
    let orphans: BTreeSet<u128> = record.offsets.difference(&taken).copied().collect();
    let (freed, unclaimed): (BTreeSet<u128>, BTreeSet<u128>) =
        orphans.into_iter().partition(|offset| usage.freed.contains(offset));
    stale.retain(|offset, _| unclaimed.contains(offset));
    let reset = facts.is_reset();
    let mut due = None;
    let mut cools: Vec<u128> = freed.iter().copied().collect();
    for offset in unclaimed {
        let since = *stale.entry(offset).or_insert(now);
        let certain = reset || now.since(since) >= STALE;
        // While one enactment cannot be read, it is not known what is stale.
        if certain && around.unreadable.is_none() {
            cools.push(offset);
        } else {
            taken.insert(offset);
            due = earliest(due, Some(since.plus(STALE)).filter(|due| *due > now));
        }
    }

    kept.unseen.retain(|it| u128::try_from(it.offset).is_ok_and(|offset| taken.contains(&offset)));

    let mut cooling = still_cooling(&before, &taken, now);
    if !cools.is_empty() && !rest.is_zero() {
        let offsets = cools.iter().filter_map(|offset| i64::try_from(*offset).ok()).collect();
        cooling.push(CoolingOffsets { until: time(now.plus(rest)), offsets });
    }
    bound(&mut cooling);

    let mut promised = open;
    let waiting = waiting(members, &name, &promised);
    let blocked = around.older.is_some() || around.unreadable.is_some() || reset || usage.duplicate.is_some();
    let mut left: Vec<(&str, &str)> = Vec::new();
    if !blocked && !waiting.is_empty() && !around.more_to_come {
        let allocated = allocate(range, &taken, (&mut cooling, &kept.sure), around, &waiting, rest, now);
        for (member, offsets) in allocated.granted {
            taken.extend(offsets.iter().copied());
            promised.extend(offsets.iter().filter_map(|offset| {
                let (enactment, uid) = (member.at.name.clone(), member.at.uid.clone());
                Some(PromisedOffset { offset: i64::try_from(*offset).ok()?, enactment, uid })
            }));
        }
        let given: BTreeSet<i64> = promised.iter().map(|it| it.offset).collect();
        kept.sure.retain(|it| !given.contains(&it.offset));
        left = allocated.left;
    } else if around.more_to_come && says_exhausted(&before) {
        left = waiting.iter().map(|(member, _)| of(member)).collect();
    }

    let says = if reset {
        Said::reconciling()
    } else if let Some(key) = around.unreadable {
        Said::unsynchronized(&format!("NodeNetworkConfigurationEnactment \"{key}\" cannot be read."))
    } else if let Some(why) = &usage.duplicate {
        Said::unsynchronized(why)
    } else if let Some((kind, older)) = &around.older {
        Said::overlapping(kind, older, &name)
    } else if let Some(said) = collision(&name, members, around) {
        said
    } else if !left.is_empty() {
        Said::exhausted(&name, &left)
    } else if let Some(Shared { kind, name: other }) = &around.shared {
        Said::shared(kind, other, &name)
    } else {
        Said::reconciled()
    };

    // The first write of a reset only says that it has begun, so that people can wait for it.
    let announced = before.condition(AVAILABLE).is_some_and(|it| it.reason == reason::RECONCILING);
    if reset && !announced {
        return Look { write: said(pool, &before, &says, now), due };
    }
    // Fulfilled reservations stay listed until all are: each write serves all.
    let has_open = !promised.is_empty();
    if has_open {
        let known: BTreeSet<i64> = promised.iter().map(|it| it.offset).collect();
        let kept = before
            .promised
            .iter()
            .filter(|it| is_kept_promise(it, &by_uid, &name) && !known.contains(&it.offset));
        // The list is limited; open reservations come first.
        promised.extend(kept.take(PROMISES.saturating_sub(known.len())).cloned());
    }
    promised.sort_by_key(|it| it.offset);

    let mut kept: Vec<KeptOffset> = kept.sure.into_iter().chain(kept.unseen).collect();
    kept.truncate(PROMISES);
    kept.sort_by_key(|it| it.offset);
    let mut after = NodeIPPoolStatus { promised, kept, cooling, ..before.clone() };
    if let Err(error) = range.encode(&mut after, taken.iter().copied()) {
        return Look { write: said(pool, &before, &Said::unsynchronized(&error.to_string()), now), due };
    }
    let used = taken.iter().filter(|offset| range.address(**offset).is_ok_and(|it| range.is_usable(it)));
    let used = used.count() as u128;
    let free = if around.older.is_some() { 0 } else { range.capacity().saturating_sub(used) };
    after.addresses = Some(PoolUsage::new(range.capacity(), taken.len() as u128, free));
    after.observed_generation = pool.metadata.generation;
    set(&mut after, &says, pool.metadata.generation, now);
    let excluded = excluded(range, &name, members, &usage);
    set_type(&mut after, EXCLUDED, excluded.as_ref(), pool.metadata.generation, now);

    due = earliest(due, after.cooling.iter().map(|it| Timestamp::from_jiff(it.until.0)).max());
    if reset && record.offsets == taken && record.refused.is_empty() {
        return Look { write: Some(NodeAddressWrite::PoolIsReset { pool: At::of(pool) }), due };
    }
    let urgent = after.allocated_offsets != before.allocated_offsets
        || after.allocated_bitmap != before.allocated_bitmap
        || after.promised.len() > before.promised.len()
        || after.kept != before.kept;
    let tidy = before.cooling == after.cooling
        || !after.cooling.is_empty() && after.cooling.iter().all(|it| before.cooling.contains(it));
    let same_promises = has_open && after.promised.iter().all(|it| before.promised.contains(it));
    let comparable = NodeIPPoolStatus {
        cooling: if tidy { before.cooling.clone() } else { after.cooling.clone() },
        promised: if same_promises { before.promised.clone() } else { after.promised.clone() },
        ..after.clone()
    };
    let write = (comparable != before).then(|| NodeAddressWrite::Pool {
        pool: At::of(pool),
        status: Box::new(after),
        urgent,
    });
    Look { write, due }
}

/// A write that only changes the status of a pool.
fn said(
    pool: &tenure_api::nmstate::NodeIPPool,
    before: &NodeIPPoolStatus,
    says: &Said,
    now: Timestamp,
) -> Option<NodeAddressWrite> {
    let mut after = before.clone();
    set(&mut after, says, pool.metadata.generation, now);
    (after != *before).then(|| NodeAddressWrite::Pool {
        pool: At::of(pool),
        status: Box::new(after),
        urgent: false,
    })
}

fn set(status: &mut NodeIPPoolStatus, says: &Said, generation: Option<i64>, now: Timestamp) {
    set_type(status, AVAILABLE, Some(says), generation, now);
}

/// Replaces the condition of this type among the others, or removes it.
fn set_type(
    status: &mut NodeIPPoolStatus,
    type_: &str,
    says: Option<&Said>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let place = status.conditions.iter().position(|it| it.type_ == type_);
    let Some(says) = says else {
        status.conditions.retain(|it| it.type_ != type_);
        return;
    };
    let mut condition = says.condition(type_, generation, now);
    match place.and_then(|place| status.conditions.get_mut(place)) {
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.clone();
            }
            *known = condition;
        }
        None => status.conditions.push(condition),
    }
}

/// Addresses that nodes have although they are excluded.
fn excluded(range: &NodeRange, pool: &str, members: &[Member<'_>], usage: &Use) -> Option<Said> {
    let held = usage.held.iter().filter_map(|(offset, index)| {
        let (address, facts) = (range.address(*offset).ok()?, members[*index].facts);
        let interface = facts.interface_of(address).unwrap_or(NOT_APPLIED);
        (!range.is_usable(address)).then_some((address, facts.node.as_str(), interface))
    });
    let held: Vec<(Address, &str, &str)> = held.collect();
    (!held.is_empty()).then(|| Said::excluded(pool, &held))
}

/// What enactments hold.
fn usage(range: &NodeRange, pool: &str, members: &[Member<'_>]) -> Use {
    let mut usage = Use::default();
    for (index, member) in members.iter().enumerate() {
        for address in member.facts.addresses_of(pool) {
            // An address outside the range no longer belongs to this pool.
            let Ok(offset) = range.offset(address) else { continue };
            if member.facts.is_released() {
                usage.freed.insert(offset);
            } else if let Some(other) = usage.held.insert(offset, index) {
                let (first, second) = (&members[other].facts.node, &member.facts.node);
                usage.duplicate.get_or_insert_with(|| {
                    format!(
                        "Nodes \"{first}\" and \"{second}\" both have {address} of NodeIPPool \"{pool}\": annotate the \
                         NodeNetworkConfigurationEnactment of one with nmstate.io/reset-ippool: {pool}."
                    )
                });
            }
        }
    }
    usage.freed.retain(|offset| !usage.held.contains_key(offset));
    usage
}

fn says_exhausted(status: &NodeIPPoolStatus) -> bool {
    status.condition(AVAILABLE).is_some_and(|it| it.reason == reason::EXHAUSTED)
}

fn of(facts: &EnactmentFacts) -> (&str, &str) {
    (facts.node.as_str(), facts.policy.as_deref().unwrap_or_default())
}

/// An address that a node has and another node reports as its own.
fn collision(pool: &str, members: &[Member<'_>], around: &Around<'_>) -> Option<Said> {
    if around.reported.is_empty() {
        return None;
    }
    let mut reported: BTreeMap<Address, Vec<&str>> = BTreeMap::new();
    for (address, node, _) in &around.reported {
        reported.entry(*address).or_default().push(node);
    }
    let mut found: Vec<(Address, &str, &str, &str)> = Vec::new();
    for member in members.iter().filter(|member| !member.facts.is_released()) {
        for address in member.facts.addresses_of(pool) {
            let others = reported.get(&address).into_iter().flatten();
            if let Some(other) = others.filter(|other| **other != member.facts.node).min() {
                let interface = member.facts.interface_of(address).unwrap_or(NOT_APPLIED);
                found.push((address, &member.facts.node, interface, other));
            }
        }
    }
    found.sort();
    let (address, node, interface, other) = found.first()?;
    Some(Said::collision(&address.to_string(), node, interface, other))
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}
