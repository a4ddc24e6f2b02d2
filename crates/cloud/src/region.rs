//! The actors of a region, their common budget, and the order of moves.
//!
//! A range that moves is wanted at its new interface before it has left the old one. The region lets the new one wait until the old
//! one is rid of it, as far as is known: otherwise the cloud would refuse the update, and everything else in it.
//!
//! A step costs what is due, not what exists.

use std::collections::{BTreeMap, BTreeSet};

use tenure_handles::{Entropy, Timestamp};

use crate::actor::{Action, Actor, Answer, Attachment, Options, Refusal, Step};
use crate::budget::Budget;
use crate::cloud::Progress;
use crate::error::{CloudError, ErrorKind};
use crate::interface::{AliasRange, InterfaceId, Managed};

/// An interface as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Whether its list has been read, or the machine is known not to exist. Before, absence of a range means nothing.
    pub known: bool,
    /// Ranges that are wanted, and those of ours that are there or may be.
    pub ranges: BTreeMap<AliasRange, Attachment>,
    /// How many ranges of others it has.
    pub others: usize,
    /// So many ranges it takes, as far as is known.
    pub limit: usize,
    /// What the cloud refuses there.
    pub refusal: Option<Refusal>,
}

/// The interfaces of a region.
#[derive(Debug)]
pub struct Region {
    actors: BTreeMap<InterfaceId, Actor>,
    budget: Budget,
    options: Options,
    managed: Vec<Managed>,
    queue: Queue,
    /// What each interface may have, and the same by range.
    held: BTreeMap<InterfaceId, BTreeSet<AliasRange>>,
    has: BTreeSet<(AliasRange, InterfaceId)>,
    /// Which interfaces want a range.
    wants: BTreeSet<(AliasRange, InterfaceId)>,
    #[cfg(test)]
    pub(crate) planted: Option<crate::actor::Planted>,
}

impl Region {
    /// A region without interfaces. `managed` are the ranges of the pools: nothing else is removed from an interface.
    pub fn new(managed: Vec<Managed>, budget: Budget, options: Options) -> Self {
        Self {
            actors: BTreeMap::new(),
            budget,
            options,
            managed,
            queue: Queue::default(),
            held: BTreeMap::new(),
            has: BTreeSet::new(),
            wants: BTreeSet::new(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// What is wanted at an interface from now on.
    pub fn want(&mut self, interface: &InterfaceId, ranges: &BTreeSet<AliasRange>, now: Timestamp) {
        let actor = self.actors.entry(interface.clone()).or_insert_with(|| {
            self.queue.put(interface, now);
            let actor = Actor::new(interface.clone(), self.managed.clone(), self.options);
            #[cfg(test)]
            let actor = actor.with(self.planted);
            actor
        });
        let before: Vec<AliasRange> = actor.wanted().cloned().collect();
        if actor.want(ranges, now) {
            for range in before {
                self.wants.remove(&(range, interface.clone()));
            }
            self.wants.extend(ranges.iter().map(|range| (range.clone(), interface.clone())));
            self.queue.put(interface, now);
        }
    }

    /// What of every interface's list is ours to remove from now on.
    pub fn manage(&mut self, managed: &[Managed], now: Timestamp) {
        self.managed = managed.to_vec();
        for (interface, actor) in &mut self.actors {
            if actor.manage(managed) {
                self.queue.put(interface, now);
            }
        }
    }

    /// What is known of an interface may be wrong: it is read again.
    pub fn look_again(&mut self, interface: &InterfaceId, now: Timestamp) {
        if let Some(actor) = self.actors.get_mut(interface) {
            actor.look_again();
            self.queue.put(interface, now);
        }
    }

    /// All that is known of an interface.
    pub fn view(&self, interface: &InterfaceId) -> View {
        let Some(actor) = self.actors.get(interface) else { return View::default() };
        let ours = |range: &&AliasRange| self.managed.iter().any(|managed| managed.has(range));
        let there = actor.may_have_all().into_iter().filter(ours);
        let ranges = actor.wanted().chain(there).map(|range| {
            let attachment = match actor.attachment(range) {
                // An update that adds it is under way, and it is not wanted any more.
                Attachment::Absent => Attachment::Detaching,
                attachment => attachment,
            };
            (range.clone(), attachment)
        });
        let ranges = ranges.collect();
        let (known, others, limit, refusal) =
            (actor.is_known(), actor.others(), actor.limit(), actor.refusal());
        View { known, ranges, others, limit, refusal }
    }

    /// Where a range is, as seen from an interface.
    pub fn attachment(&self, interface: &InterfaceId, range: &AliasRange) -> Attachment {
        self.actors.get(interface).map_or(Attachment::Absent, |actor| actor.attachment(range))
    }

    /// The interface of this region that has the range, as far as is known.
    pub fn known_owner(&self, range: &AliasRange) -> Option<&InterfaceId> {
        holders(&self.has, range).next()
    }

    /// The requests that are due. Each of them must be answered.
    pub fn next(&mut self, now: Timestamp, entropy: &dyn Entropy) -> Vec<(InterfaceId, Action)> {
        let mut actions = Vec::new();
        while let Some(due) = self.queue.take(now) {
            let Some(actor) = self.actors.get_mut(&due.interface) else { continue };
            let has = &self.has;
            let elsewhere = |range: &AliasRange| holders(has, range).any(|holder| *holder != due.interface);
            match actor.next(now, &elsewhere, &|| entropy.uuid()) {
                Step::Nothing => {}
                Step::Until(time) => self.queue.put(&due.interface, time),
                Step::Do(action) => {
                    if let Err(time) = self.budget.take(action.kind(), now) {
                        self.queue.put_back(due, time);
                        continue;
                    }
                    actor.sent(&action);
                    self.note_holdings(&due.interface, now);
                    actions.push((due.interface, action));
                }
            }
        }
        actions
    }

    /// What became of a request.
    pub fn answer(&mut self, interface: &InterfaceId, answer: Answer, now: Timestamp) {
        if let Some(ErrorKind::Throttled(wait)) = error_of(&answer).map(|error| error.kind) {
            self.budget.refused(wait, now);
        }
        let Some(actor) = self.actors.get_mut(interface) else { return };
        actor.answer(answer, now);
        self.queue.put(interface, now);
        self.note_holdings(interface, now);
    }

    /// When to look again if nothing happens before.
    pub fn next_look(&self) -> Option<Timestamp> {
        self.queue.first()
    }

    /// Forgets an interface that nothing is wanted at and that has nothing of ours. Says whether it did.
    pub fn forget(&mut self, interface: &InterfaceId) -> bool {
        let idle = self.actors.get(interface).is_some_and(|actor| {
            actor.wanted().next().is_none() && actor.is_settled() && !actor.is_in_doubt()
        });
        if idle {
            self.actors.remove(interface);
            self.queue.remove(interface);
            for range in self.held.remove(interface).unwrap_or_default() {
                self.has.remove(&(range, interface.clone()));
            }
        }
        idle
    }

    /// Brings the index of holders up to date, and wakes those who waited for a range that is free now.
    fn note_holdings(&mut self, interface: &InterfaceId, now: Timestamp) {
        let Some(actor) = self.actors.get(interface) else { return };
        let holds: BTreeSet<AliasRange> = actor.may_have_all().into_iter().cloned().collect();
        let held = self.held.insert(interface.clone(), holds.clone()).unwrap_or_default();
        for range in held.difference(&holds) {
            self.has.remove(&(range.clone(), interface.clone()));
            for waiting in holders(&self.wants, range).filter(|waiting| *waiting != interface) {
                self.queue.put(waiting, now);
            }
        }
        self.has.extend(holds.difference(&held).map(|range| (range.clone(), interface.clone())));
    }
}

/// The interfaces that an index has for a range.
fn holders<'a>(
    index: &'a BTreeSet<(AliasRange, InterfaceId)>,
    range: &AliasRange,
) -> impl Iterator<Item = &'a InterfaceId> {
    let from = InterfaceId { zone: String::new(), instance: String::new(), name: String::new() };
    index
        .range((range.clone(), from)..)
        .take_while(move |(other, _)| other == range)
        .map(|(_, holder)| holder)
}

fn error_of(answer: &Answer) -> Option<&CloudError> {
    match answer {
        Answer::Unfinished(Err(error))
        | Answer::Observed(Err(error))
        | Answer::Applied(Err(error))
        | Answer::Polled(Err(error) | Ok(Progress::Failed(error)))
        | Answer::Owner(Err(error)) => Some(error),
        _ => None,
    }
}

/// Who is to be asked when. Those who had to wait for the budget keep their turn.
#[derive(Debug, Default)]
struct Queue {
    due: BTreeSet<(Timestamp, u64, InterfaceId)>,
    of: BTreeMap<InterfaceId, (Timestamp, u64)>,
    turn: u64,
}

/// An interface whose time has come.
struct DueTurn {
    interface: InterfaceId,
    turn: u64,
}

impl Queue {
    /// An earlier time stays.
    fn put(&mut self, interface: &InterfaceId, time: Timestamp) {
        self.turn += 1;
        self.insert(interface.clone(), time, self.turn);
    }

    fn put_back(&mut self, due: DueTurn, time: Timestamp) {
        self.insert(due.interface, time, due.turn);
    }

    fn insert(&mut self, interface: InterfaceId, time: Timestamp, turn: u64) {
        match self.of.get(&interface) {
            Some((earlier, _)) if *earlier <= time => return,
            Some((later, turn)) => {
                self.due.remove(&(*later, *turn, interface.clone()));
            }
            None => {}
        }
        self.of.insert(interface.clone(), (time, turn));
        self.due.insert((time, turn, interface));
    }

    fn take(&mut self, now: Timestamp) -> Option<DueTurn> {
        let (_, turn, interface) = self.due.first().filter(|(time, ..)| *time <= now).cloned()?;
        self.remove(&interface);
        Some(DueTurn { interface, turn })
    }

    fn remove(&mut self, interface: &InterfaceId) {
        if let Some((time, turn)) = self.of.remove(interface) {
            self.due.remove(&(time, turn, interface.clone()));
        }
    }

    fn first(&self) -> Option<Timestamp> {
        self.due.first().map(|(time, ..)| *time)
    }
}

#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;
