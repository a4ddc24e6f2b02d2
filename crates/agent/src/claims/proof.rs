//! What records prove about claims: which addresses each has, and which pods received them.
//!
//! Anyone who may write a claim's status or annotation could name any address and any pod there. So neither
//! is trusted: the status says which objects have the record, and these, which only the controller writes,
//! decide. The agent reads them when a pod of this node is admitted, usually before its ADD, and otherwise in
//! the ADD that needs them. A proof stays valid for a pod that it names: while that pod is alive, the record
//! is not freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use tenure_api::coil::AddressBlock;
use tenure_api::whereabouts::IPPool;
use tenure_claims::status::RecordLocation;
use tenure_claims::{ClaimFacts, OnRecord};
use tracing::debug;

use super::Shared;
use crate::objects::lock;

/// How long one read may take.
const LIVE_READ: Duration = Duration::from_secs(1);
/// No network has more ranges; if a status names more objects, our controller did not write it.
const MOST_PLACES: usize = 16;

/// The records that were read.
#[derive(Default)]
pub(super) struct Proofs {
    /// By the UID of the claim.
    read: BTreeMap<String, OnRecord>,
    /// Claims whose records are being read in advance.
    early: BTreeSet<String>,
}

impl Shared {
    /// Whether the record, as read, says that the claim has all of its addresses and that the pod received
    /// them.
    pub(super) fn is_proven(&self, claim: &ClaimFacts, pod: &str) -> bool {
        let proofs = lock(&self.proofs);
        let proof = proofs.read.get(&claim.uid);
        proof.is_some_and(|it| it.covers(&claim.addresses) && it.pods.iter().any(|named| named == pod))
    }

    /// Reads a claim's record. The error says why that failed.
    pub(super) async fn read_record(&self, claim: &ClaimFacts) -> Result<(), String> {
        let mut found: Option<OnRecord> = None;
        for place in claim.places.iter().take(MOST_PLACES) {
            let (act, read) = (|| format!("reading {place}"), self.read_place(place, &claim.uid));
            let this = self.connection.once(LIVE_READ, act, read).await.map_err(|error| error.to_string())?;
            found = Some(match found {
                Some(found) => found.and(this),
                None => this,
            });
        }
        lock(&self.proofs).read.insert(claim.uid.clone(), found.unwrap_or_default());
        Ok(())
    }

    async fn read_place(&self, place: &RecordLocation, uid: &str) -> Result<OnRecord, kube::Error> {
        Ok(match place {
            RecordLocation::Block(name) => {
                let block = Api::<AddressBlock>::all(self.connection.client()).get_opt(name).await?;
                block.map(|block| OnRecord::in_block(&block, uid)).unwrap_or_default()
            }
            RecordLocation::Ledger(name) => {
                // In this namespace only: that of others may be anybody's.
                let ledgers: Api<IPPool> = Api::namespaced(self.connection.client(), &self.options.namespace);
                let ledger = ledgers.get_opt(name).await?;
                ledger.map(|ledger| OnRecord::in_ledger(&ledger, uid)).unwrap_or_default()
            }
        })
    }

    /// A claim changed: if it admits pods of this node, its record is read before their ADDs.
    pub(super) fn prove_early(self: &Arc<Self>, claim: &ClaimFacts) {
        let mut own = claim.slots.both().filter(|slot| slot.node == self.pods.node());
        if !claim.held || own.all(|slot| self.is_proven(claim, &slot.uid)) {
            return;
        }
        if !lock(&self.proofs).early.insert(claim.uid.clone()) {
            return;
        }
        let (shared, claim) = (Arc::clone(self), claim.clone());
        self.spawn(async move {
            if let Err(problem) = shared.read_record(&claim).await {
                debug!(claim = claim.name, namespace = claim.namespace, problem, "cannot read a record yet");
            }
            lock(&shared.proofs).early.remove(&claim.uid);
            shared.tell_waiting();
        });
    }

    /// A claim is gone.
    pub(super) fn forget_proof(&self, uid: &str) {
        lock(&self.proofs).read.remove(uid);
    }
}
