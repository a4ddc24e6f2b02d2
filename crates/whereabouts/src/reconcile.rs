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

/// What was seen, from look to look. Whether something is used is a question about one pod, so each pod is looked at by itself.
#[derive(Clone, Debug)]
pub struct Reconciler {
    patience: Patience,
    /// By pod.
    suspects: BTreeMap<String, Suspected>,
    /// When a suspicion about which pod has lasted long enough.
    due: BTreeSet<(Timestamp, String)>,
    /// How many records and reservations are suspect.
    count: usize,
}

/// What is suspect of a pod, and since when.
#[derive(Clone, Debug, Default)]
struct Suspected {
    since: BTreeMap<Suspect, Timestamp>,
    due: Option<Timestamp>,
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
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Pools that the controller may write: not slices of nodes that live, which those write themselves.
    pub pools: &'a [IPPool],
    /// Reservations.
    pub reservations: &'a [OverlappingRangeIPReservation],
    /// Pods, by `namespace/name`.
    pub pods: &'a BTreeMap<String, LivingPod>,
    /// The present.
    pub now: Timestamp,
}

/// What there is of one pod.
#[derive(Clone, Debug, Default)]
pub struct OfPod<'a> {
    /// The pod, if it exists.
    pub pod: Option<LivingPod>,
    /// All records that name it, of pools that the controller may write.
    pub records: Vec<Record<'a>>,
    /// All reservations that name it.
    pub reservations: Vec<&'a OverlappingRangeIPReservation>,
}

/// A record of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The pool.
    pub pool: &'a IPPool,
    /// The decimal offset.
    pub key: &'a str,
    /// The record.
    pub record: &'a Allocation,
}

impl Default for Patience {
    fn default() -> Self {
        Self { between: Duration::from_mins(1) }
    }
}

impl Reconciler {
    /// One that has seen nothing yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, suspects: BTreeMap::new(), due: BTreeSet::new(), count: 0 }
    }

    /// Looks at everything once; answers what was suspect long enough.
    pub fn look(&mut self, inputs: Inputs<'_>) -> Unused {
        let mut all: BTreeMap<String, OfPod<'_>> =
            self.suspected().map(|podref| (podref.to_owned(), OfPod::default())).collect();
        for pool in inputs.pools {
            for (key, record) in &pool.spec.allocations {
                all.entry(record.podref.clone()).or_default().records.push(Record { pool, key, record });
            }
        }
        for reservation in inputs.reservations {
            all.entry(reservation.spec.podref.clone()).or_default().reservations.push(reservation);
        }
        let mut unused = Unused::default();
        for (podref, mut of_pod) in all {
            of_pod.pod = inputs.pods.get(&podref).cloned();
            let found = self.look_at(&podref, &of_pod, inputs.now);
            unused.records.extend(found.records);
            unused.reservations.extend(found.reservations);
        }
        unused
    }

    /// Looks once at all that there is of a pod; answers what of it was suspect long enough.
    pub fn look_at(&mut self, podref: &str, of_pod: &OfPod<'_>, now: Timestamp) -> Unused {
        let before = self.take(podref);
        let (mut seen, mut unused) = (Suspected::default(), Unused::default());
        // Whether it has been suspect for long enough; from now on it is, in any case.
        let mut lasts = |suspect: Suspect| {
            let before = before.since.get(&suspect).copied().filter(|first| *first <= now);
            let first = before.unwrap_or(now);
            let until = first.plus(self.patience.between);
            let lasted = before.is_some() && until <= now;
            if !lasted {
                let again = until.max(now.plus(Duration::from_millis(1)));
                seen.due = Some(seen.due.map_or(again, |due| due.min(again)));
            }
            seen.since.insert(suspect, first);
            lasted
        };
        for Held { object, key, record, .. } in suspect_records(of_pod) {
            let Allocation { id, podref, ifname, poduid, .. } = record.clone();
            let (object, key) = (object.to_owned(), key.to_owned());
            let (uid, name) = (poduid.clone().unwrap_or_default(), ifname.clone().unwrap_or_default());
            let who = Who { id: id.clone(), podref: podref.clone(), uid, ifname: name };
            let act = Act::Forget { object: object.clone(), key: key.clone(), record: record.clone() };
            if lasts(Suspect::Record { object, key, id, podref, ifname, poduid }) {
                unused.records.push(Request { who, act });
            }
        }
        for reservation in suspect_reservations(of_pod) {
            let name = reservation.metadata.name.clone().unwrap_or_default();
            let (uid, podref) = (reservation.metadata.uid.clone(), reservation.spec.podref.clone());
            if lasts(Suspect::Reservation { name: name.clone(), uid: uid.clone(), podref }) {
                unused.reservations.push((name, uid));
            }
        }
        self.put(podref, seen);
        unused
    }

    /// The pods of which something is suspect.
    pub fn suspected(&self) -> impl Iterator<Item = &str> {
        self.suspects.keys().map(String::as_str)
    }

    /// The pods of which a suspicion has lasted long enough since they were looked at, each once.
    pub fn due(&mut self, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        let later = self.due.split_off(&(now.plus(Duration::from_millis(1)), String::new()));
        std::mem::replace(&mut self.due, later).into_iter().map(|(_, podref)| podref)
    }

    /// When the next suspicion will have lasted long enough; those that have already wake nobody.
    pub fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Nothing counts as seen any more: the next look is a first one.
    pub fn forget(&mut self) {
        (self.suspects, self.due, self.count) = (BTreeMap::new(), BTreeSet::new(), 0);
    }

    /// How many records and reservations are suspect.
    pub fn suspects(&self) -> usize {
        self.count
    }

    fn take(&mut self, podref: &str) -> Suspected {
        let Some((podref, before)) = self.suspects.remove_entry(podref) else { return Suspected::default() };
        self.count -= before.since.len();
        if let Some(due) = before.due {
            self.due.remove(&(due, podref));
        }
        before
    }

    fn put(&mut self, podref: &str, seen: Suspected) {
        if seen.since.is_empty() {
            return;
        }
        self.count += seen.since.len();
        self.due.extend(seen.due.map(|due| (due, podref.to_owned())));
        self.suspects.insert(podref.to_owned(), seen);
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

impl<'a> Record<'a> {
    /// What cannot be read is nobody's address, and nothing is known about it.
    fn read(&self) -> Option<Held<'a>> {
        let Self { pool, key, record } = *self;
        let range = pool.spec.cidr().ok()?;
        let address = Offsets::of(&range).address(key.parse().ok()?).ok()?;
        Some(Held { object: pool.metadata.name.as_deref()?, key, range, address, record })
    }
}

fn suspect_records<'a>(of_pod: &OfPod<'a>) -> Vec<Held<'a>> {
    let of_pods = of_pod.records.iter().filter(|it| !is_claims(it.record));
    let all: Vec<Held<'a>> = of_pods.filter_map(Record::read).collect();
    let used: Vec<bool> = all.iter().map(|held| is_used(of_pod.pod.as_ref(), held, &all)).collect();
    all.into_iter().zip(used).filter(|(_, used)| !used).map(|(held, _)| held).collect()
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
fn suspect_reservations<'a>(of_pod: &OfPod<'a>) -> Vec<&'a OverlappingRangeIPReservation> {
    let is_recorded = |address: Address, like: fn(&Allocation) -> bool| {
        let records = of_pod.records.iter().filter(|it| like(it.record)).filter_map(Record::read);
        records.into_iter().any(|held| held.address == address)
    };
    let used = |reservation: &&OverlappingRangeIPReservation| {
        let address = reservation.metadata.name.as_deref().and_then(named_address);
        let Some(pod) = of_pod.pod.as_ref().filter(|pod| !pod.finished) else {
            return address.is_some_and(|address| is_recorded(address, is_claims));
        };
        match (&pod.addresses, address) {
            (Some(addresses), Some(address)) => {
                addresses.contains(&address) || addresses.is_empty() || is_recorded(address, |_| true)
            }
            // It says nothing, or the name says nothing: that is no reason.
            _ => true,
        }
    };
    of_pod.reservations.iter().copied().filter(|reservation| !used(reservation)).collect()
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
