//! What plans remember of slices for claims: which they are, and what claims need of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tenure_api::claims::SLICE_OWNER;
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;
use tenure_whereabouts::ledger::PoolId;
use tenure_whereabouts::slices::{Floating, network_of};

use super::super::super::index::Look;
use super::super::super::sets::Names;
use super::super::Inputs;
use super::super::ledgers::LedgerIndex;
use super::super::line::{Awaited, Line};
use super::slices_of;
use crate::sightings::Sightings;
use crate::whereabouts::Ledger;
use crate::world::World;

/// A slice for claims.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    /// Its pool of slices.
    pub(super) pool: Arc<str>,
    pub(super) slice: Cidr,
    pub(super) id: PoolId,
    /// The name of its ledger.
    pub(super) ledger: Arc<str>,
}

/// What claims need of a pool of slices.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Demand {
    /// These slices, and this many more.
    pub(super) slices: BTreeSet<Cidr>,
    pub(super) more: usize,
    /// Whether claims wait for ledgers.
    pub(super) make: bool,
    /// Whether claims will get addresses of it.
    pub(super) wanted: bool,
    /// When the next address has cooled.
    pub(super) rested: Option<Timestamp>,
}

/// Slices for claims.
#[derive(Debug, Default)]
pub(in super::super) struct KnownSlices {
    pools: BTreeMap<Arc<str>, Vec<Ours>>,
    /// By ledger name, and by pool. If two pools name the same ledger, the last one has it.
    ledgers: HashMap<Arc<str>, BTreeMap<Arc<str>, Ours>>,
    /// How often each slice is for claims.
    slices: HashMap<Cidr, usize>,
    demands: BTreeMap<String, Demand>,
    /// When to look again at claims that wait for a pool of slices.
    rested: Sightings<()>,
    /// Ledgers to look at: something was planned for them, or the need for their pool has changed.
    looks: Names,
    needs: BTreeMap<String, Floating>,
    /// Whether the need may have changed.
    changed: bool,
    /// How many ledgers were looked at.
    #[cfg(test)]
    pub(in super::super) looked_at: usize,
}

impl KnownSlices {
    /// What claims need of slices.
    pub(in super::super) fn needs(&self) -> &BTreeMap<String, Floating> {
        &self.needs
    }

    /// When to look again without an event.
    pub(in super::super) fn next(&self) -> Option<Timestamp> {
        self.rested.next()
    }

    /// Reads what changed, and reports who waits for it.
    pub(in super::super) fn refresh(&mut self, world: &World, look: &Look, line: &mut Line, now: Timestamp) {
        for name in &look.slices {
            self.changed = true;
            for old in self.pools.remove(name).unwrap_or_default() {
                self.unlink(&old);
            }
            let pool = world.ledgers().slices.get(name);
            let network = pool.map(network_of).unwrap_or_default();
            let mut all = Vec::new();
            for slice in pool.into_iter().flat_map(|pool| slices_of(pool, SLICE_OWNER)) {
                let id = PoolId::floating(&network, slice);
                *self.slices.entry(slice).or_default() += 1;
                let ledger = id.name().map(Arc::from).unwrap_or_default();
                let ours = Ours { pool: name.clone(), slice, id, ledger };
                if !ours.ledger.is_empty() {
                    self.looks.insert(ours.ledger.clone());
                    self.ledgers.entry(ours.ledger.clone()).or_default().insert(name.clone(), ours.clone());
                }
                all.push(ours);
            }
            self.pools.insert(name.clone(), all);
            line.note(Awaited::Slices(name.clone()));
        }
        for pool in self.rested.due(now) {
            line.note(Awaited::Slices(pool.into()));
        }
        for name in &look.ledgers {
            if self.ledgers.contains_key(name) {
                self.changed = true;
            }
        }
    }

    fn unlink(&mut self, ours: &Ours) {
        self.looks.insert(ours.ledger.clone());
        if let Some(pools) = self.ledgers.get_mut(&ours.ledger) {
            pools.remove(&ours.pool);
            if pools.is_empty() {
                self.ledgers.remove(&ours.ledger);
            }
        }
        if let Some(count) = self.slices.get_mut(&ours.slice) {
            *count -= 1;
            if *count == 0 {
                self.slices.remove(&ours.slice);
            }
        }
    }

    /// The slice of the ledger of this name, if it is for claims.
    pub(super) fn of_ledger(&self, ledger: &str) -> Option<&Ours> {
        self.ledgers.get(ledger)?.values().next_back()
    }

    /// Whether a slice is for claims.
    pub(super) fn has(&self, slice: &Cidr) -> bool {
        self.slices.contains_key(slice)
    }

    /// The slices of a pool, each under the pool that has its ledger, ordered by ledger.
    fn of_pool(&self, pool: &str) -> impl Iterator<Item = &Ours> {
        let mut all: Vec<&Ours> = self.pools.get(pool).into_iter().flatten().collect();
        all.retain(|ours| self.of_ledger(&ours.ledger).is_some_and(|has| *has.pool == *pool));
        all.sort_by(|one, other| one.ledger.cmp(&other.ledger));
        all.dedup_by(|one, other| one.ledger == other.ledger);
        all.into_iter()
    }

    /// The slices of a pool that have ledgers.
    pub(super) fn made<'a>(
        &'a self,
        world: &'a World,
        pool: &str,
    ) -> impl Iterator<Item = (&'a Ours, &'a Ledger)> {
        self.of_pool(pool).filter_map(|ours| Some((ours, world.ledgers().pools.get(&ours.ledger)?)))
    }

    /// The slices of a pool without ledgers.
    pub(super) fn unmade<'a>(&'a self, world: &'a World, pool: &str) -> impl Iterator<Item = &'a Ours> {
        self.of_pool(pool).filter(|ours| world.ledgers().pools.get(&ours.ledger).is_none())
    }

    /// Whether claims will get addresses of a pool's slices.
    pub(super) fn is_wanted(&self, pool: &str) -> bool {
        self.demands.get(pool).is_some_and(|demand| demand.wanted)
    }

    /// Notes that something is planned for a ledger.
    pub(super) fn is_pending(&mut self, ledger: &Arc<str>) {
        self.looks.insert(ledger.clone());
    }

    /// Sets what this plan found claims to need. Pools for which nobody waits are not needed any more.
    pub(super) fn demand(
        &mut self,
        demands: impl Iterator<Item = (String, Demand)>,
        served: &BTreeSet<String>,
        line: &Line,
        now: Timestamp,
    ) {
        let mut new: BTreeMap<String, Demand> = demands.collect();
        let is_over =
            |pool: &String| served.contains(pool) || !line.is_awaited(&Awaited::Slices(pool.as_str().into()));
        let over: Vec<String> =
            self.demands.keys().filter(|pool| !new.contains_key(*pool) && is_over(pool)).cloned().collect();
        for pool in over.iter().chain(new.keys()) {
            let (old, demand) = (self.demands.remove(pool), new.get(pool));
            let wanted = |demand: Option<&Demand>| demand.is_some_and(|demand| demand.wanted);
            if wanted(old.as_ref()) != wanted(demand) {
                let ledgers: Vec<_> = self.of_pool(pool).map(|ours| ours.ledger.clone()).collect();
                self.looks.extend(ledgers);
            }
            self.changed |= old.as_ref() != demand;
            self.rested.look_again_at(pool);
            if let Some(rested) = demand.and_then(|demand| demand.rested) {
                self.rested.note(pool.clone(), (), rested, now);
            }
        }
        self.demands.append(&mut new);
    }

    /// Adds the ledgers to look at.
    pub(super) fn take_looks(&mut self, inputs: Inputs<'_>, ledgers: &LedgerIndex, names: &mut Names) {
        names.append(&mut self.looks);
        let of_claims =
            |name: &&Arc<str>| self.ledgers.contains_key(*name) || ledgers.floating().contains(*name);
        names.extend(inputs.look.ledgers.iter().filter(of_claims).cloned());
        // A slice that became one for claims, or stopped being one, may belong to any of these.
        if !inputs.look.slices.is_empty() {
            names.extend(ledgers.floating().iter().cloned());
        }
    }

    /// Recomputes the need, if it may have changed.
    pub(super) fn sum_up(&mut self, world: &World, all: bool) {
        if !self.changed && !all {
            return;
        }
        self.changed = false;
        let mut needs: BTreeMap<String, Floating> = BTreeMap::new();
        for (pool, demand) in &self.demands {
            let need = needs.entry(pool.clone()).or_default();
            need.slices.extend(demand.slices.iter().copied());
            need.more = demand.more;
        }
        for pool in self.pools.keys() {
            let make = self.demands.get(pool.as_ref()).is_some_and(|demand| demand.make);
            let made = self.made(world, pool).map(|(ours, _)| ours.slice);
            let unmade = self.unmade(world, pool).filter(|_| make).map(|ours| ours.slice);
            for slice in made.chain(unmade) {
                needs.entry(pool.to_string()).or_default().slices.insert(slice);
            }
        }
        self.needs = needs;
    }
}
