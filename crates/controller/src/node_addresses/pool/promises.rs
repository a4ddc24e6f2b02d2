//! What a pool has reserved for enactments that do not name it yet, and what it keeps for their successors.
//!
//! If one of several addresses is replaced, the enactment returns all of them, and one of the same name follows.
//! Addresses that are not replaced are kept for that one.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::nmstate::{KeptOffset, NodeIPPoolStatus, NodeRange, PromisedOffset};

use super::{Around, ByUid, Member, Use};
use crate::node_addresses::known::EnactmentFacts;

/// How many reservations are listed at most: each is some hundred bytes of the pool.
pub(super) const PROMISES: usize = 4096;

/// The reservations of existing enactments that have not named the address yet.
pub(super) fn open_promises(
    range: &NodeRange,
    status: &NodeIPPoolStatus,
    by_uid: &ByUid<'_>,
    pool: &str,
) -> Vec<PromisedOffset> {
    let is_open = |it: &&PromisedOffset| {
        let inside = u128::try_from(it.offset).is_ok_and(|offset| range.address(offset).is_ok());
        let member = by_uid.get(it.uid.as_str()).filter(|member| !member.facts.deleting && member.wants > 0);
        inside && member.is_some_and(|member| !member.facts.addresses.contains_key(pool))
    };
    status.promised.iter().filter(is_open).cloned().collect()
}

/// Whether the enactment of a reservation names the address.
pub(super) fn is_kept_promise(promise: &PromisedOffset, by_uid: &ByUid<'_>, pool: &str) -> bool {
    by_uid.get(promise.uid.as_str()).is_some_and(|member| member.facts.addresses.contains_key(pool))
}

/// Enactments that need more addresses than are reserved for them, oldest first, and how many; no more than can be
/// listed. If that is not all of them, none before half of the list is free, so that few writes serve many.
pub(super) fn waiting<'a>(
    members: &[Member<'a>],
    pool: &str,
    promised: &[PromisedOffset],
) -> Vec<(&'a EnactmentFacts, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in promised {
        *counts.entry(it.uid.as_str()).or_default() += 1;
    }
    let needs = members.iter().filter_map(|member| {
        let facts = member.facts;
        let has = counts.get(facts.at.uid.as_str()).copied().unwrap_or_default();
        let open = !facts.deleting && !facts.addresses.contains_key(pool) && member.wants > has;
        open.then(|| (facts, member.wants - has))
    });
    let mut needs: Vec<(&EnactmentFacts, usize)> = needs.collect();
    needs.sort_by(|(one, _), (other, _)| (one.created, &one.at.name).cmp(&(other.created, &other.at.name)));
    let mut room = PROMISES.saturating_sub(promised.len());
    let crowded = needs.iter().map(|(_, count)| count).sum::<usize>() > room;
    if crowded && room < PROMISES / 2 {
        return Vec::new();
    }
    needs.retain(|(_, count)| {
        let fits = *count <= room;
        room = if fits { room - count } else { 0 };
        fits
    });
    needs
}

/// What is kept for successors of enactments.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// For one that exists and waits, or that has just returned the address.
    pub(super) sure: Vec<KeptOffset>,
    /// For one that does not exist yet.
    pub(super) unseen: Vec<KeptOffset>,
}

impl Kept {
    pub(super) fn of(
        range: &NodeRange,
        status: &NodeIPPoolStatus,
        members: &[Member<'_>],
        (pool, usage, around): (&str, &Use, &Around<'_>),
        open: &[PromisedOffset],
    ) -> Self {
        let by_name: BTreeMap<&str, &Member<'_>> =
            members.iter().map(|member| (member.facts.at.name.as_str(), member)).collect();
        let promised: BTreeSet<i64> = open.iter().map(|it| it.offset).collect();
        let mut kept = Self::default();
        for member in members.iter().filter(|member| member.keeps(pool)) {
            let offsets = member.facts.addresses_of(pool).filter_map(|address| range.offset(address).ok());
            let offsets = offsets.filter_map(|offset| i64::try_from(offset).ok());
            let enactment = &member.facts.at.name;
            kept.sure.extend(offsets.map(|offset| KeptOffset { offset, enactment: enactment.clone() }));
        }
        let listed = |all: &[KeptOffset], it: &KeptOffset| all.iter().any(|other| other.offset == it.offset);
        for it in &status.kept {
            let taken = u128::try_from(it.offset).is_ok_and(|offset| usage.held.contains_key(&offset));
            if taken || promised.contains(&it.offset) || listed(&kept.sure, it) || listed(&kept.unseen, it) {
                continue;
            }
            match by_name.get(it.enactment.as_str()) {
                Some(member) if member.facts.waits_for(pool) && member.asks > 0 => kept.sure.push(it.clone()),
                Some(_) => {}
                None => kept.unseen.push(it.clone()),
            }
        }
        let is_good = |it: &KeptOffset| {
            let address = u128::try_from(it.offset).ok().and_then(|offset| range.address(offset).ok());
            let node = by_name.get(it.enactment.as_str()).map(|member| member.facts.node.as_str());
            address.is_some_and(|address| {
                let mut others = around.reported.iter().filter(|(reported, ..)| *reported == address);
                range.is_usable(address)
                    && !others.any(|(_, other, _)| node.is_some_and(|node| node != *other))
            })
        };
        kept.sure.retain(is_good);
        kept.unseen.retain(is_good);
        kept
    }
}
