//! Unused records and reservations whose pods are gone, and ledgers of nodes that are gone.
//!
//! Ledgers of living nodes are left alone: the node's agent writes them. Those of missing nodes are released by the
//! rule of [`crate::release`]: two observations with time between them, and a mark that a living agent removes.
//!
//! A plan looks at pods that changed or that a changed record or reservation names, at ledgers that changed or whose
//! node did, and at what is due.

mod records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::release::mark_of;
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Act, Request, State};
use tenure_whereabouts::reconcile::{Patience, Reconciler, Unused};
use tenure_whereabouts::slices::{identify, network_of_ledger};

use super::index::{Changes, Index, Inputs, Names};
use super::ledgers::Ledger;
use super::write::{LedgerWrite, Rest};
use crate::cache::Known;
use crate::changes::{Changed, Cursor};
use crate::release::{Releases, Step, mark_at};
use crate::world::World;
use crate::write::At;
use records::{Records, reservations};

/// How many records of one ledger one write removes: each of their pods is read.
const AT_ONCE: usize = 128;

/// Plans releases.
#[derive(Debug)]
pub(super) struct UnusedPlanner {
    reconciler: Reconciler,
    records: Records,
    /// Whether `records` is complete.
    knows: bool,
    pods: Cursor,
    reservations: Cursor,
    /// What has been suspect long enough, by pod.
    due: BTreeMap<Arc<str>, Unused>,
    gone: Releases,
    /// Nodes' ledgers with planned writes.
    again: Names,
    /// How long freed addresses cool.
    rest: Duration,
}

impl UnusedPlanner {
    pub(super) fn new(patience: Duration, node_gone_after: Duration, rest: Duration) -> Self {
        Self {
            reconciler: Reconciler::new(Patience { between: patience }),
            records: Records::default(),
            knows: false,
            pods: Cursor::default(),
            reservations: Cursor::default(),
            due: BTreeMap::new(),
            gone: Releases::resting(node_gone_after),
            again: Names::new(),
            rest,
        }
    }

    /// The writes that release unused records.
    pub(super) fn plan(&mut self, inputs: Inputs<'_>) -> Vec<LedgerWrite> {
        let Inputs { world, changes, now, .. } = inputs;
        let mut writes = Vec::new();
        if world.ledgers().knows_use() {
            self.look(inputs);
            writes.extend(self.forget(world, now));
            writes.extend(self.unreserve(world));
        } else {
            // Observations from before pods were out of sight do not count as a first look.
            self.knows = false;
            self.due.clear();
            self.reconciler.forget();
        }
        if world.ledgers().pools.is_complete() && world.nodes().is_complete() {
            writes.extend(self.of_gone_nodes(world, changes, now));
        }
        writes
    }

    /// How many records and reservations are suspect.
    pub(super) fn suspects(&self) -> usize {
        self.reconciler.suspects()
    }

    /// When to look again without an event.
    pub(super) fn next(&self) -> Option<Timestamp> {
        [self.reconciler.next(), self.gone.next()].into_iter().flatten().min()
    }

    /// Looks at the pods for which something changed, or at all.
    fn look(&mut self, Inputs { world, index, changes, now }: Inputs<'_>) {
        let pods = world.ledgers().pods.changed(&mut self.pods);
        let reserved = world.ledgers().reservations.changed(&mut self.reservations);
        let mut look: Names = self.reconciler.due(now).map(Arc::from).collect();
        match (pods, reserved) {
            (Changed::Keys(pods), Changed::Keys(reserved)) if self.knows && !changes.all => {
                // A ledger that was read because its node is gone has not changed since it was last reported.
                for name in changes.ledgers.iter().chain(&self.again) {
                    let ours = world.ledgers().pools.get(name).filter(|ledger| is_ours(world, index, ledger));
                    self.records.note_ledger(name, ours.map(|ledger| &ledger.pool));
                }
                for name in &reserved {
                    let podref = world.ledgers().reservations.get(name).map(|it| it.spec.podref.as_str());
                    self.records.note_reservation(name, podref);
                }
                look.extend(pods);
            }
            _ => {
                (self.records, self.knows) = (Records::default(), true);
                for ledger in world.ledgers().pools.iter().filter(|ledger| is_ours(world, index, ledger)) {
                    self.records.note_ledger(&ledger.key().into(), Some(&ledger.pool));
                }
                for (name, podref) in reservations(world) {
                    self.records.note_reservation(&name, Some(podref));
                }
                self.due.clear();
                look.extend(self.reconciler.suspected().map(Arc::from));
                look.extend(self.records.pods().cloned());
            }
        }
        look.extend(self.records.changed());
        for podref in look {
            let unused = self.reconciler.look_at(&podref, &self.records.of_pod(world, &podref), now);
            if unused == Unused::default() {
                self.due.remove(&podref);
            } else {
                self.due.insert(podref, unused);
            }
        }
    }

    /// Records that have been suspect long enough and still exist, by ledger.
    fn forget(&self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        let mut by_object: BTreeMap<&str, Vec<Request>> = BTreeMap::new();
        for request in self.due.values().flat_map(|unused| &unused.records) {
            let Act::Forget { object, .. } = &request.act else { continue };
            let records = by_object.entry(object).or_default();
            if is_there(world, request) && records.len() < AT_ONCE {
                records.push(request.clone());
            }
        }
        let write = |(object, records): (&str, Vec<Request>)| {
            let ledger = world.ledgers().pools.get(object).filter(|_| !records.is_empty())?;
            let pods = records.iter().filter_map(|request| {
                let podref = &request.who.podref;
                Some((podref.clone(), world.ledgers().pods.get(podref)?))
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
        // A record takes its reservation along.
        let unrecorded =
            self.due.values().filter(|unused| !unused.records.iter().any(|it| is_there(world, it)));
        let due = unrecorded.flat_map(|unused| &unused.reservations).filter_map(|(name, uid)| {
            let known = world.ledgers().reservations.get(name).filter(|known| known.uid() == *uid)?;
            let podref = known.spec.podref.clone();
            let pod = world.ledgers().pods.get(&podref);
            Some(LedgerWrite::Unreserve { reservation: At::of(known), podref, pod })
        });
        due.collect()
    }

    /// Ledgers of missing nodes: read if their records are not known, marked, and deleted after the waiting time when
    /// they are empty.
    fn of_gone_nodes(&mut self, world: &World, changes: &Changes, now: Timestamp) -> Vec<LedgerWrite> {
        let mut look = std::mem::take(&mut self.again);
        if changes.all {
            self.gone.look_again();
            look = world.ledgers().pools.iter().map(|ledger| ledger.key().into()).collect();
        } else {
            look.extend(changes.ledgers.iter().cloned());
            look.extend(self.gone.due(now).map(Arc::from));
            for name in &look {
                self.gone.look_again_at(name);
            }
        }
        let mut writes = Vec::new();
        for name in look {
            let write = world.ledgers().pools.get(&name).and_then(|ledger| self.of_node(world, ledger, now));
            if let Some(write) = write {
                self.again.insert(name);
                writes.push(write);
            }
        }
        writes
    }

    fn of_node(&mut self, world: &World, ledger: &Ledger, now: Timestamp) -> Option<LedgerWrite> {
        let (node, mark) = (ledger.node()?, mark_of(&ledger.pool));
        let (pool, owner) = (|| At::of(&ledger.pool), || node.to_owned());
        if world.lives(node) {
            return mark.map(|_| LedgerWrite::MarkLedger { pool: pool(), node: owner(), mark: None });
        }
        if !ledger.whole {
            return Some(LedgerWrite::Read { pool: pool() });
        }
        if !matches!(ledger.state(), State::Owned | State::Unique) {
            return None;
        }
        // A node that is declared out of service needs no mark and no waiting time.
        let step = match world.nodes().get(node) {
            Some(_) => Step::Release,
            None => self.gone.step(&ledger.key(), mark, now),
        };
        let empty = ledger.used == 0 && ledger.pool.spec.allocations.is_empty();
        match step {
            Step::Mark => {
                let mark = Some(mark_at(now));
                Some(LedgerWrite::MarkLedger { pool: pool(), node: owner(), mark })
            }
            Step::Release if empty => Some(LedgerWrite::DropLedger { pool: pool(), node: owner() }),
            Step::Wait | Step::Release => None,
        }
    }
}

/// Whether the record to release is unchanged.
fn is_there(world: &World, request: &Request) -> bool {
    let Act::Forget { object, key, record } = &request.act else { return false };
    let known = world.ledgers().pools.get(object).and_then(|it| it.pool.spec.allocations.get(key));
    known == Some(record)
}

/// Whether the controller may write a ledger: all but those of living nodes.
fn is_ours(world: &World, index: &Index, ledger: &Ledger) -> bool {
    let lives = |node: &str| world.lives(node);
    let of = || identify(&ledger.pool, &index.network_names, &lives).map(|id| id.node);
    let of = ledger.node().map(str::to_owned).or_else(of).filter(|node| !node.is_empty());
    ledger.whole && of.is_none_or(|node| !lives(&node))
}
