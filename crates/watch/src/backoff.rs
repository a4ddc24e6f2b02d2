//! The retry policy: retry after 50 ms, then after twice as long each time, up to 10 s.
//!
//! Each wait is shortened at random by up to half, so that a thousand programs that lost the API server together do not return
//! together. Randomness is passed in as a handle, so that runs replay from a seed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::{Entropy, Timestamp};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// The longest wait after this many failures in a row.
fn longest_after(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST)
}

/// A random duration between half of `wait` and `wait`.
pub fn jitter(wait: Duration, entropy: &dyn Entropy) -> Duration {
    let half = wait / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    wait.saturating_sub(half) + Duration::from_nanos(entropy.next_u64() % nanos.saturating_add(1).max(1))
}

/// The waits after failures in a row.
#[derive(Clone)]
pub struct Backoff {
    failures: u32,
    longest: Duration,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").field("failures", &self.failures).finish_non_exhaustive()
    }
}

impl Backoff {
    /// Nothing has failed yet.
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self { failures: 0, longest: LONGEST, entropy }
    }

    /// Limits the waits, for callers that somebody waits for.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Counts a failure and returns how long to wait.
    pub fn fail(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        jitter(longest_after(self.failures).min(self.longest), &*self.entropy)
    }

    /// Counts a failure and waits.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.fail()).await;
    }

    /// Forgets the failures, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Subjects that failed, and when to try each again.
pub struct Retry {
    failed: HashMap<String, (u32, Timestamp)>,
    entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Retry {
    /// Nothing has failed yet.
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self { failed: HashMap::new(), entropy }
    }

    /// Forgets all failures.
    pub fn clear(&mut self) {
        self.failed.clear();
    }

    /// Whether this subject may be tried now.
    pub fn may_try(&self, subject: &str, now: Timestamp) -> bool {
        self.failed.get(subject).is_none_or(|(_, next)| *next <= now)
    }

    /// The subject failed again. It waits at least `least`.
    pub fn failed(&mut self, subject: &str, now: Timestamp, least: Duration) {
        let failures = self.failed.get(subject).map_or(1, |(failures, _)| failures.saturating_add(1));
        let wait = jitter(longest_after(failures), &*self.entropy).max(least);
        self.failed.insert(subject.to_owned(), (failures, now.plus(wait)));
    }

    /// The subject succeeded, or needs no further try.
    pub fn worked(&mut self, subject: &str) {
        self.failed.remove(subject);
    }

    /// When the next subject may be tried again that may not be tried yet.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.failed.values().map(|(_, next)| *next).filter(|next| *next > now).min()
    }

    /// Forgets subjects that are not planned any more, so that they wake nobody.
    pub fn keep<'a>(&mut self, planned: impl Iterator<Item = &'a str>) {
        if !self.failed.is_empty() {
            let planned: HashSet<&str> = planned.collect();
            self.failed.retain(|subject, _| planned.contains(subject.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_handles::SeededEntropy;

    use super::*;

    /// No randomness: every wait has the same share.
    struct Same(u64);

    impl Entropy for Same {
        fn next_u64(&self) -> u64 {
            self.0
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn waits_double_and_stop_growing() {
        let waits: Vec<_> = (1..=10).map(|failures| longest_after(failures).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(longest_after(u32::MAX), LONGEST);
        let mut backoff = Backoff::new(Arc::new(Same(0))).at_most(Duration::from_millis(250));
        let shortest: Vec<_> = (0..5).map(|_| backoff.fail().as_millis()).collect();
        assert_eq!(shortest, [25, 50, 100, 125, 125], "half of each is fixed");
        backoff.reset();
        assert_eq!(backoff.fail().as_millis(), 25);
    }

    #[test]
    fn two_that_failed_at_one_moment_come_back_at_different_ones_and_each_the_same_from_its_seed() {
        let waits = |seed| -> Vec<Duration> {
            let mut backoff = Backoff::new(Arc::new(SeededEntropy::new(seed)));
            (0..12).map(|_| backoff.fail()).collect()
        };
        assert_eq!(waits(1), waits(1));
        let (one, other) = (waits(1), waits(2));
        for (number, (one, other)) in (1..).zip(one.iter().zip(&other)) {
            let longest = longest_after(number);
            assert!(one != other && (longest / 2..=longest).contains(one), "{number}: {one:?} {other:?}");
        }
    }

    #[test]
    fn waits_are_spread_over_the_whole_half() {
        let entropy = SeededEntropy::new(3);
        let wait = Duration::from_secs(10);
        let (mut early, mut late) = (0, 0);
        for _ in 0..1_000 {
            let waited = jitter(wait, &entropy);
            early += u32::from(waited < Duration::from_secs(6));
            late += u32::from(waited > Duration::from_secs(9));
        }
        assert!((150..250).contains(&early) && (150..250).contains(&late), "{early} {late}");
        assert_eq!(jitter(Duration::ZERO, &entropy), Duration::ZERO);
    }

    #[test]
    fn one_subject_that_fails_does_not_delay_another() {
        let (mut retry, now) = (Retry::new(Arc::new(Same(0))), at(1_000));
        retry.failed("a", now, Duration::ZERO);
        assert!(!retry.may_try("a", now) && retry.may_try("b", now));
        assert_eq!(retry.next(now), Some(at(1_025)));
        assert_eq!(retry.next(at(1_025)), None, "it may be tried already");
        assert!(retry.may_try("a", at(1_025)));
        retry.failed("a", at(1_025), Duration::ZERO);
        assert_eq!(retry.next(now), Some(at(1_075)));
        retry.failed("b", now, Duration::ZERO);
        retry.keep(["a"].into_iter());
        assert_eq!(retry.next(now), Some(at(1_075)), "nobody is woken for what is not planned");
        retry.worked("a");
        assert_eq!(retry.next(now), None);
    }

    #[test]
    fn who_is_asked_to_wait_waits_so_long() {
        let (mut retry, now) = (Retry::new(Arc::new(Same(0))), at(1_000));
        retry.failed("a", now, Duration::from_secs(3));
        assert_eq!(retry.next(now), Some(at(4_000)));
    }
}
