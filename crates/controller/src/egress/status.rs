//! The status of an Egress: how many gateways serve and why not more, and what a schema cannot check.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use tenure_api::coil::egress::condition::{self, reason};
use tenure_api::coil::egress::{EgressStatus, conflicts, gateway_selector};
use tenure_api::coil::{DEFAULT_POOL, Egress, EgressId};
use tenure_handles::Timestamp;

use super::children::{Planned, Whose, whose};
use super::known::{EgressFacts, Egresses};
use super::write::EgressWrite;
use crate::plan::time;
use crate::world::World;
use crate::write::At;

/// How many other Egresses are named.
const NAMED: usize = 4;

/// What belongs to an Egress beside its children.
pub(super) struct Company<'a> {
    /// Its gateways.
    pub(super) pods: Vec<&'a String>,
    /// Other Egresses that share a client with it.
    pub(super) others: BTreeSet<String>,
}

/// The new status, if it differs.
pub(super) fn plan(
    world: &World,
    facts: &EgressFacts,
    planned: &Planned,
    company: &Company<'_>,
    now: Timestamp,
) -> Option<EgressWrite> {
    let egress = &facts.object;
    let before = egress.status.clone().unwrap_or_default();
    let (name, namespace) = (egress.name_any(), egress.namespace().unwrap_or_default());
    let deployment = world.egress().deployments.get(&format!("{namespace}/{name}"));
    let deployment = deployment.filter(|it| whose(egress, &it.facts.metadata) == Whose::Ours);
    let mut after = EgressStatus {
        replicas: deployment.map_or(0, |it| it.facts.available),
        selector: gateway_selector(&name),
        addresses: addresses(world.egress(), company),
        observed_generation: egress.metadata.generation,
        conditions: before.conditions.clone(),
    };
    let mut set = |type_: &str, is: bool, reason: &str, message: String| {
        after.set_condition(Condition {
            type_: type_.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: egress.metadata.generation,
            last_transition_time: time(now),
        });
    };
    let pool = pool_of(world, &namespace);
    let missing = pool_is_missing(world, &pool);
    let no_pool = format!(
        "namespace \"{namespace}\" gets addresses of AddressPool \"{pool}\", which does not exist: make it, or name another in the \
         namespace's annotation coil.cybozu.com/pool"
    );
    let (serving, wanted) = (deployment.map_or(0, |it| it.facts.available), egress.spec.replicas);
    let count = format!("{serving} of {wanted} gateways serve");
    let refusal = refusal(world.egress(), egress);
    let (why, because) = if let Some(refusal) = refusal {
        (reason::TEMPLATE_REFUSED, Some(format!("the API server refuses what they need: {refusal}")))
    } else if !planned.taken.is_empty() {
        let taken = planned.taken.join(", ");
        let words = format!("{taken} of this namespace is not this Egress's: delete or rename it");
        (reason::NAME_TAKEN, Some(words))
    } else if serving >= wanted {
        (reason::SERVING, None)
    } else if let Some(refused) = deployment.and_then(|it| it.facts.refused.as_ref()) {
        (reason::PODS_REFUSED, Some(refused.clone()))
    } else if missing {
        (reason::POOL_NOT_FOUND, Some(no_pool.clone()))
    } else {
        let stuck = deployment.and_then(|it| it.facts.stuck.clone());
        let words = stuck.unwrap_or_else(|| "the others are not ready; their pods say why".to_owned());
        (reason::GATEWAYS_MISSING, Some(words))
    };
    let message = because.map_or_else(|| count.clone(), |because| format!("{count}: {because}"));
    set(condition::READY, why == reason::SERVING, why, message);
    if missing {
        set(condition::POOL_MISSING, true, reason::POOL_NOT_FOUND, no_pool);
    } else {
        let words = format!("namespace \"{namespace}\" gets addresses of \"{pool}\", if of any pool");
        set(condition::POOL_MISSING, false, reason::POOL_FOUND, words);
    }
    if let Some(words) = conflict(world.egress(), facts, company) {
        set(condition::CONFLICTING, true, reason::SAME_DESTINATION, words);
    } else {
        let words = "no client has another Egress with the same destination".to_owned();
        set(condition::CONFLICTING, false, reason::DISTINCT, words);
    }
    (after != before).then(|| EgressWrite::Status {
        namespace,
        egress: At::of(egress),
        status: Box::new(after),
    })
}

/// The addresses of the running gateways.
fn addresses(known: &Egresses, company: &Company<'_>) -> Vec<String> {
    let pods = company.pods.iter().filter_map(|pod| known.pods.get(pod));
    let all: BTreeSet<IpAddr> =
        pods.flat_map(|pod| &pod.facts.addresses).filter_map(|address| address.parse().ok()).collect();
    all.iter().take(EgressStatus::MAX_ADDRESSES).map(ToString::to_string).collect()
}

/// The pool of a namespace's pods.
pub(super) fn pool_of(world: &World, namespace: &str) -> String {
    let known = world.claims().namespaces.get(namespace).and_then(|known| known.facts.pool.clone());
    known.unwrap_or_else(|| DEFAULT_POOL.to_owned())
}

/// Whether pods of this pool get no addresses. Without any pool, another plugin assigns them.
fn pool_is_missing(world: &World, pool: &str) -> bool {
    let there = world.coil().pools.get(pool).is_some() || world.coil().pools.is_unreadable(pool);
    !there && (pool != DEFAULT_POOL || !world.coil().pools.is_empty())
}

/// What the API server refuses of the current Egress.
fn refusal<'a>(known: &'a Egresses, egress: &Egress) -> Option<&'a str> {
    let id = egress.id().to_string();
    let refusal = known.refusals.get(&id)?;
    let is_of = (egress.uid().unwrap_or_default(), egress.metadata.generation);
    (refusal.of == is_of).then_some(refusal.message.as_deref()).flatten()
}

/// Which other Egresses of its clients share one of its destinations, in words that are stable.
fn conflict(known: &Egresses, facts: &EgressFacts, company: &Company<'_>) -> Option<String> {
    let (id, own) = (facts.object.id(), facts.destinations.as_ref()?);
    let words = company.others.iter().filter_map(|other| {
        let other = &known.egresses.get(other)?.facts;
        let other_id: EgressId = other.object.id();
        let both = conflicts([(&id, own), (&other_id, other.destinations.as_ref()?)]);
        let first = both.first()?;
        Some(format!(
            "{} of Egress \"{other_id}\", which goes through \"{}\"",
            first.destination, first.first
        ))
    });
    let words: Vec<String> = words.take(NAMED).collect();
    (!words.is_empty()).then(|| {
        format!(
            "pods use this Egress and others with the same destination: {}; remove the destination from one, or one from the pods",
            words.join(", ")
        )
    })
}
