//! Performing writes of blocks, pools and requests.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};

use super::write::BlockWrite;
use crate::executor::{Answer, Outcome, finalize, settle};
use crate::kind::Observation;
use crate::part::Perform;
use crate::write::{At, Operation, of};

/// Performs through one client.
#[derive(Clone)]
pub(super) struct CoilPerformer {
    pub(super) client: Client,
    pub(super) pools: Api<AddressPool>,
    pub(super) blocks: Api<AddressBlock>,
    requests: Api<BlockRequest>,
    /// All pools, as one list showed them.
    pub(super) listed: Arc<Mutex<Option<Arc<Vec<AddressPool>>>>>,
}

impl Perform for CoilPerformer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            match of::<BlockWrite>(operation) {
                Some(write) => self.write(write).await,
                None => Ok((Outcome::Failed(format!("this is no write of blocks: {operation:?}")), None)),
            }
        }
        .boxed()
    }
}

impl CoilPerformer {
    pub(super) fn new(client: Client) -> Self {
        Self {
            pools: Api::all(client.clone()),
            blocks: Api::all(client.clone()),
            requests: Api::all(client.clone()),
            listed: Arc::default(),
            client,
        }
    }

    async fn write(&self, write: &BlockWrite) -> Answer {
        match write {
            BlockWrite::Create { block } => self.create(block).await,
            BlockWrite::Answer { request, status } => {
                let patch = json!({"metadata": {"resourceVersion": request.version}, "status": status});
                let patch = Patch::Merge(patch);
                let written =
                    self.requests.patch_status(&request.name, &PatchParams::default(), &patch).await;
                settle(&self.requests, request, written, Observation::gone::<BlockRequest>).await
            }
            BlockWrite::PoolStatus { pool, status } => {
                let patch = json!({"metadata": {"resourceVersion": pool.version}, "status": status});
                let written =
                    self.pools.patch_status(&pool.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                self.pool(pool, written).await
            }
            BlockWrite::PoolFinalizers { pool, finalizers } => {
                self.pool(pool, finalize(&self.pools, pool, finalizers).await).await
            }
            BlockWrite::Unlock { block, pools } => self.unlock(block, pools).await,
            BlockWrite::MarkBlock { block, node, mark } => self.mark_block(block, node, mark).await,
            BlockWrite::UnmarkBlock { block } => self.unmark_block(block).await,
            BlockWrite::ReleaseBlock { block, finalizers, node, because } => {
                self.release_block(block, finalizers, node, because).await
            }
        }
    }

    async fn pool(&self, at: &At, written: Result<AddressPool, kube::Error>) -> Answer {
        settle(&self.pools, at, written, Observation::gone::<AddressPool>).await
    }
}
