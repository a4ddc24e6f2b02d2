//! Names of the core's watches in logs and health reports. A part names its own where it begins them.

/// All pools.
pub const POOLS: &str = "AddressPools";
/// The blocks of this node.
pub const OWN_BLOCKS: &str = "AddressBlocks of this node";
/// The requests of this node, which are listed at the start.
pub const OWN_REQUESTS: &str = "BlockRequests of this node";
/// The annotations of all namespaces.
pub const NAMESPACES: &str = "Namespaces";
/// The object of this node.
pub const OWN_NODE: &str = "Node of this node";
/// The blocks of all nodes.
pub const ALL_BLOCKS: &str = "AddressBlocks of all nodes";
/// The addresses of all nodes.
pub const ALL_NODES: &str = "Nodes";
/// The metadata of this node's pods.
pub const OWN_PODS: &str = "Pods of this node";
