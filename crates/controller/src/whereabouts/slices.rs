//! Slices: what the dialect decides, as writes, for the ranges that something has changed about.
//!
//! A plan looks at each group of ranges that concern each other and in which something changed, was planned before, or is due. A group
//! rests after one of its pools was written, so that a thousand nodes that join one after the other are not a thousand writes.

mod groups;
mod leaving;
mod living;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::whereabouts::NodeSlicePool;
use tenure_handles::Timestamp;
use tenure_whereabouts::ledger::{Mark, State};
use tenure_whereabouts::slices::{
    About, Definition, Event, Floating, Group, SlicePlan, SlicePool, SliceWrite, Table, plan_group, see_one,
};

use super::index::{Inputs, Names};
use super::ledgers::Ledgers;
use super::write::LedgerWrite;
use crate::cache::Known;
use crate::changes::{Changed, Cursor};
use crate::world::World;
use crate::write::At;
use groups::{Found, Groups, Member};
use leaving::{Leaving, LeftSlices};
use living::Living;
use telling::Telling;

/// A pool is written at most this often.
const PACE: Duration = Duration::from_secs(1);

/// Plans slices.
#[derive(Debug)]
pub(super) struct SlicePlanner {
    namespace: String,
    pools: Cursor,
    groups: Groups,
    living: Living,
    /// Groups that rest, by when they have.
    resting: BTreeMap<Timestamp, BTreeSet<Member>>,
    /// When each pool was first planned to be written as it is, and as which version.
    pace: BTreeMap<String, (Timestamp, Option<String>)>,
    /// What was said of definitions that cannot be read.
    refused: BTreeMap<Arc<str>, String>,
    events: Vec<Event>,
    /// What claims need.
    floating: BTreeMap<String, Floating>,
    left: LeftSlices,
    telling: Telling,
    #[cfg(test)]
    pub(super) tables: Tables,
}

/// What becomes of the tables of slices in a test.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// Plans ask them.
    Asked,
    /// Plans walk all slices instead, to compare.
    Unasked,
    /// A planted defect: they do not hear which nodes live.
    Deaf,
}

impl SlicePlanner {
    pub(super) fn new(namespace: &str, node_gone_after: Duration) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pools: Cursor::default(),
            groups: Groups::default(),
            living: Living::new(node_gone_after),
            resting: BTreeMap::new(),
            pace: BTreeMap::new(),
            refused: BTreeMap::new(),
            events: Vec::new(),
            floating: BTreeMap::new(),
            left: LeftSlices::default(),
            telling: Telling::default(),
            #[cfg(test)]
            tables: Tables::Asked,
        }
    }

    /// What claims need from now on.
    pub(super) fn need(&mut self, floating: &BTreeMap<String, Floating>) {
        if self.floating != *floating {
            let names = self.floating.keys().chain(floating.keys());
            let other = names.filter(|name| self.floating.get(*name) != floating.get(*name));
            self.groups.mark(other.map(|name| Member::Pool(name.as_str().into())));
            self.floating.clone_from(floating);
        }
    }

    /// The writes that slices need.
    pub(super) fn plan(&mut self, inputs: Inputs<'_>) -> Vec<LedgerWrite> {
        let Inputs { world, now, .. } = inputs;
        self.note(inputs);
        if !world.ledgers().knows_slices() {
            return Vec::new();
        }
        let changed = self.living.look(world, now);
        #[cfg(test)]
        let deaf = self.tables == Tables::Deaf;
        #[cfg(not(test))]
        let deaf = false;
        for (node, lives) in changed.iter().filter(|_| !deaf) {
            self.groups.set_living(node, *lives);
        }
        if !changed.is_empty() {
            self.groups.mark_asked();
        }
        let later = self.resting.split_off(&now.plus(Duration::from_millis(1)));
        let rested = std::mem::replace(&mut self.resting, later);
        self.groups.mark(rested.into_values().flatten());
        self.pace.retain(|_, (last, _)| *last <= now && now.since(*last) < PACE);
        let mut writes = Vec::new();
        for found in self.groups.take_dirty() {
            match self.rests_until(world, &found, now) {
                Some(until) => self.resting.entry(until).or_default().extend(found.members),
                None => writes.extend(self.plan_group(inputs, &found)),
            }
        }
        writes.extend(self.telling.plan(world, &self.groups));
        writes
    }

    /// When to plan again even if nothing is heard until then.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let rested = self.resting.first_key_value().map(|(until, _)| *until);
        [rested, self.living.next()].into_iter().flatten().min()
    }

    /// What people should know and no write tells.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes in what has changed.
    fn note(&mut self, Inputs { world, index, changes, .. }: Inputs<'_>) {
        let Ledgers { slices, pools, .. } = world.ledgers();
        let changed = slices.changed(&mut self.pools);
        let definitions = &index.definitions;
        let (of_pools, of_definitions, mut of_ledgers): (Names, Names, Names) = match changed {
            Changed::Keys(keys) if !changes.all => {
                (keys, changes.definitions.clone(), changes.ledgers.clone())
            }
            _ => {
                self.groups = Groups::default();
                self.living.look_at_all();
                self.refused.retain(|key, _| definitions.contains_key(key));
                let of_pools = slices.iter().map(|pool| pool.name_any().into()).collect();
                let of_ledgers = pools.iter().map(|ledger| ledger.key().into()).collect();
                (of_pools, definitions.keys().cloned().collect(), of_ledgers)
            }
        };
        for node in &changes.nodes {
            self.living.note(node);
        }
        for key in &of_definitions {
            let definition = definitions.get(key);
            self.groups.note_definition(key, definition, definitions);
            self.say_refused(key, definition);
        }
        for name in &of_pools {
            let pool = slices.get(name);
            let mut difference = self.groups.note_pool(name, pool, definitions, &self.living.nodes);
            self.telling.note(std::mem::take(&mut difference.slices));
            for node in self.living.note_slices(difference) {
                of_ledgers.extend(index.ledgers_of(&node).cloned());
            }
        }
        let is_node = |name: &str| self.living.is_node(world, name);
        for name in &of_ledgers {
            let ledger = pools.get(name);
            let seen = ledger
                .and_then(|ledger| see_one(&ledger.pool, &index.network_names, &is_node, || ledger.span));
            let owned = ledger.is_some_and(|ledger| ledger.state() == State::Owned);
            self.telling.note(self.groups.note_ledger(name, seen, owned));
        }
        // Whoever is not there is told nothing.
        for node in &changes.nodes {
            self.telling.note(self.groups.slices_of(node));
        }
    }

    /// Until when a group rests, because one of its pools was written just now. The same version again is another attempt.
    fn rests_until(&self, world: &World, found: &Found, now: Timestamp) -> Option<Timestamp> {
        let rests = |name: &Arc<str>| {
            let (last, of) = self.pace.get(&**name)?;
            let version = world.ledgers().slices.get(name).and_then(ResourceExt::resource_version);
            (*of != version && *last <= now && now.since(*last) < PACE).then(|| last.plus(PACE))
        };
        let pools = found.members.iter().filter_map(|member| match member {
            Member::Pool(name) => Some(name),
            Member::Definition(_) | Member::Shared(_) => None,
        });
        pools.filter_map(rests).max()
    }

    fn plan_group(
        &mut self,
        Inputs { world, index, now, .. }: Inputs<'_>,
        found: &Found,
    ) -> Vec<LedgerWrite> {
        let ledgers = world.ledgers();
        let (mut definitions, mut pools, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for member in &found.members {
            match member {
                Member::Definition(key) => definitions.extend(index.definitions.get(key)),
                Member::Shared(name) => shared.extend(self.groups.shared(name)),
                Member::Pool(name) => {
                    let known = ledgers.slices.get(name).zip(self.groups.table(name));
                    pools.extend(known.map(|(object, table)| self.known_pool(object, table)));
                }
            }
        }
        let SlicePlan { guards, writes, changes, mut events, .. } = plan_group(&Group {
            namespace: &self.namespace,
            definitions: &definitions,
            nodes: &self.living.nodes,
            pools: &pools,
            holders: &self.groups.holders(found),
            shared: &shared,
            floating: &self.floating,
            now,
        });
        // Who asked first is decided by the clock of whoever stores definitions, which may be ahead.
        let created = definitions.iter().map(|definition| definition.attachment.created);
        if let Some(ahead) = created.filter(|created| *created > now).min() {
            self.resting.entry(ahead).or_default().extend(found.members.iter().cloned());
        }
        if !guards.is_empty() || !writes.is_empty() || !changes.is_empty() {
            self.groups.mark(found.members.iter().cloned());
        }
        // First of all nobody takes from a whole range that is cut.
        if !guards.is_empty() {
            return guards.into_iter().map(|pool| LedgerWrite::Guard { pool: Box::new(pool) }).collect();
        }
        let mut due = Vec::new();
        for write in writes {
            due.extend(match write {
                SliceWrite::Create(pool) | SliceWrite::Replace(pool) => {
                    let name = pool.name_any();
                    self.note_write(&name, pool.resource_version(), now);
                    let left = Leaving::of(&pool, ledgers.slices.get(&name), &self.living.nodes);
                    let (gone, left) = self.left.note(&left, now);
                    let events = events.extract_if(.., |event| event.pool == name).collect();
                    Some(LedgerWrite::Slices { pool, gone, left, events })
                }
                SliceWrite::Delete { name, .. } => {
                    ledgers.slices.get(&name).map(|pool| LedgerWrite::DropSlices { pool: At::of(pool) })
                }
                SliceWrite::Seal { name } => mark(ledgers, &name, State::Sliced),
                SliceWrite::Unseal { name } => mark(ledgers, &name, State::Unique),
            });
        }
        for change in changes {
            self.note_write(&change.name, change.version.clone(), now);
            let known = ledgers.slices.get(&change.name).zip(self.groups.table(&change.name));
            let Some((known, leaving)) =
                known.map(|(known, table)| (known, Leaving::with(&change, known, table)))
            else {
                continue;
            };
            let (gone, left) = self.left.note(&leaving, now);
            let events = events.extract_if(.., |event| event.pool == change.name).collect();
            due.push(LedgerWrite::ChangeSlices {
                pool: At::of(known),
                change: Box::new(change),
                gone,
                left,
                events,
            });
        }
        due
    }

    /// A pool, with what is remembered of its slices.
    fn known_pool<'a>(&self, object: &'a NodeSlicePool, table: &'a Table) -> SlicePool<'a> {
        #[cfg(test)]
        if self.tables == Tables::Unasked {
            return SlicePool::read(object);
        }
        _ = self;
        SlicePool { object, facts: table.facts(), table: Some(table) }
    }

    /// Notes when a pool was first planned to be written as it is.
    fn note_write(&mut self, name: &str, version: Option<String>, now: Timestamp) {
        if self.pace.get(name).is_none_or(|(_, of)| *of != version) {
            self.pace.insert(name.to_owned(), (now, version));
        }
    }

    /// Says that a definition cannot be read, once.
    fn say_refused(&mut self, key: &Arc<str>, definition: Option<&Definition>) {
        let Some(message) = definition.and_then(Definition::refusal) else {
            self.refused.remove(key);
            return;
        };
        if self.refused.get(key).is_some_and(|said| said == message) {
            return;
        }
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        tracing::warn!(attachment = &**key, message, "an attachment definition cannot be read");
        self.events.push(Event {
            pool: String::new(),
            about: About::Attachment(namespace.to_owned(), name.to_owned()),
            reason: "Refused",
            message: message.to_owned(),
        });
        self.refused.insert(key.clone(), message.to_owned());
    }
}

fn mark(ledgers: &Ledgers, name: &str, state: State) -> Option<LedgerWrite> {
    let ledger = ledgers.pools.get(name)?;
    Some(LedgerWrite::Mark { pool: At::of(&ledger.pool), mark: Mark::on(&ledger.pool, state) })
}

#[cfg(test)]
mod tests;
