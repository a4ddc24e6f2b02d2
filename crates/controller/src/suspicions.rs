//! A problem counts only when it has lasted for a while: two observations, never one.

use std::time::Duration;

use tenure_handles::Timestamp;

use crate::sightings::Sightings;

/// Since when each object, by UID, looks wrong.
#[derive(Debug)]
pub(crate) struct Suspicions {
    lasting: Duration,
    since: Sightings<Timestamp>,
}

impl Suspicions {
    /// Starts empty; a suspicion counts when it has lasted this long.
    pub(crate) fn lasting(lasting: Duration) -> Self {
        Self { lasting, since: Sightings::default() }
    }

    /// Begins to look at everything: what is not suspected again is forgotten.
    pub(crate) fn look_again(&mut self) {
        self.since.look_again();
    }

    /// Begins to look at one object.
    pub(crate) fn look_again_at(&mut self, uid: &str) {
        self.since.look_again_at(uid);
    }

    /// Notes that this object looks wrong. Returns whether that has lasted long enough.
    pub(crate) fn suspect(&mut self, uid: String, now: Timestamp) -> bool {
        let before = self.since.before(&uid).copied().filter(|since| *since <= now);
        let since = before.unwrap_or(now);
        self.since.note(uid, since, since.plus(self.lasting), now);
        before.is_some_and(|since| now.since(since) >= self.lasting)
    }

    /// The objects whose suspicion has lasted long enough since the last look.
    pub(crate) fn due(&mut self, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        self.since.due(now)
    }

    /// When the next suspicion has lasted long enough; those that have already wake nobody.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.since.next()
    }
}
