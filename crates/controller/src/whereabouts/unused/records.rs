//! Which records and reservations name which pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::whereabouts::{Allocation, IPPool};
use tenure_whereabouts::reconcile::{OfPod, Record};

use super::Names;
use crate::world::World;

/// Records of ledgers that the controller may write, and reservations, by the pods that they name.
#[derive(Debug, Default)]
pub(super) struct Records {
    ledgers: HashMap<Arc<str>, LedgerRecords>,
    /// Reservations, and the pod of each.
    reservations: HashMap<Arc<str>, Arc<str>>,
    by_pod: HashMap<Arc<str>, Named>,
    /// Pods for which something was noted since the last query.
    changed: Names,
}

/// What was noted of a ledger.
#[derive(Debug, Default)]
struct LedgerRecords {
    range: String,
    /// The pod of each record, by its key, and a fingerprint of the record.
    records: BTreeMap<String, (Arc<str>, u64)>,
}

/// What names a pod.
#[derive(Debug, Default)]
struct Named {
    /// Ledgers and keys.
    records: BTreeSet<(Arc<str>, String)>,
    reservations: Names,
}

impl Records {
    /// Notes the records of a ledger; nothing if it is gone or not the controller's to write.
    pub(super) fn note_ledger(&mut self, name: &Arc<str>, pool: Option<&IPPool>) {
        let before = self.ledgers.remove(name).unwrap_or_default();
        let Some(pool) = pool else { return self.forget_records(name, before.records) };
        let records = pool.spec.allocations.iter().map(|(key, record)| {
            let podref = self.by_pod.get_key_value(record.podref.as_str());
            let podref = podref.map_or_else(|| record.podref.as_str().into(), |(podref, _)| podref.clone());
            (key.clone(), (podref, fingerprint(record)))
        });
        let now = LedgerRecords { range: pool.spec.range.clone(), records: records.collect() };
        let moved = now.range != before.range;
        for (key, noted) in &now.records {
            if moved || before.records.get(key) != Some(noted) {
                let named = self.by_pod.entry(noted.0.clone()).or_default();
                named.records.insert((name.clone(), key.clone()));
                self.changed.insert(noted.0.clone());
            }
        }
        let mut gone = before.records;
        gone.retain(|key, (podref, _)| now.records.get(key).is_none_or(|(named, _)| named != podref));
        self.forget_records(name, gone);
        self.ledgers.insert(name.clone(), now);
    }

    fn forget_records(&mut self, ledger: &Arc<str>, gone: BTreeMap<String, (Arc<str>, u64)>) {
        for (key, (podref, _)) in gone {
            self.unname(&podref, |named| _ = named.records.remove(&(ledger.clone(), key)));
        }
    }

    /// Notes the pod of a reservation, or that the reservation is gone.
    pub(super) fn note_reservation(&mut self, name: &Arc<str>, podref: Option<&str>) {
        if let Some(before) = self.reservations.remove(name) {
            self.unname(&before, |named| _ = named.reservations.remove(name));
        }
        if let Some(podref) = podref {
            let podref: Arc<str> = podref.into();
            self.by_pod.entry(podref.clone()).or_default().reservations.insert(name.clone());
            self.changed.insert(podref.clone());
            self.reservations.insert(name.clone(), podref);
        }
    }

    fn unname(&mut self, podref: &Arc<str>, forget: impl FnOnce(&mut Named)) {
        self.changed.insert(podref.clone());
        if let Some(named) = self.by_pod.get_mut(podref) {
            forget(named);
            if named.records.is_empty() && named.reservations.is_empty() {
                self.by_pod.remove(podref);
            }
        }
    }

    /// The pods for which something was noted since the last query.
    pub(super) fn changed(&mut self) -> Names {
        std::mem::take(&mut self.changed)
    }

    /// All pods that are named.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_pod.keys()
    }

    /// What names this pod.
    pub(super) fn of_pod<'w>(&self, world: &'w World, podref: &str) -> OfPod<'w> {
        let Some(named) = self.by_pod.get(podref) else { return OfPod::default() };
        let records = named.records.iter().filter_map(|(ledger, key)| {
            let pool = &world.ledgers().pools.get(ledger)?.pool;
            let (key, record) = pool.spec.allocations.get_key_value(key)?;
            Some(Record { pool, key, record })
        });
        let reservations =
            named.reservations.iter().filter_map(|name| world.ledgers().reservations.get(name));
        OfPod {
            pod: world.ledgers().pods.get(podref),
            records: records.collect(),
            reservations: reservations.collect(),
        }
    }
}

/// Records with equal fingerprints are equal: a record to release is compared completely.
fn fingerprint(Allocation { id, podref: _, ifname, poduid, node, pods }: &Allocation) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, ifname, poduid, node).hash(&mut hasher);
    for pod in pods {
        (&pod.name, &pod.uid, &pod.node, pod.missing.as_ref().map(|it| it.0)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Every reservation and its pod, by name.
pub(super) fn reservations(world: &World) -> impl Iterator<Item = (Arc<str>, &str)> {
    world.ledgers().reservations.iter().map(|it| (it.name_any().into(), it.spec.podref.as_str()))
}
