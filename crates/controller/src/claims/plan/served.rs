//! Decides about each claim: its status must show what is recorded, and a claim without records joins the queue.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::coil::DEFAULT_POOL;
use tenure_claims::status::{self, Reason, RecordLocation};
use tenure_handles::Timestamp;
use tenure_ipam::Address;
use tenure_whereabouts::slices::slice_pools;

use super::super::known::Claim;
use super::super::sets::Names;
use super::super::write::ClaimWrite;
use super::ledgers::LedgerIndex;
use super::line::Awaited;
use super::networks::{Network, Source};
use super::ranges::{self, Shared};
use super::recorded::{Recorded, came_later, keep, recorded};
use super::{Inputs, RecordPlanner, Refused, Round, Verdict, knows_ranges, wishes};
use crate::whereabouts::Rest;
use crate::world::World;
use crate::write::{At, Write};

/// A claim that should get addresses.
struct InLine<'a> {
    claim: &'a Claim,
    network: Arc<Network>,
    wishes: Vec<Address>,
}

/// No network has more ranges. A status with more objects was not written by a controller.
const MOST_PLACES: usize = 16;

/// The records of the claims in this plan, by UID.
type AllRecorded<'a> = HashMap<&'a str, Recorded<'a>>;

impl RecordPlanner {
    /// Decides about these claims, and about all that wait for the same.
    pub(super) fn serve<'a>(&mut self, round: &mut Round<'a>, ledgers: &LedgerIndex, mut names: Names) {
        let world = round.inputs.world;
        let (mut looked_at, mut line, mut on_record) = (Names::new(), Vec::new(), AllRecorded::new());
        loop {
            let mut claims: Vec<(&Arc<str>, &Claim)> = Vec::new();
            for name in &names {
                let claim = world.claims().all.get(name);
                round.statuses.remove(name);
                self.look_again(round, name, claim);
                claims.extend(claim.map(|claim| (name, claim)));
            }
            claims.sort_by_key(|(_, claim)| age(claim));
            for (name, claim) in claims {
                let in_line = self.decide(round, name, claim, &mut on_record);
                let awaited = in_line.as_ref().map(|it| self.awaited(world, it)).unwrap_or_default();
                for awaited in &awaited {
                    if let Awaited::Slices(pool) = awaited {
                        round.cut.serve(pool);
                    }
                }
                self.line.wait(name, awaited);
                line.extend(in_line);
            }
            looked_at.append(&mut names);
            // What this plan frees, it can assign.
            round.blocks.changed_pools().for_each(|pool| self.line.note(Awaited::Pool(pool.into())));
            round.cut.changed_pools().for_each(|pool| self.line.note(Awaited::Slices(pool.into())));
            self.line.take_changed(&mut names);
            names.retain(|name| !looked_at.contains(name));
            if names.is_empty() {
                break;
            }
        }
        // Claims that ask for addresses come first, then the oldest.
        line.sort_by_key(|it: &InLine<'a>| (it.wishes.is_empty(), age(it.claim)));
        self.give(round, ledgers, &line, &on_record);
        #[cfg(test)]
        {
            self.looked_at = looked_at.len();
        }
    }

    /// Begins to look at a name.
    fn look_again(&mut self, round: &Round<'_>, name: &Arc<str>, claim: Option<&Claim>) {
        let before = self.lacking.remove(name);
        if claim.is_none() {
            self.line.wait(name, Vec::new());
        }
        if round.inputs.look.all {
            return;
        }
        let now = claim.map(|claim| claim.facts.uid.clone()).filter(|uid| before.as_ref() != Some(uid));
        for uid in before.iter().chain(&now) {
            self.missing.look_again_at(uid);
        }
    }

    /// Notes that a claim lacks something. Returns whether that has lasted long enough.
    fn lacks(&mut self, claim: &Claim, now: Timestamp) -> bool {
        self.lacking.insert(claim.reference().into(), claim.facts.uid.clone());
        self.missing.suspect(claim.facts.uid.clone(), now)
    }

    /// The outcome for a claim that should not get anything.
    fn decide<'a>(
        &mut self,
        round: &mut Round<'a>,
        name: &Arc<str>,
        claim: &'a Claim,
        on_record: &mut AllRecorded<'a>,
    ) -> Option<InLine<'a>> {
        let inputs = round.inputs;
        let network = inputs.index.networks.get(&claim.facts.network, &claim.facts.namespace);
        let has = recorded(round, claim);
        if let Some(has) = has.as_ref().filter(|has| came_later(claim, has)) {
            // It gets what it asks for when this is gone.
            has.blocks.iter().for_each(|it| round.blocks.free(&it.place, false));
            round.strays.extend(has.ranges.iter().map(|it| it.record.clone()));
            round.is_pending(name);
            return None;
        }
        let kept = has.as_ref().and_then(|has| keep(round, claim, network.as_deref(), has));
        on_record.extend(has.map(|has| (claim.facts.uid.as_str(), has)));
        let verdict = match kept {
            Some(verdict) => verdict,
            None if claim.facts.deleting || self.coming.has(&claim.facts.uid) => Verdict::Waits,
            None => match self.source(inputs.world, network, claim, inputs.now) {
                Err(verdict) => verdict,
                Ok(network) => match wishes::of(inputs, claim) {
                    Err(refused) => Verdict::No(refused),
                    Ok(wishes) => return Some(InLine { claim, network, wishes }),
                },
            },
        };
        Self::say(round, claim, verdict);
        None
    }

    /// What a queued claim waits for.
    fn awaited(&self, world: &World, it: &InLine<'_>) -> Vec<Awaited> {
        let namespace = it.claim.facts.namespace.as_str();
        match &*it.network {
            Network::Ours(Source::Pool(Some(pool))) => vec![Awaited::Pool(pool.as_str().into())],
            Network::Ours(Source::Pool(None)) => {
                let pool = self.pool_of_namespace(world, namespace).map(|pool| Awaited::Pool(pool.into()));
                pool.into_iter().chain([Awaited::Namespace(namespace.into())]).collect()
            }
            Network::Ours(Source::Ranges(config)) if config.is_sliced() => {
                let pools = slice_pools(config).unwrap_or_default();
                pools.into_iter().map(|(pool, _)| Awaited::Slices(pool.into())).collect()
            }
            Network::Ours(Source::Ranges(config)) => vec![Awaited::Shared(config.network.as_str().into())],
            _ => Vec::new(),
        }
    }

    /// Serves the queue.
    fn give<'a>(
        &mut self,
        round: &mut Round<'a>,
        ledgers: &LedgerIndex,
        line: &[InLine<'a>],
        on_record: &AllRecorded<'a>,
    ) {
        let (inputs, rest) = (round.inputs, self.settings.cooling);
        let mut shared = Shared::new(inputs, ledgers, rest);
        let mut refused = Vec::new();
        for it in line {
            let (claim, wishes, Network::Ours(source)) = (it.claim, &it.wishes, &*it.network) else {
                continue;
            };
            let facts = &claim.facts;
            let given = match source {
                Source::Pool(pool) => match self.pool_of(inputs.world, claim, pool.as_deref(), inputs.now) {
                    Ok(pool) => round.blocks.give(&pool, facts, wishes).map(|()| true),
                    Err(Verdict::No(refused)) => Err(refused),
                    Err(_) => Ok(false),
                },
                Source::Ranges(_) if !knows_ranges(inputs.world) => Ok(false),
                Source::Ranges(config) if config.is_sliced() => {
                    match round.cut.give(config, facts, wishes, &self.resting) {
                        Ok(true) => Ok(true),
                        Ok(false) => self.late(claim, inputs.now).map(|()| false),
                        Err(refused) => Err(refused),
                    }
                }
                Source::Ranges(config) => shared.give(config, claim, wishes).map(|()| false),
            };
            match given {
                Ok(true) => round.is_pending(&claim.reference()),
                Ok(false) => {}
                Err(why) => refused.push((claim, why)),
            }
        }
        let (holds, not_held, held) = shared.into_writes(&self.resting);
        round.writes.extend(holds);
        round.pending.extend(held);
        for (claim, why) in refused.into_iter().chain(not_held) {
            // All or nothing: what it already has is freed.
            let partly = on_record
                .get(claim.facts.uid.as_str())
                .filter(|has| !has.is_in_use() && !has.ranges.is_empty());
            if let Some(partly) = partly {
                round.strays.extend(partly.ranges.iter().map(|it| it.record.clone()));
                round.is_pending(&claim.reference());
            }
            Self::say(round, claim, Verdict::No(why));
        }
        let mut strays = std::mem::take(&mut round.strays);
        strays.retain(|record| !round.cut.free(record, false));
        let rest = Rest { from: inputs.now, lasts: rest };
        round.writes.extend(ranges::forget(&strays, &std::collections::BTreeSet::new(), rest));
    }

    /// Where the addresses of a claim's network come from, or what else to report.
    fn source(
        &mut self,
        world: &World,
        network: Option<Arc<Network>>,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Arc<Network>, Verdict> {
        let name = &claim.facts.network;
        let Some(network) = network else {
            let lasted = self.lacks(claim, now) && world.knows_networks();
            // Another product's network whose definition is missing: that product writes the status.
            let of_others = !claim.facts.held && !claim.facts.addresses.is_empty();
            if !lasted || of_others {
                return Err(Verdict::Waits);
            }
            let words = format!(
                "there is no network \"{name}\": spec.network has to be the \"name\" in the configuration of a \
                 NetworkAttachmentDefinition, or that of the cluster's network (--cluster-network of tenure-controller)"
            );
            return Err(Verdict::No(Refused::new(Reason::NetworkNotFound, words)));
        };
        match network.source(name) {
            Some(Ok(_)) => Ok(network),
            Some(Err(refused)) => Err(Verdict::No(refused)),
            None => Err(Verdict::Waits),
        }
    }

    /// The pool of a claim's network: from its configuration or from the namespace.
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
        if let Some(pool) = self.pool_of_namespace(world, &claim.facts.namespace) {
            return Ok(pool.to_owned());
        }
        if self.lacks(claim, now) && world.claims().namespaces.is_complete() {
            let words = format!("there is no namespace \"{}\"", claim.facts.namespace);
            return Err(Verdict::No(Refused::new(Reason::InternalError, words)));
        }
        Err(Verdict::Waits)
    }

    /// The pool that a namespace names; `None` if the namespace is not known.
    fn pool_of_namespace<'w>(&self, world: &'w World, namespace: &str) -> Option<&'w str> {
        if !self.pods_are_known {
            return Some(DEFAULT_POOL);
        }
        let namespace = world.claims().namespaces.get(namespace)?;
        Some(namespace.facts.pool.as_deref().unwrap_or(DEFAULT_POOL))
    }

    /// A claim waits for a slice, and says so after a while.
    fn late(&mut self, claim: &Claim, now: Timestamp) -> Result<(), Refused> {
        if !self.lacks(claim, now) {
            return Ok(());
        }
        let words = format!(
            "waiting for a slice of network \"{}\" that no node has: its NodeSlicePool says why there is none",
            claim.facts.network
        );
        Err(Refused::new(Reason::SubnetExhausted, words))
    }

    /// Sets the status, unless it is right.
    fn say(round: &mut Round<'_>, claim: &Claim, verdict: Verdict) {
        if let Some(write) = says(round.inputs, claim, verdict) {
            round.statuses.insert(claim.reference().into(), write);
        }
    }
}

/// Oldest first.
fn age(claim: &Claim) -> (Timestamp, &str, &str) {
    (claim.facts.created, claim.facts.namespace.as_str(), claim.facts.name.as_str())
}

/// The write that sets the status, unless it is right.
fn says(Inputs { index, now, .. }: Inputs<'_>, claim: &Claim, verdict: Verdict) -> Option<Write> {
    let object = &claim.object;
    let mut unless = Vec::new();
    let status = match verdict {
        Verdict::Waits => return None,
        Verdict::Has(addresses, places) => {
            // Objects that its status names and nobody has seen may be from another leader.
            let unseen =
                |it: &&RecordLocation| index.records.of_uid(&claim.facts.uid).all(|place| !place.is_in(it));
            unless.extend(claim.facts.places.iter().filter(unseen).take(MOST_PLACES).cloned());
            let active = claim.facts.slots.active.as_ref().map(|slot| slot.pod.as_str());
            status::set_owner(status::allocated(object, &addresses, &places, now), active)
        }
        Verdict::No(refused) => {
            let mut unproven = object.clone();
            // From now on it asks for what its status says.
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
    Some(ClaimWrite::Status { claim: at, namespace, status: Box::new(status), unless }.into())
}
