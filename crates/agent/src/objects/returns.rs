//! Returns blocks: deletes the object if it is still the same one and still names this node.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::{AddressBlock, FINALIZER};
use tenure_watch::{CallError, Epoch, Heard, Identity, exactly};

use super::{Shared, facts, lock};
use crate::node::Event;

/// How many concurrent changes of a block are tolerated while it is returned. The node tries again later.
const TRIES: usize = 5;

/// How long to wait before looking again whether a request is deleted: as long as it stays after its block was granted.
const CLOSED: Duration = Duration::from_secs(1);

/// Somebody else changed the block meanwhile.
struct Changed;

impl Shared {
    /// Returns a block. If the block is different from what was expected, that is reported.
    pub(super) async fn give_back(self: Arc<Self>, name: String, uid: String) {
        for _ in 0..TRIES {
            match self.try_to_give_back(&name, &uid).await {
                Ok(Ok(())) => return,
                Ok(Err(Changed)) => {}
                Err(error) => {
                    return tracing::warn!(block = name, %error, "a block cannot be returned yet");
                }
            }
        }
        tracing::warn!(
            block = name,
            "a block that is being given back is changed by somebody else again and again"
        );
    }

    async fn try_to_give_back(
        self: &Arc<Self>,
        name: &str,
        uid: &str,
    ) -> Result<Result<(), Changed>, CallError> {
        let blocks: Api<AddressBlock> = Api::all(self.connection.client());
        let call = lock(&self.own_blocks).epoch();
        let act = || format!("reading AddressBlock {name:?}");
        let Some(block) = self.insist(act, || blocks.get_opt(name)).await? else {
            self.block_is_gone(name, uid);
            return Ok(Ok(()));
        };
        if block.uid().as_deref() != Some(uid) {
            self.block_is_gone(name, uid);
            self.show_block(call, &block);
            return Ok(Ok(()));
        }
        if block.node() != Some(&self.options.node) {
            self.block_is_elsewhere(&block);
            return Ok(Ok(()));
        }
        if block.is_reserved() {
            // It has addresses of claims; only the controller knows when it may go.
            self.show_block(call, &block);
            return Ok(Ok(()));
        }
        if let Some(request) = block.request_uid()
            && !self.is_closed(request).await
        {
            // Without the block, the controller would carve another one for the request.
            tracing::info!(block = name, "a block is not returned while its request exists");
            return Ok(Ok(()));
        }
        // The finalizer is removed on the version that was read, and the deletion names the resulting version.
        let rest: Vec<&String> = block.finalizers().iter().filter(|known| *known != FINALIZER).collect();
        let mut version = block.resource_version();
        if rest.len() != block.finalizers().len() {
            let patch = json!({"metadata": {"resourceVersion": version, "finalizers": rest}});
            let (patch, plain) = (Patch::Merge(patch), PatchParams::default());
            let act = || format!("taking the finalizer off AddressBlock {name:?}");
            let stripped = self.insist(act, || blocks.patch(name, &plain, &patch)).await;
            match stripped {
                Ok(stripped) if stripped.metadata.deletion_timestamp.is_some() && rest.is_empty() => {
                    self.block_is_gone(name, uid);
                    return Ok(Ok(()));
                }
                Ok(stripped) => version = stripped.resource_version(),
                Err(error) if error.is_stale() => return Ok(Err(Changed)),
                Err(error) => return Err(error),
            }
        }
        let (exactly, act) =
            (exactly(Some(uid.to_owned()), version), || format!("deleting AddressBlock {name:?}"));
        match self.insist(act, || blocks.delete(name, &exactly)).await {
            Ok(deleted) => {
                match deleted.left().filter(|_| !rest.is_empty()) {
                    // Other finalizers remain.
                    Some(block) => self.show_block(call, &block),
                    None => self.block_is_gone(name, uid),
                }
                tracing::info!(block = name, "a block was returned");
                Ok(Ok(()))
            }
            Err(error) if error.is_stale() => Ok(Err(Changed)),
            Err(error) => Err(error),
        }
    }

    /// Waits a while until nothing is left of a request. Returns whether that is so.
    async fn is_closed(&self, uid: &str) -> bool {
        for _ in 0..TRIES {
            if !self.asks().has(uid) {
                return true;
            }
            tokio::time::sleep(CLOSED).await;
        }
        !self.asks().has(uid)
    }

    /// Processes a block from the answer to a call of this epoch.
    pub(super) fn show_block(self: &Arc<Self>, call: Epoch, block: &AddressBlock) {
        let seen = self.own_block(block);
        self.hear_block(Heard::Answered(call, Identity::named(&block.metadata), seen));
    }

    /// Reports that a block is gone, even if it was unknown here.
    pub(super) fn block_is_gone(&self, name: &str, uid: &str) {
        let mut blocks = lock(&self.own_blocks);
        blocks.hear(Heard::Gone(name.to_owned(), uid.to_owned()));
        (self.tell)(Event::BlockGone { name: name.to_owned(), uid: uid.to_owned() });
    }

    /// Reports that a block belongs to another node.
    pub(super) fn block_is_elsewhere(&self, block: &AddressBlock) {
        let (name, uid) = (block.name_any(), block.uid().unwrap_or_default());
        let mut blocks = lock(&self.own_blocks);
        blocks.let_go(name.clone(), uid.clone());
        (self.tell)(match facts::block(block) {
            Ok(seen) => Event::BlockSeen(seen),
            Err(_) => Event::BlockGone { name, uid },
        });
    }
}
