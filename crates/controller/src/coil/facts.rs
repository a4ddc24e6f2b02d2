//! What matters of each object for what is taken, remembered so that it can be taken back when the object changes.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, ConversionError, EnginePool};
use tenure_ipam::Subnet;

use super::carved::{Carved, Number};
use super::requests::promise_of;
use crate::nodes::is_out_of_service;
use crate::world::World;

/// What matters of a pool.
#[derive(Debug, PartialEq)]
pub(super) struct PoolFacts {
    pub(super) uid: Option<String>,
    pub(super) created: Option<Time>,
    pub(super) deleting: bool,
    pub(super) engine: Result<EnginePool, ConversionError>,
}

/// What matters of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BlockFacts {
    /// The block that its name says.
    pub(super) number: Option<Number>,
    /// The pool that its label says.
    pub(super) pool: Option<Arc<str>>,
    pub(super) node: Option<Arc<str>>,
    /// The UID of the request that it answers.
    pub(super) request: Option<Arc<str>>,
    pub(super) subnet: Option<Subnet>,
    pub(super) floating: bool,
    pub(super) withheld: bool,
}

/// A block of which only the number is known, and the addresses that its pool says: one that cannot be read, or was promised.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NumberFacts {
    pub(super) number: Number,
    pub(super) subnet: Option<Subnet>,
}

/// What matters of a request that waits.
#[derive(Debug, PartialEq)]
pub(super) struct RequestFacts {
    pub(super) created: Option<Time>,
    pub(super) promise: Option<NumberFacts>,
}

/// What a node is to those who would release what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// There is no such node.
    Missing,
    /// It is there, and nothing else is known of it.
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

impl NumberFacts {
    fn of(number: Number, carved: &Carved) -> Self {
        let subnet = carved.subnet_of(&number);
        Self { number, subnet }
    }

    /// A block that cannot be read is there all the same: its name is its number.
    pub(super) fn of_unreadable(world: &World, name: &str, carved: &Carved) -> Option<Self> {
        let number = world.coil().blocks.is_unreadable(name).then(|| Number::of_name(name)).flatten();
        number.map(|number| Self::of(number, carved))
    }
}

impl RequestFacts {
    /// Of a request that waits.
    pub(super) fn of(request: &BlockRequest, carved: &Carved) -> Self {
        let promise = promise_of(request).map(|(pool, index)| Number { pool: pool.into(), index });
        let promise = promise.map(|number| NumberFacts::of(number, carved));
        Self { created: request.creation_timestamp(), promise }
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
