//! Performing writes for alias addresses.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases};
use tenure_api::read::Read;

use super::driver::DriverChannel;
use super::write::CloudWrite;
use crate::executor::{Answer, Outcome, create, discard, finalize, json_patch, settle};
use crate::kind::{Kind, Observation};
use crate::live::is_in_use_out_of_service;
use crate::part::Perform;
use crate::write::{At, Operation, of};

/// Performs through one client, and through the driver's channel.
pub(super) struct CloudPerformer {
    client: Client,
    channel: DriverChannel,
}

impl Perform for CloudPerformer {
    fn perform<'a>(&'a self, operation: &'a dyn Operation) -> BoxFuture<'a, Answer> {
        async move {
            match of::<CloudWrite>(operation) {
                Some(write) => self.write(write).await,
                None => Ok((
                    Outcome::Failed(format!("this is no write for alias addresses: {operation:?}")),
                    None,
                )),
            }
        }
        .boxed()
    }
}

impl CloudPerformer {
    pub(super) fn new(client: Client, channel: DriverChannel) -> Self {
        Self { client, channel }
    }

    async fn write(&self, write: &CloudWrite) -> Answer {
        match write {
            CloudWrite::Create { ledger, .. } => {
                // A ledger whose pool is gone would belong to nobody.
                if let Some(gone) = self.lacks_pool(ledger).await? {
                    return Ok((Outcome::Superseded, gone));
                }
                create(&Api::<IPLedger>::all(self.client.clone()), ledger.as_ref()).await
            }
            CloudWrite::Ledger { ledger, records, finalizers, missing, .. } => {
                for node in missing {
                    if is_in_use_out_of_service(&self.client, node, None).await? {
                        return Ok((Outcome::Superseded, None));
                    }
                }
                let api: Api<IPLedger> = Api::all(self.client.clone());
                let operations = json!([
                    test(ledger),
                    {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
                    {"op": "add", "path": "/records", "value": records},
                ]);
                let written = json_patch(&api, &ledger.name, operations).await;
                settle(&api, ledger, written, Observation::gone::<IPLedger>).await
            }
            CloudWrite::Drop { ledger, finalizers, deleting } => {
                discard(&Api::<IPLedger>::all(self.client.clone()), ledger, finalizers, *deleting).await
            }
            CloudWrite::Finalizers { pool, finalizers, last } => {
                if *last && let Some(left) = self.any_ledger(&pool.name).await? {
                    return Ok((Outcome::Superseded, Some(left)));
                }
                let api: Api<AliasPool> = Api::all(self.client.clone());
                let written = finalize(&api, pool, finalizers).await;
                settle(&api, pool, written, Observation::gone::<AliasPool>).await
            }
            CloudWrite::Node { node, status } => {
                self.status(&Api::<NodeAliases>::all(self.client.clone()), node, status).await
            }
            CloudWrite::Forget { node } => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                if nodes.get_metadata_opt(&node.name).await?.is_some() {
                    return Ok((Outcome::Superseded, None));
                }
                discard(&Api::<NodeAliases>::all(self.client.clone()), node, &[], false).await
            }
            CloudWrite::Pool { pool, status } => {
                self.status(&Api::<AliasPool>::all(self.client.clone()), pool, status).await
            }
            CloudWrite::Tell(wanted) => {
                if !self.channel.tell(Arc::clone(wanted)) {
                    return Ok((Outcome::Failed("the driver of the cloud does not listen".to_owned()), None));
                }
                let wanted = Arc::clone(wanted);
                let told = Observation::new(move |world| world.aliases_mut().note_told(wanted));
                Ok((Outcome::Done, Some(told)))
            }
        }
    }

    /// An observation if the pool of a ledger is gone or in deletion; `None` if it stays.
    async fn lacks_pool(&self, ledger: &IPLedger) -> Result<Option<Option<Observation>>, kube::Error> {
        let owner = ledger.owner_references().first();
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        let there = pools.get_opt(&ledger.spec.pool).await?;
        let stays = |pool: &AliasPool| {
            pool.metadata.deletion_timestamp.is_none()
                && pool.metadata.uid.as_deref() == owner.map(|it| it.uid.as_str())
        };
        Ok(if there.as_ref().is_some_and(stays) { None } else { Some(there.map(Observation::is)) })
    }

    /// An observation of a pool's ledger, if it exists and can be read.
    async fn any_ledger(&self, pool: &str) -> Result<Option<Observation>, kube::Error> {
        let api: Api<Read<IPLedger>> = Api::all(self.client.clone());
        let of_pool = ListParams::default().fields(&format!("pool={pool}"));
        let first = api.list(&of_pool).await?.items.into_iter().next();
        Ok(first.map(|ledger| match ledger.is() {
            Some(ledger) => Observation::is(ledger),
            None => Observation::new(|_| {}),
        }))
    }

    /// Replaces a status at the version that was read.
    async fn status<K>(&self, api: &Api<K>, at: &At, status: &impl Serialize) -> Answer
    where
        K: Kind + Serialize,
    {
        let operations = json!([test(at), {"op": "add", "path": "/status", "value": status}]);
        let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
        let written = api.patch_status(&at.name, &PatchParams::default(), &Patch::Json::<()>(patch)).await;
        settle(api, at, written, Observation::gone::<K>).await
    }
}

fn test(at: &At) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": at.version})
}
