//! Creating blocks: first the names of younger pools' blocks that share addresses with one, then the block itself.

use std::sync::{Arc, PoisonError};

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenure_api::coil::annotation::WITHHELD_FOR;
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_api::read::Read;

use super::locks::{NoLock, locks};
use super::perform::CoilPerformer;
use crate::executor::{Answer, Outcome, create, delete};
use crate::kind::Observation;
use crate::write::At;

/// Whether a name is occupied as it should be.
enum Occupied {
    Yes,
    /// This block has it.
    By(Box<AddressBlock>),
    /// Somebody changes it at this moment: another try will do.
    Changed,
}

impl CoilPerformer {
    /// Creates a block. If there is one of that name, that is the answer, whomever it belongs to.
    pub(super) async fn create(&self, block: &AddressBlock) -> Answer {
        let locks = match self.locks(block).await? {
            (Ok(locks), _) => locks,
            (Err(why), pools) => {
                tracing::info!(
                    block = block.name_any(),
                    ?why,
                    "a block is not carved: its addresses may be another pool's"
                );
                let observed = pools.iter().cloned().map(Observation::is).collect();
                return Ok((Outcome::Superseded, Observation::all(observed)));
            }
        };
        for lock in &locks {
            match self.occupy(lock).await? {
                Occupied::Yes => {}
                Occupied::By(there) => return Ok((Outcome::Superseded, Some(Observation::is(*there)))),
                Occupied::Changed => return Ok((Outcome::Superseded, None)),
            }
        }
        create(&self.blocks, block).await
    }

    /// What is to be occupied before, and the list of pools that says so. Any list will do that knows the block's own pool with
    /// these addresses.
    async fn locks(
        &self,
        block: &AddressBlock,
    ) -> Result<(Result<Vec<AddressBlock>, NoLock>, Arc<Vec<AddressPool>>), kube::Error> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(pools) = listed
            && let Ok(known) = locks(&pools, block)
        {
            return Ok((Ok(known), pools));
        }
        let pools = Arc::new(self.list_pools().await?);
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pools));
        Ok((locks(&pools, block), pools))
    }

    /// All pools that can be read. Nothing is carved of the others.
    async fn list_pools(&self) -> Result<Vec<AddressPool>, kube::Error> {
        let listed = Api::<Read<AddressPool>>::all(self.client.clone()).list(&ListParams::default()).await?;
        Ok(listed.items.into_iter().filter_map(Read::is).collect())
    }

    /// Occupies a name, or says who has it.
    async fn occupy(&self, lock: &AddressBlock) -> Result<Occupied, kube::Error> {
        match self.blocks.create(&PostParams::default(), lock).await {
            Ok(_) => return Ok(Occupied::Yes),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        let Some(there) = self.blocks.get_opt(&lock.name_any()).await? else {
            return Ok(Occupied::Changed);
        };
        if !there.is_withheld() {
            return Ok(Occupied::By(Box::new(there)));
        }
        // One that an earlier pool of the same name has left goes by itself, and with it the lock.
        if there.owner_references() != lock.owner_references() {
            return Ok(Occupied::Changed);
        }
        let missing: Vec<&str> =
            lock.withheld_for().filter(|uid| !there.withheld_for().any(|known| known == *uid)).collect();
        if missing.is_empty() {
            return Ok(Occupied::Yes);
        }
        let all: Vec<&str> = there.withheld_for().chain(missing).collect();
        let metadata = json!({"resourceVersion": there.resource_version(), "annotations": {WITHHELD_FOR: all.join(",")}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match self.blocks.patch(&lock.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(Occupied::Yes),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
                Ok(Occupied::Changed)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a name back that was occupied for pools which are gone.
    pub(super) async fn unlock(&self, block: &At, pools: &[String]) -> Answer {
        let live = self.pools.list_metadata(&ListParams::default()).await?.items;
        if live.iter().filter_map(ResourceExt::uid).any(|uid| pools.contains(&uid)) {
            let observed = self.list_pools().await?.into_iter().map(Observation::is).collect();
            return Ok((Outcome::Superseded, Observation::all(observed)));
        }
        delete(&self.blocks, block).await
    }
}
