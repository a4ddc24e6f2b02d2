//! What is there, as it was read.

use std::collections::BTreeMap;

use tenure_api::cloud::AliasPool;
use tenure_cloud::gcp::{InternalRange, Subnetwork};
use tenure_ipam::Cidr;

/// What is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) subnet: Subnetwork,
    /// The reservations that exist, by name.
    pub(super) reservations: BTreeMap<String, InternalRange>,
    pub(super) pool: Option<AliasPool>,
    /// How many records the pool's ledgers have. Read only to remove it.
    pub(super) records: usize,
    /// The networks from which the cluster's own network gives pods of a node their addresses, by node. Read only if a range that belongs to
    /// no reservation is to be used.
    pub(super) node_networks: Vec<(String, Cidr)>,
}

impl Seen {
    /// How many ranges the pool has.
    pub(super) fn pool_ranges(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| 1 + pool.spec.ranges.len())
    }
}
