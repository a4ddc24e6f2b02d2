//! One budget of requests for everybody in a region.
//!
//! Clouds count requests of a project by region and minute. Reads and writes have budgets of their own, so reading never keeps
//! anyone from writing. A budget fills steadily, and never holds more than a few seconds' worth: requests that did not happen are
//! not made up for, so no minute has more than its share and that burst.

use std::time::Duration;

use tenure_handles::Timestamp;

/// What a request is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads one object.
    Read,
    /// Changes something.
    Write,
}

/// How many requests of a kind a region may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// In a minute.
    pub per_minute: u32,
    /// At once, after a time without requests.
    pub burst: u32,
}

/// The budget of a region.
#[derive(Clone, Debug)]
pub struct Budget {
    reads: Bucket,
    writes: Bucket,
    /// The cloud refused a request: nothing is sent before this.
    closed_until: Timestamp,
}

impl Budget {
    /// A full budget.
    pub fn new(reads: Quota, writes: Quota) -> Self {
        Self { reads: Bucket::new(reads), writes: Bucket::new(writes), closed_until: Timestamp::default() }
    }

    /// Takes a request out of the budget, or says when to ask again.
    pub fn take(&mut self, kind: RequestKind, now: Timestamp) -> Result<(), Timestamp> {
        if now < self.closed_until {
            return Err(self.closed_until);
        }
        match kind {
            RequestKind::Read => self.reads.take(now),
            RequestKind::Write => self.writes.take(now),
        }
    }

    /// The cloud says that there were too many requests: nobody in the region sends one before the wait is over. Without a time, that
    /// is the next whole minute, when quotas begin anew.
    pub fn refused(&mut self, wait: Option<Duration>, now: Timestamp) {
        let until = wait.map_or_else(|| next_minute(now), |wait| now.plus(wait));
        self.closed_until = self.closed_until.max(until);
    }
}

/// The beginning of the next minute.
pub(crate) fn next_minute(now: Timestamp) -> Timestamp {
    Timestamp::from_millis((now.as_millis() / 60_000 + 1).saturating_mul(60_000))
}

/// Thousandths of requests that are left, so that slow rates fill evenly.
#[derive(Clone, Debug)]
struct Bucket {
    quota: Quota,
    /// In units of a request over a minute's milliseconds: one request is 60,000 of them.
    left: u64,
    filled: Option<Timestamp>,
}

const REQUEST: u64 = 60_000;

impl Bucket {
    fn new(quota: Quota) -> Self {
        Self { quota, left: u64::from(quota.burst) * REQUEST, filled: None }
    }

    fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let since = self.filled.map_or(Duration::ZERO, |filled| now.since(filled));
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let rate = u64::from(self.quota.per_minute);
        let most = u64::from(self.quota.burst) * REQUEST;
        self.left = self.left.saturating_add(millis.saturating_mul(rate)).min(most);
        self.filled = Some(now);
        if let Some(left) = self.left.checked_sub(REQUEST) {
            self.left = left;
            return Ok(());
        }
        let wait = (REQUEST - self.left).div_ceil(rate.max(1));
        Err(now.plus(Duration::from_millis(wait)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn budget(per_minute: u32, burst: u32) -> Budget {
        Budget::new(Quota { per_minute, burst }, Quota { per_minute: 1, burst: 1 })
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let mut budget = budget(60, 2);
        assert_eq!(budget.take(RequestKind::Read, at(0)), Ok(()));
        assert_eq!(budget.take(RequestKind::Read, at(0)), Ok(()));
        assert_eq!(budget.take(RequestKind::Read, at(0)), Err(at(1_000)));
        assert_eq!(budget.take(RequestKind::Write, at(0)), Ok(()), "writes have a budget of their own");
        assert_eq!(budget.take(RequestKind::Read, at(999)), Err(at(1_000)));
        assert_eq!(budget.take(RequestKind::Read, at(1_000)), Ok(()));
    }

    #[test]
    fn after_a_refusal_nobody_asks_before_the_next_window() {
        let mut budget = budget(60, 2);
        budget.refused(None, at(61_500));
        budget.refused(Some(Duration::from_secs(1)), at(61_500));
        assert_eq!(budget.take(RequestKind::Write, at(119_999)), Err(at(120_000)));
        assert_eq!(budget.take(RequestKind::Write, at(120_000)), Ok(()));
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_the_rate_and_a_burst(
            rate in 1_u32..600, burst in 1_u32..20, steps in proptest::collection::vec(0_u64..3_000, 1..300)
        ) {
            let mut budget = budget(rate, burst);
            let (mut now, mut taken) = (0, Vec::new());
            for step in steps {
                now += step;
                if budget.take(RequestKind::Read, at(now)).is_ok() {
                    taken.push(now);
                }
            }
            for &begin in &taken {
                let within = taken.iter().filter(|&&time| time >= begin && time < begin + 60_000).count();
                prop_assert!(within <= (rate + burst) as usize, "{within} in the minute from {begin}");
            }
        }

        #[test]
        fn asking_again_when_told_succeeds(rate in 1_u32..600, burst in 1_u32..5, start in 0_u64..100_000) {
            let mut budget = budget(rate, burst);
            let mut now = at(start);
            for _ in 0..20 {
                if let Err(again) = budget.take(RequestKind::Read, now) {
                    prop_assert!(again > now);
                    prop_assert_eq!(budget.take(RequestKind::Read, again), Ok(()));
                    now = again;
                }
            }
        }
    }
}
