//! Coil's kinds, `coil.cybozu.com/v2`: pools cut into blocks that nodes own, and gateways out of the cluster ([`egress`]).
//!
//! ```text
//!  AddressPool ──carved into──▶ AddressBlock ──owned by──▶ Node
//!       ▲                            ▲                      │
//!       └────────poolName──── BlockRequest ◀────asks────────┘
//! ```
//!
//! An `AddressBlock`'s name is `<pool>-<index>`, so creating one is also the lock on that index.

// `KubeSchema` copies each struct, with its `pub`, into a function body.
#![allow(unreachable_pub, reason = "code of the derive, not ours")]

mod block;
mod carving;
pub(crate) mod conversion;
pub mod egress;
mod engine;
pub mod names;
mod pool;
mod request;
pub mod rules;

pub use block::{AddressBlock, AddressBlockSpec, ClaimRecord};
pub use conversion::ConversionError;
pub use egress::{Egress, EgressClients, EgressId};
pub use engine::EnginePool;
pub use names::{block_name, request_name, split_block_name};
pub(crate) use pool::set_condition;
pub use pool::{AddressPool, AddressPoolSpec, AddressPoolStatus, PoolUsage, SubnetSet};
pub use request::{
    BlockRequest, BlockRequestCondition, BlockRequestSpec, BlockRequestStatus, RequestOutcome,
};

/// The group of these kinds.
pub const GROUP: &str = "coil.cybozu.com";
/// The version of these kinds.
pub const VERSION: &str = "v2";

/// The pool of namespaces that name none.
pub const DEFAULT_POOL: &str = "default";
/// Kept on pools that have blocks and on blocks that have holds.
pub const FINALIZER: &str = "coil.cybozu.com";

/// Names of labels.
pub mod label {
    /// On a block: the pool that it was carved from.
    pub const POOL: &str = "coil.cybozu.com/pool";
    /// On a block: the node that owns it.
    pub const NODE: &str = "coil.cybozu.com/node";
    /// On a block: the UID of the request that it answers, so that a repeated answer carves no second block.
    pub const REQUEST: &str = "coil.cybozu.com/request";
    /// On a block: nobody assigns its addresses.
    pub const RESERVED: &str = "coil.cybozu.com/reserved";
    /// On a block: it is nobody's. It only occupies its name, because an older pool has carved its addresses, or is about to.
    /// The value is `true`.
    pub const WITHHELD: &str = "tenure/withheld";
}

/// Names of annotations.
pub mod annotation {
    /// On a block that is withheld: the UIDs of the older pools for which it is, separated by commas.
    pub const WITHHELD_FOR: &str = "tenure/withheld-for";
    /// On a namespace: the pool of its pods.
    pub const POOL: &str = "coil.cybozu.com/pool";
    /// On a request: what its node takes as the answer. With the value [`BLOCK`] that is the block, which names the request's UID
    /// (`coil.cybozu.com/request`). The status then says only why there is none.
    pub const ANSWERED_BY: &str = "tenure/answered-by";
    /// The value of [`ANSWERED_BY`].
    pub const BLOCK: &str = "block";
}

/// Types and reasons of conditions.
pub mod condition {
    /// On a pool: blocks can be carved. The reason says why not.
    pub const READY: &str = "Ready";
    /// On a pool: no block is free.
    pub const EXHAUSTED: &str = "Exhausted";
    /// On a pool: part of it belongs to an older pool, and is not assigned from here.
    pub const OVERLAPPING: &str = "Overlapping";
    /// On a request: it was dealt with; says nothing about success.
    pub const COMPLETE: &str = "Complete";
    /// On a request: there is no block for it; the reason says why.
    pub const FAILED: &str = "Failed";

    /// Why a condition is as it is.
    pub mod reason {
        /// Blocks can be carved.
        pub const BLOCKS_FREE: &str = "BlocksFree";
        /// Every block of the pool is carved.
        pub const OUT_OF_BLOCKS: &str = "OutOfBlocks";
        /// The pool is being deleted.
        pub const DELETING: &str = "Deleting";
        /// There is no pool of that name.
        pub const POOL_NOT_FOUND: &str = "PoolNotFound";
        /// No other pool has any of its addresses.
        pub const DISTINCT: &str = "Distinct";
        /// An older pool has some of its addresses.
        pub const OVERLAPS_OLDER_POOL: &str = "OverlapsOlderPool";
        /// An older pool has all of its addresses.
        pub const INSIDE_OLDER_POOL: &str = "InsideOlderPool";
        /// The stored pool cannot be understood; it was written before its rules were installed.
        pub const INVALID: &str = "Invalid";
        /// A block was carved for the request.
        pub const CARVED: &str = "Carved";
    }
}

/// The label selector for the blocks that a node owns.
pub fn blocks_of_node(node: &str) -> String {
    format!("{}={node}", label::NODE)
}
