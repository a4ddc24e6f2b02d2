//! The single writer of one interface: what is wanted there, what is there, and the one update under way.
//!
//! ```text
//!            nothing under way               list differs from what is wanted
//!  ┌────────┐ ───────────────▶ ┌──────────┐ ────────────────────▶ ┌──────────┐  answer lost: the same
//!  │ Looking│                  │   Idle   │      apply            │  Sending │ ◀─┐ request again
//!  └────────┘                  └──────────┘                       └──────────┘ ──┘
//!       │ an operation is             ▲  ▲ refused: read again          │ accepted
//!       │ under way                   │  └──────────────────────────────┤
//!       │                             │ done or failed: read again      ▼
//!       └─────────────────────────────┼──────────────────────────▶ ┌──────────┐
//!                                     └─────────────────────────── │  Running │ poll
//!                                                                  └──────────┘
//! ```
//!
//! What it promises:
//!
//! - One request at a time, one update at a time, each on the version that was read just before, each with its own request ID.
//! - An update either adds or removes. Ranges of others on the interface stay in every list.
//! - [`Attachment::Attached`] means that the cloud's own list had the range when it was read last, and that nothing was sent since that
//!   removes it.
//! - It looks at the present state, not at what happened: whatever an answer said, the next read decides.

mod options;
mod plan;
mod planted;
mod refusal;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_handles::Timestamp;
use tenure_ipam::Cidr;

use crate::budget::next_minute;
use crate::cloud::{Observed, Owner, Progress, Ticket, Update};
use crate::error::{CloudError, ErrorKind};
use crate::interface::{AliasRange, InterfaceId, Managed};
pub use options::Options;
#[cfg(test)]
pub(crate) use planted::Planted;
#[cfg(not(test))]
use planted::Planted;
pub use refusal::Refusal;
use refusal::Refused;
pub use step::{Action, Answer, Attachment, Step};

/// After so many lost answers in a row it is asked what became of the update.
const MOST_LOST: u32 = 8;

/// The single writer of one interface.
#[derive(Clone, Debug)]
pub struct Actor {
    id: InterfaceId,
    options: Options,
    /// What of the interface's list is ours to remove.
    managed: Vec<Managed>,
    wanted: BTreeMap<AliasRange, Want>,
    /// The number of the next want.
    next_want: u64,
    /// The first change of what is wanted that no update carries yet.
    changed: Option<Timestamp>,
    state: State,
    /// A request has no answer yet.
    calling: bool,
    known: Known,
    /// What updates since the last read were about: it may be there, whatever became of them.
    doubt: BTreeSet<AliasRange>,
    /// What the cloud refused last.
    refused: Option<Refused>,
    /// Nothing is sent before this.
    rest_until: Timestamp,
    failures: u32,
    /// The answer to an update was lost, and it is not known what became of it.
    lost: bool,
    /// Updates in a row that came too late.
    conflicts: u32,
    /// So many ranges are added at once: fewer after a refusal that does not say which one was meant.
    most: usize,
    added_last: bool,
    #[cfg(test)]
    pub(crate) planted: Option<Planted>,
}

/// A range that is wanted.
#[derive(Clone, Debug)]
struct Want {
    /// Earlier ones come first where there is no room for all.
    number: u64,
    refused: Option<String>,
    /// It is not added before this.
    not_before: Timestamp,
    /// Another interface has it, and it is not known which.
    find_owner: bool,
    /// Where in the cloud's list to go on.
    page: Option<String>,
}

#[derive(Clone, Debug)]
enum State {
    Looking,
    Idle,
    Sending(Update),
    Running { ticket: Ticket, update: Option<Update>, since: Timestamp, next: Timestamp },
}

/// The interface as it was read last.
#[derive(Clone, Debug, Default)]
struct Known {
    aliases: BTreeSet<AliasRange>,
    /// None: it has to be read before the next update.
    version: Option<String>,
    read: Option<Timestamp>,
    limit: Option<usize>,
}

impl Actor {
    /// The writer of an interface about which nothing is known. Of its list it removes only what lies in `managed`.
    pub fn new(id: InterfaceId, managed: Vec<Managed>, options: Options) -> Self {
        Self {
            id,
            options,
            managed,
            wanted: BTreeMap::new(),
            next_want: 0,
            changed: None,
            state: State::Looking,
            calling: false,
            known: Known::default(),
            doubt: BTreeSet::new(),
            refused: None,
            rest_until: Timestamp::default(),
            failures: 0,
            lost: false,
            conflicts: 0,
            most: usize::MAX,
            added_last: false,
            #[cfg(test)]
            planted: None,
        }
    }

    /// What is wanted from now on. Says whether that is something else than before.
    pub fn want(&mut self, ranges: &BTreeSet<AliasRange>, now: Timestamp) -> bool {
        let before = self.wanted.len();
        self.wanted.retain(|range, _| ranges.contains(range));
        let mut changed = self.wanted.len() != before;
        for range in ranges {
            if !self.wanted.contains_key(range) {
                let number = self.next_want;
                let want = Want { number, refused: None, not_before: now, find_owner: false, page: None };
                self.next_want += 1;
                self.wanted.insert(range.clone(), want);
                changed = true;
            }
        }
        if changed {
            self.changed.get_or_insert(now);
        }
        changed
    }

    /// What of its list is ours to remove from now on. Says whether that is something else than before.
    pub fn manage(&mut self, managed: &[Managed]) -> bool {
        let changed = self.managed != managed;
        if changed {
            self.managed = managed.to_vec();
        }
        changed
    }

    /// Whether its list has been read, or the machine is known not to exist.
    pub fn is_known(&self) -> bool {
        self.known.read.is_some()
    }

    /// How many ranges of others the interface had when it was read last.
    pub fn others(&self) -> usize {
        self.known.aliases.iter().filter(|range| !self.is_ours(range)).count()
    }

    /// Where a range is.
    pub fn attachment(&self, range: &AliasRange) -> Attachment {
        let there = self.known.aliases.contains(range);
        match self.wanted.get(range) {
            Some(_) if there => Attachment::Attached,
            Some(want) => match &want.refused {
                Some(why) => Attachment::Refused(why.clone()),
                None => Attachment::Attaching,
            },
            None if there || self.removing().contains(range) => Attachment::Detaching,
            None => Attachment::Absent,
        }
    }

    /// What is wanted here.
    pub fn wanted(&self) -> impl Iterator<Item = &AliasRange> {
        self.wanted.keys()
    }

    /// Whether the interface may have the range: it was there when it was read, or an update since then is about it. Nobody else can
    /// get it before that is over.
    pub fn may_have(&self, range: &AliasRange) -> bool {
        self.known.aliases.contains(range) || self.doubt.contains(range)
    }

    /// All that the interface may have.
    pub fn may_have_all(&self) -> BTreeSet<&AliasRange> {
        self.known.aliases.iter().chain(&self.doubt).collect()
    }

    /// Whether an update has ended since its list was read.
    pub fn is_in_doubt(&self) -> bool {
        !self.doubt.is_empty()
    }

    /// The next request, if it is time for one. `elsewhere` says whether another interface has a range; `request` makes a request ID.
    pub fn next(
        &mut self,
        now: Timestamp,
        elsewhere: &dyn Fn(&AliasRange) -> bool,
        request: &dyn Fn() -> String,
    ) -> Step {
        if self.calling {
            return Step::Nothing;
        }
        if now < self.rest_until {
            return Step::Until(self.rest_until);
        }
        match &self.state {
            State::Looking => Step::Do(Action::Unfinished),
            State::Sending(update) => Step::Do(Action::Apply(self.again(update, request))),
            State::Running { next, .. } if now < *next => Step::Until(*next),
            State::Running { ticket, .. } => Step::Do(Action::Poll(ticket.clone())),
            State::Idle if self.known.version.is_none() => Step::Do(Action::Observe),
            State::Idle => self.plan(now, elsewhere, request),
        }
    }

    /// The step was taken: the request is on its way.
    pub fn sent(&mut self, action: &Action) {
        self.calling = true;
        if let Action::Apply(update) = action {
            self.changed = None;
            self.added_last = !update.added.is_empty();
            self.doubt.extend(update.added.iter().chain(&update.removed).cloned());
            // What is being removed is no longer attached, whatever comes of it, until the interface is read again.
            if !self.has(Planted::ForgetsRemoval) {
                self.known.aliases.retain(|range| !update.removed.contains(range));
            }
            if !self.has(Planted::OldVersion) {
                self.known.version = None;
            }
            self.state = State::Sending(update.clone());
        }
    }

    /// What became of the request.
    pub fn answer(&mut self, answer: Answer, now: Timestamp) {
        self.calling = false;
        match answer {
            Answer::Unfinished(Ok(None)) => {
                (self.failures, self.lost) = (0, false);
                self.idle();
            }
            Answer::Unfinished(Ok(Some(ticket))) => {
                self.lost = false;
                self.run(ticket, None, now);
            }
            Answer::Observed(Ok(observed)) => self.observed(observed, now),
            Answer::Applied(Ok(ticket)) => {
                let update = self.update().cloned();
                if let Some(update) = update.as_ref().filter(|_| self.has(Planted::TrustsSent)) {
                    self.known.aliases.extend(update.added.clone());
                }
                (self.failures, self.conflicts, self.lost) = (0, 0, false);
                self.run(ticket, update, now);
            }
            Answer::Polled(Ok(Progress::Running)) => self.still_running(now),
            Answer::Polled(Ok(Progress::Done)) => {
                self.most = self.most.saturating_mul(2);
                // What was removed is gone at once, so that whoever waits for it need not wait for a read.
                for range in self.removing() {
                    self.doubt.remove(&range);
                }
                self.idle();
            }
            Answer::Polled(Ok(Progress::Failed(error))) => self.update_failed(&error, now),
            Answer::Applied(Err(error)) => {
                // Only a lost answer leaves open what became of the update.
                if error.kind == ErrorKind::Transient {
                    self.lost = true;
                    self.rest(now);
                    if self.failures > MOST_LOST {
                        self.state = State::Looking;
                    }
                } else {
                    self.update_failed(&error, now);
                }
            }
            Answer::Polled(Err(error)) => self.poll_failed(&error, now),
            Answer::Owner(answer) => self.owner_found(answer, now),
            Answer::Unfinished(Err(error)) | Answer::Observed(Err(error)) => self.read_failed(&error, now),
        }
    }

    fn observed(&mut self, observed: Observed, now: Timestamp) {
        for range in &observed.aliases {
            if let Some(want) = self.wanted.get_mut(range) {
                (want.refused, want.find_owner) = (None, false);
            }
        }
        self.doubt.clear();
        let Observed { aliases, version, limit } = observed;
        self.known = Known { aliases, version: Some(version), read: Some(now), limit: Some(limit) };
        self.note_read();
    }

    fn run(&mut self, ticket: Ticket, update: Option<Update>, now: Timestamp) {
        self.state = State::Running { ticket, update, since: now, next: now.plus(self.options.poll) };
    }

    fn still_running(&mut self, now: Timestamp) {
        let State::Running { ticket, since, next, .. } = &mut self.state else { return };
        *next = now.plus(self.options.poll);
        let (ticket, age) = (ticket.0.clone(), now.since(*since));
        if age >= self.options.lost {
            let added = self.update().map(|update| update.added.clone()).unwrap_or_default();
            let message = format!("operation {ticket} has been under way for {} s", age.as_secs());
            self.refuse(&added, &CloudError::new(ErrorKind::NotReady, message), now);
            // What it changes is not known before it ends: look whether it still exists.
            self.state = State::Looking;
        }
    }

    /// Nothing is under way, and the interface has to be read. After a lost answer something may be under way all the same: a refusal of
    /// the second try does not say what became of the first.
    fn idle(&mut self) {
        self.state = if self.lost { State::Looking } else { State::Idle };
        if !self.has(Planted::OldVersion) {
            self.known.version = None;
        }
    }

    /// An update changed nothing.
    fn update_failed(&mut self, error: &CloudError, now: Timestamp) {
        let update = self.update().cloned();
        let added = update.as_ref().map(|update| update.added.clone()).unwrap_or_default();
        self.idle();
        match error.kind {
            // Somebody else was faster: what is there now is read at once. Who loses again and again waits longer.
            ErrorKind::Conflict => {
                self.conflicts += 1;
                if self.conflicts > 2 {
                    self.rest(now);
                }
            }
            ErrorKind::InUse(range) | ErrorKind::Invalid(range) => self.blame(&added, range, error, now),
            ErrorKind::Throttled(wait) => self.throttled(wait, now),
            ErrorKind::NotFound => self.gone(error, now),
            ErrorKind::NotReady | ErrorKind::Transient => self.rest(now),
            ErrorKind::Capacity | ErrorKind::Denied => {
                let about = update.map(|update| update.added.into_iter().chain(update.removed).collect());
                self.note_refusal(Some(&about.unwrap_or_default()), error);
                self.refuse(&added, error, now.plus(self.options.longest_rest));
                self.rest_until = now.plus(self.options.longest_rest);
            }
        }
    }

    fn poll_failed(&mut self, error: &CloudError, now: Timestamp) {
        match error.kind {
            ErrorKind::NotFound => self.idle(),
            ErrorKind::Throttled(wait) => self.throttled(wait, now),
            _ => {
                self.note_refusal(None, error);
                self.rest(now);
            }
        }
        self.still_running(now);
    }

    fn read_failed(&mut self, error: &CloudError, now: Timestamp) {
        match error.kind {
            ErrorKind::NotFound => {
                self.idle();
                self.gone(error, now);
            }
            ErrorKind::Throttled(wait) => self.throttled(wait, now),
            _ => {
                self.note_refusal(None, error);
                self.rest(now);
            }
        }
    }

    fn owner_found(&mut self, answer: Result<Owner, CloudError>, now: Timestamp) {
        let failed = answer.as_ref().err().cloned();
        let (id, pause) = (self.id.clone(), self.options.longest_rest);
        if let Some((range, want)) = self.wanted.iter_mut().find(|(_, want)| want.find_owner) {
            let searching = matches!(answer, Ok(Owner::NextPage(_)) | Err(_));
            (want.find_owner, want.page) = (searching, None);
            match answer {
                Ok(Owner::NextPage(page)) => want.page = Some(page),
                // From the first page again: the list may be another one by then.
                Err(_) => {}
                Ok(Owner::Interface(owner)) if owner != id => {
                    want.refused = Some(format!(
                        "{range} is attached to {owner}; it can be added to {id} when it is removed there"
                    ));
                    want.not_before = now.plus(pause);
                }
                // It is free by now, or here already.
                Ok(Owner::Interface(_) | Owner::Nobody) => want.not_before = now,
            }
        }
        if let Some(error) = failed {
            self.read_failed(&error, now);
        }
    }

    /// What it knows may be wrong: the machine was made anew. It reads the interface before the next update, or now.
    pub fn look_again(&mut self) {
        self.known.version = None;
    }

    /// The machine does not exist: nothing is attached to it.
    fn gone(&mut self, error: &CloudError, now: Timestamp) {
        self.known.aliases.clear();
        self.doubt.clear();
        self.known.read = Some(now);
        let all = self.wanted.keys().cloned().collect();
        self.refuse(&all, error, now);
        self.rest_until = now.plus(self.options.longest_rest);
    }

    fn refuse(&mut self, ranges: &BTreeSet<AliasRange>, error: &CloudError, not_before: Timestamp) {
        for range in ranges {
            if let Some(want) = self.wanted.get_mut(range) {
                want.refused = Some(format!("adding {range} to {}: {error}", self.id));
                want.not_before = not_before;
            }
        }
    }

    /// One of the added ranges was refused. If it is not known which, fewer go into the next update, until it is alone.
    fn blame(
        &mut self,
        added: &BTreeSet<AliasRange>,
        named: Option<Cidr>,
        error: &CloudError,
        now: Timestamp,
    ) {
        let named = named.and_then(|cidr| added.iter().find(|range| range.cidr == cidr));
        let guilty = named.or_else(|| added.first().filter(|_| added.len() == 1)).cloned();
        let Some(guilty) = guilty else {
            self.most = (added.len() / 2).max(1);
            return self.rest(now);
        };
        if self.has(Planted::SameAgain) {
            return;
        }
        let in_use = matches!(error.kind, ErrorKind::InUse(_));
        let pause = self.options.longest_rest;
        let alone = BTreeSet::from([guilty.clone()]);
        self.refuse(&alone, error, now.plus(pause));
        self.note_refusal(Some(&alone), error);
        if let Some(want) = self.wanted.get_mut(&guilty) {
            want.find_owner = in_use;
        }
    }

    fn throttled(&mut self, wait: Option<Duration>, now: Timestamp) {
        self.rest_until = wait.map_or_else(|| next_minute(now), |wait| now.plus(wait));
    }

    fn rest(&mut self, now: Timestamp) {
        let rest = self.options.rest.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.rest_until = now.plus(rest.min(self.options.longest_rest));
    }

    fn update(&self) -> Option<&Update> {
        match &self.state {
            State::Sending(update) => Some(update),
            State::Running { update, .. } => update.as_ref(),
            State::Looking | State::Idle => None,
        }
    }

    fn removing(&self) -> BTreeSet<AliasRange> {
        self.update().map(|update| update.removed.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
