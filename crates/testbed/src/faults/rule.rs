//! What can happen to requests.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;
use tenure_handles::Entropy;

use super::Calls;

/// Something that happens to requests.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) calls: Calls,
    effect: Effect,
    percent: u64,
    pub(super) after: u64,
    pub(super) times: u64,
}

#[derive(Clone, Debug)]
enum Effect {
    Delay(RangeInclusive<Duration>),
    Act(Act),
}

/// What happens to a request instead of forwarding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    LoseRequest,
    LoseAnswer,
    Duplicate(Answer),
    Fail(StatusCode),
}

/// Which answer the client gets for a request that reached the server twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first: as if a stray copy arrived later.
    First,
    /// The second: as if something in between retried because the first answer was lost.
    Second,
}

impl Rule {
    /// Forwards the request after a delay in this range. Requests overtake each other.
    pub fn delay(between: RangeInclusive<Duration>) -> Self {
        Self::new(Effect::Delay(between))
    }

    /// The request never reaches the server; the client sees a broken connection.
    pub fn lose_request() -> Self {
        Self::new(Effect::Act(Act::LoseRequest))
    }

    /// The server performs the request, and the client sees a broken connection.
    pub fn lose_answer() -> Self {
        Self::new(Effect::Act(Act::LoseAnswer))
    }

    /// The server gets the request twice.
    pub fn duplicate(answer: Answer) -> Self {
        Self::new(Effect::Act(Act::Duplicate(answer)))
    }

    /// The request never reaches the server; the client gets this status in an API server's form.
    pub fn fail(status: StatusCode) -> Self {
        Self::new(Effect::Act(Act::Fail(status)))
    }

    fn new(effect: Effect) -> Self {
        Self { calls: Calls::all(), effect, percent: 100, after: 0, times: u64::MAX }
    }

    /// Only to these requests.
    #[must_use]
    pub fn on(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Only to this percentage of them, by chance.
    #[must_use]
    pub fn percent(mut self, percent: u8) -> Self {
        self.percent = u64::from(percent);
        self
    }

    /// Not to the first ones of them.
    #[must_use]
    pub fn after(mut self, requests: u64) -> Self {
        self.after = requests;
        self
    }

    /// At most this many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Whether chance selects the next request.
    pub(super) fn is_drawn(&self, entropy: &dyn Entropy) -> bool {
        self.percent >= 100 || entropy.next_u64() % 100 < self.percent
    }
}

/// The plan for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    pub(super) act: Option<Act>,
}

impl Plan {
    /// Adds the effect of `rule`; returns whether it makes a difference.
    pub(super) fn include(&mut self, rule: &Rule, entropy: &dyn Entropy) -> bool {
        match &rule.effect {
            Effect::Delay(between) => {
                self.delay = self.delay.saturating_add(somewhere_in(between, entropy));
                true
            }
            Effect::Act(_) if self.act.is_some() => false,
            Effect::Act(act) => {
                self.act = Some(*act);
                true
            }
        }
    }
}

fn somewhere_in(between: &RangeInclusive<Duration>, entropy: &dyn Entropy) -> Duration {
    let span = between.end().saturating_sub(*between.start());
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let chosen = match nanos.checked_add(1) {
        Some(choices) if choices > 1 => entropy.next_u64() % choices,
        _ => 0,
    };
    between.start().saturating_add(Duration::from_nanos(chosen))
}
