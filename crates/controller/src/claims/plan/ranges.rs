//! Claims' records in Whereabouts' ledgers, and addresses from ranges that all nodes share.
//!
//! The ledgers' own planner decides, as for agents, with the same guarded patches; to it a claim is an interface
//! whose container is `claim/<uid>`. What is planned here from the cache is planned again from a live read when it is
//! written, preferring the address chosen here.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::{PodRecord, RECORD_PREFIX};
use tenure_api::whereabouts::Allocation;
use tenure_claims::ClaimFacts;
use tenure_claims::status::Reason;
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_ipam::ledger::Offsets;
use tenure_whereabouts::config::{Config, RangeConfig};
use tenure_whereabouts::ledger::{Act, Answer, LedgerRefusal, Network, Request, Spread, Want, Who};
use tenure_whereabouts::slices::network_of_ledger;

use super::super::known::Claim;
use super::super::records::RecordKey;
use super::super::sets::Names;
use super::super::write::{ClaimId, ClaimWrite, Gone, PodId, Renamed};
use super::ledgers::LedgerIndex;
use super::recorded::names_more;
use super::{Inputs, Refused};
use crate::whereabouts::{Ledger, Rest};
use crate::world::World;
use crate::write::{At, Write};

/// How many claims one write serves: a JSON patch may have 10,000 operations, and each claim takes a few.
const AT_ONCE: usize = 500;

/// A claim's record in a ledger.
#[derive(Clone, Debug)]
pub(in crate::claims) struct RangeRecord<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) key: &'a str,
    pub(in crate::claims) address: Address,
    pub(super) record: &'a Allocation,
}

impl<'a> RangeRecord<'a> {
    /// The UID of its claim.
    pub(super) fn uid(&self) -> &'a str {
        self.record.id.strip_prefix(RECORD_PREFIX).unwrap_or_default()
    }

    /// The name of its claim.
    pub(super) fn claim(&self) -> ClaimId {
        let (namespace, name) = self.record.podref.split_once('/').unwrap_or_default();
        ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid: self.uid().to_owned() }
    }

    /// The namespace of its claim.
    pub(super) fn namespace(&self) -> &'a str {
        self.record.podref.split_once('/').unwrap_or_default().0
    }

    /// The pods that it names.
    pub(super) fn pods(&self) -> impl Iterator<Item = PodId> + use<'a> {
        PodId::all_of(self.namespace(), &self.record.pods)
    }
}

/// The record at this place, if it belongs to a claim and has an address.
pub(in crate::claims) fn record_at<'a>(world: &'a World, place: &RecordKey) -> Option<RangeRecord<'a>> {
    let ledger = world.ledgers().pools.get(&place.object).filter(|ledger| ledger.whole)?;
    let (key, record) = ledger.pool.spec.allocations.get_key_value(place.key.as_ref())?;
    let offsets = Offsets::of(&ledger.pool.spec.cidr().ok()?);
    let address = offsets.address(key.parse().ok()?).ok()?;
    Some(RangeRecord { ledger, key, address, record })
}

/// A claim in the terms of ledgers.
pub(super) fn who(claim: &ClaimFacts) -> Who {
    Who {
        id: format!("{RECORD_PREFIX}{}", claim.uid),
        podref: format!("{}/{}", claim.namespace, claim.name),
        uid: String::new(),
        ifname: claim.interface.clone(),
    }
}

/// The preferred address of each range, if any.
pub(super) fn by_range(config: &Config, wishes: &[Address]) -> Result<Vec<Option<Address>>, Refused> {
    let mut found: Vec<Option<Address>> = vec![None; config.ranges.len()];
    for wish in wishes {
        let has = |(range, _): &(&RangeConfig, &mut Option<Address>)| range.cidr().contains(*wish);
        let mut places: Vec<_> = config.ranges.iter().zip(&mut found).filter(has).collect();
        let name = &config.name;
        if places.is_empty() {
            let words = format!("{wish} is in no range of network \"{name}\"");
            return Err(Refused::new(Reason::Invalid, words));
        }
        if !places.iter().any(|(range, _)| range.range.contains(*wish)) {
            let words =
                format!("{wish} is excluded from its range of network \"{name}\": wish for another address");
            return Err(Refused::new(Reason::IpAddressConflict, words));
        }
        let free = places.iter_mut().find(|(range, it)| it.is_none() && range.range.contains(*wish));
        let Some((_, place)) = free else {
            let words = format!(
                "{wish} and another wished address are of one range of network \"{name}\", which gives one to a claim"
            );
            return Err(Refused::new(Reason::Invalid, words));
        };
        **place = Some(*wish);
    }
    Ok(found)
}

/// The addresses that a claim has in a network's ranges, one per range and in their order; `None` if one is missing.
pub(super) fn complete(config: &Config, held: &[Address]) -> Option<Vec<(Address, u8)>> {
    let mut left: Vec<Address> = held.to_vec();
    let found = config.ranges.iter().map(|range| {
        let place = left.iter().position(|address| range.cidr().contains(*address))?;
        Some((left.swap_remove(place), range.cidr().prefix()))
    });
    found.collect()
}

/// Addresses that were freed in ledgers, until the ledgers show it; from then on the ledgers tell what cools.
#[derive(Debug, Default)]
pub(super) struct Resting {
    freed: BTreeMap<(String, Address), Timestamp>,
}

impl Resting {
    /// An address of a network was freed.
    pub(super) fn freed(&mut self, network: &str, address: Address, now: Timestamp) {
        self.freed.entry((network.to_owned(), address)).or_insert(now);
    }

    /// Forgets what has cooled.
    pub(super) fn advance(&mut self, rest: Duration, now: Timestamp) {
        self.freed.retain(|_, freed| *freed <= now && freed.plus(rest) > now);
    }

    /// What cools in a network, in the order in which it was freed.
    pub(super) fn of(&self, network: &str) -> Vec<(Timestamp, Address)> {
        let of = self.freed.iter().filter(|((of, _), _)| of == network);
        let mut all: Vec<_> = of.map(|((_, address), freed)| (*freed, *address)).collect();
        all.sort_unstable();
        all
    }
}

/// Assigns addresses of shared ranges.
pub(super) struct Shared<'a> {
    inputs: Inputs<'a>,
    ledgers: &'a LedgerIndex,
    rest: Duration,
    waiting: BTreeMap<String, Vec<Waiting<'a>>>,
}

struct Waiting<'a> {
    claim: &'a Claim,
    config: &'a Config,
    wants: Vec<Want>,
}

/// Returns the writes, the refused claims, and the names of those that get something.
type SharedOut<'a> = (Vec<Write>, Vec<(&'a Claim, Refused)>, Names);

impl<'a> Shared<'a> {
    pub(super) fn new(inputs: Inputs<'a>, ledgers: &'a LedgerIndex, rest: Duration) -> Self {
        Self { inputs, ledgers, rest, waiting: BTreeMap::new() }
    }

    /// Adds a claim to the queue.
    pub(super) fn give(
        &mut self,
        config: &'a Config,
        claim: &'a Claim,
        wishes: &[Address],
    ) -> Result<(), Refused> {
        let mut wants = Want::of(config, &[]);
        for (want, wish) in wants.iter_mut().zip(by_range(config, wishes)?) {
            if let Some(wish) = wish {
                want.pick = vec![wish];
            }
        }
        self.waiting.entry(config.network.clone()).or_default().push(Waiting { claim, config, wants });
        Ok(())
    }

    /// The outcome.
    pub(super) fn into_writes(mut self, resting: &Resting) -> SharedOut<'a> {
        let (mut writes, mut refused, mut held) = (Vec::new(), Vec::new(), Names::new());
        for (name, mut waiting) in std::mem::take(&mut self.waiting) {
            let network = self.known(&name);
            let mut spread = Spread::of("");
            for (freed, address) in resting.of(&name) {
                spread.rest(address, freed, freed.plus(self.rest));
            }
            let ask = |it: &Waiting<'_>| Request::hold(who(&it.claim.facts), it.wants.clone());
            let plan = network.plan(waiting.iter().map(ask).collect(), &spread, self.inputs.now);
            let mut requests = Vec::new();
            for (it, answer) in waiting.iter_mut().zip(&plan.answers) {
                if let Answer::Refused(refusal) = answer {
                    refused.push((it.claim, words(&network, it, refusal)));
                    continue;
                }
                if let Answer::Held(addresses) = answer {
                    for (want, address) in it.wants.iter_mut().zip(addresses) {
                        want.preferred = Some(*address);
                    }
                }
                held.insert(it.claim.reference().into());
                requests.push(ask(it));
            }
            requests.truncate(AT_ONCE);
            if !requests.is_empty() {
                let subject = format!("claims of {name:?}");
                writes.push(ClaimWrite::Hold { subject, network: name, requests }.into());
            }
        }
        (writes, refused, held)
    }

    /// What is known of a network's ledgers.
    fn known(&self, name: &str) -> Network {
        let Inputs { world, .. } = self.inputs;
        let mut network = Network::new(name);
        let with_slices = OnceCell::new();
        let is_node = |node: &str| {
            let has_slice = || with_slices.get_or_init(|| world.ledgers().nodes_with_slices()).contains(node);
            world.nodes().get(node).is_some() || has_slice()
        };
        for ledger in self.ledgers.of_network(name).iter().filter_map(|it| world.ledgers().pools.get(it)) {
            network.see_pool(&ledger.pool, is_node);
        }
        for reservation in world.ledgers().reservations.iter() {
            network.see_reservation(reservation);
        }
        network
    }
}

fn words(network: &Network, waiting: &Waiting<'_>, refusal: &LedgerRefusal) -> Refused {
    let LedgerRefusal::Exhausted { first, last, .. } = refusal else {
        return Refused::new(Reason::InternalError, refusal.to_string());
    };
    let picked: BTreeSet<Address> = waiting.wants.iter().flat_map(|want| want.pick.clone()).collect();
    let holder = |address: Address| {
        let mut all = network.pools().flat_map(|pool| network.records(pool));
        all.find(|(_, _, at, _)| *at == address).map(|(object, _, _, record)| {
            let whose = if record.id.starts_with(RECORD_PREFIX) { "claim" } else { "pod" };
            format!("{address} belongs to {whose} {} (IPPool {object})", record.podref)
        })
    };
    if let Some(holder) = picked.iter().find_map(|address| holder(*address)) {
        let words = format!("{holder}: wait until it is free, or wish for another address");
        return Refused::new(Reason::IpAddressConflict, words);
    }
    let name = &waiting.config.name;
    if let Some(address) = picked.first() {
        let words = format!(
            "{address} of network \"{name}\" is reserved: wait until it is free, or wish for another address"
        );
        return Refused::new(Reason::IpAddressConflict, words);
    }
    let words = format!(
        "no address from {first} to {last} of network \"{name}\" is free: make the range larger, or delete claims and pods \
         that nobody needs"
    );
    Refused::new(Reason::SubnetExhausted, words)
}

/// Removes records from shared ledgers. `doubtful`: claims of which only a live read can tell that they are gone.
pub(super) fn forget(records: &[RangeRecord<'_>], doubtful: &BTreeSet<&str>, rest: Rest) -> Vec<Write> {
    let mut by_ledger: BTreeMap<String, Vec<&RangeRecord<'_>>> = BTreeMap::new();
    for record in records {
        by_ledger.entry(record.ledger.pool.name_any()).or_default().push(record);
    }
    let write = |(object, mut records): (String, Vec<&RangeRecord<'_>>)| {
        records.truncate(AT_ONCE);
        let ledger = &records.first()?.ledger.pool;
        let claims = records.iter().filter(|it| doubtful.contains(it.uid())).map(|it| it.claim());
        let gone = Gone { claims: claims.collect(), pods: records.iter().flat_map(|it| it.pods()).collect() };
        let requests = records.iter().map(|it| Request {
            who: Who {
                id: it.record.id.clone(),
                podref: it.record.podref.clone(),
                uid: String::new(),
                ifname: it.record.ifname.clone().unwrap_or_default(),
            },
            act: Act::Forget { object: object.clone(), key: it.key.to_owned(), record: it.record.clone() },
        });
        let (ledger, network) = (At::of(ledger), network_of_ledger(ledger));
        Some(ClaimWrite::Forget { ledger, network, records: requests.collect(), gone, rest }.into())
    };
    by_ledger.into_iter().filter_map(write).collect()
}

/// Records which pods got addresses of shared ledgers.
pub(super) fn rename(renamed: Vec<(RangeRecord<'_>, Vec<PodRecord>)>) -> Vec<Write> {
    let mut by_ledger: BTreeMap<String, (At, Vec<Renamed>, Vec<ClaimId>)> = BTreeMap::new();
    for (record, pods) in renamed {
        let name = record.ledger.pool.name_any();
        let new = || (At::of(&record.ledger.pool), Vec::new(), Vec::new());
        let (_, records, named) = by_ledger.entry(name).or_insert_with(new);
        if records.len() < AT_ONCE {
            if names_more(&record.record.pods, &pods) {
                named.push(record.claim());
            }
            records.push(Renamed { key: record.key.to_owned(), before: record.record.clone(), pods });
        }
    }
    let write = |(ledger, records, named)| Write::from(ClaimWrite::Name { ledger, records, named });
    by_ledger.into_values().map(write).collect()
}

/// The network of a ledger, under which its freed records cool.
pub(super) fn network_of(record: &RangeRecord<'_>) -> String {
    network_of_ledger(&record.ledger.pool)
}
