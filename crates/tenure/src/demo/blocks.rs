//! Blocks as the demo's nodes have them: an object in the API, and the engine's block in memory.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tenure_api::coil::{self, AddressBlock, AddressPool, EnginePool};
use tenure_handles::Timestamp;
use tenure_ipam::{Addresses, Block, Choice, Hold, IntervalSet, Release};

/// Who holds an address in the demo.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder(String);

impl Holder {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(crate) fn pod(node: &str, number: usize) -> Self {
        Self(format!("pod-{number} on {node}"))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A block that a node owns.
pub(crate) struct NodeBlock {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) object: AddressBlock,
    pub(crate) block: Block<Holder>,
}

impl NodeBlock {
    pub(crate) fn hold(&mut self, holder: &Holder, now: Timestamp) -> Result<Hold> {
        let granted = self.block.hold(holder.clone(), Choice::NextAfterLast, now);
        Ok(granted.with_context(|| format!("{holder} gets no address"))?.hold())
    }

    pub(crate) fn release(&mut self, holder: &Holder, now: Timestamp) -> Result<Addresses> {
        let hold = self.block.find(holder).with_context(|| format!("{holder} holds nothing"))?;
        match self.block.release(holder, hold.sequence, now) {
            Release::Freed(hold) => Ok(hold.addresses),
            other => bail!("releasing {holder} did {other:?}"),
        }
    }

    pub(crate) fn counts(&self) -> String {
        let counts = self.block.counts();
        format!("{} held, {} cooling, {} free", counts.held, counts.cooling, counts.free)
    }
}

/// Carves the lowest free block of the pool for a node: creating the object is the lock on its number.
pub(crate) async fn carve(
    client: &Client,
    pool: &AddressPool,
    node: &str,
    rest: Duration,
) -> Result<NodeBlock> {
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    let engine = EnginePool::try_from(&pool.spec).context("the pool has no blocks")?;
    let of_pool = ListParams::default().labels(&coil::blocks_of_pool(&pool.name_any()));
    let mut taken = IntervalSet::new();
    for block in blocks.list(&of_pool).await.context("cannot list the blocks")? {
        let index = u128::try_from(block.spec.index).context("a block has a negative index")?;
        taken.insert(index, index);
    }
    loop {
        let index = engine.pool().lowest_free(&taken).context("the pool is exhausted")?;
        let block = AddressBlock::carve(pool, index, node, None)?;
        match blocks.create(&PostParams::default(), &block).await {
            Ok(object) => {
                let space = object.spec.to_subnet()?.space().context("the block has no addresses")??;
                let (name, node) = (object.name_any(), node.to_owned());
                return Ok(NodeBlock { name, node, object, block: Block::new(space, rest) });
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => taken.insert(index, index),
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", block.name_any())),
        }
    }
}
