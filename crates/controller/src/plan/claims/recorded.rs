//! What claims have on record, and what becomes of a claim that has something.

use std::collections::{BTreeSet, HashMap};

use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_ipam::Address;

use super::blocks::Blocks;
use super::networks::{Network, Source};
use super::ranges::{self, RangeRecord};
use super::{Refused, Verdict};
use crate::claims::Claim;
use crate::users::Users;
use crate::world::World;

/// What a claim has on record.
#[derive(Default)]
pub(super) struct Recorded<'a> {
    /// In floating blocks: block, offset, addresses.
    pub(super) blocks: Vec<(String, String, Vec<Address>)>,
    pub(super) ranges: Vec<RangeRecord<'a>>,
}

/// What each claim has on record, by UID.
pub(super) fn gather<'a>(blocks: &Blocks<'_>, ranges: Vec<RangeRecord<'a>>) -> HashMap<String, Recorded<'a>> {
    let mut recorded: HashMap<String, Recorded<'a>> = HashMap::new();
    for (block, offset, addresses, record) in blocks.held() {
        let place = (block.to_owned(), offset.to_owned(), addresses);
        recorded.entry(record.uid.clone()).or_default().blocks.push(place);
    }
    for record in ranges {
        recorded.entry(record.uid().to_owned()).or_default().ranges.push(record);
    }
    recorded
}

/// What becomes of a claim that has something on record; `None` if that is not all that it needs.
pub(super) fn keep<'a>(
    claim: &Claim,
    network: Option<&Network>,
    has: &Recorded<'a>,
    blocks: &mut Blocks<'_>,
    strays: &mut Vec<RangeRecord<'a>>,
) -> Option<Verdict> {
    let facts = &claim.facts;
    let says: BTreeSet<Address> = facts.addresses.iter().map(|(address, _)| *address).collect();
    let source = match network {
        Some(Network::Ours(source)) => Some(source),
        _ => None,
    };
    if let Some(Source::Ranges(config)) = source
        && has.blocks.is_empty()
    {
        let mut held: Vec<Address> = has.ranges.iter().map(|record| record.address).collect();
        // What the status says counts first, should there be more on record than it needs.
        held.sort_by_key(|address| (!says.contains(address), *address));
        let Some(complete) = ranges::complete(config, &held) else {
            let foreign = held.iter().all(|it| !config.ranges.iter().any(|range| range.cidr().contains(*it)));
            return foreign.then(|| changed(facts, &held));
        };
        if facts.held {
            let kept: BTreeSet<Address> = complete.iter().map(|(address, _)| *address).collect();
            strays.extend(has.ranges.iter().filter(|it| !kept.contains(&it.address)).cloned());
        }
        return Some(Verdict::Has(complete));
    }
    let chosen = has.blocks.iter().find(|(_, _, all)| all.iter().any(|address| says.contains(address)));
    let Some((block, offset, addresses)) = chosen.or(has.blocks.first()) else {
        // Ranges, and a network that does not say so (any more).
        let held: Vec<Address> = has.ranges.iter().map(|record| record.address).collect();
        return Some(if source.is_some() { changed(facts, &held) } else { Verdict::Waits });
    };
    if matches!(source, Some(Source::Ranges(_))) {
        return Some(changed(facts, addresses));
    }
    if facts.held && chosen.is_some() {
        // A creation that arrived late may have given it a second one, which nobody was ever told of.
        for (other, at, _) in has.blocks.iter().filter(|(other, at, _)| (other, at) != (block, offset)) {
            blocks.free(other, at, false);
        }
    }
    Some(Verdict::Has(addresses.iter().map(|it| (*it, it.family().bits())).collect()))
}

/// Whether a status was written over what a claim had been given and nobody has used yet: restored from a backup, a moment
/// after the claim was.
pub(super) fn came_later(claim: &Claim, has: &Recorded<'_>) -> bool {
    let facts = &claim.facts;
    let recorded: Vec<Address> = has
        .blocks
        .iter()
        .flat_map(|(_, _, all)| all.clone())
        .chain(has.ranges.iter().map(|it| it.address))
        .collect();
    let said = &facts.addresses;
    !facts.held
        && !said.is_empty()
        && facts.slots.both().next().is_none()
        && !said.iter().any(|(address, _)| recorded.contains(address))
}

/// Whether a living pod uses these addresses of a claim that is gone: one that refers to a claim of that name and says that it
/// has one of them, or says nothing and is not younger than the claim that has the name now.
pub(super) fn is_used(
    world: &World,
    users: &Users<'_>,
    namespace: &str,
    name: &str,
    addresses: &[Address],
) -> bool {
    let successor = world.claims.get(namespace, name).map(|claim| claim.facts.created);
    users.by_name(namespace, name).any(|pod| {
        let known =
            world.ledgers.pods.get(&format!("{namespace}/{}", pod.name)).and_then(|pod| pod.addresses);
        match known {
            Some(known) => addresses.iter().any(|address| known.contains(address)),
            None => successor.is_none_or(|made| pod.created <= made),
        }
    })
}

/// The network is another one than that which the addresses are of.
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
