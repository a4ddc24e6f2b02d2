//! Returning blocks.
//!
//! An empty block is returned after a delay, so that a burst of short-lived pods does not move blocks back
//! and forth, and a pool's last block stays. A block also stays while anything cools in it, because the next
//! owner does not know of that, if the node would have to request another one at once, or if it is kept for a
//! pod. One that an operator drains goes as soon as nobody holds an address of it. A pool that says how many addresses to keep ready keeps these, and no last block.

use tenure_handles::Timestamp;

use super::attachment::Attachment;
use super::block::{Object, Owned};
use super::pool::Pool;
use super::{Action, Fence, Node};
use crate::journal::Record;

impl Node {
    /// Returns the blocks of a pool that are not needed.
    pub(super) fn return_blocks(&mut self, name: &str) {
        let draining = !self.pools.get(name).is_some_and(Pool::is_giving);
        let kept = self.blocks.values().filter(|block| block.facts.pool == name && is_kept(block));
        let mut empty: Vec<(bool, Timestamp, String)> = kept
            .filter(|block| block.engine.is_empty() && !block.is_kept_back() && !block.doubted)
            .map(|block| {
                (draining || block.deleting || block.draining, block.empty_since, block.facts.uid.clone())
            })
            .collect();
        // Those that have been empty longest come first.
        empty.sort();
        for (leaving, _, uid) in empty {
            if leaving || self.is_spare(name, &uid) {
                self.fence(&uid, Fence::Returned);
            }
        }
        let fenced =
            self.uids_of(name).filter(|uid| self.blocks.get(*uid).is_some_and(|it| it.fence.is_some()));
        let fenced: Vec<String> = fenced.map(str::to_owned).collect();
        for uid in fenced {
            self.dismiss(&uid);
        }
    }

    /// Whether an empty block can be returned.
    fn is_spare(&self, name: &str, uid: &str) -> bool {
        let Some(pool) = self.pools.get(name) else { return true };
        let Some(block) = self.blocks.get(uid) else { return false };
        let rested = block.empty_since.plus(self.settings.rest) <= self.now;
        if !rested || !block.is_at_rest() {
            return false;
        }
        let others = || self.blocks.values().filter(|it| it.facts.pool == name && it.facts.uid != uid);
        let usable = || others().filter(|block| block.is_usable() && block.pod.is_none());
        if pool.warm().is_none() && usable().filter(|block| is_kept(block)).count() < self.settings.keep {
            return false;
        }
        let idle =
            pool.warm().is_none() && pool.queue.is_empty() && others().all(|block| block.engine.is_empty());
        let free = usable().map(|block| block.engine.counts().free);
        let needed =
            ((pool.queue.len() + self.expected(name)) as u128).saturating_add(2 * self.low_water(name));
        (idle || free.fold(0, u128::saturating_add) >= needed) && self.is_clear(uid)
    }

    /// Whether nobody here holds an address of a block and none cools. Holds and cooling may be in other
    /// blocks: in an earlier one with the same addresses.
    fn is_clear(&self, uid: &str) -> bool {
        let Some(block) = self.blocks.get(uid) else { return true };
        // If a pool goes away, its addresses have no next owner who would have to wait until they have
        // cooled.
        let draining = !self.pools.get(&block.facts.pool).is_some_and(Pool::is_giving);
        let cools = |other: &Owned| !draining && !other.is_at_rest() && other.overlaps(&block.facts);
        let facts = &block.facts;
        let has = |it: &Attachment| {
            self.is_of_realm(it, facts) && it.every_address().into_iter().any(|address| block.has(address))
        };
        !self.blocks.values().any(cools) && !self.attachments.values().any(has)
    }

    fn send_back(&mut self, uid: &str) {
        let Some(block) = self.blocks.get_mut(uid) else { return };
        block.sent = Some(self.now);
        let (pool, name, uid) = (block.facts.pool.clone(), block.facts.name.clone(), uid.to_owned());
        self.actions.push(Action::ReturnBlock { pool, name, uid });
    }

    /// Continues with a fenced block: returns its object, or forgets it. Called whenever either may have
    /// become possible.
    pub(super) fn dismiss(&mut self, uid: &str) {
        let now = self.now;
        let fenced = |block: &&mut Owned| block.fence.is_some() && !block.doubted;
        let Some(block) = self.blocks.get_mut(uid).filter(fenced) else { return };
        block.engine.advance(now);
        if !block.engine.is_empty() || !self.commits.is_committed(block.fence_position) {
            return;
        }
        match block.object {
            Object::Ours => {
                let patience = self.settings.return_patience;
                let waits = block.sent.is_some_and(|sent| sent.plus(patience) > now);
                if !waits && !block.is_kept_back() && self.is_clear(uid) {
                    self.send_back(uid);
                }
            }
            // If the same addresses come back in another block, they continue to cool there.
            Object::Gone | Object::Elsewhere if block.is_at_rest() => {
                self.blocks.remove(uid);
                self.lost.insert(uid);
                self.record(Record::Forgotten { uid: uid.to_owned() });
                self.unshadow(uid);
            }
            Object::Gone | Object::Elsewhere => {}
        }
    }
}

/// Whether this node still has it.
fn is_kept(block: &Owned) -> bool {
    block.fence.is_none() && block.object == Object::Ours
}
