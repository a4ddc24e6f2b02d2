//! Plans the part: ledgers, nodes and pools that changed, are not finished, or are due.

mod touched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_api::cloud::{FINALIZER, IPLedger, IPLedgerSpec, ledger_name};
use tenure_cloud::Refusal;
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

#[cfg(test)]
use super::context::Planted;
use super::context::{Context, wanted};
use super::gathering::Gatherings;
use super::index::Index;
use super::known::Machine;
use super::ledger::Look;
use super::status::{self, Shortage};
use super::write::{Change, CloudWrite};
use super::{grants, ledger, said};
use crate::cache::Known;
use crate::claims::CLAIM;
use crate::events::{Note, Standing};
use crate::part::{Board, Plan};
use crate::world::World;
use crate::write::{At, Write};
use touched::{Cursors, Touched};

/// How long a driver has to read all machines.
const READ: Duration = Duration::from_mins(5);

/// Plans pools, ledgers and nodes.
#[derive(Debug)]
pub(super) struct CloudPlanner {
    rest: Duration,
    limit: usize,
    cursors: Cursors,
    index: Index,
    unfinished: Touched,
    missing: BTreeMap<String, Timestamp>,
    /// By pool: the nodes that lack something.
    short: BTreeMap<String, BTreeMap<String, usize>>,
    /// Why nodes get less than they want.
    problems: BTreeMap<String, String>,
    /// The driver, since when it is known, and whether it is still reading machines.
    driver: (Option<u64>, Timestamp, bool),
    /// What machines had at the last plan.
    views: BTreeMap<String, BTreeSet<Cidr>>,
    /// What the cloud refuses, by node.
    refusals: BTreeMap<String, Refusal>,
    /// When to look at each ledger again.
    due: BTreeMap<(String, u128), Timestamp>,
    gatherings: Gatherings,
    notes: Standing,
    #[cfg(test)]
    pub(super) planted: Option<Planted>,
}

impl CloudPlanner {
    pub(super) fn new(rest: Duration, limit: usize) -> Self {
        Self {
            rest,
            limit,
            cursors: Cursors::default(),
            index: Index::default(),
            unfinished: Touched::default(),
            missing: BTreeMap::new(),
            short: BTreeMap::new(),
            problems: BTreeMap::new(),
            driver: (None, Timestamp::default(), true),
            views: BTreeMap::new(),
            refusals: BTreeMap::new(),
            due: BTreeMap::new(),
            gatherings: Gatherings::default(),
            notes: Standing::default(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// Determines whether the driver has read all machines. A machine that cannot be read delays nobody longer than
    /// [`READ`].
    fn look_at_driver(&mut self, world: &World, now: Timestamp) {
        let known = world.aliases();
        let (driver, mut since, was_reading) = self.driver;
        if driver != known.driver() || since > now {
            since = now;
        }
        let reading = known.driver().is_none()
            || now.since(since) < READ
                && world.nodes().iter().any(|node| {
                    Machine::of(node).is_ok() && known.machine(&node.key()).is_none_or(|view| !view.known)
                });
        self.driver = (known.driver(), since, reading);
        if was_reading && !reading {
            self.look_at_all();
        }
    }

    fn context<'a>(&'a self, world: &'a World, now: Timestamp) -> Context<'a> {
        Context {
            world,
            known: world.aliases(),
            pods: &world.ledgers().pods,
            index: &self.index,
            missing: &self.missing,
            refusals: &self.refusals,
            rest: self.rest,
            limit: self.limit,
            reading: self.driver.2,
            now,
            #[cfg(test)]
            planted: self.planted,
        }
    }

    /// Since when nodes with records are missing.
    fn note_missing(&mut self, world: &World, nodes: &BTreeSet<String>, now: Timestamp) {
        for node in nodes {
            let has = self.index.of_node(node).next().is_some();
            if has && !world.lives(node) {
                let since = self.missing.entry(node.clone()).or_insert(now);
                *since = (*since).min(now);
            } else {
                self.missing.remove(node);
            }
        }
    }

    /// What each of these nodes lacks.
    fn note_shortages(&mut self, world: &World, nodes: &BTreeSet<String>, now: Timestamp) {
        for node in nodes {
            let Shortage { count, problem } = status::shortage(self.context(world, now), node);
            self.short.values_mut().for_each(|short| _ = short.remove(node));
            if let Some(aliases) = world.aliases().nodes.get(node).filter(|_| count > 0) {
                self.short.entry(aliases.spec.pool.clone()).or_default().insert(node.clone(), count);
            }
            match problem {
                Some(problem) => _ = self.problems.insert(node.clone(), problem),
                None => _ = self.problems.remove(node),
            }
        }
        self.short.retain(|_, short| !short.is_empty());
    }

    fn plan_ledgers(&mut self, world: &World, touched: &mut Touched, now: Timestamp) -> Vec<CloudWrite> {
        let context = self.context(world, now);
        let mut looks: BTreeMap<(String, u128), Look> = BTreeMap::new();
        let mut dropped = Vec::new();
        for key in &touched.ledgers {
            let known = self.index.ledger(&key.0, key.1).and_then(|name| context.known.ledgers.get(name));
            if let Some(drop) = known.and_then(|it| ledger::dropped(it, self.index.pools.get(&key.0))) {
                dropped.push((key.clone(), drop));
                continue;
            }
            let Some(pool) = self.index.pools.get(&key.0) else { continue };
            let Some((cidr, _)) = pool.ranges.as_ref().ok().and_then(|ranges| ranges.ledger(key.1)) else {
                continue;
            };
            let name = self.index.ledger(&key.0, key.1);
            if name.is_none() && context.is_name_taken(pool, key.1) {
                continue;
            }
            let ledger = name.and_then(|name| context.known.ledgers.get(name));
            looks.insert(key.clone(), ledger::look(context, pool, cidr, ledger));
        }
        let mut unserved = BTreeMap::new();
        for (name, short) in &self.short {
            let Some(pool) = self.index.pools.get(name).filter(|pool| pool.gives()) else { continue };
            let Ok(ranges) = &pool.ranges else { continue };
            let mut short = short.clone();
            touched.nodes.extend(short.keys().cloned());
            for write in world.in_flight.iter().filter_map(Write::of::<CloudWrite>) {
                for (node, count) in write.granted() {
                    if write.pool() == Some(name)
                        && let Some(lacks) = short.get_mut(node)
                    {
                        *lacks = lacks.saturating_sub(count);
                    }
                }
            }
            // What a node gets in other ways counts, too.
            for change in looks.iter().filter(|(key, _)| key.0 == *name).flat_map(|(_, look)| &look.changes) {
                if let Change::Imported { node } | Change::Moved { node, .. } = change
                    && let Some(lacks) = short.get_mut(node)
                {
                    *lacks = lacks.saturating_sub(1);
                }
            }
            short.retain(|_, lacks| *lacks > 0);
            let mut line = grants::by_turns(&short);
            grants::grant(context, pool, ranges, &mut line, &mut looks);
            unserved.extend(status::exhausted(context, pool, line.make_contiguous()));
        }
        let mut writes: Vec<CloudWrite> =
            looks.iter().filter_map(|(key, look)| self.ledger_write(context, key, look)).collect();
        let said = said::say(context, &touched.pods, &looks);
        for (key, note) in said {
            match note {
                Some(note) => _ = self.notes.say(&key, note),
                None if !touched.everything => self.notes.look_again_at(&key),
                None => {}
            }
        }
        for (key, look) in &looks {
            match look.due {
                Some(due) => _ = self.due.insert(key.clone(), due),
                None => _ = self.due.remove(key),
            }
            if !look.changes.is_empty() {
                self.unfinished.ledgers.insert(key.clone());
            }
        }
        self.unfinished.ledgers.extend(dropped.iter().map(|(key, _)| key.clone()));
        writes.extend(dropped.into_iter().map(|(_, drop)| drop));
        // Nodes that get nothing are planned again each time: anything may free something.
        self.unfinished.nodes.extend(self.short.values().flat_map(|short| short.keys().cloned()));
        self.problems.extend(unserved);
        writes
    }

    fn ledger_write(&self, context: Context<'_>, key: &(String, u128), look: &Look) -> Option<CloudWrite> {
        if look.changes.is_empty() {
            return None;
        }
        let pool = self.index.pools.get(&key.0)?;
        let records =
            look.records.iter().map(|(offset, record)| (offset.to_string(), record.clone())).collect();
        let changes = look.changes.clone();
        if let Some(ledger) =
            self.index.ledger(&key.0, key.1).and_then(|name| context.known.ledgers.get(name))
        {
            let missing = look.missing.clone();
            let pool = pool.name.clone();
            let finalizers = ledger::finalizers(ledger);
            let ledger = At::of(ledger);
            return Some(CloudWrite::Ledger { ledger, pool, records, finalizers, changes, missing });
        }
        let (cidr, _) = pool.ranges.as_ref().ok()?.ledger(key.1)?;
        let spec = IPLedgerSpec {
            pool: pool.name.clone(),
            index: i64::try_from(key.1).ok()?,
            cidr: cidr.to_string(),
            records,
        };
        let metadata = ObjectMeta {
            name: Some(ledger_name(&pool.name, key.1).ok()?),
            owner_references: pool.owner.clone().map(|owner| vec![owner]),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        };
        Some(CloudWrite::Create { ledger: Box::new(IPLedger { metadata, spec }), changes })
    }

    fn plan_nodes(&mut self, world: &World, nodes: &BTreeSet<String>, now: Timestamp) -> Vec<CloudWrite> {
        let mut gatherings = std::mem::take(&mut self.gatherings);
        let context = self.context(world, now);
        let (mut writes, mut unfinished) = (Vec::new(), BTreeSet::new());
        for node in nodes {
            if let Some(forget) = context.known.nodes.get(node).and_then(|it| status::forgotten(context, it))
            {
                writes.push(forget);
                unfinished.insert(node.clone());
            } else if let Some(object) = context.known.nodes.get(node) {
                let status = status::of_node(context, object, self.problems.get(node));
                if object.status.as_ref() != Some(&status) {
                    writes.push(CloudWrite::Node { node: At::of(object), status: Box::new(status) });
                    unfinished.insert(node.clone());
                }
            }
            let stays = gatherings.look(context, node);
            if let Some(wanted) = wanted(context, node, stays) {
                writes.push(CloudWrite::Tell(Arc::new(wanted)));
                unfinished.insert(node.clone());
            }
        }
        self.unfinished.nodes.extend(unfinished);
        self.gatherings = gatherings;
        writes
    }

    fn plan_pools(&mut self, world: &World, pools: &BTreeSet<String>, now: Timestamp) -> Vec<CloudWrite> {
        let context = self.context(world, now);
        let mut writes = Vec::new();
        let mut unfinished = Vec::new();
        for name in pools {
            let (Some(object), Some(pool)) = (context.known.pools.get(name), self.index.pools.get(name))
            else {
                continue;
            };
            if let Some(write) = status::finalizer(context, object, pool) {
                writes.push(write);
                unfinished.push(name.clone());
                continue;
            }
            let status = status::of_pool(context, object, pool);
            if object.status.as_ref() != Some(&status) {
                writes.push(CloudWrite::Pool { pool: At::of(object), status: Box::new(status) });
                unfinished.push(name.clone());
            }
        }
        self.unfinished.pools.extend(unfinished);
        writes
    }
}

impl Plan for CloudPlanner {
    fn plan(&mut self, world: &World, _: &mut Board, now: Timestamp) -> Vec<Write> {
        let known = world.aliases();
        // Without pods it is not known which moving pods are gone. They are watched once a pool exists.
        if !known.is_complete() || known.is_used() && !world.ledgers().pods.is_complete() {
            return Vec::new();
        }
        if !known.is_used() && known.driver().is_none() {
            return Vec::new();
        }
        // Nor is it known which addresses claims hold, and where their pods are.
        let knows_claims = world.claims().all.is_complete() || world.lacks(CLAIM);
        if !world.coil().blocks.is_complete() || !knows_claims {
            return Vec::new();
        }
        self.look_at_driver(world, now);
        let mut touched = self.touched(world, now);
        self.note_missing(world, &touched.nodes, now);
        let mut asking = touched.nodes.clone();
        asking.extend(touched.pools.iter().flat_map(|pool| self.index.asking(pool).cloned()));
        self.note_shortages(world, &asking, now);
        let mut writes = self.plan_ledgers(world, &mut touched, now);
        writes.extend(self.plan_nodes(world, &touched.nodes, now));
        writes.extend(self.plan_pools(world, &touched.pools, now));
        writes.into_iter().map(Write::from).collect()
    }

    fn look_at_all(&mut self) {
        self.cursors = Cursors::default();
    }

    fn next_look(&self) -> Option<Timestamp> {
        let reading = (self.driver.2 && self.driver.0.is_some()).then(|| self.driver.1.plus(READ));
        self.due.values().copied().chain(reading).chain(self.gatherings.next()).min()
    }

    fn take_notes(&mut self, _: &World) -> Vec<Note> {
        self.notes.take()
    }
}
