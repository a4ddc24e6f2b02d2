//! The server's answers to writes, each a compare-and-swap.

use kube::{Resource, ResourceExt};
use tenure_api::coil::annotation::WITHHELD_FOR;
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::release::{RELEASING, mark_of};
use tenure_claims::OnRecord;
use tenure_claims::status::RecordLocation;

use super::{Outcome, Server, Update};
use crate::claims::{ClaimId, ClaimWrite, MoveWrite, Planted, PodId};
use crate::coil::{Because, BlockWrite, locks};
use crate::write::{At, Write};

impl Server {
    fn is_at(object: Option<&impl Resource>, at: &At) -> bool {
        object.is_some_and(|object| {
            object.uid().as_deref() == Some(at.uid.as_str())
                && object.resource_version().as_deref() == Some(at.version.as_str())
        })
    }

    pub(crate) fn write(&mut self, write: &Write) -> Outcome {
        if let Some(write) = write.of::<BlockWrite>() {
            return self.write_block(write);
        }
        if let Some(write) = write.of::<ClaimWrite>() {
            return self.write_claim(write);
        }
        let Some(MoveWrite::Hold { claim, slots, .. }) = write.of::<MoveWrite>() else {
            panic!("nobody asked for {write:?}");
        };
        if !Self::is_at(self.claims.get(&claim.name), claim) {
            return Outcome::Conflict;
        }
        let mut claim = self.claims[&claim.name].clone();
        claim.annotations_mut().insert("tenure/holders".to_owned(), slots.to_annotation());
        self.put_claim(claim);
        Outcome::Done
    }

    fn write_block(&mut self, write: &BlockWrite) -> Outcome {
        match write {
            BlockWrite::Answer { request, status } => {
                self.update_request(request, |request| request.status = Some(status.clone()))
            }
            BlockWrite::Create { block } => {
                let pools: Vec<AddressPool> = self.pools.values().cloned().collect();
                let Ok(locks) = locks(&pools, block) else { return Outcome::Conflict };
                if locks.iter().any(|lock| !self.occupy(lock)) {
                    return Outcome::Conflict;
                }
                self.create(block)
            }
            BlockWrite::Unlock { block, pools } => {
                if self.has_any(pools) {
                    return Outcome::Conflict;
                }
                self.delete_block(block)
            }
            BlockWrite::PoolStatus { pool, status } => {
                self.update_pool(pool, |pool| pool.status = Some((**status).clone()))
            }
            BlockWrite::PoolFinalizers { pool, finalizers } => {
                self.update_pool(pool, |pool| pool.metadata.finalizers = Some(finalizers.clone()))
            }
            BlockWrite::MarkBlock { block, node, mark } => {
                if self.is_in_use(node) {
                    return Outcome::Conflict;
                }
                self.annotate_block(block, Some(mark.as_str()))
            }
            BlockWrite::UnmarkBlock { block } => self.annotate_block(block, None),
            BlockWrite::ReleaseBlock { block, node, because, .. } => {
                if *because == Because::NodeIsGone && self.is_in_use(node) {
                    self.annotate_block(block, None);
                    return Outcome::Conflict;
                }
                self.delete_block(block)
            }
        }
    }

    /// Creates a block unless its name is taken.
    pub(crate) fn create(&mut self, block: &AddressBlock) -> Outcome {
        if self.blocks.contains_key(&block.name_any()) {
            return Outcome::AlreadyExists;
        }
        self.put_block(block.clone());
        Outcome::Done
    }

    /// Occupies the name of a block, or finds it occupied; not if somebody has the block.
    pub(crate) fn occupy(&mut self, lock: &AddressBlock) -> bool {
        let Some(there) = self.blocks.get(&lock.name_any()) else {
            self.put_block(lock.clone());
            return true;
        };
        if !there.is_withheld() || there.owner_references() != lock.owner_references() {
            return false;
        }
        let mut all: Vec<&str> = there.withheld_for().collect();
        let missing: Vec<&str> = lock.withheld_for().filter(|uid| !all.contains(uid)).collect();
        if !missing.is_empty() {
            all.extend(missing);
            let all = all.join(",");
            let mut there = there.clone();
            there.annotations_mut().insert(WITHHELD_FOR.to_owned(), all);
            self.put_block(there);
        }
        true
    }

    /// Whether one of these pools exists.
    pub(crate) fn has_any(&self, uids: &[String]) -> bool {
        self.pools.values().filter_map(ResourceExt::uid).any(|uid| uids.contains(&uid))
    }

    /// Whether a node exists, or a living pod is bound to it: the live read before a block is marked or released.
    pub(crate) fn is_in_use(&self, node: &str) -> bool {
        self.nodes.contains_key(node) || self.bound.values().any(|bound| bound == node)
    }

    /// Sets or removes a block's mark.
    pub(crate) fn annotate_block(&mut self, at: &At, mark: Option<&str>) -> Outcome {
        if !Self::is_at(self.blocks.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut block = self.blocks[&at.name].clone();
        match mark {
            Some(mark) => _ = block.annotations_mut().insert(RELEASING.to_owned(), mark.to_owned()),
            None => _ = block.annotations_mut().remove(RELEASING),
        }
        self.put_block(block);
        Outcome::Done
    }

    /// The agent of a node removes the marks from its blocks.
    pub(crate) fn unmark_own(&mut self, node: &str) {
        let own =
            self.blocks.values().filter(|block| block.node() == Some(node) && mark_of(*block).is_some());
        for at in own.map(At::of).collect::<Vec<_>>() {
            self.annotate_block(&at, None);
        }
    }

    /// Deletes a block at a version.
    pub(crate) fn delete_block(&mut self, at: &At) -> Outcome {
        if !Self::is_at(self.blocks.get(&at.name), at) {
            return Outcome::Conflict;
        }
        self.return_block(&at.name);
        Outcome::Done
    }

    fn write_claim(&mut self, write: &ClaimWrite) -> Outcome {
        match write {
            ClaimWrite::Records { block, records, finalizers, gone, named } => {
                let lives = |id: &ClaimId| {
                    self.claims.get(&id.name).and_then(ResourceExt::uid).as_ref() == Some(&id.uid)
                };
                let blind = self.planted == Some(Planted::AnnotationsFree);
                let alive =
                    |id: &PodId| !blind && self.pods.get(&id.name).is_some_and(|pod| pod.uid == id.uid);
                if gone.claims.iter().any(lives)
                    || !named.iter().all(lives)
                    || gone.pods.iter().any(alive)
                    || !Self::is_at(self.blocks.get(&block.name), block)
                {
                    return Outcome::Conflict;
                }
                let mut block = self.blocks[&block.name].clone();
                block.spec.claims.clone_from(records);
                block.metadata.finalizers = Some(finalizers.clone());
                self.put_block(block);
                Outcome::Done
            }
            ClaimWrite::DropBlock { block, .. } => {
                if !Self::is_at(self.blocks.get(&block.name), block) {
                    return Outcome::Conflict;
                }
                self.return_block(&block.name);
                Outcome::Done
            }
            ClaimWrite::Status { claim, status, unless, .. } => {
                let on_record = |place: &RecordLocation| {
                    let RecordLocation::Block(name) = place else { return false };
                    let block = self.blocks.get(name);
                    block.is_some_and(|it| !OnRecord::in_block(it, &claim.uid).addresses.is_empty())
                };
                if unless.iter().any(on_record) || !Self::is_at(self.claims.get(&claim.name), claim) {
                    return Outcome::Conflict;
                }
                let mut claim = self.claims[&claim.name].clone();
                claim.status = Some((**status).clone());
                self.put_claim(claim);
                Outcome::Done
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn update_request(&mut self, at: &At, change: impl FnOnce(&mut BlockRequest)) -> Outcome {
        if !Self::is_at(self.requests.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut request = self.requests[&at.name].clone();
        change(&mut request);
        self.stamp(&mut request);
        self.log.push(Update::Request(request.clone()));
        self.requests.insert(at.name.clone(), request);
        Outcome::Done
    }

    fn update_pool(&mut self, at: &At, change: impl FnOnce(&mut AddressPool)) -> Outcome {
        if !Self::is_at(self.pools.get(&at.name), at) {
            return Outcome::Conflict;
        }
        let mut pool = self.pools[&at.name].clone();
        change(&mut pool);
        self.put_pool(pool);
        Outcome::Done
    }
}
