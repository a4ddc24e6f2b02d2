//! What happens because time passes.

use std::collections::BTreeSet;

use tenure_handles::Timestamp;

use super::Node;
use super::block::{Object, Owned};
use crate::key::HolderId;

impl Node {
    /// Updates the time from the clock. A node's own time never goes back: it is the clock's, plus however
    /// much that was ever set back.
    pub(super) fn notice(&mut self, clock: Timestamp) {
        let shown = clock.plus(self.ahead);
        self.ahead += self.now.since(shown);
        self.now = self.now.max(shown);
    }

    /// Continues from where the journal ended: the clock may have been set back since.
    pub(super) fn go_on_from(&mut self, latest: Timestamp) {
        self.ahead += latest.since(self.now);
        self.now = self.now.max(latest);
    }

    pub(super) fn tick(&mut self) {
        if self.start.is_some() {
            return;
        }
        self.end_lingering();
        self.look();
        self.consult();
        self.expire_grants();
        let pools: Vec<String> = self.pools.keys().cloned().collect();
        for pool in &pools {
            // Calls that can be served are served before any call times out.
            self.advance(pool);
            self.serve(pool);
            self.expire(pool);
        }
        self.touched.extend(pools);
        let orphans = self.blocks.values().map(|block| &block.facts.pool);
        let orphans: BTreeSet<String> =
            orphans.filter(|pool| !self.pools.contains_key(*pool)).cloned().collect();
        self.touched.extend(orphans);
        self.forget_formers();
    }

    /// Forgets the last holders of addresses that have cooled.
    fn forget_formers(&mut self) {
        let cooling = self.blocks.values().flat_map(|block| block.engine.cooling());
        let cooling: BTreeSet<HolderId> = cooling.map(|cooling| *cooling.last.key).collect();
        self.former.retain(|id, _| cooling.contains(id));
    }

    /// When, by the clock, the next [`Tick`](super::Event::Tick) is due, if nothing else happens before.
    pub fn next_wake(&self) -> Option<Timestamp> {
        Some(Timestamp::default().plus(self.next_moment()?.since(Timestamp::default().plus(self.ahead))))
    }

    fn next_moment(&self) -> Option<Timestamp> {
        if self.start.is_some() {
            return None;
        }
        let settings = &self.settings;
        let waiting = self.pools.values().flat_map(|pool| pool.queue.iter());
        let waiting = waiting.filter_map(|id| self.attachments.get(id)).flat_map(|it| it.adds.iter());
        let waiting = waiting.flat_map(|(_, since)| {
            [since.plus(settings.patience), since.plus(settings.cooling_gives_way_after)]
        });
        let troubles = self.pools.values().filter_map(super::pool::Pool::ask_again_at);
        let grants = self.asks.values().filter(|ask| ask.granted.is_some());
        let grants = grants.map(|ask| ask.since.plus(settings.grant_patience));
        let blocks = self.blocks.values().filter_map(|block| self.wake_for(block));
        let kept = self.blocks.values().filter_map(|block| block.objects_at(settings.return_patience));
        let look = self.suspicions.look_at;
        let moments = waiting.chain(troubles).chain(grants).chain(blocks).chain(kept).chain(look);
        let moments = moments.chain(self.reach.moments()).chain(self.doubt.moment());
        // Earlier times were already handled and wait for something else.
        moments.filter(|moment| *moment > self.now).min()
    }

    /// When something is due for a block.
    fn wake_for(&self, block: &Owned) -> Option<Timestamp> {
        let someone_waits = self.pools.get(&block.facts.pool).is_some_and(|pool| !pool.queue.is_empty());
        if someone_waits && block.is_usable() {
            return block.engine.cooling().next().map(|cooling| cooling.until);
        }
        if !block.engine.is_empty() || block.reserved || block.pod.is_some() {
            return None;
        }
        let due = match (&block.fence, block.object) {
            (None, _) if block.is_slice() => None,
            (None, _) => Some(block.empty_since.plus(self.settings.rest)),
            (Some(_), Object::Ours) => block.sent.map(|sent| sent.plus(self.settings.return_patience)),
            (Some(_), Object::Gone | Object::Elsewhere) => None,
        };
        due.max(block.cool_at())
    }
}
