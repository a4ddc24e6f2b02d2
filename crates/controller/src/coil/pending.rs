//! What the next plan has to look at.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::write::BlockWrite;

/// Objects by name, of each kind that is looked at separately.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Pools: their finalizers and status.
    pub(super) pools: Names,
    /// Blocks whose node may be missing.
    pub(super) blocks: Names,
    /// Blocks that only occupy a name.
    pub(super) locks: Names,
}

#[cfg(test)]
impl Pending {
    /// How many objects to look at.
    pub(super) fn len(&self) -> usize {
        [&self.pools, &self.blocks, &self.locks].map(|names| names.0.len()).iter().sum()
    }
}

/// Names of objects to look at.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) BTreeSet<Arc<str>>);

impl Names {
    /// Looks at each. An object that needs a write stays until a look shows that it needs none.
    pub(super) fn look(&mut self, mut next: impl FnMut(&str) -> Option<BlockWrite>) -> Vec<BlockWrite> {
        let mut writes = Vec::new();
        self.0.retain(|name| {
            let before = writes.len();
            writes.extend(next(name));
            writes.len() > before
        });
        writes
    }
}
