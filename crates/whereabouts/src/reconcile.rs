//! What nobody uses any more.
//!
//! A record is suspect when its pod does not exist (or runs no more). A pod of the same name with another UID is another pod. Where
//! a record names no UID, because Whereabouts wrote it, it is also suspect when the pod says, in its network status, that it
//! has another address of the range on this interface. It is released after it was suspect in two looks
//! at least [`Patience::between`] apart, and only if it is, to the last letter, the record that was suspect before: a pod
//! that was made anew meanwhile has rewritten it.
//!
//! A missing annotation says nothing. It is missing while a pod starts, and where nobody writes it.
//!
//! A claim's record is not a pod's, though it names the claim where others name their pod: whoever gave it takes it back when
//! the claim is gone. Neither it nor its reservation is ever suspect here.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_api::claims::RECORD_PREFIX;
use tenure_api::whereabouts::{Allocation, IPPool, OverlappingRangeIPReservation};
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, Cidr};

use crate::ledger::{Act, Request, Who};

/// A pod that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivingPod {
    /// Its UID.
    pub uid: String,
    /// Whether it has ended for good, or is evicted because its node is out of reach, as Whereabouts has it.
    pub finished: bool,
    /// The addresses of its network status; `None` while it says nothing.
    pub addresses: Option<BTreeSet<Address>>,
}

/// How long a suspicion must last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Between the first look and the one that releases.
    pub between: Duration,
}

/// What was seen, from look to look.
#[derive(Clone, Debug)]
pub struct Reconciler {
    patience: Patience,
    suspects: BTreeMap<Suspect, Timestamp>,
}

/// A record, or a reservation, that nobody seems to use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suspect {
    Record {
        object: String,
        key: String,
        id: String,
        podref: String,
        ifname: Option<String>,
        poduid: Option<String>,
    },
    Reservation {
        name: String,
        uid: Option<String>,
        podref: String,
    },
}

/// What to release.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unused {
    /// Records, as requests to their network's ledger, which takes their reservations along.
    pub records: Vec<Request>,
    /// Reservations that no record explains: name and uid.
    pub reservations: Vec<(String, Option<String>)>,
}

/// What there is.
#[derive(Debug)]
pub struct Inputs<'a, P = IPPool, R = OverlappingRangeIPReservation> {
    /// Pools that the controller may write: not slices of nodes that live, which those write themselves.
    pub pools: &'a [P],
    /// Reservations.
    pub reservations: &'a [R],
    /// Pods, by `namespace/name`.
    pub pods: &'a BTreeMap<String, LivingPod>,
    /// The present.
    pub now: Timestamp,
}

impl<P, R> Clone for Inputs<'_, P, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, R> Copy for Inputs<'_, P, R> {}

impl Default for Patience {
    fn default() -> Self {
        Self { between: Duration::from_mins(1) }
    }
}

impl Reconciler {
    /// One that has seen nothing yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, suspects: BTreeMap::new() }
    }

    /// Looks once; answers what was suspect long enough.
    pub fn look<P, R>(&mut self, inputs: Inputs<'_, P, R>) -> Unused
    where
        P: Borrow<IPPool>,
        R: Borrow<OverlappingRangeIPReservation>,
    {
        let mut seen = BTreeMap::new();
        let mut unused = Unused::default();
        let since = |suspect: &Suspect, before: &BTreeMap<Suspect, Timestamp>| {
            before.get(suspect).copied().filter(|first| *first <= inputs.now)
        };
        for (object, key, record) in suspect_records(&inputs) {
            let Allocation { id, podref, ifname, poduid, .. } = record.clone();
            let suspect = Suspect::Record {
                object: object.to_owned(),
                key: key.to_owned(),
                id: id.clone(),
                podref: podref.clone(),
                ifname: ifname.clone(),
                poduid: poduid.clone(),
            };
            match since(&suspect, &self.suspects) {
                Some(first) if inputs.now.since(first) >= self.patience.between => {
                    let (uid, ifname) = (poduid.unwrap_or_default(), ifname.unwrap_or_default());
                    let who = Who { id, podref, uid, ifname };
                    let (object, key) = (object.to_owned(), key.to_owned());
                    let act = Act::Forget { object, key, record: record.clone() };
                    unused.records.push(Request { who, act });
                    seen.insert(suspect, first);
                }
                first => {
                    seen.insert(suspect, first.unwrap_or(inputs.now));
                }
            }
        }
        for reservation in suspect_reservations(&inputs) {
            let name = reservation.metadata.name.clone().unwrap_or_default();
            let uid = reservation.metadata.uid.clone();
            let podref = reservation.spec.podref.clone();
            let suspect = Suspect::Reservation { name: name.clone(), uid: uid.clone(), podref };
            let first = since(&suspect, &self.suspects);
            if first.is_some_and(|first| inputs.now.since(first) >= self.patience.between) {
                unused.reservations.push((name, uid));
            }
            seen.insert(suspect, first.unwrap_or(inputs.now));
        }
        self.suspects = seen;
        unused
    }

    /// Nothing counts as seen any more: the next look is a first one.
    pub fn forget(&mut self) {
        self.suspects.clear();
    }

    /// How many records and reservations are suspect.
    pub fn suspects(&self) -> usize {
        self.suspects.len()
    }
}

/// One readable record.
struct Held<'a> {
    object: &'a str,
    key: &'a str,
    range: Cidr,
    address: Address,
    record: &'a Allocation,
}

fn suspect_records<'a, P: Borrow<IPPool>, R>(
    inputs: &Inputs<'a, P, R>,
) -> Vec<(&'a str, &'a str, &'a Allocation)> {
    let mut by_pod: BTreeMap<&str, Vec<Held<'a>>> = BTreeMap::new();
    for pool in inputs.pools.iter().map(Borrow::borrow) {
        let Some(object) = pool.metadata.name.as_deref() else { continue };
        // What cannot be read is nobody's address, and nothing is known about it.
        let Ok(range) = pool.spec.cidr() else { continue };
        let offsets = Offsets::of(&range);
        for (key, record) in pool.spec.allocations.iter().filter(|(_, record)| !is_claims(record)) {
            if let Some(address) = key.parse().ok().and_then(|offset| offsets.address(offset).ok()) {
                by_pod.entry(&record.podref).or_default().push(Held { object, key, range, address, record });
            }
        }
    }
    let mut suspects = Vec::new();
    for (podref, all) in &by_pod {
        let pod = inputs.pods.get(*podref);
        let unused = all.iter().filter(|held| !is_used(pod, held, all));
        suspects.extend(unused.map(|held| (held.object, held.key, held.record)));
    }
    suspects
}

/// Whether the pod of this record lives. A pod of the same name and another UID is another pod. What a pod says that it has counts
/// as used, whoever it is.
///
/// A record of Whereabouts' names no UID. It is of the pod that lives, unless that has a record of its own for another container
/// on the same interface, or says that the interface has another address of the same range.
fn is_used(pod: Option<&LivingPod>, held: &Held<'_>, all: &[Held<'_>]) -> bool {
    let Some(pod) = pod.filter(|pod| !pod.finished) else { return false };
    let says = |address: &Address| pod.addresses.as_ref().is_some_and(|all| all.contains(address));
    if says(&held.address) {
        return true;
    }
    if let Some(uid) = &held.record.poduid {
        return pod.uid.is_empty() || *uid == pod.uid;
    }
    let same_interface = |other: &&Held<'_>| {
        let (a, b) = (&other.record.ifname, &held.record.ifname);
        other.range == held.range && (a == b || a.is_none() || b.is_none())
    };
    let replaced = |other: &Held<'_>| {
        let its_own = other.record.poduid.as_ref().is_some_and(|uid| *uid == pod.uid);
        its_own && other.record.id != held.record.id
    };
    // One of another record of the interface must be there: else its network may not be in the status yet.
    !all.iter().filter(same_interface).any(|other| replaced(other) || says(&other.address))
}

/// Reservations whose pod is gone, or that no record of their pod explains although the pod says what it has.
fn suspect_reservations<'a, P, R>(inputs: &Inputs<'a, P, R>) -> Vec<&'a OverlappingRangeIPReservation>
where
    P: Borrow<IPPool>,
    R: Borrow<OverlappingRangeIPReservation>,
{
    let used = |reservation: &&OverlappingRangeIPReservation| {
        let pod = inputs.pods.get(&reservation.spec.podref);
        let address = reservation.metadata.name.as_deref().and_then(named_address);
        let is_of_claim = || {
            let record = |record: &Allocation| is_claims(record) && record.podref == reservation.spec.podref;
            address.is_some_and(|address| is_recorded(inputs, address, record))
        };
        let Some(pod) = pod.filter(|pod| !pod.finished) else { return is_of_claim() };
        match (&pod.addresses, address) {
            (Some(addresses), Some(address)) => {
                let own = |record: &Allocation| record.podref == reservation.spec.podref;
                addresses.contains(&address) || addresses.is_empty() || is_recorded(inputs, address, own)
            }
            // It says nothing, or the name says nothing: that is no reason.
            _ => true,
        }
    };
    inputs.reservations.iter().map(Borrow::borrow).filter(|reservation| !used(reservation)).collect()
}

/// Whether a record like this is of the address.
fn is_recorded<P: Borrow<IPPool>, R>(
    inputs: &Inputs<'_, P, R>,
    address: Address,
    like: impl Fn(&Allocation) -> bool,
) -> bool {
    inputs.pools.iter().map(Borrow::borrow).any(|pool| {
        let key = pool.spec.cidr().ok().and_then(|cidr| Offsets::of(&cidr).offset(address).ok());
        let record = key.and_then(|key| pool.spec.allocations.get(&key.to_string()));
        record.is_some_and(&like)
    })
}

/// Whether a record is a claim's.
fn is_claims(record: &Allocation) -> bool {
    record.id.starts_with(RECORD_PREFIX)
}

/// The annotation in which Multus says what a pod's interfaces have.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The addresses of a pod's network status; `None` where it cannot be read, which says as little as none at all.
pub fn addresses_of_status(text: &str) -> Option<BTreeSet<Address>> {
    let networks: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
    let ips = networks.iter().filter_map(|network| network.get("ips")?.as_array()).flatten();
    // The standard shows them with their prefix lengths, and its client writes them without.
    let bare = |ip: &str| ip.split('/').next().and_then(|ip| ip.parse::<std::net::IpAddr>().ok());
    let addresses = ips.map(|ip| bare(ip.as_str()?).map(Address::from));
    addresses.collect()
}

/// The address at the end of a reservation's name, whatever network it is of: the longest end that is one.
pub fn named_address(name: &str) -> Option<Address> {
    let mut ends = std::iter::once(0).chain(name.match_indices('-').map(|(at, _)| at + 1));
    ends.find_map(|at| {
        let end = &name[at..];
        let text = if end.contains('-') { end.replace('-', ":") } else { end.to_owned() };
        text.parse::<std::net::IpAddr>().ok().map(Address::from)
    })
}

#[cfg(test)]
mod tests;
