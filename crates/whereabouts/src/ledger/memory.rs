//! The objects of a namespace in memory, with versions and conflicts as in an API server: for tests,
//! simulations and decisions without a server.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};
use tenure_handles::Timestamp;

use super::{Answer, Network, Outcome, Plan, Request, Settled, Spread};

/// Pools and reservations, by name.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pools: BTreeMap<String, IPPool>,
    reservations: BTreeMap<String, OverlappingRangeIPReservation>,
    version: u64,
}

/// The results of a plan's writes: names that were written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    names: BTreeSet<String>,
    /// Whether objects were created or marked, or something failed: then everything must be read again.
    pub look_again: bool,
}

/// One request needs at most: a pool, its marks, an object of it, and a conflict or two.
const MOST_ROUNDS: usize = 64;

impl Memory {
    /// The pools.
    pub fn pools(&self) -> impl Iterator<Item = &IPPool> {
        self.pools.values()
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Option<&IPPool> {
        self.pools.get(name)
    }

    /// The reservations.
    pub fn reservations(&self) -> impl Iterator<Item = &OverlappingRangeIPReservation> {
        self.reservations.values()
    }

    /// Stores a pool, as another writer would.
    pub fn put_pool(&mut self, mut pool: IPPool) {
        pool.metadata.resource_version = Some(self.next_version());
        self.pools.insert(pool.metadata.name.clone().unwrap_or_default(), pool);
    }

    /// Stores a reservation, as another writer would.
    pub fn put_reservation(&mut self, mut reservation: OverlappingRangeIPReservation) {
        let version = self.next_version();
        reservation.metadata.uid = Some(format!("uid-{version}"));
        reservation.metadata.resource_version = Some(version);
        self.reservations.insert(reservation.metadata.name.clone().unwrap_or_default(), reservation);
    }

    /// Everything in a network.
    pub fn read(&self, name: &str, always_reserve: bool) -> Network {
        let mut network = Network::new(name).reserving_always(always_reserve);
        for pool in self.pools.values() {
            network.see_pool(pool, |_| false);
        }
        for reservation in self.reservations.values() {
            network.see_reservation(reservation);
        }
        network
    }

    /// Performs a plan in its order, until `patience` calls were made: the rest is as if the server did not
    /// answer.
    pub fn carry_out(&mut self, plan: &mut Plan, mut patience: usize) -> Written {
        let mut written = Written::default();
        let mut may = || {
            let may = patience > 0;
            patience = patience.saturating_sub(1);
            may
        };
        for pool in &plan.create {
            written.look_again = true;
            let name = pool.metadata.name.clone().unwrap_or_default();
            if may() && !self.pools.contains_key(&name) {
                self.put_pool(pool.clone());
            }
        }
        for mark in &plan.mark {
            written.look_again = true;
            if may()
                && let Some(marked) = self.pools.get(&mark.name).and_then(|pool| mark.apply(pool))
            {
                self.put_pool(marked);
            }
        }
        let mut taken = BTreeSet::new();
        for reserve in &plan.reserve {
            let there = self.reservations.get(&reserve.name);
            let free = there.is_none_or(|there| reserve.is(there));
            if may() && free {
                if there.is_none() {
                    self.put_reservation(reserve.object.clone());
                }
                written.names.insert(reserve.name.clone());
            } else {
                taken.insert(reserve.name.clone());
            }
        }
        plan.leave_out(&taken);
        written.look_again |= !taken.is_empty();
        for write in &plan.write {
            let after = self.pools.get(&write.name).and_then(|pool| write.apply(pool));
            match after.filter(|_| may()) {
                Some(after) => {
                    self.put_pool(after);
                    written.names.insert(write.name.clone());
                }
                None => written.look_again = true,
            }
        }
        let due: Vec<_> = plan.unreserve(|name| written.outcome(name)).cloned().collect();
        for unreserve in due {
            let same = self
                .reservations
                .get(&unreserve.name)
                .is_some_and(|known| known.metadata.uid == unreserve.uid);
            if same && may() {
                self.reservations.remove(&unreserve.name);
            }
        }
        written
    }

    /// Serves requests to their end, as the only caller.
    pub fn serve(&mut self, network: &str, requests: Vec<Request>, now: Timestamp) -> Vec<Answer> {
        let spread = Spread::of("");
        let mut answers = vec![Answer::Wait; requests.len()];
        let mut waiting: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
        for _ in 0..MOST_ROUNDS {
            if waiting.is_empty() {
                break;
            }
            let (places, requests): (Vec<usize>, Vec<Request>) = waiting.into_iter().unzip();
            let mut plan = self.read(network, false).plan(requests, &spread, now);
            let written = self.carry_out(&mut plan, usize::MAX);
            waiting = Vec::new();
            for (place, settled) in places.into_iter().zip(plan.settle(|name| written.outcome(name))) {
                match settled {
                    Settled::Done(answer) => answers[place] = answer,
                    Settled::Again(request) => waiting.push((place, request)),
                }
            }
        }
        answers
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }
}

impl Written {
    /// The result of the write of this name.
    pub fn outcome(&self, name: &str) -> Outcome {
        if self.names.contains(name) { Outcome::Written } else { Outcome::Conflict }
    }
}
