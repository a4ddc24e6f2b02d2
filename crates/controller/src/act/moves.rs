//! Writing who has a claim.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, annotation};

use super::{Actor, Answer, Learned, settle};
use crate::write::MoveWrite;

impl Actor {
    pub(super) async fn write_move(&self, write: &MoveWrite) -> Answer {
        match write {
            MoveWrite::Hold { namespace, claim, slots, .. } => {
                let claims: Api<IPAMClaim> = Api::namespaced(self.client.clone(), namespace);
                let patch = json!({"metadata": {
                    "uid": claim.uid, "resourceVersion": claim.version,
                    "annotations": {annotation::HOLDERS: slots.to_annotation()},
                }});
                let written = claims.patch(&claim.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                let gone = |at| Learned::ClaimGone(namespace.clone(), at);
                settle(&claims, claim, written, |claim| Learned::Claim(Box::new(claim)), gone).await
            }
        }
    }
}
