//! Keeping blocks that have a release mark.
//!
//! The controller marks the blocks of a missing node and releases them after a delay. A node that is alive
//! has the mark removed, by a write that conflicts with the deletion. Until it knows that the mark is gone,
//! it assigns nothing from the block, because the block may be gone instead. Its holds stay.

use tenure_handles::Timestamp;

use super::block::Owned;
use super::{Action, Node};
use crate::journal::BlockFacts;

impl Owned {
    /// Updates the mark from the object. The node asks for the removal of a new mark at once.
    pub(super) fn see_mark(&mut self, releasing: bool) {
        if self.releasing != releasing {
            self.objected = None;
        }
        self.releasing = releasing;
    }

    /// When to ask again if there is no answer.
    pub(super) fn objects_at(&self, patience: std::time::Duration) -> Option<Timestamp> {
        self.objected.filter(|_| self.is_being_kept()).map(|objected| objected.plus(patience))
    }
}

impl Node {
    /// Asks for the removal of release marks from a pool's blocks.
    pub(super) fn keep(&mut self, pool: &str) {
        let (now, patience) = (self.now, self.settings.return_patience);
        for block in self.blocks.values_mut().filter(|block| block.facts.pool == pool) {
            if block.is_being_kept() && block.objects_at(patience).is_none_or(|again| again <= now) {
                block.objected = Some(now);
                let BlockFacts { pool, name, uid, .. } = block.facts.clone();
                self.actions.push(Action::KeepBlock { pool, name, uid });
            }
        }
    }
}
