//! Events about blocks, pools and requests: refusals, exhaustion and releases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use tenure_api::coil::{BlockRequest, RequestOutcome, condition};

use super::write::{Because, BlockWrite};
use crate::events::{Note, about_node};
use crate::world::World;

/// The events of a completed write; `world` is the state before the write.
pub(super) fn notes(write: &BlockWrite, world: &World) -> Vec<Note> {
    match write {
        BlockWrite::Answer { request, status, .. } => {
            let Some(known) = world.coil().requests.get(&request.name) else { return Vec::new() };
            let mut answered = BlockRequest::new(&request.name, known.spec.clone());
            answered.status = Some(status.clone());
            let RequestOutcome::Failed { reason, message } = answered.outcome() else { return Vec::new() };
            let node = about_node(&known.spec.node_name);
            vec![
                Note::warning(known.object_ref(&()), reason, message),
                Note::warning(node, reason, format!("no block for this node: {message}")),
            ]
        }
        BlockWrite::PoolStatus { pool, status } => {
            let Some(known) = world.coil().pools.get(&pool.name) else { return Vec::new() };
            let before = known.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let bad = |condition: &&Condition| {
                let is_bad = match condition.type_.as_str() {
                    condition::EXHAUSTED | condition::OVERLAPPING => condition.status == "True",
                    condition::READY => condition.reason == condition::reason::INVALID,
                    _ => false,
                };
                let was = before.iter().find(|known| known.type_ == condition.type_);
                is_bad
                    && was.is_none_or(|was| was.status != condition.status || was.reason != condition.reason)
            };
            let bad = status.conditions.iter().filter(bad);
            let note = |it: &Condition| Note::warning(known.object_ref(&()), &it.reason, &it.message);
            bad.map(note).collect()
        }
        BlockWrite::ReleaseBlock { block, node, because, .. } => {
            let why = match because {
                Because::NodeIsGone => "the node is gone and no pod is bound to it",
                Because::OutOfService { .. } => "the node is out of service and no pod uses it",
            };
            let message = format!("AddressBlock \"{}\" was taken back: {why}", block.name);
            vec![Note::normal(about_node(node), "BlockReleased", &message)]
        }
        BlockWrite::Create { .. }
        | BlockWrite::PoolFinalizers { .. }
        | BlockWrite::Unlock { .. }
        | BlockWrite::MarkBlock { .. }
        | BlockWrite::UnmarkBlock { .. } => Vec::new(),
    }
}
