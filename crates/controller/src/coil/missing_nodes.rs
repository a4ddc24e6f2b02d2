//! Blocks that nobody can use any more: their node is gone, or is out of service for good.
//!
//! Blocks of a missing node go by the rule of [`crate::release`]: two observations, a rest between them, and a mark that their
//! owner can remove.

use std::collections::HashMap;
use std::time::Duration;

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, FINALIZER};
use tenure_api::release::mark_of;
use tenure_handles::Timestamp;

use super::facts::NodeState;
use super::write::{Because, BlockWrite};
use crate::release::{Releases, Step, mark_at};
use crate::world::World;
use crate::write::At;

/// Since when blocks of missing nodes have been seen with their marks.
#[derive(Debug)]
pub(super) struct MissingNodes {
    releases: Releases,
    /// By which key each block was asked about at the last look at it.
    asked: HashMap<String, String>,
    /// Whether this look is one at all blocks.
    all: bool,
}

impl MissingNodes {
    /// Nothing was seen yet; `rest` lies between the two observations.
    pub(super) fn resting(rest: Duration) -> Self {
        Self { releases: Releases::resting(rest), asked: HashMap::new(), all: false }
    }

    /// A look begins, maybe one at all blocks. The names of those that are due.
    pub(super) fn look_again(&mut self, all: bool, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        self.all = all;
        if all {
            self.releases.look_again();
            self.asked.clear();
        }
        // No UID and no name has a slash.
        self.releases.due(now).filter_map(|key| key.split_once('/').map(|(_, name)| name.to_owned()))
    }

    /// Marks a block that a missing node has left, releases it after the rest, and takes the mark off where the node is back.
    pub(super) fn look_at(&mut self, world: &World, name: &str, now: Timestamp) -> Option<BlockWrite> {
        let block = world.coil().blocks.get(name);
        let key_of = |block: &AddressBlock| format!("{}/{name}", block.uid().unwrap_or_default());
        if !self.all {
            let key = block.map(key_of);
            let before = self.asked.remove(name).filter(|before| Some(before) != key.as_ref());
            before.iter().chain(&key).for_each(|key| self.releases.look_again_at(key));
        }
        let block = block.filter(|block| !block.is_reserved() && !is_on_its_way(block))?;
        let node = block.node()?;
        match NodeState::of(world, node) {
            NodeState::Missing => {
                let key = key_of(block);
                let step = self.releases.step(&key, mark_of(block), now);
                self.asked.insert(name.to_owned(), key);
                match step {
                    Step::Mark => {
                        let (block, node) = (At::of(block), node.to_owned());
                        Some(BlockWrite::MarkBlock { block, node, mark: mark_at(now) })
                    }
                    Step::Wait => None,
                    Step::Release => Some(release(block, node, Because::NodeIsGone)),
                }
            }
            NodeState::OutOfService => {
                let addresses = block.spec.to_subnet().ok();
                Some(release(block, node, Because::OutOfService { addresses }))
            }
            NodeState::InService if mark_of(block).is_some() => {
                Some(BlockWrite::UnmarkBlock { block: At::of(block) })
            }
            NodeState::InService | NodeState::Unreadable => None,
        }
    }

    /// When the next rest is over.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.releases.next()
    }
}

/// Whether it is being deleted and waits for others than us.
fn is_on_its_way(block: &AddressBlock) -> bool {
    let kept = block.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    block.metadata.deletion_timestamp.is_some() && !kept
}

pub(crate) fn release(block: &AddressBlock, node: &str, because: Because) -> BlockWrite {
    let finalizers = block.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    BlockWrite::ReleaseBlock { block: At::of(block), finalizers, node: node.to_owned(), because }
}

#[cfg(test)]
mod tests;
