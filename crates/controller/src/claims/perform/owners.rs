//! Creates and deletes claims of owners. Before a deletion it reads the owners live, and goes on only if they still
//! are as the plan saw them.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::read::{Read, Unreadable};

use super::super::owners::{
    CLAIM, VirtualMachine, VirtualMachineInstance, instance_facts, machine_facts, stateful_facts,
};
use super::super::write::{Owner, OwnerWrite};
use super::ClaimsPerformer;
use crate::executor::{Answer, Outcome, create, exactly, settle};
use crate::kind::Observation;
use crate::write::At;

impl ClaimsPerformer {
    pub(super) async fn write_owned(&self, write: &OwnerWrite) -> Answer {
        match write {
            OwnerWrite::Define => self.define_claims().await,
            OwnerWrite::Create { claim, .. } => self.create_claim(claim).await,
            OwnerWrite::Finalizers { namespace, claim, stay, owner } => {
                self.patch_claim(namespace, claim, owner, json!({"finalizers": stay})).await
            }
            OwnerWrite::Owners { namespace, claim, owners, owner } => {
                self.patch_claim(namespace, claim, owner, json!({"ownerReferences": owners})).await
            }
            OwnerWrite::Delete { namespace, claim, owner } => {
                if !self.is_so(namespace, owner).await? {
                    return Ok((Outcome::Superseded, None));
                }
                let claims = self.claims(namespace);
                let deleted = claims.delete(&claim.name, &exactly(claim)).await;
                let gone = |at| Observation::gone_from::<IPAMClaim>(namespace, at);
                let left = match deleted {
                    Ok(answer) => answer.left().map(Ok),
                    Err(error) => Some(Err(error)),
                };
                match left {
                    // It is gone at once, because it had no finalizer.
                    None => Ok((Outcome::Done, Some(gone(claim.clone())))),
                    Some(left) => settle(&claims, claim, left, gone).await,
                }
            }
        }
    }

    async fn define_claims(&self) -> Answer {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        // The watch of claims tries again by itself, and reports if the server still does not know the kind.
        let there = Some(Observation::new(|world| world.note_lack(CLAIM, false)));
        match definitions.create(&PostParams::default(), &tenure_api::claims::crd()).await {
            Ok(_) => Ok((Outcome::Done, there)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok((Outcome::Superseded, there)),
            Err(error) => Err(error),
        }
    }

    async fn create_claim(&self, claim: &IPAMClaim) -> Answer {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let claims = self.claims(namespace);
        create(&claims, claim).await
    }

    async fn patch_claim(&self, namespace: &str, at: &At, owner: &Owner, mut metadata: Value) -> Answer {
        if !self.is_so(namespace, owner).await? {
            return Ok((Outcome::Superseded, None));
        }
        metadata["uid"] = json!(at.uid);
        metadata["resourceVersion"] = json!(at.version);
        let claims = self.claims(namespace);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = claims.patch(&at.name, &PatchParams::default(), &patch).await;
        settle(&claims, at, written, |at| Observation::gone_from::<IPAMClaim>(namespace, at)).await
    }

    /// The second, live look. If it differs, the watch will report that soon.
    async fn is_so(&self, namespace: &str, owner: &Owner) -> Result<bool, kube::Error> {
        match owner {
            Owner::Machine { name, machine, instance } => {
                let machines: Api<Read<VirtualMachine>> = Api::namespaced(self.client.clone(), namespace);
                let instances: Api<Read<VirtualMachineInstance>> =
                    Api::namespaced(self.client.clone(), namespace);
                let (live, alive) = tokio::try_join!(machines.get_opt(name), instances.get_opt(name))?;
                let (Ok(live), Ok(alive)) = (readable(live.as_ref()), readable(alive.as_ref())) else {
                    return Ok(false);
                };
                Ok(live.map(machine_facts).as_ref() == machine.as_deref()
                    && alive.map(instance_facts).as_ref() == instance.as_deref())
            }
            Owner::StatefulSet(facts) => {
                let sets: Api<Read<StatefulSet>> = Api::namespaced(self.client.clone(), namespace);
                let live = sets.get_opt(&facts.name).await?;
                let Ok(live) = readable(live.as_ref()) else { return Ok(false) };
                Ok(live.map(stateful_facts).as_ref() == Some(facts))
            }
        }
    }
}

/// What was read, unless the object exists but cannot be read.
fn readable<K>(read: Option<&Read<K>>) -> Result<Option<&K>, &Unreadable> {
    read.map(Read::as_result).transpose()
}
