//! What claims have on record in floating blocks and ledgers, which no tenant can write; and which pods the records say were given
//! their addresses.
//!
//! Kept by what a decision about a record depends on: the claim's name and UID, the pods that the record names, and their nodes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use kube::ResourceExt;
use tenure_api::claims::{PodRecord, RECORD_PREFIX};
use tenure_api::coil::{AddressBlock, ClaimRecord};
use tenure_api::whereabouts::Allocation;
use tenure_claims::status::RecordLocation;
use tenure_claims::{ClaimFacts, Trace, trace};
use tenure_handles::Timestamp;
use tenure_ipam::Address;

use super::plan::record_at;
use super::sets::{Names, Sets};
use crate::whereabouts::Ledger;
use crate::world::World;

/// Bugs that a test plants, to see that checkers find them.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// What a pod's annotations say frees an address.
    AnnotationsFree,
    /// A pod that is gone with its Node object has ended.
    NodesProveTheEnd,
    /// A pod of a claim that is gone comes into the slots of the next claim of the name.
    NamesInherit,
    /// The agent believes a claim's status.
    StatusIsProof,
    /// A pod is named by every record of its claim, also by one that the status does not name.
    EveryRecordNames,
    /// A plan does not hear of what has changed.
    Overlooks(Overlooked),
}

/// What a plan does not hear of.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlooked {
    Claims,
    Namespaces,
    Attachments,
    Pods,
    Nodes,
    Blocks,
    Ledgers,
    Slices,
    /// What is due by time.
    Time,
    /// What was planned and is not done.
    Pending,
    /// That others wait for what has changed.
    Waiting,
}

/// The kind of object that a record is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum In {
    /// A floating block.
    Block,
    /// A ledger.
    Ledger,
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordKey {
    pub(super) kind: In,
    /// The block or ledger.
    pub(super) object: Arc<str>,
    /// The decimal offset.
    pub(super) key: Arc<str>,
}

impl RecordKey {
    /// Whether it is in the object that a status names.
    pub(super) fn is_in(&self, location: &RecordLocation) -> bool {
        match (self.kind, location) {
            (In::Block, RecordLocation::Block(name)) | (In::Ledger, RecordLocation::Ledger(name)) => {
                *self.object == **name
            }
            _ => false,
        }
    }

    /// The addresses of the record there.
    pub(super) fn addresses(&self, world: &World) -> Vec<Address> {
        match self.kind {
            In::Block => world.coil().blocks.get(&self.object).map(|block| addresses(block, &self.key)),
            In::Ledger => record_at(world, self).map(|it| vec![it.address]),
        }
        .unwrap_or_default()
    }
}

/// A record, as the object has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Block(ClaimRecord),
    Ledger(Allocation),
}

/// An object's records. Those of a successor of its name, or of another range, are others.
#[derive(Debug, Default)]
struct Object {
    identity: (Option<String>, Option<String>, Option<String>),
    records: BTreeMap<Arc<str>, Record>,
}

/// All records of claims.
#[derive(Debug, Default)]
pub(crate) struct Records {
    objects: BTreeMap<(In, Arc<str>), Object>,
    /// By `namespace/name` of claims, whether they exist or not.
    by_name: Sets<RecordKey>,
    /// By the UIDs of claims.
    by_uid: Sets<RecordKey>,
    /// By `namespace/name` of the pods that they name.
    by_pod: Sets<RecordKey>,
    /// By the nodes of those pods.
    by_node: Sets<RecordKey>,
    /// By `namespace/` and what the name of the claim begins with, up to any of its dots: one of them is the claim's owner.
    by_owner: Sets<RecordKey>,
    #[cfg(test)]
    planted: Option<Planted>,
}

impl Records {
    /// Takes in what has become of these blocks and ledgers. The names and UIDs of claims whose records are others are added to
    /// `names` and `uids`.
    pub(super) fn refresh(
        &mut self,
        world: &World,
        (blocks, ledgers): (&Names, &Names),
        names: &mut Names,
        uids: &mut Names,
    ) {
        #[cfg(test)]
        {
            self.planted = world.claims().planted;
        }
        for name in blocks {
            match world.coil().blocks.get(name).filter(|block| block.is_floating()) {
                Some(block) => {
                    let spec = &block.spec;
                    let identity = (block.uid(), spec.ipv4.clone(), spec.ipv6.clone());
                    let is = |record: &ClaimRecord, known: &Record| matches!(known, Record::Block(it) if it == record);
                    let kept = |record: &ClaimRecord| Record::Block(record.clone());
                    self.put(In::Block, name, identity, (spec.claims.iter(), is, kept), names, uids);
                }
                None => self.remove(In::Block, name, names, uids),
            }
        }
        for name in ledgers {
            match world.ledgers().pools.get(name).filter(|ledger| ledger.whole) {
                Some(Ledger { pool, .. }) => {
                    let identity = (pool.uid(), Some(pool.spec.range.clone()), None);
                    let claimed = pool.spec.allocations.iter();
                    let claimed = claimed.filter(|(_, record)| record.id.starts_with(RECORD_PREFIX));
                    let is = |record: &Allocation, known: &Record| matches!(known, Record::Ledger(it) if it == record);
                    let kept = |record: &Allocation| Record::Ledger(record.clone());
                    self.put(In::Ledger, name, identity, (claimed, is, kept), names, uids);
                }
                None => self.remove(In::Ledger, name, names, uids),
            }
        }
    }

    fn put<'r, R: 'r>(
        &mut self,
        kind: In,
        name: &Arc<str>,
        identity: (Option<String>, Option<String>, Option<String>),
        (records, is, kept): (
            impl Iterator<Item = (&'r String, &'r R)>,
            impl Fn(&R, &Record) -> bool,
            impl Fn(&R) -> Record,
        ),
        names: &mut Names,
        uids: &mut Names,
    ) {
        let mut old = self.objects.remove(&(kind, name.clone())).unwrap_or_default();
        if old.identity != identity {
            self.unlink_all(kind, name, std::mem::take(&mut old.records), names, uids);
        }
        let mut new = Object { identity, records: BTreeMap::new() };
        for (key, record) in records {
            match old.records.remove_entry(key.as_str()) {
                Some((key, known)) if is(record, &known) => _ = new.records.insert(key, known),
                changed => {
                    let key: Arc<str> =
                        changed.as_ref().map_or_else(|| key.as_str().into(), |(key, _)| key.clone());
                    let place = RecordKey { kind, object: name.clone(), key: key.clone() };
                    if let Some((_, known)) = changed {
                        self.unlink(&place, &known, names, uids);
                    }
                    let record = kept(record);
                    self.link(&place, &record, names, uids);
                    new.records.insert(key, record);
                }
            }
        }
        self.unlink_all(kind, name, old.records, names, uids);
        self.objects.insert((kind, name.clone()), new);
    }

    fn remove(&mut self, kind: In, name: &Arc<str>, names: &mut Names, uids: &mut Names) {
        if let Some(old) = self.objects.remove(&(kind, name.clone())) {
            self.unlink_all(kind, name, old.records, names, uids);
        }
    }

    fn unlink_all(
        &mut self,
        kind: In,
        name: &Arc<str>,
        records: BTreeMap<Arc<str>, Record>,
        names: &mut Names,
        uids: &mut Names,
    ) {
        for (key, record) in records {
            self.unlink(&RecordKey { kind, object: name.clone(), key }, &record, names, uids);
        }
    }

    fn link(&mut self, place: &RecordKey, record: &Record, names: &mut Names, uids: &mut Names) {
        let (name, namespace) = (record.name(), record.namespace());
        self.by_name.add(&name, place.clone());
        self.by_uid.add(record.uid(), place.clone());
        owners_of(&name).for_each(|owner| self.by_owner.add(owner, place.clone()));
        for pod in record.pods() {
            self.by_pod.add(&format!("{namespace}/{}", pod.name), place.clone());
            self.by_node.add(&pod.node, place.clone());
        }
        uids.insert(record.uid().into());
        names.insert(name.into());
    }

    fn unlink(&mut self, place: &RecordKey, record: &Record, names: &mut Names, uids: &mut Names) {
        let (name, namespace) = (record.name(), record.namespace());
        self.by_name.remove(&name, place);
        self.by_uid.remove(record.uid(), place);
        owners_of(&name).for_each(|owner| self.by_owner.remove(owner, place));
        for pod in record.pods() {
            self.by_pod.remove(&format!("{namespace}/{}", pod.name), place);
            self.by_node.remove(&pod.node, place);
        }
        uids.insert(record.uid().into());
        names.insert(name.into());
    }

    /// The record at a place.
    pub(super) fn get(&self, place: &RecordKey) -> Option<&Record> {
        self.objects.get(&(place.kind, place.object.clone()))?.records.get(&place.key)
    }

    /// The names of all claims that have something on record.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// The places of what is on record under the name of a claim, whichever claim of that name it is.
    pub(super) fn of_name(&self, name: &str) -> impl Iterator<Item = &RecordKey> {
        self.by_name.of(name)
    }

    /// The places of what is on record for the claim of this UID.
    pub(super) fn of_uid(&self, uid: &str) -> impl Iterator<Item = &RecordKey> {
        self.by_uid.of(uid)
    }

    /// Under which names anything is on record that a decision about this pod may concern.
    pub(super) fn naming_pod(&self, podref: &str) -> impl Iterator<Item = String> {
        self.by_pod.of(podref).filter_map(|place| Some(self.get(place)?.name()))
    }

    /// The same of a node.
    pub(super) fn naming_node(&self, node: &str) -> impl Iterator<Item = String> {
        self.by_node.of(node).filter_map(|place| Some(self.get(place)?.name()))
    }

    /// The same of the pods of a claim's owner, by namespace and name.
    pub(super) fn of_owner(&self, owner: &str) -> impl Iterator<Item = String> {
        self.by_owner.of(owner).filter_map(|place| Some(self.get(place)?.name()))
    }

    /// The names of all floating blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Arc<str>> {
        self.objects.keys().take_while(|(kind, _)| *kind == In::Block).map(|(_, name)| name)
    }

    /// The names of floating blocks that begin so.
    pub(super) fn blocks_from(&self, prefix: &str) -> impl Iterator<Item = &Arc<str>> {
        let first = (In::Block, Arc::<str>::from(prefix));
        let all = self.objects.range((Bound::Included(first), Bound::Unbounded));
        all.map(|((kind, name), _)| (kind, name))
            .take_while(move |(kind, name)| **kind == In::Block && name.starts_with(prefix))
            .map(|(_, name)| name)
    }

    /// Whether anything is on record for this very claim that its status says it has.
    pub(super) fn has(&self, world: &World, claim: &ClaimFacts) -> bool {
        self.said(world, claim).next().is_some()
    }

    /// Whether every record of what this very claim has, as its status says, names the pod.
    pub(super) fn name(&self, world: &World, claim: &ClaimFacts, pod: &str) -> bool {
        self.has(world, claim) && self.said(world, claim).all(|record| record.names(pod))
    }

    /// The records of what this very claim has, as its status says: agents give pods nothing else.
    fn said<'a>(&'a self, world: &World, claim: &ClaimFacts) -> impl Iterator<Item = &'a Record> {
        let places = self.by_name.of(&format!("{}/{}", claim.namespace, claim.name));
        let own = places.filter_map(|place| Some((place, self.get(place)?)));
        let own = own.filter(|(_, record)| !record.is_freed() && record.uid() == claim.uid);
        own.filter(|(place, _)| is_said(world, place, claim)).map(|(_, record)| record)
    }

    /// The pods that a record of this very claim names.
    pub(super) fn pods(&self, claim: &ClaimFacts) -> impl Iterator<Item = &PodRecord> {
        self.of_claim(claim).flat_map(Record::pods)
    }

    /// Whether the pod was given the addresses of a claim that had this one's name before it.
    pub(super) fn name_of_predecessor(&self, claim: &ClaimFacts, pod: &str) -> bool {
        #[cfg(test)]
        if self.planted == Some(Planted::NamesInherit) {
            return false;
        }
        self.named(claim).any(|record| record.uid() != claim.uid && record.names(pod))
    }

    fn of_claim(&self, claim: &ClaimFacts) -> impl Iterator<Item = &Record> {
        self.named(claim).filter(|record| record.uid() == claim.uid)
    }

    /// What is held under the name of a claim.
    fn named<'a>(&'a self, claim: &ClaimFacts) -> impl Iterator<Item = &'a Record> + use<'a> {
        let places = self.by_name.of(&format!("{}/{}", claim.namespace, claim.name));
        places.filter_map(|place| self.get(place)).filter(|record| !record.is_freed())
    }
}

impl Record {
    /// `namespace/name` of its claim.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Block(record) => format!("{}/{}", record.namespace, record.name),
            Self::Ledger(record) => record.podref.clone(),
        }
    }

    /// The namespace of its claim.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Block(record) => &record.namespace,
            Self::Ledger(record) => record.podref.split_once('/').unwrap_or_default().0,
        }
    }

    /// The UID of its claim.
    pub(super) fn uid(&self) -> &str {
        match self {
            Self::Block(record) => &record.uid,
            Self::Ledger(record) => record.id.strip_prefix(RECORD_PREFIX).unwrap_or_default(),
        }
    }

    /// The pods that it names.
    pub(super) fn pods(&self) -> &[PodRecord] {
        match self {
            Self::Block(record) => &record.pods,
            Self::Ledger(record) => &record.pods,
        }
    }

    /// Whether its address rests.
    pub(super) fn is_freed(&self) -> bool {
        matches!(self, Self::Block(record) if record.freed.is_some())
    }

    fn names(&self, pod: &str) -> bool {
        self.pods().iter().any(|named| named.uid == pod)
    }
}

/// Whether the status of a claim says that it has the address at a place.
pub(super) fn is_said(world: &World, place: &RecordKey, claim: &ClaimFacts) -> bool {
    #[cfg(test)]
    if world.claims().planted == Some(Planted::EveryRecordNames) {
        return true;
    }
    place.addresses(world).iter().any(|address| claim.addresses.iter().any(|(said, _)| said == address))
}

/// The addresses at an offset of a block.
pub(super) fn addresses(block: &AddressBlock, offset: &str) -> Vec<Address> {
    let (Ok(subnet), Ok(offset)) = (block.spec.to_subnet(), offset.parse::<u128>()) else {
        return Vec::new();
    };
    let cidrs = [subnet.ipv4, subnet.ipv6].into_iter().flatten();
    cidrs.filter_map(|cidr| cidr.nth(offset).ok()).collect()
}

/// What the name of a claim's owner may be, with the namespace: names have dots of their own, so it ends at any of them.
pub(super) fn owners_of(name: &str) -> impl Iterator<Item = &str> {
    let from = name.find('/').map_or(0, |slash| slash + 1);
    name.match_indices('.').filter(move |(dot, _)| *dot >= from).filter_map(|(dot, _)| name.get(..dot))
}

impl World {
    /// What is left of a pod that was given a claim's addresses.
    pub(crate) fn trace(&self, namespace: &str, pod: &PodRecord, now: Timestamp) -> Trace {
        let alive = self.ledgers().pods.lives(&format!("{namespace}/{}", pod.name), &pod.uid);
        #[cfg(test)]
        if self.claims().planted == Some(Planted::NodesProveTheEnd) && !alive {
            return Trace::Ended;
        }
        trace(pod, alive, !self.is_without_node(&pod.node), self.claims().missing_node_rest.0, now)
    }

    /// When what is left of a pod becomes something else by time alone.
    pub(crate) fn trace_ends(&self, pod: &PodRecord) -> Option<Timestamp> {
        let since = pod.missing.as_ref().filter(|_| self.is_without_node(&pod.node))?;
        Some(Timestamp::from_jiff(since.0).plus(self.claims().missing_node_rest.0))
    }

    /// Whether there is certainly no Node object of this name. A record of before that has no name says nothing.
    pub(crate) fn is_without_node(&self, node: &str) -> bool {
        !node.is_empty() && self.nodes().is_complete() && self.nodes().get(node).is_none()
    }
}
