//! What claims have on record, and what follows for them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_api::claims::PodRecord;
use tenure_claims::status::{Reason, RecordLocation};
use tenure_claims::{ClaimFacts, Trace};
use tenure_ipam::Address;

use super::super::known::Claim;
use super::super::records::{In, Record, RecordKey};
use super::networks::{Network, Source};
use super::ranges::{self, RangeRecord};
use super::{Inputs, Refused, Round, Verdict};

/// What a claim has on record.
#[derive(Default)]
pub(super) struct Recorded<'a> {
    pub(super) blocks: Vec<InBlock>,
    pub(super) ranges: Vec<InRange<'a>>,
}

/// A claim's record in a floating block.
pub(super) struct InBlock {
    pub(super) place: RecordKey,
    pub(super) addresses: Vec<Address>,
    /// Whether a pod that it names may still use it; if so, it stays.
    in_use: bool,
}

/// A claim's record in a ledger.
pub(super) struct InRange<'a> {
    pub(super) record: RangeRecord<'a>,
    /// Whether a pod that it names may still use it; if so, it stays.
    in_use: bool,
}

impl Recorded<'_> {
    /// Whether a pod may still use any of it.
    pub(super) fn is_in_use(&self) -> bool {
        self.blocks.iter().any(|it| it.in_use) || self.ranges.iter().any(|it| it.in_use)
    }
}

/// What a claim has on record, if anything.
pub(super) fn recorded<'a>(round: &Round<'a>, claim: &Claim) -> Option<Recorded<'a>> {
    let inputs = round.inputs;
    let mut has = Recorded::default();
    for place in inputs.index.records.of_uid(&claim.facts.uid) {
        match place.kind {
            In::Block => {
                let Some(record) = round.blocks.record(place).filter(|record| record.freed.is_none()) else {
                    continue;
                };
                has.blocks.push(InBlock {
                    in_use: may_be_used(inputs, &record.namespace, &record.pods),
                    place: place.clone(),
                    addresses: round.blocks.addresses(place),
                });
            }
            In::Ledger => {
                let Some(record) = ranges::record_at(inputs.world, place) else { continue };
                let in_use = may_be_used(inputs, record.namespace(), &record.record.pods);
                has.ranges.push(InRange { record, in_use });
            }
        }
    }
    (!has.blocks.is_empty() || !has.ranges.is_empty()).then_some(has)
}

/// Whether a pod that a record names may still use its address.
fn may_be_used(inputs: Inputs<'_>, namespace: &str, pods: &[PodRecord]) -> bool {
    pods.iter().any(|pod| inputs.world.trace(namespace, pod, inputs.now).may_use())
}

/// The pods that a record should name, if they differ from those it names: adds `more`, which are to get its address,
/// and drops those that have ended. A pod that `matters` and is gone with its node is marked when that is first seen;
/// the mark is removed when either is back.
pub(super) fn next_pods(
    Inputs { world, now, .. }: Inputs<'_>,
    (namespace, pods): (&str, &[PodRecord]),
    more: &[PodRecord],
    matters: impl Fn(&str) -> bool,
) -> Option<Vec<PodRecord>> {
    let mut next = Vec::new();
    for pod in pods {
        let trace = world.trace(namespace, pod, now);
        if trace == Trace::Ended && !more.is_empty() {
            continue;
        }
        let mut pod = pod.clone();
        if world.is_without_node(&pod.node) && trace != Trace::Alive {
            if pod.missing.is_none() && matters(&pod.uid) {
                pod.missing = Some(MicroTime(now.to_jiff()));
            }
        } else {
            pod.missing = None;
        }
        next.push(pod);
    }
    for pod in more {
        if !next.iter().any(|known| known.uid == pod.uid) {
            next.push(pod.clone());
        }
    }
    (next != pods).then_some(next)
}

/// Whether the record will name additional pods.
pub(super) fn names_more(before: &[PodRecord], after: &[PodRecord]) -> bool {
    after.iter().any(|pod| before.iter().all(|known| known.uid != pod.uid))
}

/// The outcome for a claim with records; `None` if it needs more.
///
/// A claim may have more than it needs, because a write whose answer was lost, or one of an earlier leader, may have
/// been done beside another. What a pod may use counts first, then what the status says. Nobody was told of the rest:
/// records name pods, and agents give addresses, only as the status says. So the rest is removed as soon as the
/// status is right, even while pods use the claim.
pub(super) fn keep<'a>(
    round: &mut Round<'a>,
    claim: &Claim,
    network: Option<&Network>,
    has: &Recorded<'a>,
) -> Option<Verdict> {
    let facts = &claim.facts;
    let says = |address: &Address| facts.addresses.iter().any(|(said, _)| said == address);
    let source = match network {
        Some(Network::Ours(source)) => Some(source),
        _ => None,
    };
    if let Some(Source::Ranges(config)) = source
        && (has.blocks.is_empty() || has.ranges.iter().any(|it| says(&it.record.address)))
    {
        let mut held: Vec<&InRange<'_>> = has.ranges.iter().collect();
        held.sort_by_key(|it| (!it.in_use, !says(&it.record.address), it.record.address));
        let held: Vec<Address> = held.iter().map(|it| it.record.address).collect();
        let Some(complete) = ranges::complete(config, &held) else {
            let foreign = held.iter().all(|it| !config.ranges.iter().any(|range| range.cidr().contains(*it)));
            return foreign.then(|| changed(facts, &held));
        };
        let kept: BTreeSet<Address> = complete.iter().map(|(address, _)| *address).collect();
        if facts.held && kept.iter().all(says) {
            forget_others(round, claim, has, &kept);
        }
        let of = has.ranges.iter().filter(|it| kept.contains(&it.record.address));
        let mut places: Vec<RecordLocation> =
            of.map(|it| RecordLocation::Ledger(it.record.ledger.pool.name_any())).collect();
        places.sort();
        places.dedup();
        return Some(Verdict::Has(complete, places));
    }
    let is_said = |it: &InBlock| it.addresses.iter().any(says);
    let Some(chosen) = has.blocks.iter().min_by_key(|it| (!it.in_use, !is_said(it))) else {
        // Its network has ranges, but does not opt in (any more).
        let held: Vec<Address> = has.ranges.iter().map(|it| it.record.address).collect();
        return Some(if source.is_some() { changed(facts, &held) } else { Verdict::Waits });
    };
    if matches!(source, Some(Source::Ranges(_))) {
        return Some(changed(facts, &chosen.addresses));
    }
    if facts.held && is_said(chosen) {
        forget_others(round, claim, has, &chosen.addresses.iter().copied().collect());
    }
    let places = vec![RecordLocation::Block(chosen.place.object.to_string())];
    Some(Verdict::Has(chosen.addresses.iter().map(|it| (*it, it.family().bits())).collect(), places))
}

/// Frees what a claim has beside these addresses, unless a pod may use it.
fn forget_others<'a>(round: &mut Round<'a>, claim: &Claim, has: &Recorded<'a>, kept: &BTreeSet<Address>) {
    for other in has.blocks.iter().filter(|it| !it.in_use && !it.addresses.iter().any(|it| kept.contains(it)))
    {
        round.blocks.free(&other.place, false);
        round.is_pending(&claim.reference());
    }
    for other in has.ranges.iter().filter(|it| !it.in_use && !kept.contains(&it.record.address)) {
        round.strays.push(other.record.clone());
        round.is_pending(&claim.reference());
    }
}

/// Whether somebody overwrote a status, for example from a backup, after the claim got addresses that nobody has used
/// yet.
pub(super) fn came_later(claim: &Claim, has: &Recorded<'_>) -> bool {
    let facts = &claim.facts;
    let recorded: Vec<Address> = has
        .blocks
        .iter()
        .flat_map(|it| it.addresses.clone())
        .chain(has.ranges.iter().map(|it| it.record.address))
        .collect();
    let said = &facts.addresses;
    !facts.held
        && !said.is_empty()
        && !has.is_in_use()
        && facts.slots.both().next().is_none()
        && !said.iter().any(|(address, _)| recorded.contains(address))
}

/// Whether a pod may still use these addresses of a deleted claim. A pod that the record names may, whatever its
/// annotations say. So may a pod that refers to a claim of that name and says that it has one of the addresses. No
/// other pod was given one, because records name pods first.
pub(super) fn is_used(inputs: Inputs<'_>, record: &Record, addresses: &[Address]) -> bool {
    let (world, namespace) = (inputs.world, record.namespace());
    let says = |pod: &tenure_claims::PodFacts| {
        let known = world.ledgers().pods.get(&format!("{namespace}/{}", pod.name));
        let known = known.and_then(|pod| pod.addresses);
        known.map(|known| addresses.iter().any(|address| known.contains(address)))
    };
    let mut referring = inputs.index.users.by_name(world, &record.name());
    #[cfg(test)]
    if world.claims().planted == Some(crate::claims::Planted::AnnotationsFree) {
        return referring.any(|pod| says(pod).unwrap_or(true));
    }
    may_be_used(inputs, namespace, record.pods()) || referring.any(|pod| says(pod).unwrap_or(false))
}

/// The network is not the one that the addresses belong to.
fn changed(claim: &ClaimFacts, held: &[Address]) -> Verdict {
    let held: Vec<String> = held.iter().map(ToString::to_string).collect();
    let words = format!(
        "{} is on record for this claim and is no address of network \"{}\": spec.network or the network's configuration was \
         changed since. Change it back, or delete the claim and make another; until then the address stays on record",
        held.join(" and "),
        claim.network
    );
    Verdict::No(Refused::new(Reason::Invalid, words))
}
