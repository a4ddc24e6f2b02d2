//! Decides what happens to each record of one ledger.
//!
//! ```text
//!             granted                    given back, or the node is missing       off the machine, and cooled
//!   no record ────────▶ node, grant ────────────────────────────────────▶ freed ─────────────────────────────▶ no record
//!                          ▲  │ move: another node, another grant            │ nothing else is free: another node
//!                          └──┘ ◀────────────────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_api::cloud::{AliasRecord, FINALIZER, IPLedger};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Cidr};

use super::context::{Context, Planted};
use super::index::{PoolView, cidr_of, prefix_of, records};
use super::write::{Change, CloudWrite};
use super::{moves, reports};
use crate::write::At;

/// Records by offset.
pub(super) type Records = BTreeMap<u8, AliasRecord>;

/// The outcome for a ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) records: Records,
    pub(super) changes: Vec<Change>,
    /// Nodes that have to be missing for it.
    pub(super) missing: BTreeSet<String>,
    pub(super) due: Option<Timestamp>,
}

/// A grant that no other write of any leader uses: each version of a ledger is written once.
pub(super) fn new_grant(ledger: Option<&IPLedger>, now: Timestamp) -> String {
    let version = ledger.and_then(ResourceExt::resource_version).unwrap_or_default();
    let version: String = version.chars().take(32).collect();
    format!("{}-{version}", now.as_millis())
}

/// Decides about a ledger with these addresses, existing or not.
pub(super) fn look(context: Context<'_>, pool: &PoolView, cidr: Cidr, ledger: Option<&IPLedger>) -> Look {
    let grant = new_grant(ledger, context.now);
    let mut look = Look::default();
    for (offset, record) in ledger.into_iter().flat_map(records) {
        let Some(range) = cidr_of(cidr, offset, record) else { continue };
        if let Some(next) = look_at(context, pool, range, record, &grant, &mut look) {
            look.records.insert(offset, next);
        }
    }
    if ledger.is_some_and(|ledger| pool.gives() && finalizers(ledger) != ledger.finalizers()) {
        look.changes.push(Change::Quiet);
    }
    let gives = pool.gives() && !context.withholds(pool, cidr);
    let reported: BTreeSet<Address> =
        context.index.reports.within(cidr).map(|(address, _)| address).filter(|_| gives).collect();
    for address in &reported {
        if offset_of(cidr, *address).is_none_or(|offset| covers(&look.records, offset)) {
            continue;
        }
        let Some(kept) = reports::kept(context, pool, *address) else { continue };
        if let Some(first) = offset_of(cidr, kept.range.first()) {
            look.changes.push(Change::Imported { node: kept.node.clone() });
            look.records.insert(first, moves::reported(context, &kept, &grant));
        }
    }
    for (address, allocation) in pool.allocations.range(cidr.first()..=cidr.last()).filter(|_| gives) {
        let Some(offset) = offset_of(cidr, *address) else { continue };
        // The entry is not final for what pods report.
        if covers(&look.records, offset) || reported.contains(address) {
            continue;
        }
        if let Some(record) = moves::imported(context, allocation, &grant) {
            look.changes.push(Change::Imported { node: record.node.clone() });
            look.records.insert(offset, record);
        }
    }
    look
}

fn look_at(
    context: Context<'_>,
    pool: &PoolView,
    range: Cidr,
    record: &AliasRecord,
    grant: &str,
    look: &mut Look,
) -> Option<AliasRecord> {
    let now = context.now;
    let mut due = |time: Timestamp| look.due = Some(look.due.map_or(time, |other| other.min(time)));
    if let Some(freed) = &record.freed {
        // A pod that still reports it is looked at again when it is gone.
        if !context.is_off(&record.node, range) || context.index.reports.is_any_within(range) {
            return Some(record.clone());
        }
        let cooled = Timestamp::from_jiff(freed.0).plus(pool.cooling);
        if cooled > now {
            due(cooled);
            return Some(record.clone());
        }
        look.changes.push(Change::Quiet);
        return None;
    }
    let step = moves::step(context, pool, range.first(), record, grant);
    step.due.map(&mut due);
    let mut next = step.record;
    look.changes.extend(step.change);
    if moves::is_pending(&next, pool, now) {
        return Some(next);
    }
    let returned =
        context.known.nodes.get(&next.node).and_then(|it| it.spec.returned.get(&range.to_string()));
    if returned == Some(&next.grant) || returned.is_some() && context.has(Planted::AnyGrant) {
        look.changes.push(Change::Quiet);
        (next.freed, next.moving) = (Some(MicroTime(now.to_jiff())), None);
    } else if let Some(since) = context.missing.get(&next.node) {
        let gone = since.plus(context.rest);
        if gone <= now {
            look.missing.insert(next.node.clone());
            look.changes.push(Change::Released { node: next.node.clone() });
            (next.freed, next.moving) = (Some(MicroTime(now.to_jiff())), None);
        } else {
            look.due = Some(look.due.map_or(gone, |other| other.min(gone)));
        }
    }
    Some(next)
}

/// The finalizers of a ledger with ours, if it can still be added.
pub(super) fn finalizers(ledger: &IPLedger) -> Vec<String> {
    let mut finalizers = ledger.finalizers().to_vec();
    if ledger.metadata.deletion_timestamp.is_none() && !finalizers.iter().any(|it| it == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    finalizers
}

/// Ends a ledger that has no records and is in deletion, or whose pool is.
pub(super) fn dropped(ledger: &IPLedger, pool: Option<&PoolView>) -> Option<CloudWrite> {
    let deleting = ledger.metadata.deletion_timestamp.is_some();
    let goes = deleting || pool.is_some_and(|pool| pool.deleting);
    (goes && ledger.spec.records.is_empty()).then(|| CloudWrite::Drop {
        ledger: At::of(ledger),
        finalizers: ledger.finalizers().iter().filter(|it| *it != FINALIZER).cloned().collect(),
        deleting,
    })
}

/// The offset of an address in a ledger.
pub(super) fn offset_of(cidr: Cidr, address: Address) -> Option<u8> {
    cidr.contains(address).then(|| address.distance_from(cidr.first()).ok()?.try_into().ok()).flatten()
}

/// Whether a record covers this offset.
pub(super) fn covers(records: &Records, offset: u8) -> bool {
    records.range(..=offset).next_back().is_some_and(|(first, record)| {
        u32::from(offset) - u32::from(*first) < 1 << (32 - prefix_of(record)).min(8)
    })
}
