//! Translates Kubernetes objects into the node's events.

use kube::ResourceExt;
use tenure_api::coil::{
    AddressBlock, AddressPool, BlockRequest, EnginePool, RequestOutcome, condition, split_block_name,
};
use tenure_api::drain::is_draining;
use tenure_api::release::mark_of;

use crate::node::{PoolFacts, Refusal, RefusalKind, SeenBlock};

/// A pool as the node uses it, or why it cannot be used.
pub(super) fn pool(pool: &AddressPool) -> Result<PoolFacts, String> {
    let engine = EnginePool::try_from(&pool.spec).map_err(|error| error.to_string())?;
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let exhausted =
        conditions.iter().any(|known| known.type_ == condition::EXHAUSTED && known.status == "True");
    Ok(PoolFacts {
        subnets: engine.pool().subnets().collect(),
        block_bits: engine.pool().block_bits(),
        cooling: engine.rest(),
        exclusions: engine.exclusions().to_vec(),
        deleting: pool.metadata.deletion_timestamp.is_some(),
        exhausted,
        sliced: false,
        warm: None,
        unexported: false,
    })
}

/// A block as the node uses it, or why it is invalid.
pub(super) fn block(block: &AddressBlock) -> Result<SeenBlock, String> {
    let name = block.name_any();
    // The schema does not check labels.
    let by_name = || split_block_name(&name).map(|(pool, _)| pool);
    let pool = block.pool().or_else(by_name).unwrap_or_default().to_owned();
    Ok(SeenBlock {
        uid: block.uid().unwrap_or_default(),
        node: block.node().unwrap_or_default().to_owned(),
        pool,
        subnet: block.spec.to_subnet().map_err(|error| error.to_string())?,
        reserved: block.is_reserved(),
        deleting: block.metadata.deletion_timestamp.is_some(),
        releasing: mark_of(block).is_some(),
        draining: is_draining(block),
        pod: None,
        name,
    })
}

/// The answer to a request, if there is one: the block's name, or the refusal.
pub(super) fn answer(request: &BlockRequest) -> Option<Result<String, Refusal>> {
    match request.outcome() {
        RequestOutcome::Pending => None,
        RequestOutcome::Block(name) => Some(Ok(name.to_owned())),
        RequestOutcome::Failed { reason, message } => {
            let out_of_blocks = reason == condition::reason::OUT_OF_BLOCKS
                // Coil's controller gives no reason.
                || [reason, message].iter().any(|text| text.contains("out of blocks"));
            let kind = if out_of_blocks { RefusalKind::Exhausted } else { RefusalKind::Unusable };
            let message = if message.is_empty() { reason } else { message };
            Some(Err(Refusal { kind, message: message.to_owned() }))
        }
    }
}
