//! Blocks that nobody can use any more: their node is gone, or is out of service for good.
//!
//! Blocks of a missing node go by the rule of [`crate::release`]: two observations, a rest between them, and a mark that their
//! owner can remove.

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, FINALIZER};
use tenure_api::release::mark_of;
use tenure_handles::Timestamp;

use super::write::{Because, BlockWrite};
use crate::nodes::is_out_of_service;
use crate::release::{Releases, Step, mark_at};
use crate::world::World;
use crate::write::At;

/// Marks what a missing node has left, releases it after the rest, and takes the mark off where the node is back.
pub(super) fn release_blocks(world: &World, releases: &mut Releases, now: Timestamp) -> Vec<BlockWrite> {
    releases.look_again();
    let mut writes = Vec::new();
    for block in world.blocks.iter().filter(|block| !block.is_reserved() && !is_on_its_way(block)) {
        let Some(node) = block.node() else { continue };
        match world.nodes().get(node) {
            // One that cannot be read is there.
            None if world.nodes().is_unreadable(node) => {}
            None => match releases.step(&block.uid().unwrap_or_default(), mark_of(block), now) {
                Step::Mark => {
                    let (block, node) = (At::of(block), node.to_owned());
                    writes.push(BlockWrite::MarkBlock { block, node, mark: mark_at(now) });
                }
                Step::Wait => {}
                Step::Release => writes.push(release(block, node, Because::NodeIsGone)),
            },
            Some(known) if is_out_of_service(known) => {
                let addresses = block.spec.to_subnet().ok();
                writes.push(release(block, node, Because::OutOfService { addresses }));
            }
            Some(_) if mark_of(block).is_some() => {
                writes.push(BlockWrite::UnmarkBlock { block: At::of(block) });
            }
            Some(_) => {}
        }
    }
    writes
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
