//! The pace of writes that everybody hears of: news for people on objects that every node watches.
//!
//! One such write is an event for each node. If it followed each change, a cluster that starts would send as many events as it
//! has nodes, times as many as it has blocks. So it waits longer in larger clusters, and the events a second stay the same.

use std::collections::HashMap;
use std::time::Duration;

use tenure_handles::Timestamp;

use crate::world::World;
use crate::write::Write;

/// How much longer each node makes the time between two such writes of an object: 250 events a second are left of each object.
const A_NODE: Duration = Duration::from_millis(4);
/// The longest time: the longest that a number for people is old.
const LONGEST: Duration = Duration::from_secs(20);

/// The time between two writes to an object that every node watches.
pub(crate) fn of_everybody(world: &World) -> Duration {
    let nodes = u32::try_from(world.nodes().len()).unwrap_or(u32::MAX);
    A_NODE.saturating_mul(nodes).min(LONGEST)
}

/// Objects that were written a moment ago, and until when news of them wait.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    until: HashMap<String, Timestamp>,
    /// When the first write that waits may begin.
    next: Option<Timestamp>,
}

impl Pace {
    /// A plan begins: what waited may not be planned any more.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.next = None;
        self.until.retain(|_, until| now < *until);
    }

    /// Whether this may be written now. What may not is planned again when its time has come.
    pub(crate) fn allows(&mut self, write: &Write, world: &World) -> bool {
        if self.until.is_empty() || write.pace(world).is_zero() {
            return true;
        }
        let Some(until) = self.until.get(write.subject()) else { return true };
        self.next = Some(self.next.map_or(*until, |next| next.min(*until)));
        false
    }

    /// It was written, at this pace.
    pub(crate) fn wrote(&mut self, subject: &str, pace: Duration, now: Timestamp) {
        if !pace.is_zero() {
            self.until.insert(subject.to_owned(), now.plus(pace));
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When the first write that waits may begin.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Operation;

    #[derive(Debug)]
    struct News(Duration);

    impl Operation for News {
        fn part(&self) -> &'static str {
            "test"
        }

        fn verb(&self) -> &'static str {
            "news"
        }

        fn subject(&self) -> &'static str {
            "pool"
        }

        fn pace(&self, _: &World) -> Duration {
            self.0
        }
    }

    #[test]
    fn news_wait_and_what_matters_does_not() {
        let (mut pace, world, start) = (Pace::default(), World::default(), Timestamp::from_millis(1_000));
        let (news, matters) = (Write::from(News(Duration::from_secs(1))), Write::from(News(Duration::ZERO)));
        assert!(pace.allows(&news, &world), "nothing was written yet");
        pace.wrote("pool", Duration::from_secs(1), start);
        pace.begin(start);
        assert!(pace.allows(&matters, &world) && pace.next().is_none());
        assert!(!pace.allows(&news, &world));
        let due = start.plus(Duration::from_secs(1));
        assert_eq!(pace.next(), Some(due), "it is planned again then");
        pace.begin(due);
        assert!(pace.allows(&news, &world) && pace.next().is_none());
    }
}
