//! The slices' records, written asynchronously.
//!
//! A change wakes the writer. It waits a moment for more, reads the node's holds, and makes the objects equal
//! to them: with one write each, and only where they differ. Failures are retried with the holds of that
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use kube::Api;
use kube::api::PostParams;
use tenure_api::release::RELEASING;
use tenure_api::whereabouts::{IPPool, Reservation};
use tenure_watch::{CallError, Epoch, Heard, Identity, exactly};
use tenure_whereabouts::ledger::{PoolId, State, owned_object};
use tenure_whereabouts::slices::{CONFIRMED, GIVEN, Told};

use super::known::{GivenSlice, Unsaid};
use super::{POOLS, Shared};
use crate::key::Pod;
use crate::node::{Node, SliceHold, SliceView};
use crate::objects::lock;

/// How many conflicts in a row an object may have before it is left for later.
const TRIES: usize = 5;

/// What an object should contain.
#[derive(Clone, Debug)]
struct Want {
    id: PoolId,
    owned: bool,
    held: Vec<Reservation>,
}

/// The result of an attempt to write an object.
enum Tried {
    Done,
    /// The object was not as expected.
    Again,
}

impl Shared {
    pub(super) async fn write_behind(self: Arc<Self>) {
        let mut backoff = self.connection.backoff();
        loop {
            self.dirty.notified().await;
            tokio::time::sleep(self.options.debounce).await;
            let alone = self.writing.write().await;
            // A node that has not replayed everything does not know its holds.
            let Some(views) = self.look(Node::slices).await else {
                drop(alone);
                tokio::time::sleep(self.options.debounce).await;
                self.dirty.notify_one();
                continue;
            };
            let written = self.write_all(views).await;
            drop(alone);
            match written {
                Ok(()) => {
                    backoff.reset();
                    self.connection.health().heard(super::RECORD_WRITES);
                }
                Err(problem) => {
                    tracing::warn!(problem, "the records of slices cannot be written yet");
                    let wait = backoff.fail();
                    self.connection.health().failed(super::RECORD_WRITES, problem, wait);
                    tokio::time::sleep(wait).await;
                    self.dirty.notify_one();
                }
            }
        }
    }

    /// Makes all objects equal to the node's holds.
    async fn write_all(self: &Arc<Self>, views: Vec<SliceView>) -> Result<(), String> {
        let wanted = wanted(&self.options.node, views);
        let names: BTreeSet<String> = {
            let mut state = lock(&self.state);
            if !state.told {
                return Err("not all slices are read yet".to_owned());
            }
            state.managed.extend(wanted.keys().cloned());
            let known: Vec<String> = state.records.all_facts().map(|(name, _)| name.to_owned()).collect();
            // What somebody else put there in this node's name is not ours to delete.
            let known = known.into_iter().filter(|name| state.managed.contains(name));
            known.chain(wanted.keys().cloned()).collect()
        };
        let writes = names.iter().map(|name| self.write(name, wanted.get(name)));
        let problems: Vec<String> = join_all(writes)
            .await
            .into_iter()
            .zip(&names)
            .filter_map(|(written, name)| Some(format!("IPPool {name:?}: {}", written.err()?)))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    async fn write(self: &Arc<Self>, name: &str, want: Option<&Want>) -> Result<(), String> {
        for _ in 0..TRIES {
            let base = lock(&self.state).records.facts(name).cloned();
            let tried = match self.desired(want, base.as_ref())? {
                None => match base {
                    None => return Ok(()),
                    Some(base) => self.delete(name, &base).await,
                },
                Some(object) => match base {
                    Some(base) if base == object => {
                        self.look_whether_given(&base).await.map_err(|error| error.to_string())?;
                        self.mind_marks();
                        return Ok(());
                    }
                    Some(_) => self.replace(name, &object).await,
                    None => self.create(name, &object).await,
                },
            };
            match tried {
                Ok(Tried::Done) => return Ok(()),
                Ok(Tried::Again) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("somebody else changes it again and again".to_owned())
    }

    /// The object as it should be; `None` if there should be none.
    fn desired(&self, want: Option<&Want>, base: Option<&IPPool>) -> Result<Option<IPPool>, String> {
        let Some(want) = want else {
            // Only invalid records, if any, are left of it.
            let left = base.cloned().map(without_sensible);
            return Ok(left.filter(|left| !left.spec.allocations.is_empty()));
        };
        let state = if want.owned { State::Owned } else { State::Unique };
        let mut object =
            owned_object(&want.id, state, &want.held, base).map_err(|error| error.to_string())?;
        object.metadata.namespace = Some(self.options.namespace.clone());
        // Somebody thought that this node was gone.
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.remove(RELEASING);
        if !want.owned {
            annotations.remove(CONFIRMED);
        }
        // A range cannot be changed, not even to the same one in another notation.
        if let Some(base) = base.filter(|base| base.spec.cidr() == Ok(want.id.range)) {
            object.spec.range.clone_from(&base.spec.range);
        }
        // An object of this node's slice stays even without pods; otherwise a missing object means that
        // nothing is held.
        let nothing = object.spec.allocations.is_empty() && !want.owned;
        if want.owned && Some(&object) != base {
            self.confirm(&mut object, base);
        }
        Ok((!nothing).then_some(object))
    }

    /// Adds to an object that is written anyway that its slice was seen to be this node's since it says so. One that is created, or
    /// made the node's, is still to be looked at, and nobody but the controller says whose it is.
    fn confirm(&self, object: &mut IPPool, base: Option<&IPPool>) {
        let state = lock(&self.state);
        let mut taken = state.taken.values().filter(|it| Some(&it.object) == object.metadata.name.as_ref());
        let uid = taken.next().filter(|taken| {
            let is_it = |base: &&IPPool| base.metadata.uid.as_ref() == Some(&taken.object_uid);
            base.filter(is_it).is_some_and(|base| State::of(base) == State::Owned)
        });
        let annotations = object.metadata.annotations.get_or_insert_default();
        match uid {
            Some(taken) => _ = annotations.insert(CONFIRMED.to_owned(), taken.pool_uid.clone()),
            None => _ = annotations.remove(CONFIRMED),
        }
        if base.is_none() {
            annotations.remove(GIVEN);
        }
    }

    async fn create(self: &Arc<Self>, name: &str, object: &IPPool) -> Result<Tried, CallError> {
        let records: Api<IPPool> = self.api();
        let (plain, call) = (PostParams::default(), lock(&self.state).records.epoch());
        match self.insist(act("creating", name), || records.create(&plain, object)).await {
            Ok(made) => {
                self.look_whether_given(&made).await?;
                Ok(self.written(call, made))
            }
            Err(error) if error.code() == Some(409) => self.read_again(name).await,
            Err(error) => Err(error),
        }
    }

    /// An object that was gone is made again, or is another one now: whoever deleted it may be about to give the slice away, and looks
    /// for the object before that.
    async fn look_whether_given(self: &Arc<Self>, made: &IPPool) -> Result<(), CallError> {
        let object = made.metadata.name.as_ref();
        let uid = made.metadata.uid.clone().unwrap_or_default();
        let others: Vec<(String, GivenSlice)> = {
            let state = lock(&self.state);
            let of_object =
                state.taken.iter().filter(|(_, it)| Some(&it.object) == object && it.object_uid != uid);
            of_object.filter_map(|(name, _)| Some((name.clone(), state.given.get(name)?.clone()))).collect()
        };
        for (name, given) in others {
            if self.is_given_live(&name, &given).await? {
                let mut state = lock(&self.state);
                if let Some(taken) = state.taken.get_mut(&name).filter(|taken| Some(&taken.object) == object)
                {
                    taken.object_uid.clone_from(&uid);
                }
                if Told::by(made) == Told::Nothing {
                    let given = GivenSlice { seen_by: Some(uid.clone()), ..given };
                    state.unsaid.insert(given.object.clone(), Unsaid::Answered(Some(Box::new(given))));
                }
            } else {
                self.is_not_given(&name);
            }
        }
        Ok(())
    }

    async fn replace(self: &Arc<Self>, name: &str, object: &IPPool) -> Result<Tried, CallError> {
        let records: Api<IPPool> = self.api();
        let (plain, call) = (PostParams::default(), lock(&self.state).records.epoch());
        match self.insist(act("replacing", name), || records.replace(name, &plain, object)).await {
            Ok(made) => {
                self.look_whether_given(&made).await?;
                Ok(self.written(call, made))
            }
            Err(error) if error.is_stale() => self.read_again(name).await,
            Err(error) => Err(error),
        }
    }

    async fn delete(self: &Arc<Self>, name: &str, base: &IPPool) -> Result<Tried, CallError> {
        let records: Api<IPPool> = self.api();
        let exactly = exactly(base.metadata.uid.clone(), base.metadata.resource_version.clone());
        match self.insist(act("deleting", name), || records.delete(name, &exactly)).await {
            Ok(_) => {
                self.is_gone(name, base);
                Ok(Tried::Done)
            }
            Err(error) if error.is_stale() => self.read_again(name).await,
            Err(error) => Err(error),
        }
    }

    /// Processes the answer to a write of this epoch.
    fn written(self: &Arc<Self>, call: Epoch, made: IPPool) -> Tried {
        self.hear_record(Heard::Answered(call, Identity::named(&made.metadata), Some(made)));
        self.mind_marks();
        Tried::Done
    }

    async fn read_again(self: &Arc<Self>, name: &str) -> Result<Tried, CallError> {
        let records: Api<IPPool> = self.api();
        let call = lock(&self.state).records.epoch();
        let found = self.insist(act("reading", name), || records.get_opt(name)).await?;
        let known = lock(&self.state).records.facts(name).cloned();
        if let Some(found) = found {
            let heard = Heard::Answered(call, Identity::named(&found.metadata), Some(found));
            self.hear_record(heard);
        } else if let Some(known) = known {
            self.is_gone(name, &known);
        }
        Ok(Tried::Again)
    }

    fn is_gone(self: &Arc<Self>, name: &str, object: &IPPool) {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        self.hear_record(Heard::Gone(name.to_owned(), uid));
    }
}

/// What is done with an object, for errors.
fn act(act: &'static str, name: &str) -> impl Fn() -> String {
    move || format!("{act} IPPool {name:?}")
}

/// What each object should say. A slice that was taken away and given again may be there twice for a moment.
fn wanted(node: &str, views: Vec<SliceView>) -> BTreeMap<String, Want> {
    let mut wanted: BTreeMap<String, Want> = BTreeMap::new();
    for view in views {
        let network = view.realm.strip_prefix(POOLS).unwrap_or_default();
        let id = PoolId::of_node(network, node, view.cidr);
        let want = wanted.entry(view.name).or_insert_with(|| Want { id, owned: false, held: Vec::new() });
        want.owned |= view.owned;
        want.held.extend(view.holds.iter().map(reservation));
    }
    wanted
}

fn reservation(hold: &SliceHold) -> Reservation {
    let Pod { namespace, name, uid } = &hold.pod;
    Reservation {
        id: hold.container().to_owned(),
        podref: if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") },
        uid: uid.clone(),
        ifname: hold.interface().to_owned(),
        address: hold.address,
    }
}

/// An object with only the invalid records: they stay, and nobody has them.
fn without_sensible(mut object: IPPool) -> IPPool {
    let last = object.spec.cidr().ok().map(|range| range.last_offset());
    object.spec.allocations.retain(|key, _| {
        let decimal = key.bytes().all(|byte| byte.is_ascii_digit());
        let offset: Option<u128> = key.parse().ok().filter(|_| decimal);
        offset.zip(last).is_none_or(|(offset, last)| offset > last)
    });
    object
}
