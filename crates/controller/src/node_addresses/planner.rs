//! Plans the part: each policy and pool that changed, is not finished, or is due.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tenure_api::coil::{AddressPool, EnginePool};
use tenure_api::nmstate::enactment_name;
use tenure_handles::Timestamp;

use super::belongs::Belongs;
use super::known::{EnactmentFacts, Mode, NodeAddresses, PoolFacts};
use super::policy::Context;
use super::pool::{Around, Member, Stale};
use super::write::NodeAddressWrite;
use super::{NodeAddressesPart, companion, policy, pool};
use crate::cache::{Cache, Known};
use crate::changes::{Changed, Cursor};
use crate::part::{Board, Plan};
use crate::release::Releases;
use crate::shared::{SharedRanges, Span};
use crate::whereabouts::Ledgers;
use crate::world::World;
use crate::write::Write;

/// How long a pool waits for enactments that are about to be created, so that one write serves all of them.
const GATHER: Duration = Duration::from_millis(500);

/// The input of plans.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) known: &'a NodeAddresses,
    pub(super) nodes: &'a Cache<Node>,
    address_pools: &'a Cache<AddressPool>,
    ledgers: &'a Ledgers,
    mode: Mode,
}

/// Plans policies and pools.
#[derive(Debug)]
pub(super) struct NodePlanner {
    cooling: Duration,
    cursors: Cursors,
    unfinished: Touched,
    belongs: Belongs,
    ranges: SharedRanges,
    releases: Releases,
    stale: BTreeMap<String, Stale>,
    /// Since when pools wait for enactments that are about to be created.
    gathering: BTreeMap<String, Timestamp>,
    /// When to look at each pool again.
    due: BTreeMap<String, Timestamp>,
    /// A bug that a test plants.
    #[cfg(test)]
    pub(super) planted: Option<super::proptests::Planted>,
}

/// How far the caches have been read.
#[derive(Debug, Default)]
struct Cursors {
    pools: Cursor,
    policies: Cursor,
    enactments: Cursor,
    nodes: Cursor,
    address_pools: Cursor,
    ledgers: Cursor,
    slices: Cursor,
}

/// What a plan looks at.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) policies: BTreeSet<String>,
    pub(super) pools: BTreeSet<String>,
}

impl NodePlanner {
    pub(super) fn new(part: &NodeAddressesPart) -> Self {
        Self {
            cooling: part.cooling,
            cursors: Cursors::default(),
            unfinished: Touched::default(),
            belongs: Belongs::default(),
            ranges: SharedRanges::default(),
            releases: Releases::resting(part.missing_node_rest),
            stale: BTreeMap::new(),
            gathering: BTreeMap::new(),
            due: BTreeMap::new(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// What changed, is unfinished or is due; and whether that is everything.
    fn touched(&mut self, view: View<'_>, now: Timestamp) -> (Touched, bool) {
        let known = view.known;
        let mut touched = std::mem::take(&mut self.unfinished);
        let mut anything = false;
        let mut pools = keys(&known.pools, &mut self.cursors.pools, &mut anything);
        let mut policies = keys(&known.policies, &mut self.cursors.policies, &mut anything);
        let mut enactments = keys(&known.enactments, &mut self.cursors.enactments, &mut anything);
        let mut nodes = keys(view.nodes, &mut self.cursors.nodes, &mut anything);
        let address_pools = keys(view.address_pools, &mut self.cursors.address_pools, &mut anything);
        let ledgers = keys(&view.ledgers.pools, &mut self.cursors.ledgers, &mut anything);
        let slices = keys(&view.ledgers.slices, &mut self.cursors.slices, &mut anything);
        if anything {
            self.belongs = Belongs::default();
            self.releases.look_again();
            touched = Touched::default();
            let spans = known.pools.iter().filter_map(|pool| Some((pool.key(), span(&pool.facts)?)));
            self.ranges.read_all(view.ledgers, spans);
            pools = known.pools.iter().map(Known::key).collect();
            policies = known.policies.iter().map(Known::key).collect();
            enactments = known.enactments.iter().map(Known::key).collect();
            nodes = view.nodes.iter().map(Known::key).collect();
        }
        #[cfg(test)]
        if self.planted == Some(super::proptests::Planted::OverlooksNodes) && !anything {
            nodes.clear();
        }
        for node in &nodes {
            self.belongs.read_node(view, node, &mut touched);
        }
        for key in &policies {
            self.belongs.read_policy(known, key, &mut touched);
        }
        for key in &enactments {
            self.belongs.read_enactment(known, key, &mut touched);
        }
        if !anything {
            for key in &pools {
                self.ranges.read_pool(key, known.pools.get(key).and_then(|pool| span(&pool.facts)));
            }
            for key in &ledgers {
                touched.pools.extend(self.ranges.read_ledger(view.ledgers, key));
            }
            for key in &slices {
                touched.pools.extend(self.ranges.read_slices(view.ledgers, key));
            }
        }
        for key in &pools {
            touched.pools.insert(key.clone());
            touched.policies.extend(self.belongs.policies_to_pools.members(key).cloned());
            let holders: Vec<String> = self.belongs.enactments_to_pools.members(key).cloned().collect();
            touched.policies.extend(
                holders.iter().flat_map(|it| self.belongs.enactments_to_policies.owners(it)).cloned(),
            );
        }
        if !pools.is_empty() || !address_pools.is_empty() {
            // Overlapping pools depend on each other, and there are few.
            touched.pools.extend(known.pools.iter().map(Known::key));
        }
        for uid in self.releases.due(now) {
            let enactment = self.belongs.enactments_by_uid.get(&uid);
            let policies =
                enactment.into_iter().flat_map(|it| self.belongs.enactments_to_policies.owners(it));
            touched.policies.extend(policies.cloned());
        }
        touched.pools.extend(self.due.iter().filter(|(_, due)| **due <= now).map(|(pool, _)| pool.clone()));
        (touched, anything)
    }

    fn plan_view(&mut self, view: View<'_>, now: Timestamp) -> Vec<NodeAddressWrite> {
        let (touched, everything) = self.touched(view, now);
        let (mut writes, gathering) = self.plan_policies(view, &touched, everything, now);
        writes.extend(self.plan_pools(view, &touched, &gathering, now));
        writes
    }

    fn plan_policies(
        &mut self,
        view: View<'_>,
        touched: &Touched,
        everything: bool,
        now: Timestamp,
    ) -> (Vec<NodeAddressWrite>, BTreeSet<String>) {
        let known = view.known;
        let belongs = &self.belongs;
        let records: RefCell<BTreeMap<String, BTreeSet<u128>>> = RefCell::default();
        let is_freed = |facts: &EnactmentFacts| belongs.is_freed(known, &records, facts);
        let name = match view.mode {
            Mode::Own => |node: &str, policy: &str| enactment_name(node, policy).ok(),
            Mode::Companion => companion::name,
        };
        let unread = |node: &str| view.nodes.is_unreadable(node);
        let context =
            Context { known, nodes: &belongs.nodes, unread: &unread, is_freed: &is_freed, name, now };
        let (mut writes, mut gathering) = (Vec::new(), BTreeSet::new());
        for name in &touched.policies {
            let of = belongs.enactments_to_policies.members(name);
            let of: Vec<&EnactmentFacts> =
                of.filter_map(|key| known.enactments.get(key)).map(|it| &it.facts).collect();
            if !everything {
                for it in &of {
                    self.releases.look_again_at(&it.at.uid);
                }
            }
            let facts = known.policies.get(name).map(|it| &it.facts);
            // A policy that was never readable selects unknown nodes.
            if facts.is_none() && known.policies.is_unreadable(name) {
                continue;
            }
            let look = policy::look(&context, name, facts, &of, &mut self.releases);
            if look.to_come > 0 {
                gathering.extend(facts.into_iter().flat_map(|it| it.pools.keys().cloned()));
            }
            if !look.writes.is_empty() {
                self.unfinished.policies.insert(name.clone());
            }
            writes.extend(look.writes);
        }
        (writes, gathering)
    }

    fn plan_pools(
        &mut self,
        view: View<'_>,
        touched: &Touched,
        gathering: &BTreeSet<String>,
        now: Timestamp,
    ) -> Vec<NodeAddressWrite> {
        let known = view.known;
        let mut writes = Vec::new();
        for name in &touched.pools {
            self.due.remove(name);
            let Some(pool) = known.pools.get(name).map(|it| &it.facts) else {
                self.stale.remove(name);
                self.gathering.remove(name);
                continue;
            };
            let members = self.belongs.enactments_to_pools.members(name);
            let members: Vec<Member<'_>> = members
                .filter_map(|key| known.enactments.get(key))
                .map(|it| {
                    let (asks, wants) = self.belongs.asks_and_wants(known, &it.facts, name);
                    Member { facts: &it.facts, asks, wants }
                })
                .collect();
            let more_to_come = gathering.contains(name) && {
                let since = *self.gathering.entry(name.clone()).or_insert(now);
                now.since(since) < GATHER && since <= now
            };
            if !gathering.contains(name) {
                self.gathering.remove(name);
            }
            let around = Around {
                older: older(view, pool),
                reported: self.belongs.reported(known, pool),
                elsewhere: self.belongs.elsewhere(known, name, pool),
                shared: self.ranges.shared(name),
                of_pods: self.ranges.held(view.ledgers, name).collect(),
                unreadable: known.enactments.unreadable().next(),
                more_to_come,
            };
            #[cfg(test)]
            let (members, around) = super::proptests::sabotage(self.planted, members, around);
            let stale = self.stale.entry(name.clone()).or_default();
            let look = pool::look(pool, &members, &around, stale, self.cooling, now);
            let due = [look.due, more_to_come.then(|| now.plus(GATHER))].into_iter().flatten().min();
            self.due.extend(due.map(|due| (name.clone(), due)));
            if more_to_come || look.write.is_some() {
                self.unfinished.pools.insert(name.clone());
            }
            writes.extend(look.write);
        }
        writes
    }
}

impl Plan for NodePlanner {
    fn plan(&mut self, world: &World, _: &mut Board, now: Timestamp) -> Vec<Write> {
        let known = world.node_addresses();
        // Without such a CRD, nobody uses this.
        if !known.pools.is_complete() {
            return Vec::new();
        }
        let Some(mode) = known.mode() else { return vec![Write::from(NodeAddressWrite::Define)] };
        if !known.policies.is_complete() || !known.enactments.is_complete() || !world.nodes().is_complete() {
            return Vec::new();
        }
        let here = View {
            known,
            nodes: world.nodes(),
            address_pools: &world.coil().pools,
            ledgers: world.ledgers(),
            mode,
        };
        let writes = match mode {
            Mode::Own => self.plan_view(here, now),
            Mode::Companion => {
                let derived = companion::view(known);
                self.cursors = Cursors::default();
                let writes = self.plan_view(View { known: &derived, ..here }, now);
                writes.into_iter().filter_map(|it| companion::translate(known, world.nodes(), it)).collect()
            }
        };
        writes.into_iter().map(Write::from).collect()
    }

    fn look_at_all(&mut self) {
        self.cursors = Cursors::default();
    }

    fn next_look(&self) -> Option<Timestamp> {
        self.releases.next().into_iter().chain(self.due.values().copied()).min()
    }
}

fn keys<K: Known>(cache: &Cache<K>, cursor: &mut Cursor, anything: &mut bool) -> BTreeSet<String> {
    match cache.changed(cursor) {
        Changed::All => {
            *anything = true;
            BTreeSet::new()
        }
        Changed::Keys(keys) => keys.iter().map(ToString::to_string).collect(),
    }
}

/// A pool with some of the same addresses that takes precedence: an older `NodeIPPool`, or any `AddressPool`, whose
/// blocks may already be with nodes.
fn older(view: View<'_>, pool: &PoolFacts) -> Option<(&'static str, String)> {
    let range = pool.range.as_ref().ok()?;
    let overlaps = |it: &&AddressPool| {
        let Ok(engine) = EnginePool::try_from(&it.spec) else { return false };
        let networks = engine.pool().subnets().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]);
        networks.flatten().any(|network| range.overlaps(network.first(), network.last()))
    };
    if let Some(other) = view.address_pools.iter().find(overlaps) {
        return Some(("AddressPool", other.name_any()));
    }
    let age = |facts: &PoolFacts| {
        let created = facts.object.creation_timestamp().map(|time| time.0.as_second());
        (created.is_none(), created, facts.object.uid().unwrap_or_default())
    };
    let others = view.known.pools.iter().map(|it| &it.facts);
    let others = others.filter(|other| other.object.name_any() != pool.object.name_any());
    let older = others.filter(|other| age(other) < age(pool)).find(|other| {
        let other = other.range.as_ref().ok();
        other.is_some_and(|other| range.overlaps(other.first(), other.last()))
    });
    older.map(|older| ("NodeIPPool", older.object.name_any()))
}

fn span(facts: &PoolFacts) -> Option<Span> {
    facts.range.as_ref().ok().map(|range| (range.first(), range.last()))
}
