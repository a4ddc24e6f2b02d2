//! What is read, and when.
//!
//! Everything at the first use, before a refusal, and when an object appears or its state changes: then
//! others may have changed, too. Single objects when a write conflicted, or when they matter and were not
//! read for a second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::whereabouts::label;
use tenure_watch::CallError;
use tenure_whereabouts::ledger::{Act, Answer, Plan, PoolId, Request, State, Want};

use super::calls;
use super::worker::{Job, Purpose, Worker};

/// Older knowledge is confirmed before it decides which address is the lowest.
const FRESH: Duration = Duration::from_secs(1);
/// How many full objects are confirmed per second, so that a large pool is not read all the time.
const MOST_SWEPT: usize = 8;
/// A full object has some ten kilobytes, and a large pool hundreds of objects. Small in tests, so that they
/// use several pages.
const POOLS_AT_ONCE: u32 = if cfg!(test) { 2 } else { 64 };
const RESERVATIONS_AT_ONCE: u32 = 2_000;

impl Worker {
    /// Reads what these requests need before they are planned.
    pub(super) async fn prepare(&mut self, jobs: &[Job], requests: &[Request]) -> Result<(), CallError> {
        if self.read.is_none() || self.network.take_moved() {
            return self.read_all().await;
        }
        let look = jobs.iter().any(|job| job.purpose == Purpose::Look);
        if look {
            self.read_for_looks(jobs, requests).await?;
            if self.network.take_moved() {
                self.read_all().await?;
            }
        }
        let holds = requests.iter().any(|request| matches!(request.act, Act::Hold { .. }));
        let certain = jobs.iter().any(|job| job.purpose == Purpose::Certain);
        if !holds && !certain {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let plan = self.network.plan(requests.to_vec(), &self.spread, now);
        if self.needs_all(jobs, &plan) {
            return self.read_all().await;
        }
        let stale = self.stale(requests, &plan);
        if stale.is_empty() {
            return Ok(());
        }
        let before = self.overlaps(requests);
        let changed = self.confirm(stale).await?;
        if self.network.take_moved() {
            return self.read_all().await;
        }
        if changed && before {
            // Whoever removes a record also removes its reservation.
            self.read_reservations().await?;
        }
        let plan = self.network.plan(requests.to_vec(), &self.spread, now);
        if self.needs_all(jobs, &plan) { self.read_all().await } else { Ok(()) }
    }

    /// Whether knowledge older than the request would refuse something or not find it.
    fn needs_all(&self, jobs: &[Job], plan: &Plan) -> bool {
        let read = self.read.unwrap_or_default();
        let doubtful = |(job, answer): (&Job, &Answer)| {
            let no = match answer {
                Answer::Refused(_) => true,
                Answer::Released(addresses) => addresses.is_empty() && job.purpose == Purpose::Certain,
                _ => false,
            };
            no && job.arrived >= read
        };
        jobs.iter().zip(&plan.answers).any(doubtful)
    }

    /// Reads all pools and reservations of the network, consistently.
    ///
    /// The server leaves out objects labelled for another network: there may be a slice for each node and
    /// network.
    pub(super) async fn read_all(&mut self) -> Result<(), CallError> {
        self.read = None;
        let began = self.shared.clock.elapsed();
        let mut found = BTreeSet::new();
        for labels in self.selectors() {
            for pool in self.shared.list(&self.pools, &labels, POOLS_AT_ONCE, "listing IPPools").await? {
                let name = pool.name_any();
                if self.see(&pool, began) {
                    found.insert(name);
                }
            }
        }
        let gone: Vec<String> = self.seen.keys().filter(|name| !found.contains(*name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
        self.read_reservations().await?;
        self.read = Some(began);
        self.network.take_moved();
        Ok(())
    }

    async fn read_reservations(&mut self) -> Result<(), CallError> {
        let mut listed = Vec::new();
        for labels in self.selectors() {
            let act = "listing OverlappingRangeIPReservations";
            let found = self.shared.list(&self.reservations, &labels, RESERVATIONS_AT_ONCE, act).await?;
            listed.extend(found);
        }
        self.network.forget_reservations();
        for reservation in listed {
            self.network.see_reservation(&reservation);
        }
        Ok(())
    }

    /// Selects objects labelled for this network, and those without a label.
    fn selectors(&self) -> Vec<String> {
        let mut selectors = vec![format!("!{}", label::NETWORK)];
        if !self.name.is_empty() && self.name.len() <= 63 {
            selectors.push(format!("{}={}", label::NETWORK, self.name));
        }
        selectors
    }

    /// Reads one object, whole.
    pub(super) async fn read_one(&mut self, name: &str) -> Result<(), CallError> {
        let began = self.shared.clock.elapsed();
        let act = || format!("reading IPPool {name}");
        match self.shared.call(act, self.pools.get_opt(name)).await? {
            Some(pool) => drop(self.see(&pool, began)),
            None => self.forget(name),
        }
        Ok(())
    }

    /// Looks whether objects are as they are known, and reads those that are not. Says whether there were any.
    async fn confirm(&mut self, names: Vec<String>) -> Result<bool, CallError> {
        let began = self.shared.clock.elapsed();
        let mut looks = Vec::new();
        for name in names {
            let (shared, pools) = (Arc::clone(&self.shared), self.pools.clone());
            looks.push(async move {
                let act = || format!("looking at IPPool {name}");
                let found = shared.call(act, pools.get_metadata_opt(&name)).await;
                (name, found)
            });
        }
        let looked = calls::all(looks).await;
        let mut changed = false;
        for (name, found) in looked {
            match found? {
                Some(found) if self.network.confirms(&name, &found.metadata) => {
                    self.seen.insert(name, began);
                }
                Some(_) => {
                    changed = true;
                    self.read_one(&name).await?;
                }
                None => {
                    changed = true;
                    self.forget(&name);
                }
            }
        }
        Ok(changed)
    }

    /// The objects that decide which address these requests get, if they were not confirmed for a while:
    /// those to write, and those before them, which were full.
    fn stale(&mut self, requests: &[Request], plan: &Plan) -> Vec<String> {
        let now = self.shared.clock.elapsed();
        let is_stale = |name: &str| self.seen.get(name).is_none_or(|at| now.saturating_sub(*at) > FRESH);
        let written: BTreeSet<&str> = plan.write.iter().map(|write| write.name.as_str()).collect();
        let mut stale: Vec<String> =
            written.iter().filter(|name| is_stale(name)).map(|name| (*name).to_owned()).collect();
        let pools: BTreeSet<&PoolId> = wants(requests).map(|want| &want.pool).collect();
        for pool in pools {
            if self.swept.get(pool).is_some_and(|at| now.saturating_sub(*at) <= FRESH) {
                continue;
            }
            let objects: Vec<(u128, &str)> = self.network.objects_of(pool).collect();
            let last =
                objects.iter().filter(|(_, name)| written.contains(name)).map(|(number, _)| *number).max();
            let before = objects.iter().filter(|(number, _)| last.is_none_or(|last| *number < last));
            let mut full: Vec<(&Duration, &str)> = before
                .filter(|(_, name)| is_stale(name) && !written.contains(name))
                .filter_map(|(_, name)| Some((self.seen.get(*name)?, *name)))
                .collect();
            full.sort_unstable();
            stale.extend(full.into_iter().take(MOST_SWEPT).map(|(_, name)| name.to_owned()));
            self.swept.insert(pool.clone(), now);
        }
        stale
    }

    /// For those who only look: the objects in which their records are, or should be.
    async fn read_for_looks(&mut self, jobs: &[Job], requests: &[Request]) -> Result<(), CallError> {
        let mut names = BTreeSet::new();
        for (_, request) in jobs.iter().zip(requests).filter(|(job, _)| job.purpose == Purpose::Look) {
            for (pool, address) in self.network.held_by(&request.who) {
                names.extend([0, pool.home(address)].iter().filter_map(|n| pool.object_name(*n).ok()));
            }
            if let Act::Hold { wants, .. } = &request.act {
                names.extend(wants.iter().filter_map(|want| want.pool.name().ok()));
            }
        }
        for name in names {
            self.read_one(&name).await?;
        }
        Ok(())
    }

    /// Whether a pool that these requests want overlaps another.
    fn overlaps(&self, requests: &[Request]) -> bool {
        wants(requests).any(|want| {
            let name = want.pool.name().unwrap_or_default();
            self.network.state_of(&name) == Some(State::Overlapping)
        })
    }

    /// Caches an object that was read when the clock said `began`; returns whether it is of this network.
    pub(super) fn see(&mut self, pool: &tenure_api::whereabouts::IPPool, began: Duration) -> bool {
        let node = &self.shared.options.node;
        let ours = self.network.see_pool(pool, |name| name == node).is_some();
        if ours {
            self.seen.insert(pool.name_any(), began);
        }
        ours
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.network.forget_pool(name);
        self.seen.remove(name);
    }
}

fn wants(requests: &[Request]) -> impl Iterator<Item = &Want> {
    requests.iter().flat_map(|request| match &request.act {
        Act::Hold { wants, .. } => wants.as_slice(),
        _ => &[],
    })
}
