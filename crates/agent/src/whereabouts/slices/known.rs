//! Which slices are this node's, as their own `IPPool`s tell it ([`Told`]).
//!
//! The node learns of a withdrawn slice at once, in the order of the events. It learns of a new one after
//! everything that it needs was read, or not at all if the slice was withdrawn meanwhile.
//!
//! An `IPPool` that an earlier version of the controller knew of says nothing. If it is the node's own, the node looks once into the
//! `NodeSlicePool`. A slice whose `IPPool` somebody deleted stays the node's until the `NodeSlicePool` says otherwise; nothing is
//! assigned from it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Api;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, label};
use tenure_ipam::{Address, Cidr};
use tenure_watch::{CallError, ErrorKind, Heard};
use tenure_whereabouts::ledger::{PoolId, State as LedgerState};
use tenure_whereabouts::slices::{Given, Told, slice_of};

use super::{Shared, State, pool_of};
use crate::node::Event;
use crate::objects::lock;

/// A slice that this node was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenSlice {
    pub(super) given: Given,
    /// The slice.
    pub(super) slice: Cidr,
    /// The name of its `IPPool`.
    pub(super) object: String,
    /// The UID of the `IPPool` that was the node's own before the `NodeSlicePool` was seen to give the slice, if it was seen.
    pub(super) seen_by: Option<String>,
}

/// What the `NodeSlicePool` says of an `IPPool` that says nothing.
#[derive(Clone, Debug)]
pub(super) enum Unsaid {
    /// It is being asked.
    Asked,
    /// It gives the slice, or does not.
    Answered(Option<Box<GivenSlice>>),
}

/// A slice that the node was told of.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The UID of the node's block.
    pub(super) block: String,
    pub(super) id: PoolId,
    /// The name of its `IPPool`.
    pub(super) object: String,
    /// The UID of the `IPPool` that was the node's own when it was last seen that the slice is given.
    pub(super) object_uid: String,
    /// What is cut.
    pub(super) whole: Option<Cidr>,
    /// Addresses that the whole range's records keep back.
    pub(super) kept_back: Vec<Address>,
    /// The `IPPool`s that do.
    pub(super) around: Vec<String>,
    /// Whether what is cut is another range than when they were read.
    pub(super) grown: bool,
    /// The `NodeSlicePool` that it is of.
    pub(super) pool_uid: String,
    /// Whether somebody takes this node for gone, and means to release its object or has.
    pub(super) marked: bool,
}

impl Taken {
    fn is(&self, given: &GivenSlice) -> bool {
        self.pool_uid == given.given.uid
            && self.id.range == given.slice
            && self.id.network == given.given.network
    }
}

impl GivenSlice {
    /// Whose slice it is, and which.
    pub(super) fn id(&self, node: &str) -> PoolId {
        PoolId::of_node(&self.given.network, node, self.slice)
    }

    fn of(object: &IPPool, given: Given, node: &str) -> Option<Self> {
        let slice = given.slice_of(object, node)?;
        let object = object.metadata.name.clone()?;
        Some(Self { given, slice, object, seen_by: None })
    }
}

impl Shared {
    pub(super) fn hear_record(self: &Arc<Self>, heard: Heard<IPPool>) {
        let changes = lock(&self.state).records.hear(heard);
        if !changes.is_empty() {
            self.heed();
            self.mind_marks();
            self.dirty.notify_one();
        }
    }

    /// Compares what the `IPPool`s say with what they said before.
    pub(super) fn heed(self: &Arc<Self>) {
        // Told under the lock: what is told in another order than it was heard would be wrong.
        let mut state = lock(&self.state);
        let given = self.given(&mut state);
        let before = std::mem::replace(&mut state.given, given);
        let names: BTreeSet<String> = before.keys().chain(state.given.keys()).cloned().collect();
        let mut changed = false;
        for name in names {
            let now = state.given.get(&name).cloned();
            if before.get(&name) == now.as_ref() {
                continue;
            }
            changed = true;
            if let Some(taken) = state.taken.get_mut(&name)
                && let Some(now) = now.as_ref().filter(|now| taken.is(now))
            {
                taken.grown |= taken.whole != now.given.whole();
                taken.whole = now.given.whole();
                continue;
            }
            state.aside.remove(&name);
            self.give_up(&mut state, &name);
            if let Some(now) = now {
                self.spawn(Arc::clone(self).take(name, now));
            }
        }
        drop(state);
        if changed {
            self.changed.send_modify(|version| *version += 1);
        }
        self.tell_if_all_read();
    }

    /// Nothing is assigned any more from the slice of a pool that the node was told of.
    fn give_up(&self, state: &mut State, name: &str) {
        if let Some(taken) = state.taken.remove(name) {
            tracing::info!(pool = name, slice = %taken.id.range, "a slice is not this node's any more");
            self.node.tell(Event::BlockGone { name: taken.object, uid: taken.block });
            self.node.tell(Event::PoolGone { name: pool_of(name) });
            self.dirty.notify_one();
        }
    }

    /// The slices that the `IPPool`s give, by the name of the `NodeSlicePool`.
    fn given(self: &Arc<Self>, state: &mut State) -> BTreeMap<String, GivenSlice> {
        let node = &self.options.node;
        let State { records, taken, given: before, unsaid, .. } = state;
        unsaid.retain(|name, _| records.facts(name).is_some_and(|record| Told::by(record) == Told::Nothing));
        let mut given: BTreeMap<String, GivenSlice> = BTreeMap::new();
        for (name, record) in records.all_facts() {
            let says = match Told::by(record) {
                Told::Given(said) => GivenSlice::of(record, said, node),
                Told::Nothing if LedgerState::of(record) == LedgerState::Owned => match unsaid.get(name) {
                    Some(Unsaid::Answered(answer)) => answer.as_deref().cloned(),
                    Some(Unsaid::Asked) => None,
                    None => {
                        unsaid.insert(name.to_owned(), Unsaid::Asked);
                        self.spawn(Arc::clone(self).ask(name.to_owned(), record.clone()));
                        None
                    }
                },
                Told::Nothing | Told::Withdrawn => None,
            };
            let Some(says) = says else { continue };
            // A node has one slice of a pool. If two objects say so, the later one has not been followed by the end of the other yet.
            let later =
                |known: &GivenSlice| (known.given.taken, &known.object) < (says.given.taken, &says.object);
            if given.get(&says.given.pool).is_none_or(later) {
                given.insert(says.given.pool.clone(), says);
            }
        }
        // What was deleted, and what is being asked for, does not say that a slice is the node's no more.
        for (name, taken) in taken {
            let is_silent = match records.facts(&taken.object) {
                None => true,
                Some(_) => matches!(unsaid.get(&taken.object), Some(Unsaid::Asked)),
            };
            if let Some(known) = before.get(name).filter(|_| is_silent) {
                given.entry(name.clone()).or_insert_with(|| known.clone());
            }
        }
        given
    }

    /// Whether the slice is still as it was told.
    pub(super) fn is_current(&self, name: &str, given: &GivenSlice) -> bool {
        lock(&self.state).given.get(name) == Some(given)
    }

    /// Asks the `NodeSlicePool` of which an own `IPPool` does not say that it gives the slice.
    async fn ask(self: Arc<Self>, object: String, record: IPPool) {
        let labels = record.metadata.labels.as_ref();
        let network = labels.and_then(|labels| labels.get(label::NETWORK)).cloned().unwrap_or_default();
        let had = self.had(&object, &network).await;
        let mut names: BTreeSet<String> =
            had.iter().filter_map(|(_, pool)| pool.strip_prefix(super::POOLS).map(str::to_owned)).collect();
        // The pool of a network's first range has its name.
        names.extend(Some(network).filter(|network| !network.is_empty()));
        let mut backoff = self.connection.backoff();
        let answer = loop {
            match self.look_into(&names, &record).await {
                Ok(answer) => break answer,
                Err(error) if error.kind() == ErrorKind::Final => {
                    tracing::warn!(%error, "it is not known whose slice this is until the controller says so");
                    break None;
                }
                Err(_) => {
                    backoff.wait().await;
                }
            }
        };
        let mut state = lock(&self.state);
        let is_left = answer.is_none() && state.listed && !state.managed.contains(&object);
        if let Some(left) = state.records.facts(&object).cloned().filter(|_| is_left) {
            self.tell_leftover(&mut state, object.clone(), &left);
        }
        state.unsaid.insert(object, Unsaid::Answered(answer.map(Box::new)));
        drop(state);
        self.heed();
    }

    /// The pool of these that gives this node the slice of an object.
    async fn look_into(
        &self,
        names: &BTreeSet<String>,
        record: &IPPool,
    ) -> Result<Option<GivenSlice>, CallError> {
        for name in names {
            let Some(pool) = self.read_pool(name).await? else { continue };
            let given = GivenSlice::of(record, Given::of(&pool), &self.options.node);
            let given =
                given.filter(|given| slice_of(name, Some(&pool), &self.options.node) == Ok(given.slice));
            if let Some(given) = given {
                return Ok(Some(GivenSlice { seen_by: record.metadata.uid.clone(), ..given }));
            }
        }
        Ok(None)
    }

    /// A pool, live, with the slices of all nodes.
    pub(super) async fn read_pool(&self, name: &str) -> Result<Option<NodeSlicePool>, CallError> {
        let pools: Api<NodeSlicePool> = self.api();
        self.insist(|| format!("reading NodeSlicePool {name:?}"), || pools.get_opt(name)).await
    }

    /// A live look has shown that a slice is not this node's.
    pub(super) fn is_not_given(self: &Arc<Self>, name: &str) {
        let mut state = lock(&self.state);
        let object = state.taken.get(name).map(|taken| taken.object.clone());
        self.give_up(&mut state, name);
        // If its object says so still, it is tried again.
        state.given.remove(name);
        if let Some(object) = object {
            let says = state.records.facts(&object).map(Told::by);
            if says.is_none_or(|says| says == Told::Nothing) {
                state.unsaid.insert(object, Unsaid::Answered(None));
            }
        }
        drop(state);
        self.heed();
    }
}
