//! Verdicts on Whereabouts' ledgers and on pools of node addresses.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use tenure_api::nmstate::annotation;
use tenure_api::whereabouts::{
    IPPool, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec, reservation_name,
};
use tenure_ipam::ledger::Offsets;
use tenure_whereabouts::ledger::State;

use super::blocks::{and, gone};
use super::step::{Object, Operation, Step, Verdict};
use crate::check::Difference;
use crate::snapshot::{PodFacts, Snapshot};

fn ledger<'a>(snapshot: &'a Snapshot, it: &Difference) -> Option<&'a IPPool> {
    let name = it.subject.strip_prefix("IPPool ")?;
    let name = name.split_once(": ").map_or(name, |(name, _)| name);
    snapshot.ranges.ledgers.iter().find(|ledger| ledger.name_any() == name)
}

/// Nobody can tell what the records stand for.
pub(super) fn invalid(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let Some(ledger) = ledger(snapshot, it) else { return gone() };
    let records = &ledger.spec.allocations;
    let living = match &snapshot.pods {
        None if records.is_empty() => BTreeSet::new(),
        None => {
            return Verdict::advised(
                "it has records, and without Kubernetes nobody knows whether their holders exist",
                it,
            );
        }
        Some(pods) => pods.iter().filter(|pod| !pod.over).map(PodFacts::label).collect(),
    };
    let used: BTreeSet<String> = records
        .values()
        .filter(|record| living.contains(&record.podref))
        .map(|record| format!("{} is there", record.podref))
        .collect();
    if used.is_empty() {
        let safe =
            "nothing can be assigned from a range that cannot be read, and no pod of its records exists";
        return Step::if_unused(Object::of(ledger), Operation::Delete, safe);
    }
    let used: Vec<String> = used.into_iter().collect();
    Verdict::advised(format!("pods of its records exist{}", and(&used)), it)
}

/// Records that stand for no address.
pub(super) fn senseless(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let Some(ledger) = ledger(snapshot, it) else { return gone() };
    let Ok(cidr) = ledger.spec.cidr() else { return gone() };
    if State::of(ledger) == State::Owned {
        let node = snapshot.ranges.node_of(ledger).unwrap_or_default();
        return Verdict::cannot(
            format!("the agent of node {node} alone writes this object"),
            "leave them: they stand for no address, so they keep none from anybody",
        );
    }
    let offsets = Offsets::of(&cidr);
    let is_senseless = |key: &&String| key.parse().ok().is_none_or(|offset| offsets.address(offset).is_err());
    let keys: Vec<String> = ledger.spec.allocations.keys().filter(is_senseless).cloned().collect();
    if keys.is_empty() {
        return gone();
    }
    let safe = format!("no address of {cidr} has such a key, so nobody holds an address by these records");
    Step::guarded(Object::of(ledger), Operation::DropRecords(keys), safe)
}

/// A record that no reservation keeps from overlapping ranges.
pub(super) fn unreserved(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let Some(ledger) = ledger(snapshot, it) else { return gone() };
    let address = it.subject.rsplit_once(": ").map_or("", |(_, address)| address);
    let of_ledger = |name: String| name == ledger.name_any();
    let mut records = snapshot.ranges.records();
    let Some(recorded) =
        records.find(|it| of_ledger(it.ledger.name_any()) && it.address.to_string() == address)
    else {
        return gone();
    };
    let Ok(name) = reservation_name(&recorded.network, recorded.address.to_ip()) else {
        return Verdict::advised("its network's name makes no name of a reservation", it);
    };
    if let Some(other) = snapshot.ranges.reservations.iter().find(|it| it.name_any() == name) {
        return Verdict::advised(
            format!("the reservation is for {}, who may have the address, too", other.spec.podref),
            it,
        );
    }
    let holders: BTreeSet<String> = snapshot
        .ranges
        .records()
        .filter(|it| {
            it.network == recorded.network
                && it.address == recorded.address
                && it.record.podref != recorded.record.podref
        })
        .map(|it| format!("{} has it by IPPool {}", it.record.podref, it.ledger.name_any()))
        .collect();
    if !holders.is_empty() {
        let holders: Vec<String> = holders.into_iter().collect();
        return Verdict::advised(format!("another record has the address{}", and(&holders)), it);
    }
    let reservation = OverlappingRangeIPReservation {
        metadata: ObjectMeta { name: Some(name), namespace: ledger.namespace(), ..ObjectMeta::default() },
        spec: OverlappingRangeIPReservationSpec {
            containerid: None,
            podref: recorded.record.podref.clone(),
            ifname: recorded.record.ifname.clone(),
        },
    };
    Verdict::Repair(Box::new(Step {
        object: Object::new(&reservation),
        safe: "a reservation only keeps its address from others, its name is the lock, and the record says who has it".to_owned(),
        operation: Operation::Reserve(Box::new(reservation)),
        evidence: true,
    }))
}

/// The record of a pool of node addresses cannot be read.
pub(super) fn node_pool(snapshot: &Snapshot, it: &Difference) -> Verdict {
    let name = it.subject.strip_prefix("NodeIPPool ").unwrap_or_default();
    let Some(pool) = snapshot.node_pools.pools.iter().find(|pool| pool.name_any() == name) else {
        return gone();
    };
    if pool.annotations().contains_key(annotation::RESET) {
        return Verdict::Heals("the controller rebuilds the record, if one leads".to_owned());
    }
    Step::guarded(
        Object::of(pool),
        Operation::Annotate(annotation::RESET, name.to_owned()),
        "the controller, which alone writes the record, rebuilds it from the addresses that enactments have",
    )
}
