//! All decisions about the node's own addresses, without I/O: what is known goes in, the next task comes out, one at a time.
//!
//! ```text
//!                       generation is new              applied, verified, probed
//!   enactment ─────────────────────────────▶ Apply ─────────────────────────────▶ record ──▶ Report ──▶ Hold, from time to time
//!        │                                     │ failed: everything as before; again later      ▲
//!        │ deletionTimestamp                   └──▶ Report                                      │ start: before the API
//!        └────────▶ Release ──▶ a dump shows none of its addresses ──▶ Report "released"        │ server is known
//!   enactment gone ─▶ Forget                                                      state file ───┘
//! ```
//!
//! What it promises:
//!
//! - What a state file says is put in place before anything else, except a change that was not confirmed: that is taken back.
//! - `released` is reported only after a dump that came after the deletion, and nothing is applied for that enactment later.
//! - Addresses of enactments that are gone go before anything new is applied.
//! - An interface belongs to one policy: the one that has it, and of two newcomers the older.
//! - Enactments that the controller did not make are left alone.

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use tenure_handles::Timestamp;

use super::PolicyState;
use super::facts::Facts;
use super::record::Record;
use super::report::{Outcome, Report};

/// After this time what the node lacks is looked for again.
const SOON: Duration = Duration::from_secs(1);
/// The longest wait after failures; the first is [`SOON`].
const LONGEST: Duration = Duration::from_mins(1);

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
    /// Gives the interfaces what the record says is confirmed, and takes back what is not.
    Hold(Record),
    /// Takes everything of the record off the interfaces: its enactment is gone.
    Forget(Record),
    /// Takes the enactment's addresses off the interfaces, and looks whether they are.
    Release(Facts, Option<Record>),
    /// Applies the policy. `taken` has the interfaces of other policies.
    Apply { facts: Facts, record: Option<Record>, taken: BTreeMap<String, String> },
    /// Writes the status.
    Report(Facts, Report),
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Done {
    /// The addresses that a dump shows, or what is wrong; and the record after it.
    Held { uid: String, record: Record, found: Vec<(String, IpNet)>, problem: Option<String> },
    /// Nothing of it is on an interface, or why not.
    Forgotten { uid: String, problem: Option<String> },
    /// None of its addresses is on an interface, or why not.
    Released { uid: String, problem: Option<String> },
    /// The record after it, and what a dump shows.
    Applied { uid: String, generation: i64, record: Record, found: Vec<(String, IpNet)> },
    /// Why not, and the record of what is there now.
    Failed {
        uid: String,
        generation: i64,
        record: Option<Record>,
        found: Vec<(String, IpNet)>,
        failure: Failure,
    },
    /// Whether the status was written.
    Reported { uid: String, written: bool },
}

/// Why a policy was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) again: Again,
}

/// When a failed policy is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// When the policy changes.
    Never,
    /// When another policy lets go of its interfaces.
    WhenFree,
    /// Soon, as long as it takes: something is missing.
    Soon,
    /// Later, and later each time.
    Later,
    /// The same, and people are not told: the API server could not be asked for the policy.
    Unasked,
}

/// What is known of one enactment.
#[derive(Debug, Default)]
struct Entry {
    /// As the API server has it; nothing if it does not.
    facts: Option<Facts>,
    /// Whether it is there and cannot be read.
    unread: bool,
    /// What may be on interfaces.
    record: Option<Record>,
    /// Whether the record was looked at since the start.
    held: bool,
    /// When the record is looked at again.
    verify: Timestamp,
    /// The last attempt.
    tried: Option<Tried>,
    /// Nothing is taken off before this.
    off: Timestamp,
    /// How often that failed.
    off_failures: u32,
    /// Whether its addresses were taken off for good.
    released: bool,
    /// What its status is to say.
    report: Option<Report>,
    /// The status is not written before this.
    write: Timestamp,
    write_failures: u32,
}

#[derive(Debug)]
struct Tried {
    generation: i64,
    failures: u32,
    again: Again,
    next: Timestamp,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Machine {
    entries: BTreeMap<String, Entry>,
    /// Whether all enactments are known.
    listed: bool,
    /// How often records are looked at.
    verify: Duration,
}

impl Machine {
    pub(super) fn new(records: Vec<Record>, verify: Duration) -> Self {
        let entry = |record: Record| (record.uid.clone(), Entry { record: Some(record), ..Entry::default() });
        Self { entries: records.into_iter().map(entry).collect(), listed: false, verify }
    }

    /// All enactments of this node, as the API server has them now. `unread` has the names of those that cannot be read: they
    /// count as what was last read of them, and are not gone.
    pub(super) fn seen(&mut self, all: impl IntoIterator<Item = Facts>, unread: &BTreeSet<String>) {
        self.listed = true;
        let mut all: BTreeMap<String, Facts> = all.into_iter().map(|it| (it.uid.clone(), it)).collect();
        for (uid, entry) in &mut self.entries {
            let found = all.remove(uid);
            let name = entry.record.as_ref().map(|it| it.name.as_str());
            entry.unread = found.is_none() && name.is_some_and(|name| unread.contains(name));
            if !entry.unread {
                entry.facts = found;
            }
        }
        for (uid, facts) in all.into_iter().filter(|(_, facts)| facts.ours) {
            self.entries.insert(uid, Entry { facts: Some(facts), held: true, ..Entry::default() });
        }
        self.entries.retain(|_, entry| entry.facts.is_some() || entry.record.is_some());
        for entry in self.entries.values_mut() {
            let generation = entry.facts.as_ref().and_then(|it| it.generation);
            if entry.tried.as_ref().is_some_and(|tried| Some(tried.generation) != generation) {
                entry.tried = None;
            }
        }
    }

    /// The next task, if there is one to be done now.
    pub(super) fn next(&self, now: Timestamp) -> Option<Task> {
        self.to_restore(now)
            .or_else(|| self.to_forget(now))
            .or_else(|| self.to_release(now))
            .or_else(|| self.to_report(now))
            .or_else(|| self.to_apply(now))
            .or_else(|| self.to_verify(now))
    }

    fn to_restore(&self, now: Timestamp) -> Option<Task> {
        let due = |it: &&Entry| !it.held && it.record.is_some() && it.verify <= now && !it.is_deleting();
        let entry = self.entries.values().find(due)?;
        entry.record.clone().map(Task::Hold)
    }

    fn to_forget(&self, now: Timestamp) -> Option<Task> {
        if !self.listed {
            return None;
        }
        let entry = self.entries.values().find(|it| it.is_gone() && it.record.is_some() && it.off <= now)?;
        entry.record.clone().map(Task::Forget)
    }

    fn to_release(&self, now: Timestamp) -> Option<Task> {
        let entry = self.entries.values().find(|it| it.is_deleting() && !it.released && it.off <= now)?;
        Some(Task::Release(entry.facts.clone()?, entry.record.clone()))
    }

    fn to_report(&self, now: Timestamp) -> Option<Task> {
        self.entries.values().find_map(|it| {
            let (facts, report) = (it.facts.as_ref()?, it.report.as_ref()?);
            let due = it.write <= now && !report.is_said(facts) && it.is_about_now();
            due.then(|| Task::Report(facts.clone(), report.clone()))
        })
    }

    fn to_apply(&self, now: Timestamp) -> Option<Task> {
        let ready = self.entries.values().filter(|it| it.is_to_be_applied() && it.may_try(now));
        // Of two that want one interface the older comes first.
        let key = |it: &&Entry| it.facts.as_ref().map(|facts| (facts.created, facts.name.clone()));
        let entry = ready.min_by_key(key)?;
        let facts = entry.facts.clone()?;
        let others = self.entries.iter().filter(|(uid, _)| **uid != facts.uid);
        let records = others.filter_map(|(_, other)| other.record.as_ref());
        let taken = records.flat_map(|record| {
            record.interfaces().map(|interface| (interface.to_owned(), record.policy.clone()))
        });
        Some(Task::Apply { taken: taken.collect(), record: entry.record.clone(), facts })
    }

    fn to_verify(&self, now: Timestamp) -> Option<Task> {
        let due = |it: &&Entry| it.record.is_some() && it.verify <= now && !it.is_gone() && !it.is_deleting();
        // Without the API server, too: nobody has said that the addresses should go.
        let due_unlisted = |it: &&Entry| !self.listed && it.record.is_some() && it.verify <= now;
        let entry = self.entries.values().find(|it| due(it) || due_unlisted(it))?;
        entry.record.clone().map(Task::Hold)
    }

    /// When the next task is due, if none is now.
    pub(super) fn wake(&self) -> Option<Timestamp> {
        let times = self.entries.values().flat_map(|it| {
            let off = ((it.is_deleting() && !it.released) || (self.listed && it.is_gone())).then_some(it.off);
            let verify = it.record.is_some().then_some(it.verify);
            let unsaid = it
                .facts
                .as_ref()
                .zip(it.report.as_ref())
                .is_some_and(|(facts, report)| !report.is_said(facts));
            let write = (unsaid && it.is_about_now()).then_some(it.write);
            let tried = it.tried.as_ref().filter(|tried| it.is_to_be_applied() && tried.again.is_timed());
            [off, verify, write, tried.map(|tried| tried.next)].into_iter().flatten()
        });
        times.min()
    }

    /// Takes in what came of a task.
    pub(super) fn done(&mut self, done: Done, now: Timestamp) {
        match done {
            Done::Held { uid, record, found, problem } => self.held(&uid, record, found, problem, now),
            Done::Forgotten { uid, problem: None } => {
                self.entries.remove(&uid);
                self.freed();
            }
            Done::Released { uid, problem: None } => {
                if let Some(entry) = self.entries.get_mut(&uid) {
                    let generation = entry.facts.as_ref().and_then(|it| it.generation);
                    (entry.released, entry.record) = (true, None);
                    entry.say(Report {
                        generation,
                        outcome: Outcome::Released,
                        mode: None,
                        addresses: Vec::new(),
                        desired: None,
                        failures: 0,
                    });
                }
                self.freed();
            }
            Done::Forgotten { uid, problem: Some(message) }
            | Done::Released { uid, problem: Some(message) } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return };
                entry.off = now.plus(wait(entry.off_failures));
                entry.off_failures = entry.off_failures.saturating_add(1);
                let generation = entry.facts.as_ref().and_then(|it| it.generation);
                entry.fail(generation, Vec::new(), message, true, 0);
            }
            Done::Applied { uid, generation, record, found } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return };
                let confirmed = record.confirmed.as_ref();
                let failures = entry.tried.take().map_or(0, |tried| tried.failures);
                entry.say(Report {
                    generation: Some(generation),
                    outcome: Outcome::Available,
                    mode: confirmed.map(|it| it.mode),
                    addresses: found,
                    desired: confirmed.map(|it| it.state.clone()),
                    failures,
                });
                entry.record = Some(record);
                (entry.held, entry.verify) = (true, now.plus(self.verify));
                // A newer generation may want fewer interfaces.
                self.freed();
            }
            Done::Failed { uid, generation, record, found, failure } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return };
                let failures = entry.tried.as_ref().map_or(0, |tried| tried.failures);
                let next = match failure.again {
                    Again::Later | Again::Unasked => now.plus(wait(failures)),
                    _ => now.plus(SOON),
                };
                let failures = failures.saturating_add(1);
                entry.tried = Some(Tried { generation, failures, again: failure.again, next });
                // What could not be taken back is tried again.
                entry.held &= record.as_ref().is_none_or(|it| it.trying.is_none());
                entry.record = record;
                if failure.again != Again::Unasked {
                    entry.fail(Some(generation), found, failure.message, failure.again.is_timed(), failures);
                }
            }
            Done::Reported { uid, written } => {
                let Some(entry) = self.entries.get_mut(&uid) else { return };
                // Until the watch has said it, it is not written again; if it never says so, it is.
                entry.write = now.plus(wait(entry.write_failures).max(if written { SOON * 5 } else { SOON }));
                entry.write_failures = if written { 0 } else { entry.write_failures.saturating_add(1) };
            }
        }
    }

    fn held(
        &mut self,
        uid: &str,
        record: Record,
        found: Vec<(String, IpNet)>,
        problem: Option<String>,
        now: Timestamp,
    ) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.held = true;
        entry.verify = now.plus(if problem.is_some() { SOON } else { self.verify });
        let confirmed = record.confirmed.clone();
        // A record without anything confirmed says nothing any more, once what it tried was taken back.
        let empty = problem.is_none() && confirmed.is_none() && record.trying.is_none();
        entry.record = (!empty).then_some(record);
        let Some(confirmed) = confirmed else { return };
        // An attempt at a newer generation has its own report.
        let about = entry.facts.as_ref().is_none_or(|it| it.generation == Some(confirmed.generation));
        if about {
            let outcome = match problem {
                None => Outcome::Available,
                Some(message) => Outcome::Failing { message, retrying: true },
            };
            let failures = entry.report.as_ref().map_or(0, |it| it.failures);
            entry.say(Report {
                generation: Some(confirmed.generation),
                outcome,
                mode: Some(confirmed.mode),
                addresses: found,
                desired: Some(confirmed.state),
                failures,
            });
        }
    }

    /// An interface may be free: those that wait for one try again.
    fn freed(&mut self) {
        for entry in self.entries.values_mut() {
            entry.tried.take_if(|tried| tried.again == Again::WhenFree);
        }
    }

    /// What people see of it: policy, confirmed addresses, and what is wrong.
    pub(super) fn overview(&self) -> Vec<PolicyState> {
        let of = |entry: &Entry| {
            let policy = entry.facts.as_ref().map(|it| it.policy.clone());
            let policy = policy.or_else(|| entry.record.as_ref().map(|it| it.policy.clone()))?;
            let addresses = entry.report.as_ref().map(|it| it.addresses.clone()).unwrap_or_default();
            let problem = entry.report.as_ref().and_then(|it| match &it.outcome {
                Outcome::Failing { message, .. } => Some(message.clone()),
                _ => None,
            });
            Some(PolicyState { policy, addresses, problem })
        };
        self.entries.values().filter_map(of).collect()
    }
}

impl Entry {
    fn is_gone(&self) -> bool {
        self.facts.is_none() && !self.unread
    }

    fn is_deleting(&self) -> bool {
        self.facts.as_ref().is_some_and(|it| it.deleting)
    }

    /// Whether its report is about what is to be so now: a report of a generation before is not written any more.
    fn is_about_now(&self) -> bool {
        let (Some(facts), Some(report)) = (&self.facts, &self.report) else { return false };
        match report.outcome {
            Outcome::Released => facts.deleting,
            _ => report.generation == facts.generation && (!facts.deleting || self.off_failures > 0),
        }
    }

    fn is_to_be_applied(&self) -> bool {
        let Some(facts) = &self.facts else { return false };
        let done = self.record.as_ref().and_then(Record::generation);
        !facts.deleting && facts.generation.is_some() && facts.generation != done
    }

    fn may_try(&self, now: Timestamp) -> bool {
        self.tried.as_ref().is_none_or(|tried| tried.again.is_timed() && tried.next <= now)
    }

    /// What its status is to say from now on. Another outcome than the one that was written last waits for nothing.
    fn say(&mut self, report: Report) {
        let kind = |report: &Report| (report.generation, std::mem::discriminant(&report.outcome));
        if self.write_failures == 0 && self.report.as_ref().map(kind) != Some(kind(&report)) {
            self.write = Timestamp::default();
        }
        self.report = Some(report);
    }

    fn fail(
        &mut self,
        generation: Option<i64>,
        found: Vec<(String, IpNet)>,
        message: String,
        retrying: bool,
        failures: u32,
    ) {
        let confirmed = self.record.as_ref().and_then(|it| it.confirmed.as_ref());
        let mode = confirmed.map(|it| it.mode);
        self.say(Report {
            generation,
            outcome: Outcome::Failing { message, retrying },
            mode,
            addresses: found,
            desired: None,
            failures,
        });
    }
}

impl Again {
    fn is_timed(self) -> bool {
        matches!(self, Self::Soon | Self::Later | Self::Unasked)
    }
}

fn wait(failures: u32) -> Duration {
    SOON.saturating_mul(1 << failures.min(6)).min(LONGEST)
}
