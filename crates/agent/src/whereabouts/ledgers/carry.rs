//! Writes in the order that a plan asks for, and their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::PostParams;
use kube::{Api, ResourceExt};
use tenure_api::whereabouts::annotation::NODE;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};
use tenure_watch::{CallError, exactly};
use tenure_whereabouts::ledger::{Mark, Outcome, Plan, PoolId, PoolWrite, Reserve, Unreserve};

use super::Shared;
use super::calls::{self, is_hopeless};
use super::worker::Worker;

/// The result of writing each object and reservation.
pub(super) type Written = BTreeMap<String, Outcome>;

impl Worker {
    /// Performs a plan. Errors are recorded, and their requests are planned again.
    pub(super) async fn carry_out(&mut self, plan: &mut Plan) -> Written {
        let mut written = Written::new();
        if !plan.create.is_empty() || !plan.mark.is_empty() {
            self.prepare_objects(plan).await;
        }
        if !plan.reserve.is_empty() {
            self.reserve(plan, &mut written).await;
        }
        self.write(plan, &mut written).await;
        self.unreserve(plan, &written).await;
        written
    }

    /// Creates and marks objects. Afterwards reads what others may have written meanwhile.
    async fn prepare_objects(&mut self, plan: &Plan) {
        let mut all = !plan.mark.is_empty();
        let mut firsts = BTreeSet::new();
        for pool in &plan.create {
            let name = pool.name_any();
            let moved = self.network.take_moved();
            let created = self.create(&name, pool).await;
            // That it is new means nothing.
            self.network.take_moved();
            all |= moved;
            match created {
                Err(trouble) => self.meet(trouble),
                Ok(()) => match PoolId::of_object(&self.name, pool, |_| false) {
                    // A further object of a pool: whoever marks a pool marks its first object before it looks
                    // for more, so the first object tells whether ours was overlooked.
                    Some((id, number)) if number > 0 => firsts.extend(id.name().ok()),
                    _ => all = true,
                },
            }
        }
        for mark in &plan.mark {
            if let Err(trouble) = self.mark(mark).await {
                self.meet(trouble);
            }
        }
        for first in firsts {
            if let Err(trouble) = self.read_one(&first).await {
                self.meet(trouble);
                all = true;
            }
            all |= self.network.take_moved();
        }
        if all {
            // If this fails, nothing is assigned by outdated knowledge: then nothing is known.
            self.read = None;
            if let Err(trouble) = self.read_all().await {
                self.meet(trouble);
            }
        }
    }

    async fn create(&mut self, name: &str, pool: &IPPool) -> Result<(), CallError> {
        let began = self.shared.clock.elapsed();
        let act = || format!("creating IPPool {name}");
        match self.shared.write(act, self.pools.create(&PostParams::default(), pool)).await {
            Ok(made) => drop(self.see(&made, began)),
            Err(trouble) if trouble.code() == Some(409) => {
                self.read_one(name).await?;
                if self.network.state_of(name).is_none() {
                    let range = &pool.spec.range;
                    let why =
                        format!("there is an object of this name whose spec.range is not {range}; delete it");
                    return Err(CallError::refused(act(), why));
                }
            }
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    async fn mark(&mut self, mark: &Mark) -> Result<(), CallError> {
        let began = self.shared.clock.elapsed();
        let (act, patch) = (|| format!("marking IPPool {}", mark.name), mark.patch());
        match self.shared.write(act, calls::patch(&self.pools, &mark.name, &patch)).await {
            Ok(marked) => drop(self.see(&marked, began)),
            Err(trouble) if trouble.is_conflict() || trouble.is_missing() => {}
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    /// Creates reservations. Requests that depend on reservations of others are left out of the plan.
    async fn reserve(&mut self, plan: &mut Plan, written: &mut Written) {
        let mut tries = Vec::new();
        for reserve in plan.reserve.iter().cloned() {
            let (shared, reservations) = (Arc::clone(&self.shared), self.reservations.clone());
            tries.push(async move {
                let made = make(&shared, &reservations, &reserve).await;
                (reserve, made)
            });
        }
        let made = calls::all(tries).await;
        let mut taken = BTreeSet::new();
        let mut troubles = Vec::new();
        for (reserve, made) in made {
            let there = match made {
                Ok(there) => there,
                Err(trouble) => {
                    troubles.push(trouble);
                    None
                }
            };
            match there {
                Some(there) => {
                    self.network.see_reservation(&there);
                    if reserve.is(&there) {
                        written.insert(reserve.name.clone(), Outcome::Written);
                    } else {
                        taken.insert(reserve.name.clone());
                    }
                }
                None => drop(taken.insert(reserve.name.clone())),
            }
        }
        for trouble in troubles {
            self.meet(trouble);
        }
        if !taken.is_empty() {
            let now = self.shared.clock.now();
            for pool in
                plan.write.iter().filter(|write| write.adds()).filter_map(|it| self.network.pool_of(&it.name))
            {
                self.spread.lost(pool, now);
            }
        }
        plan.leave_out(&taken);
    }

    async fn write(&mut self, plan: &Plan, written: &mut Written) {
        let began = self.shared.clock.elapsed();
        let mut tries = Vec::new();
        for (place, write) in plan.write.iter().enumerate() {
            let (shared, pools) = (Arc::clone(&self.shared), self.pools.clone());
            let (name, patch) = (write.name.clone(), write.patch());
            tries.push(async move {
                let act = || format!("writing IPPool {name}");
                // Metadata are enough if nobody else wrote in between.
                (place, shared.write(act, calls::patch_metadata(&pools, &name, &patch)).await)
            });
        }
        for (place, answer) in calls::all(tries).await {
            let Some(write) = plan.write.get(place) else { continue };
            match answer {
                Ok(answer) => {
                    written.insert(write.name.clone(), Outcome::Written);
                    self.let_rest(write);
                    if let Some(pool) = self.network.pool_of(&write.name).filter(|_| write.adds()) {
                        self.spread.won(pool);
                    }
                    if self.network.wrote(write, &answer.metadata) {
                        self.seen.insert(write.name.clone(), began);
                    } else {
                        self.read_after(write).await;
                    }
                }
                Err(trouble) => {
                    if trouble.is_conflict() {
                        self.was_late(write, trouble).await;
                    } else {
                        // It may have been written nevertheless: the object decides.
                        self.read_after(write).await;
                        self.meet(trouble);
                    }
                }
            }
        }
    }

    /// Makes freed addresses the last choice for a while.
    fn let_rest(&mut self, write: &PoolWrite) {
        let now = self.shared.clock.now();
        let until = now.plus(self.shared.options.cooling);
        for address in self.network.freed_by(write) {
            self.spread.rest(address, now, until);
        }
    }

    /// Somebody else was quicker: what is there is read, and who is late again and again begins at another place for a while.
    async fn was_late(&mut self, write: &PoolWrite, trouble: CallError) {
        if let Some(pool) = self.network.pool_of(&write.name).filter(|_| write.adds()) {
            self.spread.lost(pool, self.shared.clock.now());
        }
        self.read_after(write).await;
        if self.network.is_as_planned(write) {
            // Nothing changed, and it was refused anyway: so it was not a failed test.
            self.meet(trouble);
        }
    }

    async fn read_after(&mut self, write: &PoolWrite) {
        if let Err(trouble) = self.read_one(&write.name).await {
            // It counts as unknown.
            self.seen.remove(&write.name);
            self.read = None;
            self.meet(trouble);
        }
    }

    async fn unreserve(&mut self, plan: &Plan, written: &Written) {
        let outcome = |name: &str| written.get(name).copied().unwrap_or(Outcome::Conflict);
        let mut due = Vec::new();
        for Unreserve { name, uid, .. } in plan.unreserve(outcome).cloned() {
            let (shared, reservations) = (Arc::clone(&self.shared), self.reservations.clone());
            let params = exactly(uid, None);
            due.push(async move {
                let act = || format!("deleting OverlappingRangeIPReservation {name}");
                let deleted = shared.write(act, reservations.delete(&name, &params)).await;
                (name, deleted.map(drop))
            });
        }
        for (name, deleted) in calls::all(due).await {
            match deleted {
                Err(trouble) if !trouble.is_missing() && !trouble.is_conflict() => {
                    // Its record is gone; the controller takes away what nobody uses.
                    tracing::warn!(%trouble, "cannot take a reservation back");
                }
                _ => self.network.forget_reservation(&name),
            }
        }
    }
}

/// The reservation that exists after an attempt to create one.
async fn make(
    shared: &Shared,
    reservations: &Api<OverlappingRangeIPReservation>,
    reserve: &Reserve,
) -> Result<Option<OverlappingRangeIPReservation>, CallError> {
    let act = || format!("creating OverlappingRangeIPReservation {}", reserve.name);
    let mut object = reserve.object.clone();
    // Agents of other nodes may not delete it.
    let node = (NODE.to_owned(), shared.options.node.clone());
    object.metadata.annotations.get_or_insert_default().extend([node]);
    match shared.write(act, reservations.create(&PostParams::default(), &object)).await {
        Ok(made) => return Ok(Some(made)),
        Err(trouble) if is_hopeless(&trouble) || trouble.is_missing() => return Err(trouble),
        Err(_) => {}
    }
    // It belongs to somebody, or that is unknown: the object decides.
    let act = || format!("reading OverlappingRangeIPReservation {}", reserve.name);
    shared.call(act, reservations.get_opt(&reserve.name)).await
}
