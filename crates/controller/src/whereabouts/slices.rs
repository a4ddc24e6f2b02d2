//! Slices: what the dialect decides, as writes, and no more often than something changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::claims::SLICE_OWNER;
use tenure_api::whereabouts::NodeSlicePool;
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Mark, PoolId, State};
use tenure_whereabouts::slices::{
    About, AttachmentDefinition, Event, Floating, HeldSpan, Inputs, SharedPool, SlicePlan, SliceWrite,
    identify, network_of, networks, plan, see,
};

use super::ledgers::Ledgers;
use super::write::LedgerWrite;
use crate::suspicions::Suspicions;
use crate::world::World;
use crate::write::At;

/// A pool is written at most this often, so that a thousand nodes that join one after the other are not a thousand writes.
const PACE: Duration = Duration::from_secs(1);
/// Everything is thought through this often even if nothing that matters seems to have changed.
const ANYWAY: Duration = Duration::from_secs(5);

/// After so long everybody has heard that a slice was taken away.
const LEFT_LONG_AGO: Duration = Duration::from_mins(10);

/// Plans slices.
#[derive(Debug)]
pub(super) struct SlicePlanner {
    namespace: String,
    gone: Suspicions,
    /// What was planned last, from which state of the world, and when.
    last: Option<(u64, Timestamp)>,
    writes: Vec<LedgerWrite>,
    /// When each pool was last planned to be written, and as which version.
    pace: BTreeMap<String, (Timestamp, Option<String>)>,
    wake: Option<Timestamp>,
    /// What was said of definitions that cannot be read.
    refused: BTreeMap<String, String>,
    events: Vec<Event>,
    /// What claims need.
    floating: BTreeMap<String, Floating>,
    /// Slices that missing nodes have left, and since when.
    left: BTreeMap<Left, Timestamp>,
}

/// A slice that a missing node has left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left {
    pool: String,
    node: String,
    slice: String,
}

impl SlicePlanner {
    pub(super) fn new(namespace: &str, node_gone_after: Duration) -> Self {
        Self {
            namespace: namespace.to_owned(),
            gone: Suspicions::lasting(node_gone_after),
            last: None,
            writes: Vec::new(),
            pace: BTreeMap::new(),
            wake: None,
            refused: BTreeMap::new(),
            events: Vec::new(),
            floating: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    /// What claims need from now on.
    pub(super) fn need(&mut self, floating: &BTreeMap<String, Floating>) {
        if self.floating != *floating {
            self.floating.clone_from(floating);
            self.last = None;
        }
    }

    /// The writes that slices need; those of the last plan if nothing has changed since.
    pub(super) fn plan(&mut self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        if !world.ledgers.knows_slices() {
            return Vec::new();
        }
        let changes = world.ledgers.changes();
        let due = self.wake.is_some_and(|wake| wake <= now);
        if let Some((seen, at)) = self.last
            && seen == changes
            && now.since(at) < ANYWAY
            && !due
        {
            return self.writes.clone();
        }
        self.last = Some((changes, now));
        self.writes = self.think(world, now);
        self.writes.clone()
    }

    /// When to plan again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        [self.wake, self.gone.next()].into_iter().flatten().min()
    }

    /// What people should know and no write tells.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn think(&mut self, world: &World, now: Timestamp) -> Vec<LedgerWrite> {
        let ledgers = &world.ledgers;
        let attachments: Vec<AttachmentDefinition> = ledgers
            .attachments
            .iter()
            .filter(|it| it.says_something())
            .map(|it| it.definition.clone())
            .collect();
        let nodes = self.living(world, now);
        let (held, shared, owned) = seen(world, &attachments);
        let pools: Vec<NodeSlicePool> = ledgers.slices.iter().cloned().collect();
        let inputs = Inputs {
            namespace: &self.namespace,
            attachments: &attachments,
            flat: None,
            nodes: &nodes,
            pools: &pools,
            held: &held,
            shared: &shared,
            owned: &owned,
            floating: &self.floating,
            now,
        };
        let plan = plan(&inputs);
        self.say_refused(&plan);
        self.wake = None;
        // First of all nobody takes from a whole range that is cut.
        if !plan.guards.is_empty() {
            let guard = |pool| LedgerWrite::Guard { pool: Box::new(pool) };
            return plan.guards.into_iter().map(guard).collect();
        }
        let SlicePlan { writes, mut events, .. } = plan;
        let mut due = Vec::new();
        for write in writes {
            let write = match write {
                SliceWrite::Create(pool) | SliceWrite::Replace(pool) => {
                    if !self.may_write(&pool, now) {
                        continue;
                    }
                    let name = pool.name_any();
                    let gone = losers(ledgers, &pool, &nodes);
                    let left = self.note_left(ledgers, &pool, &gone, now);
                    let events = events.extract_if(.., |event| event.pool == name).collect();
                    Some(LedgerWrite::Slices { pool, gone, left, events })
                }
                SliceWrite::Delete { name, .. } => {
                    ledgers.slices.get(&name).map(|pool| LedgerWrite::DropSlices { pool: At::of(pool) })
                }
                SliceWrite::Seal { name } => mark(ledgers, &name, State::Sliced),
                SliceWrite::Unseal { name } => mark(ledgers, &name, State::Unique),
            };
            due.extend(write);
        }
        let names: BTreeSet<String> = pools.iter().map(ResourceExt::name_any).collect();
        self.pace.retain(|name, (at, _)| names.contains(name) || now.since(*at) < PACE);
        due
    }

    /// The nodes that live, or have not been missing for long enough. Those that have are kept from losing what their ledgers say
    /// that they hand out of: ledgers are released after two observations of their own.
    fn living(&mut self, world: &World, now: Timestamp) -> BTreeSet<String> {
        let known = world.nodes().iter().map(ResourceExt::name_any);
        let mut nodes: BTreeSet<String> = known.filter(|node| world.lives(node)).collect();
        self.gone.look_again();
        for node in world.ledgers.nodes_with_slices().into_iter().filter(|node| *node != SLICE_OWNER) {
            // One that an administrator has declared out of service needs no rest.
            let missing = !world.lives(node) && world.nodes().get(node).is_none();
            if world.lives(node) || missing && !self.gone.suspect(node.to_owned(), now) {
                nodes.insert(node.to_owned());
            }
        }
        nodes
    }

    /// The ledgers of nodes that have left slices of this pool, with this write or not long ago, and are not given them again.
    fn note_left(
        &mut self,
        ledgers: &Ledgers,
        pool: &NodeSlicePool,
        gone: &[String],
        now: Timestamp,
    ) -> Vec<String> {
        let name = pool.name_any();
        let slices = |pool: &NodeSlicePool| -> BTreeSet<Left> {
            let all = pool.status.iter().flat_map(|status| &status.allocations);
            let left = all.map(|it| (name.clone(), it.node_name.clone(), it.slice_range.clone()));
            left.map(|(pool, node, slice)| Left { pool, node, slice }).collect()
        };
        let before = ledgers.slices.get(&name).map(slices).unwrap_or_default();
        self.left.retain(|_, since| *since <= now && now.since(*since) < LEFT_LONG_AGO);
        self.left.extend(before.into_iter().filter(|left| gone.contains(&left.node)).map(|left| (left, now)));
        let given = slices(pool);
        let left = self.left.keys().filter(|left| left.pool == name && !given.contains(left));
        let ledger = |left: &Left| {
            let id = PoolId::of_node(&network_of(pool), &left.node, left.slice.parse().ok()?);
            id.name().ok()
        };
        left.filter_map(ledger).collect()
    }

    /// Whether it is this pool's turn. The same version again is another attempt of the same write.
    fn may_write(&mut self, pool: &NodeSlicePool, now: Timestamp) -> bool {
        let (name, version) = (pool.name_any(), pool.resource_version());
        if let Some((last, of)) = self.pace.get(&name)
            && *of != version
            && now.since(*last) < PACE
        {
            let next = last.plus(PACE);
            self.wake = Some(self.wake.map_or(next, |wake| wake.min(next)));
            return false;
        }
        self.pace.insert(name, (now, version));
        true
    }

    /// Definitions that cannot be read, once each.
    fn say_refused(&mut self, plan: &SlicePlan) {
        for (attachment, message) in &plan.refused {
            if self.refused.get(attachment) == Some(message) {
                continue;
            }
            let (namespace, name) = attachment.split_once('/').unwrap_or_default();
            tracing::warn!(attachment, message, "an attachment definition cannot be read");
            self.events.push(Event {
                pool: String::new(),
                about: About::Attachment(namespace.to_owned(), name.to_owned()),
                reason: "Refused",
                message: message.clone(),
            });
        }
        self.refused.clone_from(&plan.refused);
    }
}

/// What nodes hold, which ranges are used as a whole, and which slices are handed out of.
type Seen = (Vec<HeldSpan>, Vec<SharedPool>, Vec<PoolId>);

/// What ledgers say.
fn seen(world: &World, attachments: &[AttachmentDefinition]) -> Seen {
    let networks = networks(attachments, None);
    let with_slices = world.ledgers.nodes_with_slices();
    let is_node = |name: &str| world.nodes().get(name).is_some() || with_slices.contains(name);
    let whole = world.ledgers.pools.iter().filter(|ledger| ledger.whole).map(|ledger| &ledger.pool);
    let (mut held, shared) = see(whole, &networks, is_node);
    for ledger in world.ledgers.pools.iter().filter(|ledger| !ledger.whole) {
        if let Some((first, last)) = ledger.span
            && let Some(id) = identify(&ledger.pool, &networks, &is_node)
        {
            held.push(HeldSpan { network: id.network, node: id.node, first, last });
        }
    }
    let owned = world.ledgers.pools.iter().filter(|ledger| ledger.state() == State::Owned);
    let owned = owned.filter_map(|ledger| identify(&ledger.pool, &networks, &is_node)).collect();
    (held, shared, owned)
}

/// The nodes that have a slice of this pool, and lose it because they are gone.
fn losers(ledgers: &Ledgers, pool: &NodeSlicePool, living: &BTreeSet<String>) -> Vec<String> {
    let nodes = |pool: &NodeSlicePool| -> BTreeSet<String> {
        let slices = pool.status.iter().flat_map(|status| &status.allocations);
        slices.map(|slice| slice.node_name.clone()).filter(|node| !node.is_empty()).collect()
    };
    let before = ledgers.slices.get(&pool.name_any()).map(nodes).unwrap_or_default();
    let nodes = nodes(pool);
    let lost = before.difference(&nodes).filter(|node| *node != SLICE_OWNER);
    lost.filter(|node| !living.contains(*node)).cloned().collect()
}

fn mark(ledgers: &Ledgers, name: &str, state: State) -> Option<LedgerWrite> {
    let ledger = ledgers.pools.get(name)?;
    Some(LedgerWrite::Mark { pool: At::of(&ledger.pool), mark: Mark::on(&ledger.pool, state) })
}

#[cfg(test)]
mod tests;
