//! Writing who has a claim, and reading where a pod is.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_api::claims::{IPAMClaim, annotation};

use super::{Actor, Answer, Learned, Outcome, settle};
use crate::cache::Known;
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
            MoveWrite::Look { namespace, name, uid } => {
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
                // One that is gone, or another: the watch will say so.
                let there = pods.get_opt(name).await?.filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
                let Some(pod) = there else { return Ok((Outcome::Superseded, None)) };
                let version = pod.known_version();
                let node = pod.spec.and_then(|spec| spec.node_name).filter(|node| !node.is_empty());
                let podref = format!("{namespace}/{name}");
                Ok((Outcome::Done, Some(Learned::Node { podref, uid: uid.clone(), version, node })))
            }
        }
    }
}
