//! What is watched, as people are told of it.

/// All pools.
pub const POOLS: &str = "AddressPools";
/// The blocks of this node.
pub const OWN_BLOCKS: &str = "AddressBlocks of this node";
/// The requests of this node.
pub const OWN_REQUESTS: &str = "BlockRequests of this node";
/// The annotations of all namespaces.
pub const NAMESPACES: &str = "Namespaces";
/// The object of this node.
pub const OWN_NODE: &str = "Node of this node";
/// The blocks of all nodes.
pub const ALL_BLOCKS: &str = "AddressBlocks of all nodes";
/// The addresses of all nodes.
pub const ALL_NODES: &str = "Nodes";
/// All pools of slices.
pub const SLICE_POOLS: &str = "NodeSlicePools";
/// The records of this node's slices.
pub const OWN_RECORDS: &str = "IPPools of this node";
/// No watch, but the writes of those records.
pub const RECORD_WRITES: &str = "written IPPools of this node";
/// The metadata of this node's pods.
pub const OWN_PODS: &str = "Pods of this node";
/// All claims.
pub const CLAIMS: &str = "IPAMClaims";
/// All networks that pods may name.
pub const NETWORKS: &str = "NetworkAttachmentDefinitions";
