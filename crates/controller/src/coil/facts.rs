//! What the index has taken from each object, to remove it when the object changes.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, ConversionError, EnginePool};
use tenure_ipam::Subnet;

use super::carved::{Carved, Number};
use crate::nodes::is_out_of_service;
use crate::world::World;

/// What is needed of a pool.
#[derive(Debug, PartialEq)]
pub(super) struct PoolFacts {
    pub(super) uid: Option<String>,
    pub(super) created: Option<Time>,
    pub(super) deleting: bool,
    pub(super) engine: Result<EnginePool, ConversionError>,
}

/// What is needed of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BlockFacts {
    /// The block in its name.
    pub(super) number: Option<Number>,
    /// The pool in its label.
    pub(super) pool: Option<Arc<str>>,
    pub(super) node: Option<Arc<str>>,
    /// The UID of the request that it answers.
    pub(super) request: Option<Arc<str>>,
    pub(super) subnet: Option<Subnet>,
    pub(super) floating: bool,
    pub(super) withheld: bool,
}

/// What is needed of a request whose status has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestFacts {
    pub(super) created: Option<Time>,
    /// Its UID, if the block itself is its answer.
    pub(super) by_block: Option<Arc<str>>,
}

/// A block that cannot be read: its number, and the addresses computed from its pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NumberFacts {
    pub(super) number: Number,
    pub(super) subnet: Option<Subnet>,
}

/// The state of a node, for those who would release what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// There is no such node.
    Missing,
    /// It exists, and nothing else is known of it.
    Unreadable,
    /// An administrator has declared it out of service.
    OutOfService,
    InService,
}

impl PoolFacts {
    pub(super) fn of(pool: &AddressPool) -> Self {
        let (uid, created) = (pool.uid(), pool.creation_timestamp());
        let deleting = pool.metadata.deletion_timestamp.is_some();
        Self { uid, created, deleting, engine: EnginePool::try_from(&pool.spec) }
    }
}

impl BlockFacts {
    pub(super) fn of(block: &AddressBlock) -> Self {
        Self {
            number: block.metadata.name.as_deref().and_then(Number::of_name),
            pool: block.pool().map(Arc::from),
            node: block.node().map(Arc::from),
            request: block.request_uid().map(Arc::from),
            subnet: block.spec.to_subnet().ok(),
            floating: block.is_floating(),
            withheld: block.is_withheld(),
        }
    }

    /// The pool that it belongs to.
    pub(super) fn owner(&self) -> Option<&Arc<str>> {
        self.pool.as_ref().or(self.number.as_ref().map(|number| &number.pool))
    }
}

impl RequestFacts {
    pub(super) fn of(request: &BlockRequest) -> Self {
        let uid = || request.metadata.uid.as_deref().map(Arc::from);
        let by_block = request.is_answered_by_block().then(uid).flatten();
        Self { created: request.creation_timestamp(), by_block }
    }
}

impl NumberFacts {
    /// A block that cannot be read still exists: its name has its number.
    pub(super) fn of_unreadable(world: &World, name: &str, carved: &Carved) -> Option<Self> {
        let number = world.coil().blocks.is_unreadable(name).then(|| Number::of_name(name)).flatten();
        number.map(|number| Self { subnet: carved.subnet_of(&number), number })
    }
}

impl NodeState {
    pub(super) fn of(world: &World, node: &str) -> Self {
        match world.nodes().get(node) {
            None if world.nodes().is_unreadable(node) => Self::Unreadable,
            None => Self::Missing,
            Some(known) if is_out_of_service(known) => Self::OutOfService,
            Some(_) => Self::InService,
        }
    }
}
