//! Whereabouts' kinds, `whereabouts.cni.cncf.io/v1alpha1`: ledgers of L2 ranges, and slices of them for nodes.
//!
//! ```text
//!  NodeSlicePool ──slice──▶ Node ──keeps──▶ IPPool (per node)
//!                                           IPPool (shared, without slices) ──guarded by──▶ OverlappingRangeIPReservation
//! ```
//!
//! All namespaced, without subresources and printer columns, as Whereabouts defines them.

// `KubeSchema` copies each struct, with its `pub`, into a function body.
#![allow(unreachable_pub, reason = "code of the derive, not ours")]

mod ippool;
mod ledger;
pub mod names;
mod reservation;
pub mod rules;
mod slices;

pub use ippool::{Allocation, IPPool, IPPoolSpec};
pub use ledger::Reservation;
pub use names::{WhereaboutsNameError, pool_name, reservation_name, slice_pool_name};
pub use reservation::{OverlappingRangeIPReservation, OverlappingRangeIPReservationSpec};
pub use slices::{NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec, NodeSlicePoolStatus};

/// The group of these kinds.
pub const GROUP: &str = "whereabouts.cni.cncf.io";
/// The version of these kinds.
pub const VERSION: &str = "v1alpha1";

/// Names of labels. They are ours: Whereabouts sets none, and whoever reads its objects may not rely on them.
pub mod label {
    /// On an `IPPool`: the `network_name` that it belongs to.
    pub const NETWORK: &str = "whereabouts.cni.cncf.io/network";
    /// On an `IPPool` of a slice: the node that owns it.
    pub const NODE: &str = "whereabouts.cni.cncf.io/node";
}

/// Names of annotations that are ours.
pub mod annotation {
    /// On a reservation: the node whose agent has made it, or [`CONTROLLER`]. Only that one deletes it, and the controller. Without
    /// it, it is of Whereabouts or of an earlier version.
    pub const NODE: &str = "tenure/node";
    /// What stands there for the controller. No node is called so.
    pub const CONTROLLER: &str = ":controller";
}
