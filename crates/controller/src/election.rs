//! Leader election on one Lease object, without I/O.
//!
//! ```text
//!              ┌──────────── a read shows another holder, or none ───────────┐
//!              ▼                                                             │
//!   Standby: read every `retry` ──the lease is free, or has not changed──▶ write with the version read
//!              ▲                   for its whole duration                    │
//!              │                                                             ▼ it was taken
//!              └── no renewal for `renew_deadline`, or released ── Leader: write every `retry`
//! ```
//!
//! Clocks of two machines are never compared: a lease has expired when *this* machine has seen it unchanged for its
//! whole duration. A term counts from the moment its write was *sent*, and ends `renew_deadline` later, before
//! anybody else can have seen it unchanged for `duration`. So two terms never overlap as long as clocks run at the
//! same speed. Writes that happen anyway are fenced by compare-and-swap, see [`crate::Write`].

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use tenure_handles::Timestamp;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a silent leader.
    pub duration: Duration,
    /// How long a leader leads without a successful renewal; less than `duration`.
    pub renew_deadline: Duration,
    /// The time between two attempts; much less than `renew_deadline`.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // Two renewals fit even if the API server takes ten seconds for each.
            duration: Duration::from_secs(30),
            renew_deadline: Duration::from_secs(25),
            retry: Duration::from_secs(2),
        }
    }
}

/// Times that would allow two leaders at once, or none for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the election's timing is a lease of {:?}, a renewal deadline of {:?} and a retry of {:?}; accepted is a deadline \
     shorter than the lease and at least twice the retry, and a lease of whole seconds",
    .0.duration, .0.renew_deadline, .0.retry
)]
pub struct TimingError(Timing);

impl Timing {
    /// Whether these times are safe.
    pub fn check(self) -> Result<Self, TimingError> {
        let fair = self.renew_deadline < self.duration
            && self.retry * 2 <= self.renew_deadline
            && !self.retry.is_zero()
            && self.duration.subsec_nanos() == 0;
        if fair { Ok(self) } else { Err(TimingError(self)) }
    }
}

/// The role in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Someone else leads, or nobody.
    Standby,
    /// This one leads.
    Leader(Term),
}

/// A time of leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// How often the leader had changed when this term began.
    pub number: i32,
    /// Nothing is written from this moment on, unless a renewal moves it.
    pub until: Timestamp,
}

/// The next step of the election.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the lease and tell [`Elector::saw`].
    Read,
    /// Create the lease, or replace it if it has a resource version, and tell [`Elector::wrote`].
    Write(Box<Lease>),
    /// Nothing to do before this moment.
    Wait(Timestamp),
}

/// One candidate.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    timing: Timing,
    /// The lease as last seen, and since when it is unchanged.
    seen: Option<(Option<Lease>, Timestamp)>,
    /// The next attempt.
    next: Timestamp,
    /// Whether the lease has to be read again before a write.
    stale: bool,
    term: Option<Term>,
    released: bool,
    latest: Timestamp,
}

impl Elector {
    /// A candidate. `identity` is unique, even among earlier processes of the same name.
    pub fn new(identity: &str, timing: Timing) -> Self {
        Self {
            identity: identity.to_owned(),
            timing,
            seen: None,
            next: Timestamp::default(),
            stale: true,
            term: None,
            released: false,
            latest: Timestamp::default(),
        }
    }

    /// What to do now.
    pub fn step(&mut self, now: Timestamp) -> Step {
        self.tick(now);
        if self.released || now < self.next {
            return Step::Wait(if self.released { Timestamp::from_millis(u64::MAX) } else { self.next });
        }
        if self.stale {
            return Step::Read;
        }
        match &self.seen {
            Some((lease, since)) if self.may_write(lease.as_ref(), *since, now) => {
                Step::Write(Box::new(self.draft(lease.as_ref(), now)))
            }
            _ => Step::Read,
        }
    }

    /// The lease as read; `None` if there is none.
    pub fn saw(&mut self, lease: Option<Lease>, now: Timestamp) {
        self.tick(now);
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(ResourceExt::resource_version);
        let since = match &self.seen {
            Some((known, since)) if version(known) == version(&lease) && known.is_some() => *since,
            _ => now,
        };
        let write_at_once = self.may_write(lease.as_ref(), since, now);
        if lease.as_ref().and_then(holder) != Some(self.identity.as_str()) {
            self.term = None;
        }
        self.seen = Some((lease, since));
        self.stale = !write_at_once;
        self.next = if write_at_once { now } else { now.plus(self.timing.retry) };
    }

    /// The outcome of a write that was sent at `sent`: the stored lease, or `None` if it failed or is unknown.
    pub fn wrote(&mut self, stored: Option<Lease>, sent: Timestamp, now: Timestamp) {
        self.tick(now);
        let Some(lease) = stored else {
            // Somebody else was faster, or the answer was lost: read before trying again.
            self.stale = true;
            self.next = now.plus(self.timing.retry);
            return;
        };
        let number = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let until = sent.plus(self.timing.renew_deadline);
        self.term = (!self.released && now < until).then_some(Term { number, until });
        self.seen = Some((Some(lease), now));
        self.stale = false;
        self.next = sent.plus(self.timing.retry);
    }

    /// A read or write failed: nothing is known, and the next attempt comes later.
    pub fn failed(&mut self, now: Timestamp) {
        self.tick(now);
        self.stale = true;
        self.next = now.plus(self.timing.retry);
    }

    /// The current role.
    pub fn role(&mut self, now: Timestamp) -> Role {
        self.tick(now);
        self.term.map_or(Role::Standby, Role::Leader)
    }

    /// The holder of the lease, as far as known.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().and_then(|(lease, _)| lease.as_ref()).and_then(holder)
    }

    /// Stops leading at once. Returns the lease to write so that the next leader need not wait.
    pub fn release(&mut self, now: Timestamp) -> Option<Lease> {
        self.released = true;
        self.term.take()?;
        let (Some(lease), _) = self.seen.as_ref()? else { return None };
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(now.to_jiff()));
        Some(lease)
    }

    /// Ends a term that has run out, or whose length is unknown because the clock was set back.
    fn tick(&mut self, now: Timestamp) {
        if now < self.latest {
            self.term = None;
            self.seen = None;
            self.stale = true;
            self.next = now;
        }
        self.latest = now;
        if self.term.is_some_and(|term| now >= term.until) {
            self.term = None;
            self.stale = true;
        }
    }

    fn may_write(&self, lease: Option<&Lease>, since: Timestamp, now: Timestamp) -> bool {
        let Some(lease) = lease else { return true };
        match holder(lease) {
            None => true,
            Some(holder) if holder == self.identity => true,
            Some(_) => now.since(since) >= duration(lease, self.timing.duration),
        }
    }

    fn draft(&self, lease: Option<&Lease>, now: Timestamp) -> Lease {
        let mut draft = lease.cloned().unwrap_or_default();
        let old = draft.spec.take().unwrap_or_default();
        let mine = old.holder_identity.as_deref() == Some(self.identity.as_str());
        let transitions = old.lease_transitions.unwrap_or_default();
        let time = MicroTime(now.to_jiff());
        draft.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
            acquire_time: if mine { old.acquire_time.clone() } else { Some(time.clone()) },
            renew_time: Some(time),
            lease_transitions: Some(if mine || lease.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..old
        });
        draft
    }
}

/// The holder of the lease; an empty name is nobody's.
fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How long the lease says that it lasts.
fn duration(lease: &Lease, otherwise: Duration) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(otherwise, Duration::from_secs)
}

#[cfg(test)]
mod tests;
