//! Blocks that nobody can use any more: their node is gone, or is out of service for good.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, FINALIZER};
use tenure_handles::Timestamp;

use super::at;
use super::suspicions::Suspicions;
use crate::world::World;
use crate::write::{Because, Write};

/// What an administrator puts on a node that will not come back by itself.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Releases what nobody can use, after two observations or a seen deletion.
pub(super) fn collect(world: &World, suspicions: &mut Suspicions, now: Timestamp) -> Vec<Write> {
    suspicions.look_again();
    let mut writes = Vec::new();
    for block in world.blocks.iter().filter(|block| !block.is_reserved() && !is_on_its_way(block)) {
        let Some(node) = block.node() else { continue };
        match world.nodes().get(node) {
            None => {
                let lasted = suspicions.suspect(block.uid().unwrap_or_default(), now);
                if lasted || world.saw_deletion_of(node) {
                    writes.push(release(block, node, Because::NodeIsGone));
                }
            }
            Some(known) if is_out_of_service(known) => {
                let addresses = block.spec.to_subnet().ok();
                writes.push(release(block, node, Because::OutOfService { addresses }));
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

/// Whether an administrator has declared the node out of service.
pub(crate) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn release(block: &AddressBlock, node: &str, because: Because) -> Write {
    let finalizers = block.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    Write::ReleaseBlock { block: at(block), finalizers, node: node.to_owned(), because }
}
