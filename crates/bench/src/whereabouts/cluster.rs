//! The API server that all of them share, with every write on the disk, and what is prepared on it.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tenure_api::whereabouts::{Allocation, GROUP, IPPool, IPPoolSpec, NodeSlicePool, label, pool_name};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tokio::runtime::Handle;

use super::{NAMESPACE, NODE, caller};
use crate::host::objects::{self, made};
use crate::host::runtime::Timings;

/// The kind that networks of Multus are made with.
const ATTACHMENTS: &str = include_str!("../../../../deploy/optional/network-attachment-definitions.yaml");
/// How many addresses belong into one object, as `docs/whereabouts.md` has it.
const OBJECT: usize = 2_048;
/// Pods that hold addresses already are none of those that come and go.
const HOLDERS: u64 = 1 << 32;

/// An API server.
pub(super) struct Cluster {
    pub(super) runtime: Handle,
    pub(super) plane: ControlPlane,
    client: Client,
}

impl Cluster {
    pub(super) fn start(runtime: &Handle) -> Result<Self> {
        runtime.block_on(async {
            let plane =
                ControlPlane::start(ControlPlaneOptions::default().without_controller_manager().durable())
                    .await?;
            let cluster = Self { runtime: runtime.clone(), client: plane.client()?, plane };
            cluster.install().await?;
            objects::node(&cluster.client, NODE).await?;
            Ok(cluster)
        })
    }

    async fn install(&self) -> Result<()> {
        let attachments: CustomResourceDefinition =
            serde_saphyr::from_str(ATTACHMENTS).context("cannot read the definition of attachments")?;
        objects::install(&self.client, [attachments]).await
    }

    /// A namespace for objects.
    pub(super) fn namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        Ok(made(self.runtime.block_on(namespaces.create(&PostParams::default(), &namespace)))?)
    }

    /// Makes the attachment definition of a network.
    pub(super) fn attach(&self, name: &str, config: &Value) -> Result<()> {
        let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
        let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
        let definition =
            DynamicObject::new(name, &resource).data(json!({"spec": {"config": config.to_string()}}));
        let definitions: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), "default", &resource);
        Ok(made(self.runtime.block_on(definitions.create(&PostParams::default(), &definition)))?)
    }

    /// Whether the node has a slice of a network.
    pub(super) fn has_slice(&self, network: &str) -> Result<bool> {
        let pools: Api<NodeSlicePool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pool = self.runtime.block_on(pools.get_opt(network))?;
        Ok(pool.is_some_and(|pool| pool.slice_of(NODE).is_some()))
    }

    /// Makes records of the first addresses of a network's range, in objects as our agents keep them.
    pub(super) fn hold_in_parts(&self, (network, range): (&str, &str), records: usize) -> Result<()> {
        let first = pool_name(network, "", range)?;
        let pools: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let parts = (0..=records / OBJECT).map(|number| {
            let offsets = (number * OBJECT).max(1)..=((number + 1) * OBJECT - 1).min(records);
            let name = if number == 0 { first.clone() } else { format!("{first}.{number}") };
            let mut pool = pool(&name, range, offsets);
            pool.labels_mut().insert(label::NETWORK.to_owned(), network.to_owned());
            pool.annotations_mut().insert(format!("{GROUP}/state"), "unique".to_owned());
            pool
        });
        let made = stream::iter(parts).map(|pool| {
            let pools = pools.clone();
            async move {
                made(pools.create(&PostParams::default(), &pool).await)?;
                // Our agents have the server keep no notes of who wrote which record.
                let patch = json!({"metadata": {"managedFields": [{}]}});
                pools.patch(&pool.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
            }
        });
        let made = self.runtime.block_on(made.buffer_unordered(4).try_collect::<()>());
        made.with_context(|| format!("cannot make {records} records of {network}"))
    }

    /// The same in one object of a namespace, as Whereabouts keeps it. Whereabouts has made the object already.
    pub(super) fn hold_in_one(
        &self,
        namespace: &str,
        (network, range): (&str, &str),
        records: usize,
    ) -> Result<()> {
        let pools: Api<IPPool> = Api::namespaced(self.client.clone(), namespace);
        let name = pool_name(network, "", range)?;
        let records_of = json!({"spec": pool(&name, range, 1..=records).spec});
        let patch = Patch::Merge(&records_of);
        let made = self.runtime.block_on(pools.patch(&name, &PatchParams::default(), &patch));
        made.with_context(|| format!("cannot make {records} records of {network} in one object"))?;
        Ok(())
    }

    /// Creates `ConfigMap`s, so many at once: what the API server can do at all.
    pub(super) fn create_plainly(&self, count: usize, at_once: usize) -> Result<Timings> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let requests = stream::iter(0..count).map(|number| {
            let maps = maps.clone();
            async move {
                let map: ConfigMap = serde_json::from_value(json!({
                    "metadata": {"generateName": "plain-"},
                    "data": {"holder": format!("default/pod-{number}"), "address": "10.1.0.1"},
                }))?;
                let began = Instant::now();
                maps.create(&PostParams::default(), &map).await.context("cannot create a ConfigMap")?;
                anyhow::Ok(began.elapsed())
            }
        });
        let began = Instant::now();
        let each = self.runtime.block_on(requests.buffer_unordered(at_once).try_collect::<Vec<_>>())?;
        Ok(Timings { wall: began.elapsed(), each, ..Timings::default() })
    }

    /// How many requests the API server has answered that a Whereabouts makes.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(super) fn whereabouts_calls(&self) -> Result<f64> {
        let answered = self.runtime.block_on(self.plane.api_requests())?;
        let its = answered.count(|request| {
            (request.group == GROUP || request.resource == "leases") && request.verb != "WATCH"
        });
        Ok(its as f64)
    }
}

/// An object with a record for each of these offsets.
fn pool(name: &str, range: &str, offsets: std::ops::RangeInclusive<usize>) -> IPPool {
    let records: BTreeMap<String, Allocation> = offsets
        .map(|offset| {
            let holder = caller::sandbox(HOLDERS + offset as u64);
            let podref = format!("{}/{}", holder.namespace, holder.pod);
            (
                offset.to_string(),
                Allocation {
                    id: holder.id,
                    podref,
                    ifname: Some("net1".to_owned()),
                    ..Allocation::default()
                },
            )
        })
        .collect();
    IPPool::new(name, IPPoolSpec { range: range.to_owned(), allocations: records })
}
