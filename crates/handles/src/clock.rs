//! The time, as a handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment in milliseconds since the Unix epoch: comparable across processes and restarts, eight bytes in a
/// journal, and the resolution that cooling and leases need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `duration` later, capped at the largest timestamp.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies ahead, as after a clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The time type of Kubernetes objects, capped at its largest value.
    pub fn to_jiff(self) -> jiff::Timestamp {
        i64::try_from(self.0)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
            .unwrap_or(jiff::Timestamp::MAX)
    }

    /// From the time type of Kubernetes objects; times before the epoch become the epoch.
    pub fn from_jiff(time: jiff::Timestamp) -> Self {
        Self(u64::try_from(time.as_millisecond()).unwrap_or(0))
    }
}

/// Tells the time. Cheap to call and to share.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// The time since some fixed moment, to measure durations. Finer than [`Clock::now`] if the machine can
    /// tell, and never set back.
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().as_millis())
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }
}

/// The machine's clock: the only code that reads it.
///
/// It shows the wall clock's time at the program's first call plus the monotonic time since. So setting the
/// wall clock while a program runs neither shortens nor prolongs cooling.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The time of this program's first call, by the wall clock and by the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "this is the handle that everyone else is told to take")]
    fn first() -> (Duration, Instant) {
        static FIRST: OnceLock<(Duration, Instant)> = OnceLock::new();
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        *FIRST.get_or_init(|| (wall(), Instant::now()))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let (wall, first) = Self::first();
        Timestamp::default().plus(wall + first.elapsed())
    }

    fn elapsed(&self) -> Duration {
        Self::first().1.elapsed()
    }
}

/// A clock that stands still until it is advanced: for tests and the simulator.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `at`.
    pub fn at(at: Timestamp) -> Self {
        Self(AtomicU64::new(at.as_millis()))
    }

    /// Lets `duration` pass.
    pub fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(Timestamp::from_millis(1_000));
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now().since(Timestamp::from_millis(1_000)), Duration::from_secs(2));
    }

    #[test]
    fn a_timestamp_survives_the_way_through_kubernetes_time() {
        let time = Timestamp::from_millis(1_794_000_000_123);
        assert_eq!(Timestamp::from_jiff(time.to_jiff()), time);
    }

    #[test]
    fn a_clock_set_back_gives_no_negative_age() {
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
    }

    #[test]
    fn what_something_took_is_measured_by_either_clock() {
        let clock = Arc::new(ManualClock::default());
        let began = clock.elapsed();
        clock.advance(Duration::from_millis(3));
        assert_eq!(clock.elapsed().saturating_sub(began), Duration::from_millis(3));
        let began = SystemClock.elapsed();
        assert!(SystemClock.elapsed() >= began);
    }

    #[test]
    fn the_system_clock_is_past_the_year_2024() {
        assert!(SystemClock.now() > Timestamp::from_millis(1_704_067_200_000));
    }
}
