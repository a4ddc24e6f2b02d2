//! When a gateway that was told to stop may end. No I/O, and no clock.
//!
//! ```text
//!  SIGTERM                                                          grace period
//!    │◀── SETTLE ──▶│◀────────── until no connection is open ─────────▶│◀ MARGIN ▶│
//!  unready        looks                                              ends anyway
//! ```

use std::time::Duration;

/// So long clients may not have heard that the gateway is not ready any more, and begin connections.
const SETTLE: Duration = Duration::from_secs(2);
/// So long before the end of the grace period it ends by itself.
const MARGIN: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(500);

/// A gateway that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    began: Duration,
    grace_period: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Look again after this time.
    Wait(Duration),
    /// End, because of this.
    End(&'static str),
}

impl Drain {
    /// Told to stop now.
    pub fn begin(now: Duration, grace_period: Duration) -> Self {
        Self { began: now, grace_period }
    }

    /// Whether to look at connections already.
    pub fn looks(&self, now: Duration) -> bool {
        now >= self.began + SETTLE
    }

    /// What to do if so many connections are open, if anybody knows.
    pub fn decide(&self, now: Duration, open: Option<u64>) -> Verdict {
        let end = self.began + self.grace_period.saturating_sub(MARGIN);
        match open {
            _ if now >= end => Verdict::End("the grace period is over"),
            Some(0) if self.looks(now) => Verdict::End("no connection is open"),
            _ => Verdict::Wait(LOOK.min(end.saturating_sub(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Duration = Duration::from_secs(50);

    fn after(millis: u64, open: Option<u64>) -> Verdict {
        Drain::begin(BEGAN, Duration::from_secs(25)).decide(BEGAN + Duration::from_millis(millis), open)
    }

    #[test]
    fn it_waits_for_connections_that_begin_late_and_for_open_ones_and_not_for_ever() {
        assert_eq!(after(0, Some(0)), Verdict::Wait(LOOK));
        assert_eq!(after(1999, None), Verdict::Wait(LOOK));
        assert_eq!(after(2000, Some(0)), Verdict::End("no connection is open"));
        assert_eq!(after(2000, Some(1)), Verdict::Wait(LOOK));
        assert_eq!(after(2000, None), Verdict::Wait(LOOK), "nobody knows");
        assert_eq!(after(23_900, Some(1)), Verdict::Wait(Duration::from_millis(100)));
        assert_eq!(after(24_000, Some(1)), Verdict::End("the grace period is over"));
    }

    #[test]
    fn a_grace_period_that_is_shorter_than_everything_ends_at_once() {
        let drain = Drain::begin(BEGAN, Duration::from_millis(500));
        assert_eq!(drain.decide(BEGAN, None), Verdict::End("the grace period is over"));
    }
}
