//! Deletes links that are out of service, many at once.
//!
//! Before a link is gone, the kernel waits for a grace period of all processors. Deleting a whole group shares that wait: 100
//! links take hardly longer than two one by one. So the reaper collects links for a short time, which ends early when there are
//! many.
//!
//! ```text
//!            trashed                    delay over, or enough collected
//!   Idle ───────────────▶ Collecting ──────────────────────────────────▶ Reap
//!    ▲                        ▲                                           │
//!    │                        └──────────── failed: collect again ────────┤
//!    └───────────────────────────── done, nothing new meanwhile ──────────┘
//! ```

use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use tenure_handles::Timestamp;

use crate::host::Host;
use crate::socket::{Error, Kind, Request};

/// Decides when to delete. Uses neither the kernel nor a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaper {
    policy: Policy,
    collected: usize,
    since: Option<Timestamp>,
}

/// How long links are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long the first link waits for others at most.
    pub delay: Duration,
    /// This many links are deleted without further delay.
    pub enough: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { delay: Duration::from_millis(200), enough: 64 }
    }
}

/// The reaper's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until a link goes to the trash.
    Idle,
    /// Ask again at this time.
    WaitUntil(Timestamp),
    /// Call [`reap`] now, between [`Reaper::begin`] and, if it fails, [`Reaper::failed`].
    Reap,
}

impl Reaper {
    /// A reaper that starts at `now`. It assumes that a previous process left links in the trash.
    pub fn new(policy: Policy, now: Timestamp) -> Self {
        Self { policy, collected: 1, since: Some(now) }
    }

    /// A link went to the trash.
    pub fn trashed(&mut self, now: Timestamp) {
        self.collected += 1;
        self.since.get_or_insert(now);
    }

    /// The next step.
    pub fn next(&self, now: Timestamp) -> Next {
        let Some(since) = self.since else { return Next::Idle };
        let due = since.plus(self.policy.delay);
        // A clock that was set back must not delay links forever.
        let back = now < since;
        if self.collected >= self.policy.enough || now >= due || back {
            Next::Reap
        } else {
            Next::WaitUntil(due)
        }
    }

    /// Deletion starts: links that go to the trash from now on may miss it and count for the next time.
    pub fn begin(&mut self) {
        self.collected = 0;
        self.since = None;
    }

    /// Deletion failed; it is retried after the usual delay.
    pub fn failed(&mut self, now: Timestamp) {
        self.collected = self.collected.max(1);
        self.since = Some(now);
    }
}

/// Deletes all links in the trash with one message, and waits until they are gone. Returns whether there were any.
pub fn reap(host: &mut Host) -> Result<bool, Error> {
    match host.socket.apply(&[delete_group(host.settings.trash_group)]) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == Kind::Gone => Ok(false),
        Err(error) => Err(error),
    }
}

fn delete_group(group: u32) -> Request {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group));
    Request::change(RouteNetlinkMessage::DelLink(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { delay: Duration::from_millis(200), enough: 3 };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000 + millis)
    }

    fn idle() -> Reaper {
        let mut reaper = Reaper::new(POLICY, at(0));
        reaper.begin();
        reaper
    }

    #[test]
    fn links_left_by_an_earlier_run_are_reaped_after_a_start() {
        let reaper = Reaper::new(POLICY, at(0));
        assert_eq!(reaper.next(at(0)), Next::WaitUntil(at(200)));
        assert_eq!(reaper.next(at(200)), Next::Reap);
    }

    #[test]
    fn the_first_link_waits_for_others_but_not_longer_than_the_delay() {
        let mut reaper = idle();
        assert_eq!(reaper.next(at(0)), Next::Idle);
        reaper.trashed(at(10));
        reaper.trashed(at(150));
        assert_eq!(reaper.next(at(150)), Next::WaitUntil(at(210)));
        assert_eq!(reaper.next(at(210)), Next::Reap);
    }

    #[test]
    fn enough_links_do_not_wait() {
        let mut reaper = idle();
        (0..3).for_each(|_| reaper.trashed(at(10)));
        assert_eq!(reaper.next(at(10)), Next::Reap);
    }

    #[test]
    fn what_comes_while_deleting_counts_for_the_next_time() {
        let mut reaper = idle();
        reaper.trashed(at(10));
        reaper.begin();
        reaper.trashed(at(230));
        assert_eq!(reaper.next(at(240)), Next::WaitUntil(at(430)));
    }

    #[test]
    fn a_failure_is_tried_again_after_the_delay() {
        let mut reaper = idle();
        reaper.trashed(at(10));
        reaper.begin();
        reaper.failed(at(300));
        assert_eq!(reaper.next(at(300)), Next::WaitUntil(at(500)));
        assert_eq!(reaper.next(at(500)), Next::Reap);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stop_the_reaper() {
        let mut reaper = idle();
        reaper.trashed(at(500));
        assert_eq!(reaper.next(at(0)), Next::Reap);
    }
}
