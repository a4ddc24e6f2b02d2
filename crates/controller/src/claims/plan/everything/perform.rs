//! Performs a planned write if the object still has the planned version.

use kube::ResourceExt;
use tenure_api::claims::annotation;
use tenure_api::coil::AddressBlock;
use tenure_api::whereabouts::IPPool;
use tenure_whereabouts::ledger::{Network, Request, Spread};

use super::super::super::known::Claim;
use super::super::super::write::{ClaimWrite, MoveWrite, OwnerWrite};
use super::Cluster;
use crate::coil::BlockWrite;
use crate::whereabouts::LedgerWrite;
use crate::write::{At, Write};

impl Cluster {
    /// Performs one write. Returns whether it was done.
    pub(super) fn perform(&mut self, write: &Write) -> bool {
        let done = if let Some(write) = write.of::<ClaimWrite>() {
            self.perform_claim(write)
        } else if let Some(write) = write.of::<BlockWrite>() {
            self.perform_block(write)
        } else if let Some(write) = write.of::<LedgerWrite>() {
            self.perform_ledger(write)
        } else if let Some(write) = write.of::<OwnerWrite>() {
            self.perform_owner(write)
        } else if let Some(MoveWrite::Hold { namespace, claim, slots, .. }) = write.of::<MoveWrite>() {
            self.claim_at(namespace, claim).map(|mut it| {
                it.object.annotations_mut().insert(annotation::HOLDERS.to_owned(), slots.to_annotation());
                self.put_object(it.object);
            })
        } else {
            None
        };
        done.is_some()
    }

    fn claim_at(&self, namespace: &str, at: &At) -> Option<Claim> {
        self.world.claims().get(namespace, &at.name).filter(|it| At::of(&it.object) == *at).cloned()
    }

    fn block_at(&self, at: &At) -> Option<AddressBlock> {
        self.world.coil().blocks.get(&at.name).filter(|it| At::of(*it) == *at).cloned()
    }

    fn ledger_at(&self, at: &At) -> Option<IPPool> {
        self.world
            .ledgers()
            .pools
            .get(&at.name)
            .filter(|it| At::of(&it.pool) == *at)
            .map(|it| it.pool.clone())
    }

    fn perform_claim(&mut self, write: &ClaimWrite) -> Option<()> {
        match write {
            ClaimWrite::Records { block, records, finalizers, .. } => {
                let mut block = self.block_at(block)?;
                block.spec.claims.clone_from(records);
                block.metadata.finalizers = Some(finalizers.clone());
                self.put_object(block);
            }
            ClaimWrite::DropBlock { block, .. } => {
                let block = self.block_at(block)?;
                self.remove(block);
            }
            ClaimWrite::Status { namespace, claim, status, .. } => {
                let mut claim = self.claim_at(namespace, claim)?;
                claim.object.status = Some((**status).clone());
                self.put_object(claim.object);
            }
            ClaimWrite::Hold { network, requests, .. } => self.in_ledgers(network, requests),
            ClaimWrite::Forget { network, records, .. } => self.in_ledgers(network, records),
            ClaimWrite::Slice { ledger, records, cooling, .. } => {
                let mut ledger = self.ledger_at(ledger)?;
                ledger.spec.allocations.clone_from(records);
                if let Some(cooling) = cooling {
                    let name = tenure_whereabouts::ledger::COOLING.to_owned();
                    ledger.annotations_mut().insert(name, cooling.clone());
                }
                self.put_object(ledger);
            }
            ClaimWrite::Name { ledger, records, .. } => {
                let mut ledger = self.ledger_at(ledger)?;
                for renamed in records {
                    if let Some(record) = ledger.spec.allocations.get_mut(&renamed.key) {
                        record.pods.clone_from(&renamed.pods);
                    }
                }
                self.put_object(ledger);
            }
            ClaimWrite::DropLedger { ledger } => {
                let ledger = self.ledger_at(ledger)?;
                self.remove(ledger);
            }
        }
        Some(())
    }

    /// As far as one round of the ledgers' own planner goes.
    fn in_ledgers(&mut self, name: &str, requests: &[Request]) {
        let mut network = Network::new(name);
        for ledger in self.world.ledgers().pools.iter() {
            network.see_pool(&ledger.pool, |_| false);
        }
        for reservation in self.world.ledgers().reservations.iter() {
            network.see_reservation(reservation);
        }
        let plan = network.plan(requests.to_vec(), &Spread::of(""), self.timestamp());
        plan.create.into_iter().for_each(|pool| self.put_object(pool));
        plan.reserve.into_iter().for_each(|reserve| self.put_object(reserve.object));
        for mark in plan.mark {
            let known = self.world.ledgers().pools.get(&mark.name).and_then(|it| mark.apply(&it.pool));
            if let Some(pool) = known {
                self.put_object(pool);
            }
        }
        for write in plan.write {
            let known = self.world.ledgers().pools.get(&write.name).and_then(|it| write.apply(&it.pool));
            if let Some(pool) = known {
                self.put_object(pool);
            }
        }
    }

    fn perform_block(&mut self, write: &BlockWrite) -> Option<()> {
        match write {
            BlockWrite::Create { block } => {
                if self.world.coil().blocks.get(&block.name_any()).is_some() {
                    return None;
                }
                self.put_object((**block).clone());
            }
            BlockWrite::PoolStatus { pool, status } => {
                let mut known = self.world.coil().pools.get(&pool.name)?.clone();
                known.status = Some((**status).clone());
                self.put_object(known);
            }
            BlockWrite::PoolFinalizers { pool, finalizers } => {
                let mut known = self.world.coil().pools.get(&pool.name)?.clone();
                known.metadata.finalizers = Some(finalizers.clone());
                self.put_object(known);
            }
            BlockWrite::ReleaseBlock { block, .. } => {
                let block = self.block_at(block)?;
                self.remove(block);
            }
            _ => return None,
        }
        Some(())
    }

    fn perform_ledger(&mut self, write: &LedgerWrite) -> Option<()> {
        match write {
            LedgerWrite::Guard { pool } => {
                if self.world.ledgers().pools.get(&pool.name_any()).is_some() {
                    return None;
                }
                self.put_object((**pool).clone());
            }
            LedgerWrite::Mark { pool, mark } => {
                let ledger = mark.apply(&self.ledger_at(pool)?)?;
                self.put_object(ledger);
            }
            LedgerWrite::Slices { pool, .. } => self.put_object((**pool).clone()),
            LedgerWrite::ChangeSlices { pool, change, .. } => {
                let changed = change.apply(self.world.ledgers().slices.get(&pool.name)?)?;
                self.put_object(changed);
            }
            LedgerWrite::DropSlices { pool } => {
                let known = self.world.ledgers().slices.get(&pool.name)?.clone();
                self.remove(known);
            }
            LedgerWrite::Tell { ledger } => {
                if self.world.ledgers().pools.get(&ledger.name_any()).is_some() {
                    return None;
                }
                self.put_object((**ledger).clone());
            }
            LedgerWrite::Retell { pool, .. } => {
                let ledger = write.retell(&self.ledger_at(pool)?)?;
                self.put_object(ledger);
            }
            LedgerWrite::Untell { pool } => {
                let ledger = self.ledger_at(pool)?;
                self.remove(ledger);
            }
            LedgerWrite::Forget { network, records, .. } => self.in_ledgers(network, records),
            _ => return None,
        }
        Some(())
    }

    fn perform_owner(&mut self, write: &OwnerWrite) -> Option<()> {
        match write {
            OwnerWrite::Create { claim, name } => {
                if self.world.claims().all.get(name).is_some() {
                    return None;
                }
                self.put_object((**claim).clone());
            }
            OwnerWrite::Finalizers { namespace, claim, stay, .. } => {
                let mut claim = self.claim_at(namespace, claim)?.object;
                claim.metadata.finalizers = Some(stay.clone());
                self.put_object(claim);
            }
            OwnerWrite::Owners { namespace, claim, owners, .. } => {
                let mut claim = self.claim_at(namespace, claim)?.object;
                claim.metadata.owner_references = Some(owners.clone());
                self.put_object(claim);
            }
            OwnerWrite::Delete { namespace, claim, .. } => {
                let claim = self.claim_at(namespace, claim)?.object;
                self.remove(claim);
            }
            OwnerWrite::Define => {}
        }
        Some(())
    }
}
