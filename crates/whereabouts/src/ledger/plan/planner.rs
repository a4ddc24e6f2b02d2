//! The state of planning: the known state, and this batch's decisions so far.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_api::whereabouts::{Allocation, reservation_name};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, IntervalSet};

use super::{Edit, Mark, Plan, PoolWrite, Reserve, Unreserve, edit};
use crate::ledger::cooling;
use crate::ledger::index::RecordKey;
use crate::ledger::{Act, Answer, Network, PoolId, Request, Spread, State, Who};

/// Plans one batch.
pub(in crate::ledger) struct Planner<'a> {
    pub(super) network: &'a Network,
    pub(super) spread: &'a Spread,
    pub(super) now: Timestamp,
    pub(super) edits: BTreeMap<String, BTreeMap<String, Edit>>,
    /// Records that this batch adds, by pod, interface and pool.
    pub(super) added: BTreeMap<(String, String, PoolId), Vec<RecordKey>>,
    /// Addresses that this batch adds, and whether for the whole network.
    pub(super) picked: Vec<(PoolId, Address, bool)>,
    /// What is taken for a pool's requests, by whether they are for the whole network. Built once, then
    /// updated.
    pub(super) taken: BTreeMap<(PoolId, bool), Taken>,
    pub(super) create: BTreeMap<String, tenure_api::whereabouts::IPPool>,
    pub(super) mark: BTreeMap<String, Mark>,
    pub(super) reserve: BTreeMap<String, Reserve>,
    pub(super) unreserve: BTreeMap<String, Unreserve>,
    /// Pools whose objects have the required state, by whether for the whole network.
    pub(super) ready: BTreeSet<(PoolId, bool)>,
    /// Pools in which this batch releases something.
    pub(super) freed: BTreeSet<PoolId>,
    /// How long freed addresses cool according to the objects, if that is written.
    rest: Option<Duration>,
}

/// The changes of one request: all of them happen or none.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) edits: Vec<(RecordKey, Option<Allocation>, Option<Allocation>)>,
    pub(super) reserve: Vec<Reserve>,
    pub(super) unreserve: Vec<(String, Option<String>)>,
    pub(super) added: Vec<(PoolId, Address, bool, RecordKey)>,
    pub(super) freed: Vec<PoolId>,
}

/// What is not to be assigned from a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// Addresses with a holder.
    pub(super) held: IntervalSet,
    /// These and the cooling ones, which are assigned only if nothing else is left.
    pub(super) avoided: IntervalSet,
}

impl Taken {
    pub(super) fn insert(&mut self, address: Address) {
        self.held.insert(address.bits(), address.bits());
        self.avoided.insert(address.bits(), address.bits());
    }
}

impl<'a> Planner<'a> {
    pub(in crate::ledger) fn new(network: &'a Network, spread: &'a Spread, now: Timestamp) -> Self {
        Self {
            network,
            spread,
            now,
            edits: BTreeMap::new(),
            added: BTreeMap::new(),
            picked: Vec::new(),
            taken: BTreeMap::new(),
            create: BTreeMap::new(),
            mark: BTreeMap::new(),
            reserve: BTreeMap::new(),
            unreserve: BTreeMap::new(),
            ready: BTreeSet::new(),
            freed: BTreeSet::new(),
            rest: None,
        }
    }

    /// Makes objects say that freed addresses cool for so long.
    pub(in crate::ledger) fn letting_rest(mut self, rest: Duration) -> Self {
        self.rest = Some(rest);
        self
    }

    pub(in crate::ledger) fn plan(mut self, requests: Vec<Request>) -> Plan {
        let (mut answers, mut needs) = (Vec::new(), Vec::new());
        for (number, request) in requests.iter().enumerate() {
            let who = &request.who;
            let (answer, staged) = match &request.act {
                Act::Hold { wants, made } => self.hold(who, wants, made),
                Act::Release { pools } => self.release(who, pools),
                Act::Abandon => self.abandon(who),
                Act::Forget { object, key, record } => self.forget(object, key, record),
            };
            answers.push(answer);
            needs.push(self.commit(number, who, staged));
        }
        let write = self.edits.into_iter().filter_map(|(name, edits)| {
            let object = self.network.objects.get(&name)?;
            let (version, state, opened) = (object.version.clone(), object.state, object.opened.clone());
            let (has_annotations, is_managed) = (object.has_annotations, object.is_managed);
            let freed = edits.iter().filter(|(_, edit)| edit.before.is_some() && edit.after.is_none());
            let freed: Vec<Address> = freed.filter_map(|(key, _)| object.address(key)).collect();
            let cooling = self.rest.filter(|_| !freed.is_empty()).map(|rest| cooling::Change {
                before: object.said_cooling.clone(),
                after: cooling::write(
                    &object.id.range,
                    &object.cooling,
                    freed,
                    self.now.plus(rest),
                    self.now,
                ),
            });
            Some(PoolWrite { name, version, state, opened, cooling, has_annotations, is_managed, edits })
        });
        Plan {
            write: write.collect(),
            create: self.create.into_values().collect(),
            mark: self.mark.into_values().collect(),
            reserve: self.reserve.into_values().collect(),
            unreserve: self.unreserve.into_values().collect(),
            answers,
            requests,
            needs,
        }
    }

    /// Adds the changes of a request to the plan; returns what it needs.
    fn commit(&mut self, number: usize, who: &Who, staged: Staged) -> BTreeSet<String> {
        let mut needs = BTreeSet::new();
        for ((object, key), before, after) in staged.edits {
            let known = self.edits.get(&object).is_some_and(|edits| edits.contains_key(&key));
            if before == after && !known {
                continue;
            }
            needs.insert(object.clone());
            edit(self.edits.entry(object).or_default(), &key, before, after, number);
        }
        for reserve in staged.reserve {
            needs.insert(reserve.name.clone());
            self.unreserve.remove(&reserve.name);
            self.reserve.insert(reserve.name.clone(), reserve);
        }
        for (name, uid) in staged.unreserve {
            if self.reserve.contains_key(&name) {
                continue;
            }
            self.unreserve.insert(name.clone(), Unreserve { name, uid, request: number });
        }
        for (pool, address, unique, place) in staged.added {
            for ((of, all), taken) in &mut self.taken {
                if *of == pool || (*all && unique && of.range.family() == address.family()) {
                    taken.insert(address);
                }
            }
            let owner = (who.podref.clone(), who.ifname.clone(), pool.clone());
            self.added.entry(owner).or_default().push(place);
            self.picked.push((pool, address, unique));
        }
        self.freed.extend(staged.freed);
        needs
    }

    /// A record after this batch.
    pub(super) fn record(&self, place: &RecordKey) -> Option<&Allocation> {
        match self.edits.get(&place.0).and_then(|edits| edits.get(&place.1)) {
            Some(edit) => edit.after.as_ref(),
            None => self.network.objects.get(&place.0)?.records.get(&place.1),
        }
    }

    /// A record before this batch.
    pub(super) fn before(&self, place: &RecordKey) -> Option<Allocation> {
        self.network.objects.get(&place.0)?.records.get(&place.1).cloned()
    }

    /// The address of a record, from this batch or before.
    pub(super) fn address(&self, place: &RecordKey) -> Option<Address> {
        self.network.objects.get(&place.0)?.address(&place.1)
    }

    /// The reservation of an address for the holder in the record, unless it exists.
    pub(super) fn reservation(
        &self,
        pool: &PoolId,
        address: Address,
        record: &Allocation,
    ) -> Option<Reserve> {
        let known = self.network.reservations.contains_key(&address);
        if known { None } else { Self::reserve(pool, address, record) }
    }

    /// The reservation of an address for the holder in the record.
    pub(super) fn reserve(pool: &PoolId, address: Address, record: &Allocation) -> Option<Reserve> {
        let name = reservation_name(&pool.network, address.to_ip()).ok()?;
        Some(Reserve::of(&pool.network, name, record))
    }

    /// The reservation of a removed record, if it belongs to that record.
    pub(super) fn unreservation(
        &self,
        address: Address,
        record: &Allocation,
    ) -> Option<(String, Option<String>)> {
        let reserved = self.network.reservations.get(&address)?;
        let ifname = record.ifname.as_deref().unwrap_or_default();
        let same = reserved.podref == record.podref
            && (reserved.ifname.is_empty() || ifname.is_empty() || reserved.ifname == ifname);
        same.then(|| (reserved.name.clone(), reserved.uid.clone()))
    }

    /// What is not to be assigned to requests of this pool.
    pub(super) fn build_taken(&self, pool: &PoolId, unique: bool) -> Taken {
        let held = self.build_held(pool, unique);
        let mut avoided = held.clone();
        avoided.extend(self.spread.resting(pool.range, self.now).map(|it| it.bits()..=it.bits()));
        let cooling = self.network.cooling(&pool.range, self.now);
        avoided.extend(cooling.into_iter().map(|(_, it)| it.bits()..=it.bits()));
        Taken { held, avoided }
    }

    fn build_held(&self, pool: &PoolId, unique: bool) -> IntervalSet {
        let network = self.network;
        let mut taken = network.taken(pool).cloned().unwrap_or_default();
        for (number, name) in network.pools.get(pool).into_iter().flatten() {
            let full =
                network.objects.get(name).is_some_and(|object| object.bytes > crate::ledger::LARGEST_OBJECT);
            if full {
                let (first, last) = pool.addresses_of(*number);
                taken.insert(first, last);
            }
        }
        for (of, address, all) in &self.picked {
            if address.family() == pool.range.family() && (of == pool || (*all && unique)) {
                taken.insert(address.bits(), address.bits());
            }
        }
        if !unique {
            return taken;
        }
        for other in network.overlapping(&pool.range).filter(|other| *other != pool) {
            match network.state(other) {
                Some(State::Sliced | State::Owned) => {
                    taken.insert(other.range.first().bits(), other.range.last().bits());
                }
                Some(State::Unique | State::Overlapping) => {
                    taken.extend(network.taken(other).into_iter().flat_map(IntervalSet::iter));
                }
                // Whereabouts' own: it has reserved what it holds for the whole network.
                Some(State::Unmarked) | None => {}
            }
        }
        let reserved = network.reservations.range(pool.range.first()..=pool.range.last());
        taken.extend(reserved.map(|(address, _)| address.bits()..=address.bits()));
        taken
    }

    /// The answer while objects are created or marked, or while this batch frees the requested addresses.
    pub(super) fn wait() -> (Answer, Staged) {
        (Answer::Wait, Staged::default())
    }
}
