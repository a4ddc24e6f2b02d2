//! Marks and releases the blocks of missing nodes: the live reads first, then the writes.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_api::coil::AddressBlock;
use tenure_api::release::RELEASING;

use super::perform::CoilPerformer;
use super::write::Because;
use crate::executor::{Answer, Outcome, discard, settle};
use crate::kind::Observation;
use crate::live::{is_in_use_out_of_service, node_is_in_use};
use crate::write::At;

impl CoilPerformer {
    /// Marks a block of a missing node.
    pub(super) async fn mark_block(&self, block: &At, node: &str, mark: &str) -> Answer {
        if node_is_in_use(&self.client, node).await? {
            return Ok((Outcome::Superseded, None));
        }
        self.annotate_block(block, json!(mark)).await
    }

    /// Removes the mark.
    pub(super) async fn unmark_block(&self, block: &At) -> Answer {
        self.annotate_block(block, Value::Null).await
    }

    /// Releases a block, or removes its mark if somebody can use it after all.
    pub(super) async fn release_block(
        &self,
        block: &At,
        finalizers: &[String],
        node: &str,
        because: &Because,
    ) -> Answer {
        match because {
            Because::NodeIsGone if node_is_in_use(&self.client, node).await? => {
                let (_, observed) = self.unmark_block(block).await?;
                Ok((Outcome::Superseded, observed))
            }
            Because::OutOfService { addresses }
                if is_in_use_out_of_service(&self.client, node, addresses.as_ref()).await? =>
            {
                Ok((Outcome::Superseded, None))
            }
            _ => self.delete_block(block, finalizers).await,
        }
    }

    async fn annotate_block(&self, block: &At, mark: Value) -> Answer {
        let metadata = json!({"resourceVersion": block.version, "annotations": {RELEASING: mark}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = self.blocks.patch(&block.name, &PatchParams::default(), &patch).await;
        settle(&self.blocks, block, written, Observation::gone::<AddressBlock>).await
    }

    /// Deletes this block at exactly this version, then removes our finalizer. After the deletion nobody assigns from
    /// it, and before it nothing was changed that its owner would have to repair.
    async fn delete_block(&self, at: &At, finalizers: &[String]) -> Answer {
        discard(&self.blocks, at, finalizers, false).await
    }
}
