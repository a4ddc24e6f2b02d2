//! Keeping blocks that somebody means to release.
//!
//! The controller marks the blocks of a node that it cannot find, and releases them after a rest. A node that is alive
//! objects: it has the mark removed, by a write that conflicts with the deletion. Until it knows that the mark is gone it
//! assigns nothing of the block, because the block may be gone instead. What is held in it stays.

use tenure_handles::Timestamp;

use super::block::Owned;
use super::{Action, Node};

impl Owned {
    /// What its object says now. A new mark is objected to at once.
    pub(super) fn see_mark(&mut self, releasing: bool) {
        if self.releasing != releasing {
            self.objected = None;
        }
        self.releasing = releasing;
    }

    /// When to object again if nothing is heard.
    pub(super) fn objects_at(&self, patience: std::time::Duration) -> Option<Timestamp> {
        self.objected.filter(|_| self.is_being_kept()).map(|objected| objected.plus(patience))
    }
}

impl Node {
    /// Objects to the release of a pool's blocks.
    pub(super) fn keep(&mut self, pool: &str) {
        let (now, patience) = (self.now, self.settings.return_patience);
        for block in self.blocks.values_mut().filter(|block| block.facts.pool == pool) {
            if block.is_being_kept() && block.objects_at(patience).is_none_or(|again| again <= now) {
                block.objected = Some(now);
                let (name, uid) = (block.facts.name.clone(), block.facts.uid.clone());
                self.actions.push(Action::KeepBlock { name, uid });
            }
        }
    }
}
