//! Does what a plan says, as an API server would that refuses nothing.

use anyhow::{Context as _, Result, bail};
use kube::ResourceExt as _;
use tenure_api::claims::{IPAMClaim, annotation};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::IPPool;
use tenure_controller::{BlockWrite, ClaimWrite, LedgerWrite, MoveWrite, Observation, Write};

use super::cluster::Cluster;

impl Cluster {
    /// Does one write.
    pub(super) fn write(&mut self, write: &Write) -> Result<()> {
        if let Some(write) = write.of::<BlockWrite>() {
            return self.write_block(write);
        }
        if let Some(write) = write.of::<ClaimWrite>() {
            return self.write_claim(write);
        }
        if let Some(write) = write.of::<LedgerWrite>() {
            return self.write_ledger(write);
        }
        let Some(MoveWrite::Hold { namespace, claim, slots, .. }) = write.of::<MoveWrite>() else {
            bail!("nothing in this cluster asks for {write:?}");
        };
        let mut claim = self.claim_named(namespace, &claim.name)?;
        claim.annotations_mut().insert(annotation::HOLDERS.to_owned(), slots.to_annotation());
        self.put(claim);
        Ok(())
    }

    fn write_block(&mut self, write: &BlockWrite) -> Result<()> {
        match write {
            BlockWrite::Answer { request, status } => {
                let mut request = self.request_named(&request.name)?;
                request.status = Some(status.clone());
                self.put(request);
            }
            BlockWrite::Create { block } => self.put(AddressBlock::clone(block)),
            BlockWrite::PoolStatus { pool, status } => {
                let mut pool = self.pool_named(&pool.name)?;
                pool.status = Some((**status).clone());
                self.put(pool);
            }
            BlockWrite::PoolFinalizers { pool, finalizers } => {
                let mut pool = self.pool_named(&pool.name)?;
                pool.metadata.finalizers = Some(finalizers.clone());
                self.put(pool);
            }
            other => bail!("nothing in this cluster asks for {other:?}"),
        }
        Ok(())
    }

    fn write_claim(&mut self, write: &ClaimWrite) -> Result<()> {
        match write {
            ClaimWrite::Records { block, records, finalizers, .. } => {
                let known = self.world.coil().blocks.get(&block.name).context("there is no such block")?;
                let mut block = known.clone();
                block.spec.claims.clone_from(records);
                block.metadata.finalizers = Some(finalizers.clone());
                self.put(block);
            }
            ClaimWrite::Status { namespace, claim, status, .. } => {
                let mut claim = self.claim_named(namespace, &claim.name)?;
                claim.status = Some((**status).clone());
                self.put(claim);
            }
            other => bail!("nothing in this cluster asks for {other:?}"),
        }
        Ok(())
    }

    fn write_ledger(&mut self, write: &LedgerWrite) -> Result<()> {
        match write {
            LedgerWrite::Guard { pool } => self.put(IPPool::clone(pool)),
            LedgerWrite::Mark { pool, mark } => {
                let known = self.world.ledgers().pools.get(&pool.name).context("there is no such ledger")?;
                let marked = mark.apply(&known.pool);
                self.put(marked.context("a mark does not fit")?);
            }
            LedgerWrite::Tell { ledger } => self.put(IPPool::clone(ledger)),
            LedgerWrite::Retell { pool, .. } => {
                let known = self.world.ledgers().pools.get(&pool.name).context("there is no such ledger")?;
                let told = write.retell(&known.pool);
                self.put(told.context("a ledger cannot be named")?);
            }
            LedgerWrite::Untell { pool } => Observation::gone::<IPPool>(pool.clone()).tell(&mut self.world),
            LedgerWrite::Slices { pool, .. } => self.put((**pool).clone()),
            LedgerWrite::ChangeSlices { pool, change, .. } => {
                let known = self.world.ledgers().slices.get(&pool.name).context("there is no such pool")?;
                let changed = change.apply(known);
                self.put(changed.context("a change does not fit")?);
            }
            other => bail!("nothing in this cluster asks for {other:?}"),
        }
        Ok(())
    }

    fn request_named(&self, name: &str) -> Result<BlockRequest> {
        self.world.coil().requests.get(name).cloned().context("there is no such request")
    }

    fn pool_named(&self, name: &str) -> Result<AddressPool> {
        self.world.coil().pools.get(name).cloned().context("there is no such pool")
    }

    fn claim_named(&self, namespace: &str, name: &str) -> Result<IPAMClaim> {
        let claim = self.world.claims().get(namespace, name).context("there is no such claim")?;
        Ok(claim.object.clone())
    }
}
