//! Keeps a block that somebody wants to release. The mark is removed on the version that was read, so either this or the
//! release fails.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::AddressBlock;
use tenure_api::release::{RELEASING, mark_of};
use tenure_watch::CallError;

use super::{Shared, lock};

/// How many concurrent changes of a block are tolerated while its mark is removed. The node tries again later.
const TRIES: usize = 5;

impl Shared {
    /// Removes the mark from a block, and reports the resulting block.
    pub(super) async fn keep(self: Arc<Self>, name: String, uid: String) {
        for _ in 0..TRIES {
            match self.try_to_keep(&name, &uid).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    return tracing::warn!(block = name, %error, "a block cannot be kept yet: its mark cannot be removed");
                }
            }
        }
        tracing::warn!(
            block = name,
            "a block that is being kept is changed by somebody else again and again"
        );
    }

    /// Whether there is nothing left to do.
    async fn try_to_keep(self: &Arc<Self>, name: &str, uid: &str) -> Result<bool, CallError> {
        let blocks: Api<AddressBlock> = Api::all(self.connection.client());
        let call = lock(&self.own_blocks).epoch();
        let act = || format!("reading AddressBlock {name:?}");
        let Some(block) = self.insist(act, || blocks.get_opt(name)).await? else {
            self.block_is_gone(name, uid);
            return Ok(true);
        };
        if block.uid().as_deref() != Some(uid) {
            self.block_is_gone(name, uid);
            self.show_block(call, &block);
            return Ok(true);
        }
        if block.node() != Some(&self.options.node) {
            self.block_is_elsewhere(&block);
            return Ok(true);
        }
        if mark_of(&block).is_none() {
            self.show_block(call, &block);
            return Ok(true);
        }
        let metadata = json!({"resourceVersion": block.resource_version(), "annotations": {RELEASING: null}});
        let (patch, plain) = (Patch::Merge(json!({"metadata": metadata})), PatchParams::default());
        let act = || format!("taking the mark off AddressBlock {name:?}");
        match self.insist(act, || blocks.patch(name, &plain, &patch)).await {
            Ok(kept) => {
                tracing::info!(block = name, "this node is alive and keeps a block that was to be released");
                self.show_block(call, &kept);
                Ok(true)
            }
            Err(error) if error.is_stale() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
