//! Cloud alias addresses, `ipam.gcp-cni.cast.ai`: addresses of a cloud's subnet that follow pods from machine to machine.
//!
//! ```text
//!  IPPool (which ranges, how they are attached) ◀──counts── controller
//!    │ owns                                                   │ one record for each alias range
//!    └──▶ IPLedger <pool>-0, <pool>-1, … (256 addresses each) ◀┤
//!                                                             │ status: what the node has
//!  agent of a node ──spec: what it wants, gives back──▶ NodeAliases <node>
//! ```
//!
//! `IPPool` is the kind of the GCP-CNI prototype, which keeps all allocations in its spec: at 240 bytes each, the object is full
//! after 6,500 of the 65,534 addresses that it promises, and every ADD rewrites it. So `spec.allocations` is only read, to take over
//! what the prototype wrote. The records are in ledgers, one for each /24 of the pool: [`Ranges`] computes which ledger has an
//! address, so two leaders that want the same address always meet at one object. A full ledger has about 25 kB.
//!
//! Whereabouts has another kind of the name `IPPool`. The type here is [`AliasPool`].

// `KubeSchema` copies each struct, with its `pub`, into a function body.
#![allow(unreachable_pub, reason = "code of the derive, not ours")]

mod ledger;
mod node;
mod pool;
mod ranges;
mod rules;

pub use ledger::{AliasMove, AliasRecord, IPLedger, IPLedgerSpec};
pub use node::{LeavingPod, NodeAlias, NodeAliases, NodeAliasesSpec, NodeAliasesStatus};
pub use pool::{AliasPool, AliasPoolSpec, AliasPoolStatus, AliasRange, Allocation, Attach};
pub use ranges::{LEDGER_SIZE, LedgerOffset, Ranges, RangesError, ledger_name};

/// The group of these kinds.
pub const GROUP: &str = "ipam.gcp-cni.cast.ai";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// On pools, and on ledgers: kept while an address is held or attached.
pub const FINALIZER: &str = "tenure/alias-addresses";
/// The secondary range of a pool that names none, as the prototype has it.
pub const SECONDARY_RANGE: &str = "live";

/// Annotations of pods that move. Their author is a tenant, so they are requests.
pub mod annotation {
    /// On the pod that moves in: the address that it is to have.
    pub const ADDRESS: &str = "live.cast.ai/ip";
    /// On the pod that moves in: the instance that the address is attached to.
    pub const ORIGINAL_INSTANCE: &str = "live.cast.ai/original-instance";
    /// On the pod that moves out: its address stays when it ends.
    pub const MOVE_OUT: &str = "live.cast.ai/move-out-ip";
}

/// Types of conditions of a pool.
pub mod condition {
    /// Addresses can be attached.
    pub const READY: &str = "Ready";
    /// No address is free.
    pub const EXHAUSTED: &str = "Exhausted";
    /// Another pool has some of its addresses.
    pub const OVERLAPPING: &str = "Overlapping";
}
