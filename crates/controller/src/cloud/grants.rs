//! Who gets which free range: nodes take turns, so that none waits for another's hundred; if nothing is free, cooling
//! ranges, oldest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tenure_api::cloud::{AliasRecord, Ranges};
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use super::context::Context;
use super::index::{PoolView, prefix_of};
use super::ledger::{Look, new_grant};
use super::write::Change;
use crate::shared::{Span, overlap};

/// Nodes take turns, one range each.
pub(super) fn by_turns(short: &BTreeMap<String, usize>) -> VecDeque<String> {
    let mut left: Vec<(&String, usize)> = short.iter().map(|(node, count)| (node, *count)).collect();
    let mut line = VecDeque::new();
    while !left.is_empty() {
        for (node, count) in &mut left {
            line.push_back((*node).clone());
            *count = count.saturating_sub(1);
        }
        left.retain(|(_, count)| *count > 0);
    }
    line
}

/// Assigns ranges of a pool to waiting nodes; `looks` are the ledgers of the plan so far. Nodes that are left get
/// nothing.
pub(super) fn grant(
    context: Context<'_>,
    pool: &PoolView,
    ranges: &Ranges,
    line: &mut VecDeque<String>,
    looks: &mut BTreeMap<(String, u128), Look>,
) {
    for number in 0..ranges.ledgers() {
        if line.is_empty() {
            return;
        }
        let Some((cidr, _)) = ranges.ledger(number) else { continue };
        let name = context.index.ledger(&pool.name, number);
        if name.is_none() && context.is_name_taken(pool, number) || context.withholds(pool, cidr) {
            continue;
        }
        let ledger = name.and_then(|name| context.known.ledgers.get(name));
        let key = (pool.name.clone(), number);
        let start = name.map_or(0, |name| context.index.next_offset(name));
        let elsewhere = context.held_elsewhere(&pool.name, cidr);
        let part = Part { context, pool, ranges, cidr, elsewhere: &elsewhere };
        let free = if let Some(look) = looks.get(&key) {
            part.free(look.records.iter().map(|(at, it)| (*at, prefix_of(it))), start)
        } else {
            // Most ledgers of a full pool are full; this finds out without a copy.
            let known = ledger.into_iter().flat_map(super::index::records);
            part.free(known.map(|(at, it)| (at, prefix_of(it))), start)
        };
        if free.is_empty() {
            continue;
        }
        let look = looks.entry(key).or_insert_with(|| super::ledger::look(context, pool, cidr, ledger));
        let grant = new_grant(ledger, context.now);
        // The look may have recorded what pods have without a record.
        let free = part.free(look.records.iter().map(|(at, it)| (*at, prefix_of(it))), start);
        for offset in free {
            let Some(node) = line.pop_front() else { return };
            look.changes.push(Change::Granted { node: node.clone() });
            look.records.insert(offset, record(pool, node, &grant));
        }
    }
    if !line.is_empty() {
        take_cooling(context, pool, ranges, line, looks);
    }
}

fn record(pool: &PoolView, node: String, grant: &str) -> AliasRecord {
    let prefix = (pool.prefix < 32).then_some(i32::from(pool.prefix));
    AliasRecord { node, grant: grant.to_owned(), prefix, ..AliasRecord::default() }
}

/// The part of a pool in one ledger.
struct Part<'a> {
    context: Context<'a>,
    pool: &'a PoolView,
    ranges: &'a Ranges,
    cidr: Cidr,
    /// What others hold through another pool.
    elsewhere: &'a [Span],
}

impl Part<'_> {
    /// The offsets of free ranges, starting at `start` and wrapping around.
    fn free(&self, records: impl Iterator<Item = (u8, u8)>, start: u8) -> Vec<u8> {
        let mut taken = [false; 256];
        for (offset, prefix) in records {
            let size = 1_usize << (32 - prefix).min(8);
            let offset = usize::from(offset);
            taken.iter_mut().skip(offset).take(size).for_each(|it| *it = true);
        }
        let size = 1_usize << (32 - self.pool.prefix).min(8);
        let count = usize::try_from(self.cidr.size()).unwrap_or(256).min(256);
        let start = usize::from(start) / size * size % count.max(1);
        let blocks = (start..count).step_by(size).chain((0..start).step_by(size));
        let is_free = |first: &usize| {
            let within = *first..first + size;
            within.end <= count
                && !within.clone().any(|offset| taken.get(offset).copied().unwrap_or(true))
                && self
                    .cidr
                    .nth(*first as u128)
                    .ok()
                    .and_then(|first| Cidr::new(first, self.pool.prefix))
                    .is_some_and(|range| self.is_given(range))
        };
        blocks.filter(is_free).filter_map(|first| u8::try_from(first).ok()).collect()
    }

    /// Whether a range has an address for pods, none that others hold through another pool, and none that a pod
    /// reports.
    fn is_given(&self, range: Cidr) -> bool {
        let span = (range.first(), range.last());
        !self.context.index.reports.is_any_within(range)
            && !self.elsewhere.iter().any(|held| overlap(*held, span))
            && (0..range.size()).any(|at| range.nth(at).is_ok_and(|address| self.ranges.is_usable(address)))
    }
}

/// Cooling is cut short: the range that was freed first, if it has left its machine.
fn take_cooling(
    context: Context<'_>,
    pool: &PoolView,
    ranges: &Ranges,
    line: &mut VecDeque<String>,
    looks: &mut BTreeMap<(String, u128), Look>,
) {
    let mut cooling: BTreeSet<(Timestamp, u128, u8)> = BTreeSet::new();
    for (number, name) in context.index.of_pool(&pool.name) {
        let Some((cidr, _)) = ranges.ledger(*number) else { continue };
        if context.withholds(pool, cidr) {
            continue;
        }
        let elsewhere = context.held_elsewhere(&pool.name, cidr);
        let part = Part { context, pool, ranges, cidr, elsewhere: &elsewhere };
        let planned = looks.get(&(pool.name.clone(), *number)).map(|look| &look.records);
        let ledger = context.known.ledgers.get(name);
        let known = ledger.into_iter().flat_map(super::index::records);
        for (offset, known) in known {
            let record = planned.map_or(Some(known), |records| records.get(&offset));
            let Some(record) = record.filter(|record| prefix_of(record) == pool.prefix) else { continue };
            let Some(MicroTime(freed)) = &record.freed else { continue };
            let Some(range) = super::index::cidr_of(cidr, offset, record) else { continue };
            if part.is_given(range) && context.is_off(&record.node, range) {
                cooling.insert((Timestamp::from_jiff(*freed), *number, offset));
            }
        }
    }
    for (_, number, offset) in cooling {
        let Some((cidr, _)) = ranges.ledger(number) else { continue };
        let name = context.index.ledger(&pool.name, number);
        let ledger = name.and_then(|name| context.known.ledgers.get(name));
        let key = (pool.name.clone(), number);
        let look = looks.entry(key).or_insert_with(|| super::ledger::look(context, pool, cidr, ledger));
        let Some(node) = line.pop_front() else { return };
        look.changes.push(Change::Granted { node: node.clone() });
        look.records.insert(offset, record(pool, node, &new_grant(ledger, context.now)));
    }
}
