//! Holding: existing or free addresses for an interface, in each of its ranges or in none.

use std::collections::BTreeSet;

use tenure_api::whereabouts::Allocation;
use tenure_handles::Timestamp;
use tenure_ipam::ledger::Offsets;
use tenure_ipam::{Address, IntervalSet};

use super::Mark;
use super::planner::{Planner, Staged};
use crate::ledger::index::RecordKey;
use crate::ledger::{Answer, LedgerRefusal, PoolId, State, Want, Who};

/// The progress of a want.
enum Found {
    At(Address),
    /// Objects must be created or marked first.
    NotYet,
    Refused(Box<LedgerRefusal>),
}

impl Planner<'_> {
    pub(super) fn hold(&mut self, who: &Who, wants: &[Want], made: &BTreeSet<RecordKey>) -> (Answer, Staged) {
        let mut staged = Staged::default();
        let (mut addresses, mut waits) = (Vec::new(), false);
        for want in wants {
            match self.find(who, want, &mut staged, &addresses) {
                Found::At(address) => addresses.push(address),
                Found::NotYet => waits = true,
                Found::Refused(refusal) => return (Answer::Refused(*refusal), self.take_back(who, made)),
            }
        }
        if waits {
            return Self::wait();
        }
        (Answer::Held(arranged(wants, addresses)), staged)
    }

    fn find(&mut self, who: &Who, want: &Want, staged: &mut Staged, chosen: &[Address]) -> Found {
        if let Some((place, record, address)) = self.existing(who, want, staged) {
            // If the pod's UID is unknown, the recorded one stays.
            let poduid = who.record().poduid.or(record.poduid.clone());
            let (id, ifname) = (who.id.clone(), Some(who.ifname.clone()));
            let node = self.network.node.clone().or_else(|| record.node.clone());
            let after = Allocation { id, ifname, poduid, node, ..record };
            let state = self.network.objects.get(&place.0).map(|object| object.state);
            if want.overlapping && state == Some(State::Overlapping) {
                staged.reserve.extend(self.reservation(&want.pool, address, &after));
            }
            // Even if nothing changes: the next want of the same pool must find another.
            let before = self.before(&place);
            staged.edits.push((place, before, Some(after)));
            return Found::At(address);
        }
        let key = (want.pool.clone(), want.overlapping);
        match if self.ready.contains(&key) { Ok(true) } else { self.check(want) } {
            Ok(true) => {
                self.ready.insert(key);
            }
            Ok(false) => return Found::NotYet,
            Err(refusal) => return Found::Refused(refusal),
        }
        let state = self.network.state(&want.pool).unwrap_or(State::Unmarked);
        let unique = heeds_others(want, state);
        let Some(address) = self.pick(who, want, unique, chosen) else {
            if self.freed.contains(&want.pool) {
                return Found::NotYet;
            }
            return Found::Refused(Box::new(exhausted(who, want)));
        };
        let number = want.pool.home(address);
        let Some(object) = self.network.pools.get(&want.pool).and_then(|objects| objects.get(&number)) else {
            // Later requests need objects for the addresses after it.
            if let Some(taken) = self.taken.get_mut(&(want.pool.clone(), unique)) {
                taken.insert(address);
            }
            return match self.make(&want.pool, number, state) {
                Ok(()) => Found::NotYet,
                Err(refusal) => Found::Refused(refusal),
            };
        };
        let record = Allocation { node: self.network.node.clone(), ..who.record() };
        let key = Offsets::of(&want.pool.range).offset(address).unwrap_or_default().to_string();
        let place = (object.clone(), key);
        if unique && state == State::Overlapping {
            // Even if one of its own is known: it may be gone, and nothing else would tell.
            staged.reserve.extend(Self::reserve(&want.pool, address, &record));
        }
        staged.added.push((want.pool.clone(), address, unique, place.clone()));
        staged.edits.push((place, None, Some(record)));
        Found::At(address)
    }

    /// A record of the interface in this pool that no earlier want of the request uses.
    fn existing(&self, who: &Who, want: &Want, staged: &Staged) -> Option<(RecordKey, Allocation, Address)> {
        let key = (who.podref.clone(), who.ifname.clone(), want.pool.clone());
        let of = |ifname: &str| {
            let known = self.network.index.of_interface(&who.podref, ifname).cloned();
            let added = self.added.get(&key).into_iter().flatten().cloned();
            let mut found: Vec<(Address, RecordKey, Allocation)> = known
                .chain(added)
                .filter(|place| staged.edits.iter().all(|(other, _, _)| other != place))
                .filter(|place| {
                    self.network.objects.get(&place.0).is_some_and(|object| object.id == want.pool)
                })
                .filter_map(|place| {
                    let record = self.record(&place)?.clone();
                    let same = record.ifname.as_deref().unwrap_or_default() == ifname && is_of(who, &record);
                    same.then_some((self.address(&place)?, place, record))
                })
                .collect();
            found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            found.into_iter().next()
        };
        of(&who.ifname).or_else(|| of("")).map(|(address, place, record)| (place, record, address))
    }

    /// Whether the pool's objects, and those of overlapping ranges, exist and have the required state.
    fn check(&mut self, want: &Want) -> Result<bool, Box<LedgerRefusal>> {
        let network = self.network;
        let state = network.state(&want.pool);
        // Even before it is created: if an overlapping range is divided, nothing is ever assigned from it.
        let mut cut = network.overlapping(&want.pool.range).filter(|other| network.is_sealed(other));
        let heeds = state.map_or(want.overlapping, |state| heeds_others(want, state));
        if network.is_sealed(&want.pool) {
            let other = cut.find(|other| **other != want.pool && other.node.is_empty());
            return Err(Box::new(sliced(want, other)));
        }
        if let Some(other) = cut.next().filter(|_| heeds) {
            return Err(Box::new(sliced(want, Some(other))));
        }
        if state.is_some() && !heeds {
            return Ok(true);
        }
        let others: Vec<&PoolId> = network
            .overlapping(&want.pool.range)
            .filter(|other| **other != want.pool && other.node.is_empty())
            .filter(|other| matches!(network.state(other), Some(State::Unique | State::Overlapping)))
            .collect();
        let needed = match state {
            None if !want.overlapping => State::Unmarked,
            _ if others.is_empty() && !network.always_reserve => State::Unique,
            _ => State::Overlapping,
        };
        if state.is_none() {
            self.make(&want.pool, 0, needed)?;
            return Ok(false);
        }
        let mut ready = true;
        for pool in others.into_iter().chain([&want.pool]) {
            for name in network.pools.get(pool).into_iter().flat_map(|objects| objects.values()) {
                let Some(object) = network.objects.get(name) else { continue };
                let enough = object.state == needed || object.state == State::Overlapping;
                if !enough {
                    ready = false;
                    self.mark.insert(name.clone(), Mark::of(name, object, needed));
                }
            }
        }
        Ok(ready)
    }

    /// The preferred address, or the first free of those to pick from, or the next free one.
    fn pick(&mut self, who: &Who, want: &Want, unique: bool, chosen: &[Address]) -> Option<Address> {
        let key = (want.pool.clone(), unique);
        if !self.taken.contains_key(&key) {
            let taken = self.build_taken(&want.pool, unique);
            self.taken.insert(key.clone(), taken);
        }
        let taken = self.taken.get_mut(&key)?;
        let free = |taken: &IntervalSet, address: &Address| {
            want.range.contains(*address) && !taken.contains(address.bits()) && !chosen.contains(address)
        };
        // Reserved for this very interface by an attempt that got no further.
        let picked_before = |address: &Address| self.picked.iter().any(|(_, other, _)| other == address);
        let mine = self.network.reserved_for(who).find(|address| {
            unique
                && want.range.contains(*address)
                && !chosen.contains(address)
                && !picked_before(address)
                && !self.network.is_recorded(*address)
        });
        if want.pick.is_empty() && mine.is_some() {
            return mine;
        }
        if let Some(preferred) = want.preferred.filter(|address| free(&taken.held, address)) {
            return Some(preferred);
        }
        if !want.pick.is_empty() {
            let first = |taken: &IntervalSet| want.pick.iter().copied().find(|address| free(taken, address));
            return first(&taken.avoided).or_else(|| first(&taken.held));
        }
        let start = self.spread.start(&want.pool, &want.range, self.now);
        // Ranges of one request may overlap: an interface has an address only once.
        let blocked: Vec<&Address> = chosen
            .iter()
            .filter(|it| want.range.family() == it.family() && !taken.avoided.contains(it.bits()))
            .collect();
        for address in &blocked {
            taken.avoided.insert(address.bits(), address.bits());
        }
        let found = want.range.next_free(&taken.avoided, start);
        for address in &blocked {
            taken.avoided.remove(address.bits(), address.bits());
        }
        // Only cooling addresses are left: the one that has cooled longest.
        found.or_else(|| {
            let mut resting: Vec<(Timestamp, Address)> = self.spread.rested_longest(self.now).collect();
            resting.extend(self.network.cooling(&want.pool.range, self.now));
            resting.sort_unstable();
            let mut resting = resting.into_iter().map(|(_, address)| address);
            resting.find(|address| free(&taken.held, address))
        })
    }

    fn make(&mut self, pool: &PoolId, number: u128, state: State) -> Result<(), Box<LedgerRefusal>> {
        let object = pool
            .empty_object(number, state)
            .map_err(|error| Box::new(LedgerRefusal::Name(error.to_string())))?;
        self.create.insert(object.metadata.name.clone().unwrap_or_default(), object);
        Ok(())
    }

    /// Removes the records and reservations of a refused request's earlier attempts.
    fn take_back(&self, who: &Who, made: &BTreeSet<RecordKey>) -> Staged {
        let mut staged = Staged::default();
        for place in made {
            let Some(record) = self.record(place).cloned() else { continue };
            let mine = record.id == who.id
                && record.podref == who.podref
                && record.ifname.as_deref() == Some(who.ifname.as_str());
            if mine && let Some(address) = self.address(place) {
                staged.unreserve.extend(self.unreservation(address, &record));
                staged.edits.push((place.clone(), Some(record), None));
            }
        }
        staged.unreserve.extend(self.reserved_without_record(who));
        staged
    }
}

/// Whether a record of the interface is its own.
fn is_of(who: &Who, record: &Allocation) -> bool {
    #[cfg(test)]
    if crate::planted::is(crate::planted::Bug::SameNameIsSamePod) {
        return record.podref == who.podref;
    }
    who.owns(record)
}

/// Several addresses of one pool in an order that depends only on them, so that a repeated request gets the
/// same order.
fn arranged(wants: &[Want], mut addresses: Vec<Address>) -> Vec<Address> {
    for place in 0..addresses.len() {
        let of_pool = (place..addresses.len()).filter(|other| wants[*other].pool == wants[place].pool);
        let best = of_pool.min_by_key(|other| {
            let address = addresses[*other];
            (!wants[place].range.contains(address), address)
        });
        if let Some(best) = best {
            addresses.swap(place, best);
        }
    }
    addresses
}

/// `other` is the divided range, if it is not the same range.
fn sliced(want: &Want, other: Option<&PoolId>) -> LedgerRefusal {
    let pool = want.pool.name().unwrap_or_default();
    match other {
        None => LedgerRefusal::Sliced { pool },
        Some(other) => {
            let (range, by) = (want.pool.range, other.name().unwrap_or_default());
            LedgerRefusal::Overlaps { pool, range, other: other.range, by }
        }
    }
}

fn exhausted(who: &Who, want: &Want) -> LedgerRefusal {
    LedgerRefusal::Exhausted {
        pool: want.pool.name().unwrap_or_default(),
        first: want.range.first(),
        last: want.range.last(),
        capacity: if want.pick.is_empty() { want.range.count() } else { want.pick.len() as u128 },
        podref: who.podref.clone(),
    }
}

/// Whether an address must be free in all ranges of the network. If only reservations hold for all of them, a
/// network without `enable_overlapping_ranges` needs none.
fn heeds_others(want: &Want, state: State) -> bool {
    want.overlapping || !matches!(state, State::Unmarked | State::Overlapping)
}
