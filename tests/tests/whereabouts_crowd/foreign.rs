//! Somebody else who writes to the same objects: takes addresses of unsliced ranges and gives them back as Whereabouts does,
//! changes what means nothing, and spoils the records of slices, which their nodes put right.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::whereabouts::{
    Allocation, IPPool, OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec,
};

use crate::networks::Network;
use crate::oracle::{Living, Oracle};
use crate::plan::Dice;
use tenure_tests::whereabouts::{Bed, NODE, address_at, record};

/// The pod that it says it takes addresses for.
pub const POD: &str = "foreign";
/// How many addresses it has at most.
const MOST: usize = 12;

/// Somebody else.
pub struct Foreign<'a> {
    bed: &'a Bed,
    networks: &'a [Network],
    oracle: &'a Oracle,
    dice: Dice,
    held: Vec<Held>,
    names: usize,
}

/// An address that it took.
struct Held {
    pool: String,
    key: String,
    record: Allocation,
    reservation: Option<String>,
}

impl<'a> Foreign<'a> {
    pub fn new(bed: &'a Bed, networks: &'a [Network], oracle: &'a Oracle, seed: u64) -> Self {
        Self { bed, networks, oracle, dice: Dice::of(seed), held: Vec::new(), names: 0 }
    }

    /// Goes on until it is over, and gives everything back.
    pub fn work(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::SeqCst) {
            match self.dice.below(10) {
                0..4 if self.held.len() < MOST => self.take(),
                4..6 if !self.held.is_empty() => {
                    let which = self.dice.below(self.held.len());
                    let held = self.held.swap_remove(which);
                    self.give_back(held);
                }
                6..8 => self.touch(),
                _ => self.spoil(),
            }
            let rest = self.dice.up_to(60);
            sleep(Duration::from_millis(20) + rest);
        }
        while let Some(held) = self.held.pop() {
            self.give_back(held);
        }
    }

    /// The lowest free address of a range, guarded as Whereabouts guards it.
    fn take(&mut self) {
        let unsliced: Vec<&Network> = self.networks.iter().filter(|it| !it.sliced).collect();
        let network = unsliced[self.dice.below(unsliced.len())];
        let window = network.ranges[self.dice.below(network.ranges.len())];
        let range = window.net.to_string();
        let front = if network.domain.is_empty() { String::new() } else { format!("{}-", network.domain) };
        let name = format!("{front}{}", range.replace([':', '/'], "-"));
        let Some(pool) = self.bed.ledger(&name) else { return };
        let free = (0..4096_u32).find_map(|offset| {
            let address = address_at(&range, &offset.to_string())?;
            let free = !pool.spec.allocations.contains_key(&offset.to_string());
            (free && offset < 256 && window.hands_out(address)).then_some((offset.to_string(), address))
        });
        let Some((key, address)) = free else { return };
        self.names += 1;
        let record = record(&format!("foreign-{}", self.names), &format!("default/{POD}"), Some("net0"));
        let record = Allocation { ifname: Some(format!("net0-{}", self.names)), ..record };
        let reservation = (network.domain == "lapped").then(|| format!("{front}{address}"));
        if let Some(name) = &reservation
            && !self.reserve(name, &record)
        {
            return;
        }
        let place = format!("/spec/allocations/{key}");
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": pool.metadata.resource_version},
            {"op": "test", "path": place, "value": null},
            {"op": "add", "path": place, "value": record},
        ]);
        if self.patch(&name, patch) {
            self.hear(network.domain, address, &record);
            self.held.push(Held { pool: name, key, record, reservation });
        } else if let Some(name) = reservation {
            self.unreserve(&name);
        }
    }

    fn hear(&self, domain: &'static str, address: IpAddr, record: &Allocation) {
        self.oracle.counting(|count| count.foreign += 1);
        self.oracle.added(&Living {
            node: usize::MAX,
            network: usize::MAX,
            domain,
            podref: record.podref.clone(),
            ifname: record.ifname.clone().unwrap_or_default(),
            container: record.id.clone(),
            addresses: vec![address],
        });
    }

    /// Takes a record of its own away; it must still be there.
    fn give_back(&self, held: Held) {
        let Held { pool, key, record, reservation } = held;
        self.oracle.ending(&record.id, record.ifname.as_deref().unwrap_or_default());
        let place = format!("/spec/allocations/{key}");
        for _ in 0..100 {
            if self.bed.records(&pool).get(&key) != Some(&record) {
                self.oracle.blame(format!("the record {key} of {pool}, {record:?}, is not there any more"));
                break;
            }
            let patch =
                json!([{"op": "test", "path": place, "value": record}, {"op": "remove", "path": place}]);
            if self.patch(&pool, patch) {
                break;
            }
        }
        if let Some(name) = reservation {
            self.unreserve(&name);
        }
    }

    /// A change that means nothing, but makes another version of an object.
    fn touch(&mut self) {
        if let Some(pool) = self.any(false) {
            self.names += 1;
            let patch = json!({"metadata": {"annotations": {"example.com/touched": self.names.to_string()}}});
            let patch = Patch::Merge(patch);
            let _ =
                self.bed.wait(self.bed.ledgers().patch(&pool.name_any(), &PatchParams::default(), &patch));
        }
    }

    /// Spoils the records of a slice: all are gone, one is, or one is another's.
    fn spoil(&mut self) {
        let Some(pool) = self.any(true) else { return };
        let (name, api) = (pool.name_any(), self.bed.ledgers());
        let some = pool.spec.allocations.keys().next().cloned();
        match (self.dice.below(3), some) {
            (0, _) => drop(self.bed.wait(api.delete(&name, &DeleteParams::default()))),
            (1, Some(key)) => {
                self.patch(&name, json!([{"op": "remove", "path": format!("/spec/allocations/{key}")}]));
            }
            (_, Some(key)) => {
                let path = format!("/spec/allocations/{key}/podref");
                self.patch(&name, json!([{"op": "replace", "path": path, "value": "a/b"}]));
            }
            (_, None) => {}
        }
    }

    fn any(&mut self, sliced: bool) -> Option<IPPool> {
        let pools = self.bed.wait(self.bed.ledgers().list(&ListParams::default())).ok()?;
        let mut pools: Vec<IPPool> =
            pools.items.into_iter().filter(|pool| pool.labels().contains_key(NODE) == sliced).collect();
        let which = self.dice.below(pools.len().max(1));
        (which < pools.len()).then(|| pools.swap_remove(which))
    }

    fn patch(&self, name: &str, patch: Value) -> bool {
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        self.bed.wait(self.bed.ledgers().patch(name, &PatchParams::default(), &patch)).is_ok()
    }

    fn reserve(&self, name: &str, record: &Allocation) -> bool {
        let reservation = OverlappingRangeIPReservation {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: OverlappingRangeIPReservationSpec {
                containerid: None,
                podref: record.podref.clone(),
                ifname: record.ifname.clone(),
            },
        };
        self.bed.wait(self.bed.reservations().create(&PostParams::default(), &reservation)).is_ok()
    }

    fn unreserve(&self, name: &str) {
        if let Err(error) = self.bed.wait(self.bed.reservations().delete(name, &DeleteParams::default())) {
            self.oracle.blame(format!("the reservation {name} cannot be taken back: {error}"));
        }
    }
}
