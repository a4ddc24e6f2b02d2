//! Claims: each gets its addresses as soon as it exists, and they return when it is gone *and* no pod uses them.
//!
//! ```text
//!    claim ──record (many in one write: a floating block, a ledger)──▶ status: ips, IPsAllocated, Held
//!    claim gone ∧ no pod uses it ──freed: it cools──▶ free ──nothing on record for a while──▶ the block goes back
//! ```
//!
//! All of it from what is known, and nothing from what happened: a claim without a record is given one, a record whose claim
//! is gone goes, and a status that does not say what is on record is written. So it does not matter what was missed.
//!
//! - The oldest claim is served first; those that wish for certain addresses before those that take any.
//! - A claim keeps what it has on record, whatever becomes of its network. If `spec.network` is changed so that the addresses
//!   are none of the network's, they stay on record but are not the claim's to use until it is changed back.
//! - A record whose claim nobody has seen being deleted goes after a second look, and after a live one.
//! - A record names the pods that were given its address, by UID, and stays while one of them is alive. Annotations of pods only
//!   add to that.

mod blocks;
mod moves;
mod networks;
mod owners;
mod ranges;
mod recorded;
mod slices;
mod wishes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::PodRecord;
use tenure_api::coil::{ClaimRecord, DEFAULT_POOL};
use tenure_claims::status::{self, Reason, RecordLocation};
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_whereabouts::slices::Floating;

use super::known::Claim;
use super::users::Users;
use super::write::ClaimWrite;
use crate::coil::Carving;
use crate::suspicions::Suspicions;
use crate::whereabouts::Rest;
use crate::world::World;
use crate::write::{At, Write};
use blocks::Blocks;
pub(super) use moves::MovePlanner;
use moves::Naming;
pub(crate) use networks::speaks_for_cluster;
use networks::{Network, Networks, Source};
pub(super) use owners::OwnerPlanner;
use ranges::{RangeRecord, Resting, Shared};
use recorded::{came_later, gather, is_used, keep, next_pods};
use slices::ClaimSlices;

/// How long a claim has to be gone before its addresses are freed: pods and claims are heard of by two watches, so that a pod which
/// uses it may be heard of a little later.
const GONE: Duration = Duration::from_secs(2);
/// How long a network, a slice or a namespace has to be missing before a claim says so: it may only be late.
const MISSING: Duration = Duration::from_secs(3);

/// Everything is thought through this often even if nothing that matters seems to have changed.
const ANYWAY: Duration = Duration::from_secs(5);

/// How claims are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSettings {
    /// How long a floating block or slice has to be empty before it goes back.
    pub empty_after: Duration,
    /// How long a freed address rests where its pool does not say.
    pub cooling: Duration,
}

impl Default for ClaimSettings {
    fn default() -> Self {
        Self { empty_after: Duration::from_mins(5), cooling: Duration::from_secs(30) }
    }
}

/// Why a claim has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    reason: Reason,
    words: String,
}

impl Refused {
    pub(super) fn new(reason: Reason, words: String) -> Self {
        Self { reason, words }
    }
}

/// Plans what claims have on record.
#[derive(Debug)]
pub(super) struct RecordPlanner {
    settings: ClaimSettings,
    /// Whether pods are in this API. Where they are not, none can use a claim.
    pods_are_known: bool,
    gone: Suspicions,
    missing: Suspicions,
    idle: Suspicions,
    resting: Resting,
    wake: Option<Timestamp>,
    /// Whether addresses of claims that are gone are kept for pods: no event may tell of their end.
    kept: bool,
    /// What is needed of slices.
    needs: BTreeMap<String, Floating>,
    /// The state of the world, and when, in which there was nothing to do.
    settled: Option<([u64; 10], Timestamp)>,
}

/// What becomes of a claim.
enum Verdict {
    /// It has these, on record there.
    Has(Vec<(Address, u8)>, Vec<RecordLocation>),
    /// It gets some, or it is not known yet what.
    Waits,
    No(Refused),
}

impl RecordPlanner {
    pub(super) fn new(settings: &ClaimSettings, pods_are_known: bool) -> Self {
        Self {
            settings: settings.clone(),
            pods_are_known,
            gone: Suspicions::lasting(GONE),
            missing: Suspicions::lasting(MISSING),
            idle: Suspicions::lasting(settings.empty_after),
            resting: Resting::default(),
            wake: None,
            kept: false,
            needs: BTreeMap::new(),
            settled: None,
        }
    }

    /// When to plan again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let looks = [&self.gone, &self.missing, &self.idle].map(Suspicions::next);
        looks.into_iter().chain([self.wake]).flatten().min()
    }

    /// What claims need of slices.
    pub(super) fn needs(&self) -> &BTreeMap<String, Floating> {
        &self.needs
    }

    /// The writes that claims need. Nothing while claims are not known.
    pub(super) fn plan(
        &mut self,
        world: &World,
        (users, naming): (&Users<'_>, &Naming),
        carving: &Carving,
        now: Timestamp,
    ) -> Vec<Write> {
        if !world.claims.all.is_complete()
            || (!world.ledgers.pools.is_complete() && !world.ledgers.pools.is_empty())
        {
            return Vec::new();
        }
        let state = state(world);
        let due = self.next().is_some_and(|next| next <= now);
        if !due
            && naming.is_empty()
            && self.settled.is_some_and(|(known, at)| known == state && at <= now && now.since(at) < ANYWAY)
        {
            return Vec::new();
        }
        let writes = self.think(world, (users, naming), carving, now);
        self.settled = writes.is_empty().then_some((state, now));
        writes
    }

    fn think(
        &mut self,
        world: &World,
        (users, naming): (&Users<'_>, &Naming),
        carving: &Carving,
        now: Timestamp,
    ) -> Vec<Write> {
        let (rest, networks) = (self.settings.cooling, Networks::of(world));
        self.resting.advance(rest, now);
        let mut blocks = Blocks::of(world, carving, rest, now);
        let mut cut = ClaimSlices::of(world, rest, now);
        let of_ranges = ranges::records(world);
        let mut writes: Vec<Write> = Vec::new();
        writes.extend(self.free(world, users, &of_ranges, &mut blocks, &mut cut, now));
        writes.extend(self.name(world, naming, &of_ranges, &mut blocks, &mut cut, now));
        let recorded = gather(world, &blocks, of_ranges, now);
        let mut shared = Shared::new(world, rest, now);
        let mut claims: Vec<&Claim> = world.claims.all.iter().collect();
        claims.sort_by_key(|claim| {
            (claim.facts.created, claim.facts.namespace.as_str(), claim.facts.name.as_str())
        });
        let found: HashMap<(&str, &str), Option<Network>> = claims
            .iter()
            .map(|claim| (claim.facts.network.as_str(), claim.facts.namespace.as_str()))
            .map(|(name, namespace)| ((name, namespace), networks.get(name, namespace)))
            .collect();
        self.missing.look_again();
        let (mut line, mut strays) = (Vec::new(), Vec::new());
        for claim in claims {
            let of = (claim.facts.network.as_str(), claim.facts.namespace.as_str());
            let network = found.get(&of).and_then(Option::as_ref);
            let has = recorded.get(claim.facts.uid.as_str());
            if let Some(has) = has.filter(|has| came_later(claim, has)) {
                // It is given what it wishes for when this is gone.
                has.blocks.iter().for_each(|(block, offset, _)| blocks.free(block, offset, false));
                strays.extend(has.ranges.iter().cloned());
                continue;
            }
            let verdict = match has.map(|has| keep(claim, network, has, &mut blocks, &mut strays)) {
                Some(Some(verdict)) => verdict,
                None | Some(None) if claim.facts.deleting => Verdict::Waits,
                None | Some(None) => match self.source(world, network, claim, now) {
                    Err(verdict) => verdict,
                    Ok(source) => match wishes::of(world, users, claim) {
                        Err(refused) => Verdict::No(refused),
                        Ok(wishes) => {
                            line.push((claim, source, wishes));
                            Verdict::Waits
                        }
                    },
                },
            };
            writes.extend(says(claim, verdict, now));
        }
        // A stable sort: among those who wish, and among those who do not, the oldest is first.
        line.sort_by_key(|(_, _, wishes)| wishes.is_empty());
        for (claim, source, wishes) in line {
            let given = match source {
                Source::Pool(pool) => match self.pool_of(world, claim, pool.as_deref(), now) {
                    Ok(pool) => blocks.give(&pool, &claim.facts, &wishes),
                    Err(Verdict::No(refused)) => Err(refused),
                    Err(_) => Ok(()),
                },
                Source::Ranges(_) if !knows_ranges(world) => Ok(()),
                Source::Ranges(config) if config.is_sliced() => {
                    match cut.give(config, &claim.facts, &wishes, &self.resting) {
                        Ok(true) => Ok(()),
                        Ok(false) => self.late(claim, now),
                        Err(refused) => Err(refused),
                    }
                }
                Source::Ranges(config) => shared.give(config, &claim.facts, &wishes),
            };
            if let Err(refused) = given {
                // All or nothing: what it has of it goes.
                let partly = recorded.get(claim.facts.uid.as_str()).filter(|has| !has.in_use);
                strays.extend(partly.into_iter().flat_map(|has| &has.ranges).cloned());
                writes.extend(says(claim, Verdict::No(refused), now));
            }
        }
        let (holds, refused) = shared.into_writes(&self.resting);
        writes.extend(holds);
        for (facts, refused) in refused {
            let partly = recorded.get(facts.uid.as_str()).filter(|has| !has.in_use);
            strays.extend(partly.into_iter().flat_map(|has| &has.ranges).cloned());
            let claim = world.claims.get(&facts.namespace, &facts.name);
            writes.extend(claim.and_then(|claim| says(claim, Verdict::No(refused), now)));
        }
        strays.retain(|record| !cut.free(record, false));
        writes.extend(ranges::forget(&strays, &BTreeSet::new(), Rest { from: now, lasts: rest }));
        let (of_slices, needs) = cut.into_writes(&mut self.idle);
        writes.extend(of_slices);
        self.needs = needs;
        let (of_blocks, wake) = blocks.into_writes(self.settings.empty_after);
        writes.extend(of_blocks);
        let again = self.kept.then(|| now.plus(ANYWAY));
        self.wake = [wake, again].into_iter().flatten().min();
        writes
    }

    /// Writes down which pods are to be given addresses, and which are gone together with their node.
    fn name(
        &self,
        world: &World,
        naming: &Naming,
        of_ranges: &[RangeRecord<'_>],
        blocks: &mut Blocks<'_>,
        cut: &mut ClaimSlices<'_>,
        now: Timestamp,
    ) -> Vec<Write> {
        if !self.pods_are_known || !world.knows_users() {
            return Vec::new();
        }
        let claims: HashMap<&str, &Claim> =
            world.claims.all.iter().map(|claim| (claim.facts.uid.as_str(), claim)).collect();
        let next = |namespace: &str, uid: &str, pods: &[PodRecord]| {
            let more = naming.get(uid).map(Vec::as_slice).unwrap_or_default();
            let claim = claims.get(uid);
            let matters = |pod: &str| claim.is_none_or(|claim| claim.facts.slots.has(pod));
            next_pods(world, (namespace, pods), more, matters, now)
        };
        blocks.rename(next);
        let renamed = of_ranges.iter().filter_map(|record| {
            let pods = next(record.namespace(), record.uid(), &record.record.pods)?;
            (!cut.rename(record, &pods)).then_some((record, pods))
        });
        ranges::rename(renamed.collect())
    }

    /// Frees what belongs to claims that are gone and that no pod uses.
    fn free(
        &mut self,
        world: &World,
        users: &Users<'_>,
        of_ranges: &[RangeRecord<'_>],
        blocks: &mut Blocks<'_>,
        cut: &mut ClaimSlices<'_>,
        now: Timestamp,
    ) -> Vec<Write> {
        self.gone.look_again();
        self.kept = false;
        if self.pods_are_known && !world.knows_users() {
            return Vec::new();
        }
        let living: BTreeSet<&str> = world.claims.all.iter().map(|claim| claim.facts.uid.as_str()).collect();
        let pods_are_known = self.pods_are_known;
        let used = |claim: (&str, &str), pods: &[PodRecord], addresses: &[Address]| {
            pods_are_known && is_used((world, users), claim, pods, addresses, now)
        };
        let of_record = |record: &ClaimRecord, addresses: &[Address]| {
            used((&record.namespace, &record.name), &record.pods, addresses)
        };
        blocks
            .keep(|record, addresses| !living.contains(record.uid.as_str()) && of_record(record, addresses));
        let mut free = Vec::new();
        for (block, offset, addresses, record) in blocks.held() {
            if living.contains(record.uid.as_str()) {
                continue;
            }
            if of_record(record, &addresses) {
                self.kept = true;
            } else {
                free.push((block.to_owned(), offset.to_owned(), record.uid.clone()));
            }
        }
        for (block, offset, uid) in free {
            if self.gone.suspect(format!("{block}/{offset}/{uid}"), now) {
                blocks.free(&block, &offset, !world.claims.all.is_gone(&uid));
            }
        }
        let (mut forget, mut doubtful) = (Vec::new(), BTreeSet::new());
        for record in of_ranges.iter().filter(|record| !living.contains(record.uid())) {
            let claim = record.claim();
            if used((&claim.namespace, &claim.name), &record.record.pods, &[record.address]) {
                self.kept = true;
                continue;
            }
            let place = format!("{}/{}/{}", record.ledger.pool.name_any(), record.key, claim.uid);
            if !self.gone.suspect(place, now) {
                continue;
            }
            let doubt = !world.claims.all.is_gone(&claim.uid);
            self.resting.freed(&ranges::network_of(record), record.address, now);
            if !cut.free(record, doubt) {
                forget.push(record.clone());
                if doubt {
                    doubtful.insert(record.uid());
                }
            }
        }
        ranges::forget(&forget, &doubtful, Rest { from: now, lasts: self.settings.cooling })
    }

    /// Where the addresses of a claim's network come from, or what else there is to say.
    fn source<'n>(
        &mut self,
        world: &World,
        network: Option<&'n Network>,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<&'n Source, Verdict> {
        let name = &claim.facts.network;
        match network.map(|network| network.source(name)) {
            Some(Some(Ok(source))) => Ok(source),
            Some(Some(Err(refused))) => Err(Verdict::No(refused)),
            Some(None) => Err(Verdict::Waits),
            None => {
                let lasted = self.missing.suspect(claim.facts.uid.clone(), now) && world.knows_networks();
                // Somebody else's, whose definition is gone or somewhere else: theirs to write.
                let of_others = !claim.facts.held && !claim.facts.addresses.is_empty();
                if !lasted || of_others {
                    return Err(Verdict::Waits);
                }
                let words = format!(
                    "there is no network \"{name}\": spec.network has to be the \"name\" in the configuration of a \
                     NetworkAttachmentDefinition, or that of the cluster's network (--cluster-network of tenure-controller)"
                );
                Err(Verdict::No(Refused::new(Reason::NetworkNotFound, words)))
            }
        }
    }

    /// The pool of a claim's network: as its configuration says, or its namespace.
    fn pool_of(
        &mut self,
        world: &World,
        claim: &Claim,
        pool: Option<&str>,
        now: Timestamp,
    ) -> Result<String, Verdict> {
        if let Some(pool) = pool {
            return Ok(pool.to_owned());
        }
        if !self.pods_are_known {
            return Ok(DEFAULT_POOL.to_owned());
        }
        if let Some(namespace) = world.claims.namespaces.get(&claim.facts.namespace) {
            return Ok(namespace.facts.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()));
        }
        let lasted = self.missing.suspect(claim.facts.uid.clone(), now);
        if lasted && world.claims.namespaces.is_complete() {
            let words = format!("there is no namespace \"{}\"", claim.facts.namespace);
            return Err(Verdict::No(Refused::new(Reason::InternalError, words)));
        }
        Err(Verdict::Waits)
    }

    /// A claim waits for a slice: after a while it says so.
    fn late(&mut self, claim: &Claim, now: Timestamp) -> Result<(), Refused> {
        if !self.missing.suspect(claim.facts.uid.clone(), now) {
            return Ok(());
        }
        let words = format!(
            "waiting for a slice of network \"{}\" that no node has: its NodeSlicePool says why there is none",
            claim.facts.network
        );
        Err(Refused::new(Reason::SubnetExhausted, words))
    }
}

/// How often each thing has changed that claims depend on.
fn state(world: &World) -> [u64; 10] {
    let ledgers = &world.ledgers;
    [
        world.claims.all.changes(),
        world.claims.namespaces.changes(),
        world.pools.changes(),
        world.blocks.changes(),
        world.requests.changes(),
        ledgers.attachments.changes(),
        ledgers.slices.changes(),
        ledgers.pools.changes(),
        ledgers.reservations.changes(),
        ledgers.pods.changes(),
    ]
}

/// Whether all that ranges depend on has come in.
fn knows_ranges(world: &World) -> bool {
    world.ledgers.pools.is_complete()
        && world.ledgers.reservations.is_complete()
        && world.ledgers.slices.is_complete()
}

/// The write that makes the status say it, unless it does.
fn says(claim: &Claim, verdict: Verdict, now: Timestamp) -> Option<Write> {
    let object = &claim.object;
    let status = match verdict {
        Verdict::Waits => return None,
        Verdict::Has(addresses, places) => {
            let active = claim.facts.slots.active.as_ref().map(|slot| slot.pod.as_str());
            status::set_owner(status::allocated(object, &addresses, &places, now), active)
        }
        Verdict::No(refused) => {
            let mut unproven = object.clone();
            // What it says it has is what it wishes from now on.
            if let Some(status) = &mut unproven.status {
                status.conditions.retain(|it| it.type_ != tenure_api::claims::condition::HELD);
            }
            status::failed(&unproven, refused.reason, &refused.words, now)
        }
    };
    if object.status.as_ref() == Some(&status) {
        return None;
    }
    let at = At {
        name: claim.facts.name.clone(),
        uid: claim.facts.uid.clone(),
        version: object.resource_version().unwrap_or_default(),
    };
    let namespace = claim.facts.namespace.clone();
    Some(ClaimWrite::Status { claim: at, namespace, status: Box::new(status) }.into())
}

#[cfg(test)]
mod crowds;
#[cfg(test)]
mod proptests;
