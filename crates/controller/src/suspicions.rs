//! What looks wrong is believed when it has looked wrong for a while: two observations, never one.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use tenure_handles::Timestamp;

/// Since when each object, by UID, has looked wrong.
#[derive(Debug)]
pub(crate) struct Suspicions {
    lasting: Duration,
    before: BTreeMap<String, Timestamp>,
    now: BTreeMap<String, Timestamp>,
    looked: Timestamp,
}

impl Suspicions {
    /// None yet; one is believed when it has lasted so long.
    pub(crate) fn lasting(lasting: Duration) -> Self {
        Self { lasting, before: BTreeMap::new(), now: BTreeMap::new(), looked: Timestamp::default() }
    }

    /// A round of looks begins: what is not suspected again in this round is forgotten at its end, with the next one.
    pub(crate) fn look_again(&mut self) {
        self.before = mem::take(&mut self.now);
    }

    /// This object looks wrong; whether it has for long enough.
    pub(crate) fn suspect(&mut self, uid: String, now: Timestamp) -> bool {
        self.looked = now;
        let since = self.before.get(&uid).copied().filter(|since| *since <= now);
        self.now.insert(uid, since.unwrap_or(now));
        since.is_some_and(|since| now.since(since) >= self.lasting)
    }

    /// When the next suspicion will have lasted long enough; those that have already wake nobody.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let ends = self.now.values().map(|since| since.plus(self.lasting));
        ends.filter(|end| *end > self.looked).min()
    }
}
