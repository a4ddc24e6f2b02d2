//! Making claims, and letting them go. What takes something away looks, live, whether those that the claim was made for still
//! are as they were when it was decided.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::read::{Read, Unreadable};

use super::{Actor, Answer, Learned, Outcome, settle};
use crate::makers::{
    CLAIM, VirtualMachine, VirtualMachineInstance, instance_facts, machine_facts, stateful_facts,
};
use crate::write::{At, MadeFor, MakeWrite};

impl Actor {
    pub(super) async fn write_maker(&self, write: &MakeWrite) -> Answer {
        match write {
            MakeWrite::Define => self.define_claims().await,
            MakeWrite::Create { claim, .. } => self.create_claim(claim).await,
            MakeWrite::Finalizers { namespace, claim, stay, made_for } => {
                self.patch_claim(namespace, claim, made_for, json!({"finalizers": stay})).await
            }
            MakeWrite::Owners { namespace, claim, owners, made_for } => {
                self.patch_claim(namespace, claim, made_for, json!({"ownerReferences": owners})).await
            }
            MakeWrite::Delete { namespace, claim, made_for } => {
                if !self.is_so(namespace, made_for).await? {
                    return Ok((Outcome::Superseded, None));
                }
                let claims: Api<IPAMClaim> = Api::namespaced(self.client.clone(), namespace);
                let exactly = Preconditions {
                    uid: Some(claim.uid.clone()),
                    resource_version: Some(claim.version.clone()),
                };
                let deleted =
                    claims.delete(&claim.name, &DeleteParams::default().preconditions(exactly)).await;
                let gone = |at| Learned::ClaimGone(namespace.clone(), at);
                let left = match deleted {
                    Ok(answer) => answer.left().map(Ok),
                    Err(error) => Some(Err(error)),
                };
                match left {
                    // It is gone at once: nobody had a finalizer on it.
                    None => Ok((Outcome::Done, Some(gone(claim.clone())))),
                    Some(left) => settle(&claims, claim, left, learned, gone).await,
                }
            }
        }
    }

    async fn define_claims(&self) -> Answer {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        // The watch of claims looks again by itself, and says so if the server still does not know them.
        let there = Some(Learned::Kind(CLAIM));
        match definitions.create(&PostParams::default(), &tenure_api::claims::crd()).await {
            Ok(_) => Ok((Outcome::Done, there)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok((Outcome::Superseded, there)),
            Err(error) => Err(error),
        }
    }

    async fn create_claim(&self, claim: &IPAMClaim) -> Answer {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let claims: Api<IPAMClaim> = Api::namespaced(self.client.clone(), namespace);
        match claims.create(&PostParams::default(), claim).await {
            Ok(made) => Ok((Outcome::Done, Some(learned(made)))),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = claims.get_opt(claim.metadata.name.as_deref().unwrap_or_default()).await?;
                Ok((Outcome::Superseded, there.map(learned)))
            }
            Err(error) => Err(error),
        }
    }

    async fn patch_claim(&self, namespace: &str, at: &At, made_for: &MadeFor, mut metadata: Value) -> Answer {
        if !self.is_so(namespace, made_for).await? {
            return Ok((Outcome::Superseded, None));
        }
        metadata["uid"] = json!(at.uid);
        metadata["resourceVersion"] = json!(at.version);
        let claims: Api<IPAMClaim> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = claims.patch(&at.name, &PatchParams::default(), &patch).await;
        settle(&claims, at, written, learned, |at| Learned::ClaimGone(namespace.to_owned(), at)).await
    }

    /// The second look, live. If it shows anything else, the watch is about to say so.
    async fn is_so(&self, namespace: &str, made_for: &MadeFor) -> Result<bool, kube::Error> {
        match made_for {
            MadeFor::Machine { name, machine, instance } => {
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
            MadeFor::StatefulSet(facts) => {
                let sets: Api<Read<StatefulSet>> = Api::namespaced(self.client.clone(), namespace);
                let live = sets.get_opt(&facts.name).await?;
                let Ok(live) = readable(live.as_ref()) else { return Ok(false) };
                Ok(live.map(stateful_facts).as_ref() == Some(facts))
            }
        }
    }
}

/// What was read, unless it is there and cannot be read.
fn readable<K>(read: Option<&Read<K>>) -> Result<Option<&K>, &Unreadable> {
    read.map(Read::as_result).transpose()
}

fn learned(claim: IPAMClaim) -> Learned {
    Learned::Claim(Box::new(claim))
}
