//! Giving blocks back: the object goes if it is still the one that is meant and still names this node.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::{AddressBlock, FINALIZER};

use super::calls::Trouble;
use super::mirror::{Heard, Identity};
use super::{Shared, facts, lock};
use crate::node::Event;

/// How often somebody else may change a block while it is being given back. The node tries again later.
const TRIES: usize = 5;

/// Somebody else has changed the block meanwhile.
struct Changed;

impl Shared {
    /// Gives a block back. What is found instead is told.
    pub(super) async fn give_back(self: Arc<Self>, name: String, uid: String) {
        for _ in 0..TRIES {
            match self.try_to_give_back(&name, &uid).await {
                Ok(Ok(())) => return,
                Ok(Err(Changed)) => {}
                Err(trouble) => {
                    return tracing::warn!(block = name, %trouble, "a block cannot be given back yet");
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
    ) -> Result<Result<(), Changed>, Trouble> {
        let blocks: Api<AddressBlock> = Api::all(self.client.clone());
        let Some(block) = self.insist(|| blocks.get_opt(name)).await? else {
            self.block_is_gone(name, uid);
            return Ok(Ok(()));
        };
        if block.uid().as_deref() != Some(uid) {
            self.block_is_gone(name, uid);
            self.show_block(&block);
            return Ok(Ok(()));
        }
        if block.node() != Some(&self.options.node) {
            self.block_is_elsewhere(&block);
            return Ok(Ok(()));
        }
        if block.is_reserved() {
            // Its addresses belong to others, who alone know when it may go.
            self.show_block(&block);
            return Ok(Ok(()));
        }
        // Nobody but the one who has read this version strips the finalizer, and what is deleted is what was stripped.
        let rest: Vec<&String> = block.finalizers().iter().filter(|known| *known != FINALIZER).collect();
        let mut version = block.resource_version();
        if rest.len() != block.finalizers().len() {
            let patch = json!({"metadata": {"resourceVersion": version, "finalizers": rest}});
            let (patch, plain) = (Patch::Merge(patch), PatchParams::default());
            let stripped = self.insist(|| blocks.patch(name, &plain, &patch)).await;
            match stripped {
                Ok(stripped) if stripped.metadata.deletion_timestamp.is_some() && rest.is_empty() => {
                    self.block_is_gone(name, uid);
                    return Ok(Ok(()));
                }
                Ok(stripped) => version = stripped.resource_version(),
                Err(Trouble::Refused(404 | 409, _)) => return Ok(Err(Changed)),
                Err(trouble) => return Err(trouble),
            }
        }
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
        let exactly = DeleteParams::default().preconditions(exactly);
        match self.insist(|| blocks.delete(name, &exactly)).await {
            Ok(deleted) => {
                match deleted.left().filter(|_| !rest.is_empty()) {
                    // It waits for others.
                    Some(block) => self.show_block(&block),
                    None => self.block_is_gone(name, uid),
                }
                tracing::info!(block = name, "a block was given back");
                Ok(Ok(()))
            }
            Err(Trouble::Refused(404 | 409, _)) => Ok(Err(Changed)),
            Err(trouble) => Err(trouble),
        }
    }

    /// Takes in a block that was read.
    pub(super) fn show_block(&self, block: &AddressBlock) {
        let seen = self.own_block(block);
        self.hear_block(Heard::Applied(Identity::of(block), seen));
    }

    /// Tells that a block is gone, also if nobody here has known it.
    pub(super) fn block_is_gone(&self, name: &str, uid: &str) {
        let mut mirror = lock(&self.own_blocks);
        mirror.hear(Heard::Gone(name.to_owned(), uid.to_owned()));
        (self.tell)(Event::BlockGone { name: name.to_owned(), uid: uid.to_owned() });
    }

    /// Tells that a block is another node's.
    pub(super) fn block_is_elsewhere(&self, block: &AddressBlock) {
        let (name, uid) = (block.name_any(), block.uid().unwrap_or_default());
        let mut mirror = lock(&self.own_blocks);
        mirror.forget(&name, &uid);
        (self.tell)(match facts::block(block) {
            Ok(seen) => Event::BlockSeen(seen),
            Err(_) => Event::BlockGone { name, uid },
        });
    }
}
