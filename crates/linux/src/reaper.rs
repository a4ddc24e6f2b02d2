//! Deletes links that are out of service, many at once.
//!
//! Before a link is gone, the kernel waits for a grace period of all processors. Deleting a whole group shares that wait: 100
//! links take hardly longer than two one by one. Meanwhile nobody else can change the network, so a deletion in the middle of
//! many DELs would delay all that come after it. So the reaper waits until no more links come, for a limited time.
//!
//! ```text
//!            trashed                    no more for a while, or too long ago
//!   Idle ───────────────▶ Collecting ──────────────────────────────────────▶ Reap
//!    ▲                        ▲                                               │
//!    │                        └───────────── failed: collect again ───────────┤
//!    └────────────────────────────── done, nothing new meanwhile ─────────────┘
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
    collecting: Option<Collecting>,
}

/// How long links are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// They are deleted when no other has come for so long.
    pub quiet: Duration,
    /// How long the first link waits for others at most.
    pub delay: Duration,
}

/// Links wait to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Collecting {
    /// When the first came.
    since: Timestamp,
    /// When to delete them, if no other comes.
    due: Timestamp,
}

impl Default for Policy {
    fn default() -> Self {
        Self { quiet: Duration::from_millis(50), delay: Duration::from_secs(1) }
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
        let mut reaper = Self { policy, collecting: None };
        reaper.trashed(now);
        reaper
    }

    /// A link went to the trash.
    pub fn trashed(&mut self, now: Timestamp) {
        let since = self.collecting.as_ref().map_or(now, |collecting| collecting.since);
        let due = now.plus(self.policy.quiet).min(since.plus(self.policy.delay));
        self.collecting = Some(Collecting { since, due });
    }

    /// The next step.
    pub fn next(&self, now: Timestamp) -> Next {
        let Some(Collecting { due, .. }) = self.collecting else { return Next::Idle };
        // A clock that was set back must not delay links forever.
        let back = now.plus(self.policy.delay) < due;
        if now >= due || back { Next::Reap } else { Next::WaitUntil(due) }
    }

    /// Deletion starts: links that go to the trash from now on may miss it and count for the next time.
    pub fn begin(&mut self) {
        self.collecting = None;
    }

    /// Deletion failed; it is retried after the longest delay.
    pub fn failed(&mut self, now: Timestamp) {
        self.collecting = Some(Collecting { since: now, due: now.plus(self.policy.delay) });
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

    const POLICY: Policy = Policy { quiet: Duration::from_millis(50), delay: Duration::from_millis(200) };

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
        assert_eq!(reaper.next(at(0)), Next::WaitUntil(at(50)));
        assert_eq!(reaper.next(at(50)), Next::Reap);
    }

    #[test]
    fn links_are_deleted_when_no_more_come() {
        let mut reaper = idle();
        assert_eq!(reaper.next(at(0)), Next::Idle);
        reaper.trashed(at(10));
        (0..100).for_each(|_| reaper.trashed(at(40)));
        assert_eq!(reaper.next(at(60)), Next::WaitUntil(at(90)), "a hundred at once are not disturbed");
        assert_eq!(reaper.next(at(90)), Next::Reap);
    }

    #[test]
    fn the_first_link_waits_for_others_but_not_longer_than_the_delay() {
        let mut reaper = idle();
        for millis in (10..=200).step_by(10) {
            reaper.trashed(at(millis));
        }
        assert_eq!(reaper.next(at(200)), Next::WaitUntil(at(210)));
        assert_eq!(reaper.next(at(210)), Next::Reap);
    }

    #[test]
    fn what_comes_while_deleting_counts_for_the_next_time() {
        let mut reaper = idle();
        reaper.trashed(at(10));
        reaper.begin();
        reaper.trashed(at(230));
        assert_eq!(reaper.next(at(240)), Next::WaitUntil(at(280)));
    }

    #[test]
    fn a_failure_is_tried_again_after_the_longest_delay_or_with_the_next_link() {
        let mut reaper = idle();
        reaper.trashed(at(10));
        reaper.begin();
        reaper.failed(at(300));
        assert_eq!(reaper.next(at(300)), Next::WaitUntil(at(500)));
        assert_eq!(reaper.next(at(500)), Next::Reap);
        reaper.trashed(at(320));
        assert_eq!(reaper.next(at(320)), Next::WaitUntil(at(370)));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stop_the_reaper() {
        let mut reaper = idle();
        reaper.trashed(at(500));
        assert_eq!(reaper.next(at(0)), Next::Reap);
    }
}
