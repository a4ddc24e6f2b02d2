//! How long to wait after a failure: 50 ms at first, twice as long each time, 10 s at most.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// The waits after failures in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    failures: u32,
}

impl Waits {
    /// How long to wait after one more failure.
    pub(crate) fn wait(&mut self) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        doubled.min(LONGEST)
    }

    /// Waits as long as it is time to.
    pub(crate) async fn pass(&mut self) {
        tokio::time::sleep(self.wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_stop_growing() {
        let mut waits = Waits::default();
        let first: Vec<_> = (0..10).map(|_| waits.wait().as_millis()).collect();
        assert_eq!(first, [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    }
}
