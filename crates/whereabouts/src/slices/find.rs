//! Finds a node's slice of a range, or says why there is none.

use tenure_api::whereabouts::{NodeSlicePool, pool_name};
use tenure_ipam::Cidr;

/// The annotation of a `NodeSlicePool` with the `network_name` that it serves; empty for a network without one. A
/// pool is named after its network or, if that has no name, after its CNI configuration, and the name alone does not
/// tell which.
pub const NETWORK: &str = "whereabouts.cni.cncf.io/network";

/// Why an ADD finds no slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceRefusal {
    /// The controller has not created the pool.
    #[error(
        "there is no NodeSlicePool {pool}: it is made from the network's NetworkAttachmentDefinition by tenure-controller; \
         is that running, and is the definition in the cluster?"
    )]
    NoPool {
        /// Its name.
        pool: String,
    },
    /// There are more nodes than slices, or the node is new.
    #[error(
        "node {node} has no slice of NodeSlicePool {pool} ({range} has {slices} slices, {free} without a node): make the \
         range larger or node_slice_size smaller, or try again when the controller has seen the node"
    )]
    NoSlice {
        /// The pool.
        pool: String,
        /// The node.
        node: String,
        /// The divided range.
        range: String,
        /// How many slices there are.
        slices: usize,
        /// How many have no node.
        free: usize,
    },
    /// The pool must not assign anything.
    #[error("node {node} has no slice of NodeSlicePool {pool}, which gives none: {why}")]
    NotReady {
        /// The pool.
        pool: String,
        /// The node.
        node: String,
        /// The message of its condition.
        why: String,
    },
    /// The status cannot be read.
    #[error(
        "the slice {slice:?} of node {node} in NodeSlicePool {pool} is no network: accepted is 10.0.16.0/20"
    )]
    Unreadable {
        /// The pool.
        pool: String,
        /// The node.
        node: String,
        /// The text that it has.
        slice: String,
    },
}

/// The `network_name` that a pool serves. Whereabouts does not record it; its slices work for named networks, whose
/// name is the pool's.
pub fn network_of(pool: &NodeSlicePool) -> String {
    let said = pool.metadata.annotations.as_ref().and_then(|all| all.get(NETWORK));
    said.cloned().unwrap_or_else(|| {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let range = pool_name("", "", &pool.spec.range).unwrap_or_default();
        let first = name.strip_suffix(&range).and_then(|front| front.strip_suffix('-'));
        first.map(str::to_owned).unwrap_or(name)
    })
}

/// The slice of a node.
pub fn slice_of(name: &str, pool: Option<&NodeSlicePool>, node: &str) -> Result<Cidr, SliceRefusal> {
    let pool = pool.ok_or_else(|| SliceRefusal::NoPool { pool: name.to_owned() })?;
    let Some(slice) = pool.slice_of(node).filter(|_| !node.is_empty()) else {
        let conditions = pool.status.iter().flat_map(|status| &status.conditions);
        let mut not_ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "False");
        if let Some(condition) = not_ready.next() {
            let (pool, node) = (name.to_owned(), node.to_owned());
            return Err(SliceRefusal::NotReady { pool, node, why: condition.message.clone() });
        }
        let slices = pool.status.as_ref().map(|status| status.allocations.as_slice()).unwrap_or_default();
        return Err(SliceRefusal::NoSlice {
            pool: name.to_owned(),
            node: node.to_owned(),
            range: pool.spec.range.clone(),
            slices: slices.len(),
            free: slices.iter().filter(|slice| slice.node_name.is_empty()).count(),
        });
    };
    slice.parse().map_err(|_| SliceRefusal::Unreadable {
        pool: name.to_owned(),
        node: node.to_owned(),
        slice: slice.to_owned(),
    })
}
