//! The clock of the runtime that a test runs on.
//!
//! A test that has nothing but its own process to wait for runs with `#[tokio::test(start_paused = true)]`. There, time passes
//! only when every task waits, and then at once up to whatever comes next. So a rest of a minute takes no time, and a busy
//! machine does not let a deadline pass. What tells the time in such a test needs this clock: the machine's clock goes on.
//!
//! Sockets, processes and other threads do not count as work of the runtime: a test that waits for one of them must not pause.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tenure_handles::{Clock, SystemClock, Timestamp};

/// Milliseconds.
const MARGIN: u64 = 60_000;

/// Shows the runtime's time, which is the machine's unless the runtime is paused.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeClock;

impl RuntimeClock {
    /// A while before this program first asked, by the wall clock and by the machine's other one: paused runtimes that began
    /// before that count from here too.
    #[expect(clippy::disallowed_methods, reason = "the runtime counts from here")]
    fn first() -> (Timestamp, Instant) {
        static FIRST: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        *FIRST.get_or_init(|| {
            let (wall, now) = (SystemClock.now().as_millis(), Instant::now());
            let margin = Duration::from_millis(MARGIN);
            now.checked_sub(margin)
                .map_or((Timestamp::from_millis(wall), now), |at| (Timestamp::from_millis(wall - MARGIN), at))
        })
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Self::first().0.plus(self.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the handle to the runtime's clock")]
    fn elapsed(&self) -> Duration {
        let (_, first) = Self::first();
        tokio::time::Instant::now().into_std().saturating_duration_since(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn on_a_paused_runtime_time_passes_only_by_waiting() {
        let (now, elapsed) = (RuntimeClock.now(), RuntimeClock.elapsed());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!((RuntimeClock.now(), RuntimeClock.elapsed()), (now, elapsed));
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(RuntimeClock.now().since(now), Duration::from_hours(1));
        assert_eq!(RuntimeClock.elapsed().saturating_sub(elapsed), Duration::from_hours(1));
    }
}
