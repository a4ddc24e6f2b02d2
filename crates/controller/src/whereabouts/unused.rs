//! What nobody uses any more: records and reservations whose pods are gone, and ledgers of nodes that are.
//!
//! Ledgers of nodes that live are left alone: the node's agent writes them. Those of missing nodes go by the rule of
//! [`crate::release`]: two observations, a rest between them, and a mark that the node's agent removes if it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::release::mark_of;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation};
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Act, Request, State};
use tenure_whereabouts::reconcile::{Inputs, LivingPod, Patience, Reconciler, Unused};
use tenure_whereabouts::slices::{identify, network_of_ledger, networks};

use super::ledgers::Ledger;
use super::write::{LedgerWrite, Rest};
use crate::release::{Releases, Step, mark_at};
use crate::world::World;
use crate::write::At;

/// How often is looked, at least.
const LOOK: Duration = Duration::from_secs(10);
/// So many records of one ledger go with one write: each of their pods is looked at.
const AT_ONCE: usize = 128;

/// Plans what goes.
#[derive(Debug)]
pub(super) struct UnusedPlanner {
    /// How often is looked.
    interval: Duration,
    reconciler: Reconciler,
    gone: Releases,
    looked: Option<Timestamp>,
    due: Unused,
    /// How long what is freed rests.
    rest: Duration,
}

impl UnusedPlanner {
    pub(super) fn new(patience: Duration, node_gone_after: Duration, rest: Duration) -> Self {
        Self {
            interval: LOOK.min(patience / 4),
            reconciler: Reconciler::new(Patience { between: patience }),
            gone: Releases::resting(node_gone_after),
            looked: None,
            due: Unused::default(),
            rest,
        }
    }

    /// The writes that release what nobody uses.
    pub(super) fn plan(&mut self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        let mut writes = Vec::new();
        if world.ledgers.knows_use() {
            if self.looked.is_none_or(|looked| looked > now || now.since(looked) >= self.interval) {
                self.due = self.look(world, now);
                self.looked = Some(now);
            }
            writes.extend(self.forget(world, now));
            writes.extend(self.unreserve(world));
        } else {
            // What was seen before pods were out of sight is no first look.
            (self.looked, self.due) = (None, Unused::default());
            self.reconciler.forget();
        }
        if world.ledgers.pools.is_complete() && world.nodes().is_complete() {
            writes.extend(self.of_gone_nodes(world, now));
        }
        writes
    }

    /// How many records and reservations are suspect.
    pub(super) fn suspects(&self) -> usize {
        self.reconciler.suspects()
    }

    /// When to look again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let look = self.looked.filter(|_| self.suspects() > 0).map(|looked| looked.plus(self.interval));
        [look, self.gone.next()].into_iter().flatten().min()
    }

    fn look(&mut self, world: &World, now: Timestamp) -> Unused {
        let pools: Vec<&IPPool> = ours(world).map(|ledger| &ledger.pool).collect();
        let reservations: Vec<&OverlappingRangeIPReservation> = world.ledgers.reservations.iter().collect();
        let records = pools.iter().flat_map(|pool| pool.spec.allocations.values());
        let podrefs: BTreeSet<&str> = records
            .map(|record| record.podref.as_str())
            .chain(reservations.iter().map(|reservation| reservation.spec.podref.as_str()))
            .collect();
        let pods: BTreeMap<String, LivingPod> = podrefs
            .into_iter()
            .filter_map(|podref| Some((podref.to_owned(), world.ledgers.pods.get(podref)?)))
            .collect();
        self.reconciler.look(Inputs { pools: &pools, reservations: &reservations, pods: &pods, now })
    }

    /// Records that have been suspect for long enough and are still there, ledger by ledger.
    fn forget(&self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        let mut by_object: BTreeMap<&str, Vec<Request>> = BTreeMap::new();
        for request in &self.due.records {
            let Act::Forget { object, key, record } = &request.act else { continue };
            let known = world.ledgers.pools.get(object).and_then(|it| it.pool.spec.allocations.get(key));
            let records = by_object.entry(object).or_default();
            if known == Some(record) && records.len() < AT_ONCE {
                records.push(request.clone());
            }
        }
        let write = |(object, records): (&str, Vec<Request>)| {
            let ledger = world.ledgers.pools.get(object).filter(|_| !records.is_empty())?;
            let pods = records.iter().filter_map(|request| {
                let podref = &request.who.podref;
                Some((podref.clone(), world.ledgers.pods.get(podref)?))
            });
            let pods = pods.collect();
            Some(LedgerWrite::Forget {
                pool: At::of(&ledger.pool),
                network: network_of_ledger(&ledger.pool),
                records,
                pods,
                rest: Rest { from: now, lasts: self.rest },
            })
        };
        by_object.into_iter().filter_map(write).collect()
    }

    fn unreserve(&self, world: &World) -> Vec<LedgerWrite> {
        let due = self.due.reservations.iter().filter_map(|(name, uid)| {
            let known = world.ledgers.reservations.get(name).filter(|known| known.uid() == *uid)?;
            let podref = known.spec.podref.clone();
            // A record takes its reservation along.
            let recorded = self.forget_is_due(world, &podref);
            let pod = world.ledgers.pods.get(&podref);
            (!recorded).then(|| LedgerWrite::Unreserve { reservation: At::of(known), podref, pod })
        });
        due.collect()
    }

    /// Whether a record of the pod is still to be released.
    fn forget_is_due(&self, world: &World, podref: &str) -> bool {
        self.due.records.iter().filter(|request| request.who.podref == podref).any(|request| {
            let Act::Forget { object, key, record } = &request.act else { return false };
            let known = world.ledgers.pools.get(object).and_then(|it| it.pool.spec.allocations.get(key));
            known == Some(record)
        })
    }

    /// Ledgers of missing nodes: read where their records are not known, marked, and deleted after the rest when they are empty.
    fn of_gone_nodes(&mut self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        self.gone.look_again();
        let mut writes = Vec::new();
        for ledger in world.ledgers.pools.iter() {
            let Some(node) = ledger.node().map(str::to_owned) else { continue };
            let (pool, mark) = (At::of(&ledger.pool), mark_of(&ledger.pool));
            if world.lives(&node) {
                if mark.is_some() {
                    writes.push(LedgerWrite::MarkLedger { pool, node, mark: None });
                }
                continue;
            }
            if !ledger.whole {
                writes.push(LedgerWrite::Read { pool });
                continue;
            }
            if !matches!(ledger.state(), State::Owned | State::Unique) {
                continue;
            }
            // One that an administrator has declared out of service needs no mark and no rest.
            let step = match world.nodes().get(&node) {
                Some(_) => Step::Release,
                None => self.gone.step(&ledger.pool.uid().unwrap_or_default(), mark, now),
            };
            let empty = ledger.used == 0 && ledger.pool.spec.allocations.is_empty();
            match step {
                Step::Mark => {
                    writes.push(LedgerWrite::MarkLedger { pool, node, mark: Some(mark_at(now)) });
                }
                Step::Release if empty => writes.push(LedgerWrite::DropLedger { pool, node }),
                Step::Wait | Step::Release => {}
            }
        }
        writes
    }
}

/// The ledgers that the controller may write: all but those of nodes that live.
fn ours(world: &World) -> impl Iterator<Item = &Ledger> {
    let attachments: Vec<_> = world.ledgers.attachments.iter().map(|it| it.definition.clone()).collect();
    let networks = networks(&attachments, None);
    world.ledgers.pools.iter().filter(|ledger| ledger.whole).filter(move |ledger| {
        let lives = |node: &str| world.lives(node);
        let of = ledger.node().map(str::to_owned).or_else(|| {
            identify(&ledger.pool, &networks, &lives).map(|id| id.node).filter(|node| !node.is_empty())
        });
        of.is_none_or(|node| !lives(&node))
    })
}
