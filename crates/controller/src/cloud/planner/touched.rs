//! What a plan looks at: what changed, what was not finished, and what is due.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::cloud::IPLedger;
use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use super::super::gathering::record_of;
use super::super::index::{PoolView, records};
use super::super::known::Aliases;
use super::CloudPlanner;
use crate::cache::Known;
use crate::changes::{Changed, Cursor};
use crate::world::World;

/// What a plan looks at.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Ledgers by pool and number.
    pub(super) ledgers: BTreeSet<(String, u128)>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) pools: BTreeSet<String>,
    /// Pods that name an address.
    pub(super) pods: BTreeSet<String>,
    /// All of them: a look at everything.
    pub(super) everything: bool,
}

/// How far the caches have been read.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    pools: Cursor,
    ledgers: Cursor,
    aliases: Cursor,
    nodes: Cursor,
    machines: Cursor,
    pods: Cursor,
    claim_users: Cursor,
    reports: Cursor,
    address_pools: Cursor,
    node_pools: Cursor,
    ranges: Cursor,
    slices: Cursor,
    blocks: Cursor,
    claims: Cursor,
}

impl CloudPlanner {
    /// What this plan looks at.
    pub(super) fn touched(&mut self, world: &World, now: Timestamp) -> Touched {
        let (known, pods) = (world.aliases(), &world.ledgers().pods);
        let mut touched = std::mem::take(&mut self.unfinished);
        let mut all = false;
        let mut read = |changed: Changed| match changed {
            Changed::Keys(keys) => keys,
            Changed::All => {
                all = true;
                BTreeSet::new()
            }
        };
        let mut pools = read(known.pools.changed(&mut self.cursors.pools));
        let mut ledgers = read(known.ledgers.changed(&mut self.cursors.ledgers));
        let mut aliases = read(known.nodes.changed(&mut self.cursors.aliases));
        let mut nodes = read(world.nodes().changed(&mut self.cursors.nodes));
        let mut machines = read(known.changed_machines(&mut self.cursors.machines));
        let mut plain = read(pods.changed(&mut self.cursors.pods));
        let mut users = read(pods.changed_claim_users(&mut self.cursors.claim_users));
        let mut reports = read(pods.changed_reports(&mut self.cursors.reports));
        let others = read(world.coil().pools.changed(&mut self.cursors.address_pools)).len()
            + read(world.node_addresses().pools.changed(&mut self.cursors.node_pools)).len();
        let ranges = read(world.ledgers().pools.changed(&mut self.cursors.ranges));
        let slices = read(world.ledgers().slices.changed(&mut self.cursors.slices));
        let mut blocks = read(world.coil().blocks.changed(&mut self.cursors.blocks));
        let claims = read(world.claims().all.changed(&mut self.cursors.claims));
        if all {
            touched = Touched { everything: true, ..Touched::default() };
            self.index.clear();
            self.short.clear();
            self.refusals.clear();
            self.notes.look_again();
            let arc = |key: String| -> Arc<str> { key.into() };
            pools = known.pools.iter().map(|it| arc(it.key())).collect();
            ledgers = known.ledgers.iter().map(|it| arc(it.key())).collect();
            aliases = known.nodes.iter().map(|it| arc(it.key())).collect();
            nodes = world.nodes().iter().map(|it| arc(it.key())).collect();
            machines = known.all_told().map(|told| arc(told.node.clone())).collect();
            users = pods.claim_users().map(|pod| arc(format!("{}/{}", pod.namespace, pod.name))).collect();
            plain = BTreeSet::new();
            reports = BTreeSet::new();
        }
        let managed_before = Arc::clone(&self.index.managed);
        // A changed pool may contain other addresses of claims.
        if !pools.is_empty() {
            blocks = world.coil().blocks.iter().map(|it| it.key().into()).collect();
        }
        for name in &pools {
            self.index.read_pool(known, name);
            touched.pools.insert(name.to_string());
        }
        if all {
            self.index.overlaps.read_all(&self.index.pools, world);
        }
        if all || others > 0 {
            self.index.other_pools_changed();
        }
        let (ranges, slices) = (ranges.iter().map(AsRef::as_ref), slices.iter().map(AsRef::as_ref));
        touched.pools.extend(self.index.overlaps.read_ranges(world, ranges, slices));
        for name in &ledgers {
            let (nodes, pools) = self.index.read_ledger(known, name);
            touched.nodes.extend(nodes);
            touched.pools.extend(pools);
            if let Some(ledger) = known.ledgers.get(name) {
                touched.ledgers.insert(key_of(ledger));
            }
        }
        for name in self.index.compare(world) {
            self.touch_pool(known, &name, &mut touched);
            touched.pools.insert(name);
        }
        let managed = Arc::clone(&self.index.managed);
        if all || managed != managed_before {
            self.index.reports.read_all(pods, &managed);
            reports = pods.reports().map(|(podref, _)| podref.into()).collect();
            // The driver learns which ranges are ours.
            touched.nodes.extend(known.all_told().map(|told| told.node.clone()));
        }
        self.touch_reports(world, &reports, &mut touched);
        for name in &ledgers {
            // What pods report of it may have no record now.
            let cidr = known.ledgers.get(name).and_then(|it| it.spec.cidr.parse().ok());
            let nodes = cidr.into_iter().flat_map(|cidr: Cidr| self.index.reports.nodes_within(cidr));
            touched.nodes.extend(nodes.cloned());
            // It may keep a claim's address from its machine no longer.
            let nodes = cidr.into_iter().flat_map(|cidr| self.index.claimed.nodes_within(cidr));
            touched.nodes.extend(nodes.cloned());
        }
        for name in &blocks {
            touched.nodes.extend(self.index.claimed.read_block(world, name, &managed));
        }
        for name in &claims {
            touched.nodes.extend(self.index.claimed.read_claim(world, name, &managed));
        }
        for name in &aliases {
            touched.pools.extend(self.index.read_node(known, name));
            touched.nodes.insert(name.to_string());
            self.touch_records(known, name, &mut touched);
        }
        for name in nodes.iter().chain(&machines) {
            touched.nodes.insert(name.to_string());
            self.touch_records(known, name, &mut touched);
        }
        for node in &machines {
            // What left one machine may have moved to another.
            let now: BTreeSet<Cidr> =
                known.machine(node).into_iter().flat_map(|view| view.ranges.keys().copied()).collect();
            for range in
                self.views.get(node.as_ref()).into_iter().flatten().filter(|range| !now.contains(range))
            {
                if let Some((pool, number)) = self.index.pool_of(range.first()) {
                    touched.ledgers.insert((pool.name.clone(), number));
                }
            }
            self.views.insert(node.to_string(), now);
            let refusal = known.machine(node).and_then(|view| view.refusal.clone());
            if self.refusals.get(node.as_ref()) != refusal.as_ref() {
                touched.pools.extend(self.index.pools.keys().cloned());
                self.refusals.remove(node.as_ref());
                self.refusals.extend(refusal.map(|refusal| (node.to_string(), refusal)));
            }
        }
        // An address may follow a pod whose node it could not reach before.
        let changed: BTreeSet<&str> = aliases.iter().chain(&nodes).map(AsRef::as_ref).collect();
        let there = |podref: &str| pods.claim_user(podref).and_then(|pod| pod.node.as_deref());
        for (podref, address) in self.index.all_naming().filter(|_| !changed.is_empty()) {
            if there(podref).is_some_and(|node| changed.contains(node)) {
                touched.pods.insert(podref.to_owned());
                let place = self.index.pool_of(address);
                touched.ledgers.extend(place.map(|(pool, number)| (pool.name.clone(), number)));
            }
        }
        for podref in &users {
            let (addresses, ledgers) = self.index.read_pod(pods, podref);
            for address in addresses {
                let record = record_of(self.context(world, now), address);
                touched.nodes.extend(record.map(|record| record.node.clone()));
                if let Some((pool, number)) = self.index.pool_of(address) {
                    touched.ledgers.insert((pool.name.clone(), number));
                }
            }
            touched.ledgers.extend(ledgers.iter().filter_map(|it| known.ledgers.get(it)).map(key_of));
            touched.pods.insert(podref.to_string());
        }
        if !plain.is_empty() {
            self.touch_imports(&plain, &mut touched);
        }
        for name in &pools {
            self.touch_pool(known, name, &mut touched);
        }
        touched.nodes.extend(self.gatherings.due(now).cloned());
        // What keeps these may be anywhere.
        let leaving = self.index.pools.values().filter(|pool| pool.deleting);
        touched.pools.extend(leaving.map(|pool| pool.name.clone()));
        let due: Vec<(String, u128)> =
            self.due.iter().filter(|(_, due)| **due <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.due.remove(&key);
            if let Some(ledger) = self.index.ledger(&key.0, key.1).and_then(|name| known.ledgers.get(name)) {
                // What a node may use also changes with time.
                touched.nodes.extend(records(ledger).map(|(_, record)| record.node.clone()));
            }
            touched.ledgers.insert(key);
        }
        touched
    }

    /// Ledgers and nodes of addresses that pods report without a record, or reported while a record no longer keeps
    /// them.
    fn touch_reports(&mut self, world: &World, podrefs: &BTreeSet<Arc<str>>, touched: &mut Touched) {
        let managed = Arc::clone(&self.index.managed);
        for podref in podrefs {
            let (addresses, nodes) = self.index.reports.read(&world.ledgers().pods, podref, &managed);
            for address in addresses {
                let Some((pool, number)) = self.index.pool_of(address) else { continue };
                let key = (pool.name.clone(), number);
                let name = self.index.ledger(&pool.name, number);
                let cools = name
                    .and_then(|name| world.aliases().ledgers.get(name))
                    .is_some_and(|ledger| records(ledger).any(|(_, record)| record.freed.is_some()));
                if cools || !self.index.is_recorded(pool, number, address) {
                    touched.nodes.extend(nodes.iter().cloned());
                    let block = Cidr::new(address, pool.prefix).unwrap_or(Cidr::host(address));
                    touched.nodes.extend(self.index.reports.nodes_within(block).cloned());
                    touched.ledgers.insert(key);
                }
            }
        }
    }

    /// The ledgers with records of a node.
    fn touch_records(&self, known: &Aliases, node: &str, touched: &mut Touched) {
        let ledgers: BTreeSet<&Arc<str>> = self.index.of_node(node).map(|(ledger, _)| ledger).collect();
        touched.ledgers.extend(ledgers.into_iter().filter_map(|it| known.ledgers.get(it)).map(key_of));
    }

    /// Everything that a changed pool affects.
    fn touch_pool(&self, known: &Aliases, name: &str, touched: &mut Touched) {
        touched.ledgers.extend(self.index.of_pool(name).map(|(number, _)| (name.to_owned(), *number)));
        touched.nodes.extend(self.index.asking(name).cloned());
        if let Some(PoolView { ranges: Ok(ranges), allocations, .. }) = self.index.pools.get(name) {
            let places = allocations.keys().filter_map(|address| ranges.place(*address));
            touched.ledgers.extend(places.map(|place| (name.to_owned(), place.ledger)));
        }
        // The driver learns which ranges are ours.
        touched.nodes.extend(known.all_told().map(|told| told.node.clone()));
        touched.nodes.extend(self.index.nodes().cloned());
    }

    /// Ledgers of what the prototype allocated for pods that were added or removed.
    fn touch_imports(&self, podrefs: &BTreeSet<Arc<str>>, touched: &mut Touched) {
        for pool in self.index.pools.values() {
            let Ok(ranges) = &pool.ranges else { continue };
            for (address, it) in &pool.allocations {
                let podref = format!("{}/{}", it.pod_namespace, it.pod_name);
                if podrefs.contains(podref.as_str())
                    && let Some(place) = ranges.place(*address)
                {
                    touched.ledgers.insert((pool.name.clone(), place.ledger));
                }
            }
        }
    }
}

fn key_of(ledger: &IPLedger) -> (String, u128) {
    (ledger.spec.pool.clone(), u128::try_from(ledger.spec.index).unwrap_or_default())
}
