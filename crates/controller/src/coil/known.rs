//! What is known of Coil's objects.

use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};

use crate::cache::Cache;
use crate::world::{State, World};

/// Pools, blocks and requests.
#[derive(Debug, Default)]
pub struct CoilObjects {
    /// Pools.
    pub pools: Cache<AddressPool>,
    /// Blocks.
    pub blocks: Cache<AddressBlock>,
    /// Requests.
    pub requests: Cache<BlockRequest>,
}

impl CoilObjects {
    /// Whether all first lists are complete. Before, absence means nothing.
    pub(super) fn is_complete(&self) -> bool {
        self.pools.is_complete() && self.blocks.is_complete() && self.requests.is_complete()
    }
}

impl State for CoilObjects {
    fn changes(&self) -> u64 {
        self.pools.changes() + self.blocks.changes() + self.requests.changes()
    }

    fn nodes(&self) -> Vec<&str> {
        let of_blocks = self.blocks.iter().filter_map(AddressBlock::node);
        let of_requests = self.requests.iter().map(|request| request.spec.node_name.as_str());
        of_blocks.chain(of_requests).collect()
    }
}

impl World {
    /// Pools, blocks and requests.
    pub fn coil(&self) -> &CoilObjects {
        self.state()
    }

    /// The same, mutable.
    pub fn coil_mut(&mut self) -> &mut CoilObjects {
        self.state_mut()
    }
}
