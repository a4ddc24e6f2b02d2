//! Blocks that nobody can use any more: their node is gone, or permanently out of service.
//!
//! Blocks of a missing node are released by the rule of [`crate::release`]: two observations with time between them,
//! and a mark that the owner can remove.

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
    /// The key under which each block was last looked at.
    asked: HashMap<String, String>,
    /// Whether this plan looks at all blocks.
    all: bool,
}

impl MissingNodes {
    /// Starts empty; `rest` is the time between the two observations.
    pub(super) fn resting(rest: Duration) -> Self {
        Self { releases: Releases::resting(rest), asked: HashMap::new(), all: false }
    }

    /// Begins a plan, maybe one that looks at all blocks. Returns the names of those that are due.
    pub(super) fn look_again(&mut self, all: bool, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        self.all = all;
        if all {
            self.releases.look_again();
            self.asked.clear();
        }
        // UIDs and names have no slash.
        self.releases.due(now).filter_map(|key| key.split_once('/').map(|(_, name)| name.to_owned()))
    }

    /// Marks a block of a missing node, releases it after the waiting time, and removes the mark if the node is back.
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

    /// When the next waiting time is over.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.releases.next()
    }
}

/// Whether it is in deletion and waits for other finalizers.
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
