//! The one retry policy: what failed is tried again after 50 ms, and twice as long each time, up to 10 s.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure_handles::Timestamp;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// How long to wait after so many failures in a row.
pub(crate) fn wait_after(failures: u32) -> Duration {
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST)
}

/// What has failed, and when each may be tried again.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failed: HashMap<String, (u32, Timestamp)>,
}

impl Retry {
    /// Whether this subject may be tried now.
    pub(crate) fn may_try(&self, subject: &str, now: Timestamp) -> bool {
        self.failed.get(subject).is_none_or(|(_, next)| *next <= now)
    }

    /// It has failed once more.
    pub(crate) fn failed(&mut self, subject: &str, now: Timestamp) {
        self.busy(subject, now, Duration::ZERO);
    }

    /// It has failed once more, and whoever refused it asks for this much time.
    pub(crate) fn busy(&mut self, subject: &str, now: Timestamp, wait: Duration) {
        let failures = self.failed.get(subject).map_or(1, |(failures, _)| failures.saturating_add(1));
        self.failed.insert(subject.to_owned(), (failures, now.plus(wait_after(failures).max(wait))));
    }

    /// It has worked, or there is nothing to try any more.
    pub(crate) fn worked(&mut self, subject: &str) {
        self.failed.remove(subject);
    }

    /// When the next one may be tried again.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.failed.values().map(|(_, next)| *next).min()
    }

    /// Forgets what is not planned any more, so that nobody is woken for it.
    pub(crate) fn keep<'a>(&mut self, planned: impl Iterator<Item = &'a str>) {
        if !self.failed.is_empty() {
            let planned: HashSet<&str> = planned.collect();
            self.failed.retain(|subject, _| planned.contains(subject.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_stop_growing() {
        let waits: Vec<_> = (1..=10).map(|failures| wait_after(failures).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(wait_after(u32::MAX), LONGEST);
    }

    #[test]
    fn one_subject_that_fails_does_not_delay_another() {
        let (mut retry, now) = (Retry::default(), Timestamp::from_millis(1_000));
        retry.failed("a", now);
        assert!(!retry.may_try("a", now) && retry.may_try("b", now));
        assert_eq!(retry.next(), Some(Timestamp::from_millis(1_050)));
        assert!(retry.may_try("a", Timestamp::from_millis(1_050)));
        retry.failed("a", Timestamp::from_millis(1_050));
        assert_eq!(retry.next(), Some(Timestamp::from_millis(1_150)));
        retry.failed("b", now);
        retry.keep(["a"].into_iter());
        assert_eq!(
            retry.next(),
            Some(Timestamp::from_millis(1_150)),
            "nobody is woken for what is not planned"
        );
        retry.worked("a");
        assert_eq!(retry.next(), None);
    }

    #[test]
    fn who_is_asked_to_wait_waits_so_long() {
        let (mut retry, now) = (Retry::default(), Timestamp::from_millis(1_000));
        retry.busy("a", now, Duration::from_secs(3));
        assert_eq!(retry.next(), Some(Timestamp::from_millis(4_000)));
    }
}
