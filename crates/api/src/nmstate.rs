//! Node addresses, `nmstate.io`: pools from which policies give every selected node a static address on its interfaces.
//!
//! ```text
//!  NodeNetworkConfigurationPolicy ──capture: ippool.NAME.allocate──▶ NodeIPPool (which offsets are taken)
//!                │                                                       │
//!                └──for each selected node──▶ NodeNetworkConfigurationEnactment (which node has which address) ──▶ Node
//! ```
//!
//! `NodeIPPool` is ours alone. The two other kinds are those of kubernetes-nmstate with fields of ours in the status, so a
//! definition that is there already must stay as it is: `kubectl apply -k deploy` leaves both out, and the controller creates
//! [`definitions`] at its start where they are missing.

// `KubeSchema` copies each struct, with its `pub`, into a function body.
#![allow(unreachable_pub, reason = "code of the derive, not ours")]

mod conditions;
mod enactment;
mod lenient;
mod names;
mod policy;
mod pool;
pub mod range;
mod rules;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub(crate) use schema::{finish_enactment, finish_policy};

pub use conditions::{NodeCondition, set_condition};
pub use enactment::{
    Applied, AppliedAddress, CapturedState, EnactmentStatus, NodeNetworkConfigurationEnactment,
    PoolAddresses, mode,
};
pub use names::{enactment_name, generated_name, is_policy_name, is_pool_name, node_label, pool_of_capture};
pub use policy::{
    NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec, NodeNetworkConfigurationPolicyStatus,
};
pub use pool::{
    CoolingOffsets, KeptOffset, NodeIPPool, NodeIPPoolSpec, NodeIPPoolStatus, NodeIPRange, PromisedOffset,
};
pub use range::{NodeRange, NodeRangeError, Taken};

/// The group of these kinds.
pub const GROUP: &str = "nmstate.io";
/// The version of pools and policies.
pub const VERSION: &str = "v1";

/// On an enactment: it stays until its addresses are off the interfaces and free in their pools.
pub const FINALIZER: &str = "tenure/node-addresses";

/// Names of labels.
pub mod label {
    /// On an enactment: its policy. (nmstate's.)
    pub const POLICY: &str = "nmstate.io/policy";
    /// On an enactment: its node, see [`super::node_label`]. (nmstate's.)
    pub const NODE: &str = "nmstate.io/node";
    /// A key in the node selector of a policy that kubernetes-nmstate is to leave alone: no node has such a label, so its handlers
    /// ignore the policy. We select nodes by the other keys.
    pub const NODE_ADDRESSES: &str = "tenure/node-addresses";
    /// On a policy that we generate for kubernetes-nmstate: the policy with the captures.
    pub const PARENT: &str = "tenure/policy";
}

/// Names of annotations.
pub mod annotation {
    /// On a pool (any value): its offsets are rebuilt from the enactments. On a policy or an enactment: the nodes give back their
    /// addresses of the named pool and get others. Removed when that is done.
    pub const RESET: &str = "nmstate.io/reset-ippool";
    /// On a policy that we generate for kubernetes-nmstate: the addresses in it, `{"<pool>": ["<address>"]}`.
    pub const ADDRESSES: &str = "tenure/ippool";
    /// On such a policy: its addresses are being taken off the interfaces.
    pub const LEAVING: &str = "tenure/leaving";
    /// On such a policy: who configures the node, as [`super::mode`] has it. There is no room for it in kubernetes-nmstate's enactment.
    pub const MODE: &str = "tenure/mode";
}

/// Types and reasons of conditions.
pub mod condition {
    /// On a pool: addresses can be allocated. On a policy: all nodes have it. On an enactment: the node has it.
    pub const AVAILABLE: &str = "Available";
    /// On a pool: no node has an excluded address. Only there while one has.
    pub const EXCLUDED: &str = "ExclusionsInEffect";
    /// On a policy: some node could not apply it.
    pub const DEGRADED: &str = "Degraded";
    /// On a policy and an enactment: it is being applied.
    pub const PROGRESSING: &str = "Progressing";
    /// On a policy: it selects no node.
    pub const IGNORED: &str = "Ignored";
    /// On an enactment: the node could not apply it.
    pub const FAILING: &str = "Failing";
    /// On an enactment: it waits for its turn.
    pub const PENDING: &str = "Pending";
    /// On an enactment: it was given up.
    pub const ABORTED: &str = "Aborted";

    /// Why a condition is as it is.
    pub mod reason {
        /// Of a pool: all is well.
        pub const RECONCILED: &str = "ReconciledPool";
        /// Of a pool: its offsets are being rebuilt.
        pub const RECONCILING: &str = "ReconcilingPool";
        /// Of a pool: no address is free, and a node waits for one.
        pub const EXHAUSTED: &str = "ExhaustedIPPool";
        /// Of a pool: its record cannot be read, or contradicts the enactments.
        pub const UNSYNCHRONIZED: &str = "UnsyncronizedIPPool";
        /// Of a pool: an older pool, or another kind of pool, has some of its addresses.
        pub const OVERLAPPING: &str = "OverlappingIPPool";
        /// Of a pool: somebody else has an address that a node has from it.
        pub const COLLISION: &str = "IPCollision";
        /// Of a pool: a node has an address that was excluded later.
        pub const EXCLUDED_HELD: &str = "ExcludedAddressHeld";
        /// Of policies and enactments: applied.
        pub const CONFIGURED: &str = "SuccessfullyConfigured";
        /// Of policies and enactments: could not be applied.
        pub const FAILED: &str = "FailedToConfigure";
        /// Of policies and enactments: under way.
        pub const CONFIGURING: &str = "ConfigurationProgressing";
        /// Of policies: no node is selected.
        pub const NO_MATCHING_NODE: &str = "NoMatchingNode";
        /// Of enactments: other nodes come first.
        pub const MAX_UNAVAILABLE: &str = "MaxUnavailableLimitReached";
        /// Of enactments: it failed and is tried again.
        pub const RETRYING: &str = "Retrying";
        /// Of enactments: it was given up.
        pub const GIVEN_UP: &str = "ConfigurationAborted";
    }
}

/// The finished definitions of policies and enactments. The controller creates each at its start where there is none.
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [crate::crd_of::<NodeNetworkConfigurationPolicy>(), crate::crd_of::<NodeNetworkConfigurationEnactment>()]
}
