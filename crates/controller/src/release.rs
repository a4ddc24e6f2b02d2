//! The rule for releasing what a missing node has, the same for every kind.
//!
//! A deleted Node object says nothing about the node's containers. What the node had is released only if the Node is
//! missing and no living pod is bound to it, at two observations with time between them. The first observation is
//! written on the object itself ([`tenure_api::release::RELEASING`]), so that a restart loses nothing and the owner
//! can object: a living agent removes the mark from its own objects before it assigns anything more from them. The
//! second observation deletes at the version that was read, so the later of the two writes fails.
//!
//! ```text
//!             Mark: live reads, compare-and-swap           Release: live reads again, delete on uid and version
//!   no mark ────────────────────────────────────▶ marked ──────────────────────────────────────────────────▶ gone
//!      ▲                                             │
//!      └──── the node or a pod is back, or the ──────┘
//!            agent is alive: compare-and-swap
//! ```
//!
//! To use it for another kind: call [`Releases::look_again`] at the beginning of a plan and [`Releases::step`] for
//! each object whose node is not known, write [`mark_at`] for [`Step::Mark`], and ask `crate::live::node_is_in_use`
//! before both writes. An object whose node is known again loses its mark. The taint
//! `node.kubernetes.io/out-of-service` needs no mark and no waiting time.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tenure_handles::Timestamp;

use crate::sightings::Sightings;

/// The default time between the observations: by then a living kubelet has noticed that its pods are gone, and five
/// minutes are not over.
pub const MISSING_NODE_REST: Duration = Duration::from_mins(2);

/// How long a node has to be missing before what it had is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingNodeRest(pub Duration);

impl Default for MissingNodeRest {
    fn default() -> Self {
        Self(MISSING_NODE_REST)
    }
}
/// A mark counts only after this process has seen it for this long, too: the clock of its author may be wrong.
const SEEN_FOR: Duration = Duration::from_secs(10);

/// The next step for an object of a missing node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the mark, if live reads agree.
    Mark,
    /// The waiting time is not over.
    Wait,
    /// Delete the object, if live reads agree.
    Release,
}

/// Since when each mark has been seen, by the object's UID.
#[derive(Debug)]
pub(crate) struct Releases {
    rest: Duration,
    seen: Sightings<Sighting>,
}

#[derive(Clone, Debug, PartialEq)]
struct Sighting {
    mark: String,
    first: Timestamp,
}

impl Releases {
    /// Starts empty; `rest` is the time between the two observations.
    pub(crate) fn resting(rest: Duration) -> Self {
        Self { rest, seen: Sightings::default() }
    }

    /// Begins a plan of all objects. Those that it does not ask about are forgotten.
    pub(crate) fn look_again(&mut self) {
        self.seen.look_again();
    }

    /// Begins to look at one object.
    pub(crate) fn look_again_at(&mut self, uid: &str) {
        self.seen.look_again_at(uid);
    }

    /// The step for the object with this UID and this mark, whose node is missing.
    pub(crate) fn step(&mut self, uid: &str, mark: Option<&str>, now: Timestamp) -> Step {
        let seen_for = self.rest.min(SEEN_FOR);
        // A mark from the future is from a wrong clock, or from before ours was set back.
        let marked = mark.and_then(|mark| Some((mark, since(mark)?)));
        let Some((mark, since)) = marked.filter(|(_, since)| *since <= now.plus(seen_for)) else {
            return Step::Mark;
        };
        let known = self.seen.before(uid).filter(|known| known.mark == mark && known.first <= now);
        let first = known.map_or(now, |known| known.first);
        let due = since.plus(self.rest).max(first.plus(seen_for));
        self.seen.note(uid.to_owned(), Sighting { mark: mark.to_owned(), first }, due, now);
        if due <= now { Step::Release } else { Step::Wait }
    }

    /// The objects whose waiting time is over since the last look.
    pub(crate) fn due(&mut self, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        self.seen.due(now)
    }

    /// When the next waiting time is over; those that are over wake nobody.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.seen.next()
    }
}

/// The mark of an observation at this time.
pub(crate) fn mark_at(now: Timestamp) -> String {
    now.to_jiff().to_string()
}

fn since(mark: &str) -> Option<Timestamp> {
    let time = Time(mark.parse().ok()?);
    Some(Timestamp::from_jiff(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_mins(2);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000 + seconds * 1_000)
    }

    fn look(releases: &mut Releases, mark: Option<&str>, seconds: u64) -> Step {
        releases.look_again();
        releases.step("uid", mark, at(seconds))
    }

    #[test]
    fn an_object_is_marked_then_rests_and_is_released_at_a_second_observation() {
        let mut releases = Releases::resting(REST);
        assert_eq!(look(&mut releases, None, 0), Step::Mark);
        let mark = mark_at(at(0));
        assert_eq!(look(&mut releases, Some(&mark), 1), Step::Wait);
        assert_eq!(releases.next(), Some(at(120)));
        assert_eq!(look(&mut releases, Some(&mark), 119), Step::Wait);
        assert_eq!(look(&mut releases, Some(&mark), 120), Step::Release);
        assert_eq!(releases.next(), None, "what is due wakes nobody");
    }

    #[test]
    fn one_who_has_just_started_believes_an_old_mark_after_a_second_look() {
        let mut releases = Releases::resting(REST);
        let mark = mark_at(at(0));
        assert_eq!(look(&mut releases, Some(&mark), 600), Step::Wait, "the clock that wrote it may be wrong");
        assert_eq!(look(&mut releases, Some(&mark), 609), Step::Wait);
        assert_eq!(look(&mut releases, Some(&mark), 610), Step::Release);
        let again = mark_at(at(1));
        assert_eq!(look(&mut releases, Some(&again), 610), Step::Wait, "another mark is another observation");
    }

    #[test]
    fn a_mark_from_the_future_or_that_is_none_is_written_anew() {
        let mut releases = Releases::resting(REST);
        for mark in [mark_at(at(3_600)), String::new(), "yesterday".to_owned()] {
            assert_eq!(look(&mut releases, Some(&mark), 0), Step::Mark, "{mark:?}");
        }
        assert_eq!(look(&mut releases, Some(&mark_at(at(3))), 0), Step::Wait, "clocks differ a little");
        // The clock is set back by an hour during the waiting time.
        let mark = mark_at(at(3_600));
        assert_eq!(look(&mut releases, Some(&mark), 3_601), Step::Wait);
        assert_eq!(look(&mut releases, Some(&mark), 10), Step::Mark);
    }
}
