//! Writing who has a claim.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, annotation};

use super::super::write::MoveWrite;
use super::ClaimsPerformer;
use crate::executor::{Answer, settle};
use crate::kind::Observation;

impl ClaimsPerformer {
    pub(super) async fn write_move(&self, write: &MoveWrite) -> Answer {
        match write {
            MoveWrite::Hold { namespace, claim, slots, .. } => {
                let claims = self.claims(namespace);
                let patch = json!({"metadata": {
                    "uid": claim.uid, "resourceVersion": claim.version,
                    "annotations": {annotation::HOLDERS: slots.to_annotation()},
                }});
                let written = claims.patch(&claim.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                let gone = |at| Observation::gone_from::<IPAMClaim>(namespace, at);
                settle(&claims, claim, written, gone).await
            }
        }
    }
}
