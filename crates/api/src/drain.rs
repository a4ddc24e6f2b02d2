//! The drain mark on a block: an operator wants it empty and returned to its pool.
//!
//! Only the node that owns the block assigns from it, so only that node can stop: its agent sees the mark by its watch of its own
//! blocks. The pods that hold addresses of the block keep them. Once nobody does, and nothing cools in it, the agent returns it.

use kube::ResourceExt;

/// Annotation on a block: no new address is assigned from it. The value does not matter.
pub const DRAIN: &str = "tenure/drain";

/// Whether an operator drains the block.
pub fn is_draining(block: &impl ResourceExt) -> bool {
    block.annotations().contains_key(DRAIN)
}
