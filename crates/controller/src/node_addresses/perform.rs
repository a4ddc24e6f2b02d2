//! Performing writes for node addresses.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};
use tenure_api::nmstate::{
    NodeIPPool, NodeIPPoolStatus, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy,
    annotation, definitions,
};
use tenure_api::release::RELEASING;

use super::known::Mode;
use super::write::{NodeAddressWrite, Promise};
use crate::executor::{Answer, Outcome, create, delete, exactly, finalize, json_patch, settle};
use crate::kind::{Kind, Observation};
use crate::live::node_is_in_use;
use crate::part::Perform;
use crate::write::{At, Operation, of};

/// Performs through one client.
pub(super) struct NodePerformer {
    client: Client,
}

type Enactment = NodeNetworkConfigurationEnactment;

impl Perform for NodePerformer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            match of::<NodeAddressWrite>(operation) {
                Some(write) => self.write(write).await,
                None => {
                    Ok((Outcome::Failed(format!("this is no write for node addresses: {operation:?}")), None))
                }
            }
        }
        .boxed()
    }
}

impl NodePerformer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn enactments(&self) -> Api<Enactment> {
        Api::all(self.client.clone())
    }

    fn policies(&self) -> Api<NodeNetworkConfigurationPolicy> {
        Api::all(self.client.clone())
    }

    async fn write(&self, write: &NodeAddressWrite) -> Answer {
        match write {
            NodeAddressWrite::Define => self.define().await,
            NodeAddressWrite::Create { enactment } => create(&self.enactments(), enactment.as_ref()).await,
            NodeAddressWrite::Record { enactment, promises, captured, generation, conditions } => {
                for promise in promises {
                    if !self.is_promised(enactment, promise).await? {
                        return Ok((Outcome::Superseded, None));
                    }
                }
                let ippool = promises.iter().map(|it| (it.pool.clone(), json!({"allocated": it.addresses})));
                let captured = captured
                    .iter()
                    .map(|(name, (ip, prefix))| (name.clone(), json!({"ip": ip, "prefix-length": prefix})));
                let mut status = json!({
                    "ippool": ippool.collect::<Map<_, _>>(),
                    "capturedStates": captured.collect::<Map<_, _>>(),
                });
                add(&mut status, "policyGeneration", generation.as_ref());
                add(&mut status, "conditions", conditions.as_ref());
                self.enactment_status(enactment, status).await
            }
            NodeAddressWrite::Turn { enactment, generation, conditions } => {
                let mut status = json!({});
                add(&mut status, "policyGeneration", generation.as_ref());
                add(&mut status, "conditions", conditions.as_ref());
                self.enactment_status(enactment, status).await
            }
            NodeAddressWrite::Delete { enactment, .. } => self.delete(enactment).await,
            NodeAddressWrite::AskForReset { enactment, pool } => {
                self.annotate(&self.enactments(), enactment, annotation::RESET, json!(pool)).await
            }
            NodeAddressWrite::Mark { enactment, node, mark } => {
                if node_is_in_use(&self.client, node).await? {
                    return Ok((Outcome::Superseded, None));
                }
                self.annotate(&self.enactments(), enactment, RELEASING, json!(mark)).await
            }
            NodeAddressWrite::Unmark { enactment } => {
                self.annotate(&self.enactments(), enactment, RELEASING, Value::Null).await
            }
            NodeAddressWrite::Abandon { enactment, node } => {
                if node_is_in_use(&self.client, node).await? {
                    return Ok((Outcome::Superseded, None));
                }
                let applied = json!({"applied": {"addresses": [], "released": true}});
                self.enactment_status(enactment, applied).await
            }
            NodeAddressWrite::Finish { enactment, finalizers } => {
                let api = self.enactments();
                let written = finalize(&api, enactment, finalizers).await;
                settle(&api, enactment, written, Observation::gone::<Enactment>).await
            }
            NodeAddressWrite::Pool { pool, status, .. } => {
                let api: Api<NodeIPPool> = Api::all(self.client.clone());
                let patch = json!({"metadata": {"resourceVersion": pool.version}, "status": whole(status)?});
                let written =
                    api.patch_status(&pool.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                settle(&api, pool, written, Observation::gone::<NodeIPPool>).await
            }
            NodeAddressWrite::PoolIsReset { pool } => {
                let api: Api<NodeIPPool> = Api::all(self.client.clone());
                self.annotate(&api, pool, annotation::RESET, Value::Null).await
            }
            NodeAddressWrite::PolicyIsReset { policy } => {
                let api: Api<NodeNetworkConfigurationPolicy> = self.policies();
                self.annotate(&api, policy, annotation::RESET, Value::Null).await
            }
            NodeAddressWrite::Generate { policy } => create(&self.policies(), policy.as_ref()).await,
            NodeAddressWrite::Carry { policy, annotations, spec, promises, gone } => {
                for promise in promises {
                    if !self.is_promised(policy, promise).await? {
                        return Ok((Outcome::Superseded, None));
                    }
                }
                if let Some(node) = gone
                    && node_is_in_use(&self.client, node).await?
                {
                    return Ok((Outcome::Superseded, None));
                }
                let mut operations = vec![
                    json!({"op": "test", "path": "/metadata/resourceVersion", "value": policy.version}),
                    json!({"op": "add", "path": "/metadata/annotations", "value": annotations}),
                ];
                operations.extend(spec.as_ref().map(|it| json!({"op": "add", "path": "/spec", "value": it})));
                let api = self.policies();
                let written = json_patch(&api, &policy.name, Value::Array(operations)).await;
                settle(&api, policy, written, Observation::gone::<NodeNetworkConfigurationPolicy>).await
            }
            NodeAddressWrite::Drop { policy } => {
                let api = self.policies();
                match finalize(&api, policy, &[]).await {
                    Ok(left) if left.metadata.deletion_timestamp.is_none() => {
                        delete(&api, &At::of(&left)).await
                    }
                    written => {
                        settle(&api, policy, written, Observation::gone::<NodeNetworkConfigurationPolicy>)
                            .await
                    }
                }
            }
            NodeAddressWrite::Policy { policy, status } => {
                let api: Api<NodeNetworkConfigurationPolicy> = Api::all(self.client.clone());
                let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
                // Otherwise counts of earlier generations would stay.
                let known = api.get_opt(&policy.name).await?.and_then(|it| it.status).unwrap_or_default();
                for generation in known.unavailable_node_count_map.keys() {
                    if let Some(map) = status["unavailableNodeCountMap"].as_object_mut() {
                        map.entry(generation.clone()).or_insert(Value::Null);
                    }
                }
                let patch = json!({"metadata": {"resourceVersion": policy.version}, "status": status});
                let written =
                    api.patch_status(&policy.name, &PatchParams::default(), &Patch::Merge(patch)).await;
                settle(&api, policy, written, Observation::gone::<NodeNetworkConfigurationPolicy>).await
            }
        }
    }

    /// Creates missing CRDs, and determines whose they are: those of others have no room for our record.
    async fn define(&self) -> Answer {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in definitions() {
            match api.create(&PostParams::default(), &definition).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        let name = "nodenetworkconfigurationenactments.nmstate.io";
        let Some(there) = api.get_opt(name).await? else { return Ok((Outcome::Superseded, None)) };
        let mode = if has_record(&there) { Mode::Own } else { Mode::Companion };
        Ok((Outcome::Done, Some(Observation::new(move |world| world.node_addresses_mut().note_mode(mode)))))
    }

    /// The second, live look: the pool is the lock.
    async fn is_promised(&self, enactment: &At, promise: &Promise) -> Result<bool, kube::Error> {
        let api: Api<NodeIPPool> = Api::all(self.client.clone());
        let pool = api.get_opt(&promise.pool).await?;
        let pool = pool.filter(|pool| pool.uid().as_deref() == Some(promise.uid.as_str()));
        let promised = pool.and_then(|it| it.status).map(|it| it.promised).unwrap_or_default();
        let has = |offset: &i64| promised.iter().any(|it| it.offset == *offset && it.uid == enactment.uid);
        Ok(promise.offsets.iter().all(has))
    }

    async fn enactment_status(&self, at: &At, status: Value) -> Answer {
        let api = self.enactments();
        let patch = json!({"metadata": {"resourceVersion": at.version}, "status": status});
        let written = api.patch_status(&at.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        settle(&api, at, written, Observation::gone::<Enactment>).await
    }

    async fn annotate<K>(&self, api: &Api<K>, at: &At, name: &str, value: Value) -> Answer
    where
        K: Kind + serde::Serialize,
    {
        let metadata = json!({"uid": at.uid, "resourceVersion": at.version, "annotations": {name: value}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = api.patch(&at.name, &PatchParams::default(), &patch).await;
        settle(api, at, written, Observation::gone::<K>).await
    }

    /// Deletes exactly this enactment at exactly this version; its finalizer keeps it until its addresses are free.
    async fn delete(&self, at: &At) -> Answer {
        let api = self.enactments();
        let deleted = api.delete(&at.name, &exactly(at)).await;
        let left = match deleted {
            Ok(answer) => answer.left().map(Ok),
            Err(error) => Some(Err(error)),
        };
        match left {
            None => Ok((Outcome::Done, Some(Observation::gone::<Enactment>(at.clone())))),
            Some(left) => settle(&api, at, left, Observation::gone::<Enactment>).await,
        }
    }
}

/// Whether a CRD of enactments has room for the record of addresses.
fn has_record(definition: &CustomResourceDefinition) -> bool {
    definition.spec.versions.iter().any(|version| {
        let schema = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref());
        let status = schema.and_then(|it| it.properties.as_ref()?.get("status"));
        status.and_then(|it| it.properties.as_ref()).is_some_and(|it| it.contains_key("ippool"))
    })
}

fn add(status: &mut Value, name: &str, value: Option<&impl serde::Serialize>) {
    if let Some(value) = value {
        status[name] = json!(value);
    }
}

/// A pool's status as a patch that replaces the earlier one completely.
fn whole(status: &NodeIPPoolStatus) -> Result<Value, kube::Error> {
    let mut whole = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    if let Some(fields) = whole.as_object_mut() {
        for name in ["allocated-offsets", "allocated-bitmap", "promised", "kept", "cooling", "addresses"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    Ok(whole)
}
