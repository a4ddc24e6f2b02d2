//! An API server with pools and namespaces, on which agents of one node work.

use std::path::{Path, PathBuf};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client};
use serde_json::json;
use tenure_api::coil::AddressPool;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tokio::runtime::Handle;

use crate::host::machine::Machine;
use crate::host::objects::{self, create};
use crate::host::way::Way;

/// The name of the node, and of its object.
pub(super) const NODE: &str = "measured";
/// Requests under way at once while something is prepared.
const AT_ONCE: usize = 32;

/// An API server for one node.
pub(super) struct Cluster {
    pub(super) runtime: Handle,
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
}

/// How many pools there are that the node has no block of: each is one try.
#[derive(Clone, Copy)]
pub(super) struct Pools {
    /// For 100 pods at once.
    pub(super) crowds: usize,
    /// For one pod.
    pub(super) singles: usize,
}

/// The namespace, and the pool, of one try with 100 pods.
pub(super) fn crowd(number: usize) -> String {
    format!("crowd-{number}")
}

/// The namespace, and the pool, of one try with one pod.
pub(super) fn single(number: usize) -> String {
    format!("single-{number}")
}

impl Cluster {
    /// Starts one whose writes are on the disk, with all that is asked for.
    pub(super) fn start(runtime: &Handle, pools: Pools) -> Result<Self> {
        runtime.block_on(async {
            let plane =
                ControlPlane::start(ControlPlaneOptions::default().without_controller_manager().durable())
                    .await?;
            let cluster = Self { runtime: runtime.clone(), client: plane.client()?, plane };
            objects::install(&cluster.client, []).await?;
            objects::node(&cluster.client, NODE).await?;
            // Large blocks, so that an ADD elsewhere than in the tries below never needs one.
            cluster.pool("default", 14, "10.64.0.0/14").await?;
            let tries = (0..pools.crowds)
                .map(|n| (crowd(n), format!("10.{}.{}.0/24", 80 + n / 256, n % 256)))
                .chain((0..pools.singles).map(|n| (single(n), format!("10.79.{n}.0/24"))));
            let made = stream::iter(tries).map(|(name, subnet)| {
                let cluster = &cluster;
                async move {
                    cluster.pool(&name, 5, &subnet).await?;
                    cluster.namespace(&name).await
                }
            });
            made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            Ok(cluster)
        })
    }

    /// A kubeconfig file in `directory` for programs on `machine`, and the way there.
    pub(super) fn reach(&self, machine: &Machine, directory: &Path) -> Result<(PathBuf, Way)> {
        let file = directory.join("kubeconfig");
        let way = Way::to(&self.plane, &self.runtime, machine)?;
        way.kubeconfig(&self.plane, None, &file)?;
        Ok((file, way))
    }

    /// Makes the objects of pods on a node, such as the kubelet's runtime never asks about.
    pub(super) fn pods(&self, namespace: &str, node: &str, names: Vec<String>) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let made = stream::iter(names).map(|name| {
            let pods = pods.clone();
            async move {
                let pod = json!({
                    "metadata": {"name": name, "labels": {"app": "measured"}},
                    "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
                });
                create(&pods, pod).await
            }
        });
        self.runtime.block_on(made.buffer_unordered(AT_ONCE).try_collect::<()>())
    }

    async fn pool(&self, name: &str, bits: u8, subnet: &str) -> Result<()> {
        let pools: Api<AddressPool> = Api::all(self.client.clone());
        let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": subnet}]});
        let finalizers = ["coil.cybozu.com"];
        create(&pools, json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": spec})).await
    }

    /// A namespace whose pods get addresses of the pool of the same name.
    async fn namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let annotations = json!({"coil.cybozu.com/pool": name});
        create(&namespaces, json!({"metadata": {"name": name, "annotations": annotations}})).await
    }
}
