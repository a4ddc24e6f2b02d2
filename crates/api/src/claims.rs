//! Claims, `k8s.cni.cncf.io/v1alpha1`: addresses that outlive the pods that use them.
//!
//! ```text
//!  VirtualMachine, StatefulSet, or nobody ──owns──▶ IPAMClaim ◀──refers to── Pod (ipam-claim-reference)
//!                                                      │
//!                                                      └── on record in ──▶ AddressBlock.claims or IPPool
//! ```
//!
//! The kind is the one of the multi-network standard, which others install, too: without rules, columns or names of ours. A
//! definition that is there already must stay as it is, so `kubectl apply -k deploy` leaves this one out, and the controller
//! creates [`crd`] at its start, where there is none.

// `KubeSchema` copies each struct, with its `pub`, into a function body.
#![allow(unreachable_pub, reason = "code of the derive, not ours")]

mod claim;
mod pod;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub(crate) use schema::finish;

pub use claim::{IPAMClaim, IPAMClaimSpec, IPAMClaimStatus, OwnerPod};
pub use pod::PodRecord;

/// The group of the kind.
pub const GROUP: &str = "k8s.cni.cncf.io";
/// The version of the kind.
pub const VERSION: &str = "v1alpha1";

/// The finalizer that KubeVirt's side keeps on the claims of its machines: claims that we make for them have it as well.
pub const KUBEVIRT_FINALIZER: &str = "kubevirt.io/persistent-ipam";
/// The value of `nodeName` of a slice whose addresses only claims get. No node can be called so.
pub const SLICE_OWNER: &str = "tenure:claims";
/// What the `id` of a claim's record in an `IPPool` begins with; the claim's UID follows.
pub const RECORD_PREFIX: &str = "claim/";
/// The interface of the cluster's default network in a pod.
pub const DEFAULT_INTERFACE: &str = "eth0";

/// Names of labels.
pub mod label {
    /// On a block: the controller owns it, for claims, and no node does. The value is `true`.
    pub const FLOATING: &str = "tenure/floating";
    /// On a claim that was made for a StatefulSet: its name.
    pub const STATEFUL_SET: &str = "tenure/statefulset";
    /// On a claim: the virtual machine that it is for. (KubeVirt's.)
    pub const VIRTUAL_MACHINE: &str = "kubevirt.io/vm";
}

/// Names of annotations.
pub mod annotation {
    /// On a claim: which pods have it now.
    pub const HOLDERS: &str = "tenure/holders";
    /// On a claim: the addresses that it should get, separated by commas.
    pub const IPS: &str = "tenure/ips";
    /// On a pod: the claim for its interface on the cluster's default network.
    pub const CLAIM: &str = "tenure/claim";
    /// On a pod: since when it is the one that should be active; a time (RFC 3339) or a number that grows.
    pub const ACTIVE: &str = "tenure/active";
    /// On the template of a StatefulSet, and so on its pods: `true` makes each pod keep its addresses.
    pub const KEEP_ADDRESSES: &str = "tenure/keep-addresses";
    /// On a pod: its additional networks. (The multi-network standard's.)
    pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
    /// On a pod: what is to be its default network. (Multus'.)
    pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
    /// On a launcher pod: when the machine was ready to run in it, after a migration. KubeVirt's trigger to fail over; virt-controller
    /// writes it as Go's `Time.String()`. (KubeVirt's.)
    pub const KUBEVIRT_READY: &str = "kubevirt.io/migration-target-ready-timestamp";
    /// On a machine: wished addresses, `{"<network>": ["<address>", ...]}`. (KubeVirt's.)
    pub const KUBEVIRT_ADDRESSES: &str = "network.kubevirt.io/addresses";
}

/// Types and reasons of conditions.
pub mod condition {
    /// On a claim: it has its addresses. (OVN-Kubernetes'.)
    pub const IPS_ALLOCATED: &str = "IPsAllocated";
    /// On a claim: our controller has the addresses on record for the claim of the UID in the message.
    pub const HELD: &str = "Held";

    /// Why a condition is as it is. Those of failure are OVN-Kubernetes' names, where it has one.
    pub mod reason {
        /// The claim has its addresses.
        pub const SUCCESSFUL_ALLOCATION: &str = "SuccessfulAllocation";
        /// The network has no free address.
        pub const SUBNET_EXHAUSTED: &str = "SubnetExhausted";
        /// A wished address belongs to somebody else.
        pub const IP_ADDRESS_CONFLICT: &str = "IPAddressConflict";
        /// A hardware address belongs to somebody else.
        pub const MAC_ADDRESS_CONFLICT: &str = "MACAddressConflict";
        /// Something else went wrong.
        pub const INTERNAL_ERROR: &str = "InternalError";
        /// The network does not let addresses outlive pods. (Ours.)
        pub const PERSISTENT_IPS_NOT_ALLOWED: &str = "PersistentIPsNotAllowed";
        /// There is no such network. (Ours.)
        pub const NETWORK_NOT_FOUND: &str = "NetworkNotFound";
        /// The network's configuration cannot be used as it is. (Ours.)
        pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
        /// What the claim wishes cannot be read, or the network cannot have it. (Ours.)
        pub const INVALID: &str = "Invalid";
        /// The addresses are on record. (Ours.)
        pub const RECORDED: &str = "Recorded";
    }
}

/// The finished definition of `IPAMClaim`. The controller creates it at its start and takes it for good if there is one
/// already: others install the same kind, and theirs is not to be overwritten.
pub fn crd() -> CustomResourceDefinition {
    crate::crd_of::<IPAMClaim>()
}
