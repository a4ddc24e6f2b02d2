//! The API server, with every write on the disk, and what is prepared on it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tenure_api::claims::{DEFAULT_INTERFACE, IPAMClaim, IPAMClaimSpec, annotation};
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_testbed::control_plane::{ApiRequests, ControlPlane, ControlPlaneOptions};
use tenure_testbed::process::{Process, Program};
use tokio::runtime::Handle;

use super::{CLAIMED, NETWORK, NODES};
use crate::host::log;
use crate::host::machine::until;
use crate::host::objects::{self, create, made};
use crate::host::programs::Programs;

/// Requests under way at once, as many as the controller has.
pub(super) const AT_ONCE: usize = 32;

/// An API server.
pub(super) struct Cluster {
    pub(super) runtime: Handle,
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    controller: PathBuf,
    directory: tempfile::TempDir,
}

impl Cluster {
    pub(super) fn start(runtime: &Handle, programs: &Programs) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        runtime.block_on(async {
            let plane =
                ControlPlane::start(ControlPlaneOptions::default().without_controller_manager().durable())
                    .await?;
            let (runtime, client) = (runtime.clone(), plane.client()?);
            let cluster = Self { runtime, client, plane, controller: programs.controller.clone(), directory };
            objects::install(&cluster.client, []).await?;
            for node in NODES {
                objects::node(&cluster.client, node).await?;
            }
            // Pods without claims never wait for a block; claims have blocks of the usual size.
            cluster.pool("default", 14, "10.64.0.0/14").await?;
            cluster.pool(CLAIMED, 5, "10.128.0.0/14").await?;
            let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
            let annotations = json!({"coil.cybozu.com/pool": CLAIMED});
            create(&namespaces, json!({"metadata": {"name": CLAIMED, "annotations": annotations}})).await?;
            Ok(cluster)
        })
    }

    /// Starts the controller.
    pub(super) fn controller(&self) -> Result<Process> {
        Ok(Program::new("tenure-controller", &self.controller, self.log())
            .flag("--kubeconfig", self.plane.kubeconfig())
            .flag("--metrics-address", "127.0.0.1:0")
            .flag("--cluster-network", NETWORK)
            .env("NO_COLOR", "1")
            .start()?)
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("controller.log")
    }

    /// The last that the controller said.
    pub(super) fn last_words(&self) -> String {
        format!("the controller said last:\n{}", log::tail(&self.log()))
    }

    /// Claims in the namespace that they are in.
    pub(super) fn claims(&self) -> Api<IPAMClaim> {
        Api::namespaced(self.client.clone(), CLAIMED)
    }

    /// Pods of a namespace.
    pub(super) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes claims, many at once.
    pub(super) fn make_claims(&self, names: Vec<String>) -> Result<()> {
        let claims = self.claims();
        let made = stream::iter(names).map(|name| {
            let claims = claims.clone();
            async move {
                let spec =
                    IPAMClaimSpec { network: NETWORK.to_owned(), interface: DEFAULT_INTERFACE.to_owned() };
                let made = made(claims.create(&PostParams::default(), &IPAMClaim::new(&name, spec)).await);
                made.with_context(|| format!("cannot create claim {name}"))
            }
        });
        self.runtime.block_on(made.buffer_unordered(AT_ONCE).try_collect::<()>())
    }

    /// Deletes all claims.
    pub(super) fn delete_claims(&self) -> Result<()> {
        let claims = self.claims();
        let (how, which) = (DeleteParams::default(), ListParams::default());
        self.runtime.block_on(claims.delete_collection(&how, &which)).context("cannot delete the claims")?;
        Ok(())
    }

    /// Waits until no address belongs to a claim any more, as the blocks say.
    pub(super) fn wait_until_all_are_free(&self) -> Result<()> {
        let blocks: Api<AddressBlock> = Api::all(self.client.clone());
        until("the addresses of claims that are gone to be free", || {
            let blocks = self.runtime.block_on(blocks.list(&ListParams::default()))?;
            let mut records = blocks.iter().flat_map(|block| block.spec.claims.values());
            Ok(records.all(|record| record.freed.is_some()).then_some(()))
        })?;
        Ok(())
    }

    /// Makes the objects of pods on a node, each with the claim of its name if they have claims.
    pub(super) fn make_pods(
        &self,
        namespace: &str,
        node: &str,
        names: Vec<(String, Option<String>)>,
    ) -> Result<()> {
        let pods = self.pods(namespace);
        let made = stream::iter(names).map(|(name, claim)| {
            let pods = pods.clone();
            async move {
                let annotations = claim.map_or(json!({}), |claim| json!({annotation::CLAIM: claim}));
                let pod = json!({
                    "metadata": {"name": name, "annotations": annotations},
                    "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
                });
                create(&pods, pod).await
            }
        });
        self.runtime.block_on(made.buffer_unordered(AT_ONCE).try_collect::<()>())
    }

    /// Waits until claims say that so many pods have them.
    pub(super) fn wait_for_holders(&self, pods: usize) -> Result<()> {
        let claims = self.claims();
        until("claims to say which pods have them", || {
            let claims = self.runtime.block_on(claims.list(&ListParams::default()))?;
            Ok((claims.iter().map(holders).sum::<usize>() >= pods).then_some(()))
        })?;
        Ok(())
    }

    /// Waits until a claim says that so many pods have it.
    pub(super) fn wait_for_holders_of(&self, claim: &str, pods: usize) -> Result<()> {
        let claims = self.claims();
        until("a claim to say which pods have it", || {
            let claim = self.runtime.block_on(claims.get(claim))?;
            Ok((holders(&claim) >= pods).then_some(()))
        })?;
        Ok(())
    }

    /// What the API server has answered so far.
    pub(super) fn requests(&self) -> Result<ApiRequests> {
        Ok(self.runtime.block_on(self.plane.api_requests())?)
    }

    async fn pool(&self, name: &str, bits: u8, subnet: &str) -> Result<()> {
        let pools: Api<AddressPool> = Api::all(self.client.clone());
        let spec = json!({"blockSizeBits": bits, "subnets": [{"ipv4": subnet}]});
        create(&pools, json!({"metadata": {"name": name}, "spec": spec})).await
    }
}

/// How many pods have a claim, as it says.
fn holders(claim: &IPAMClaim) -> usize {
    let text = claim.annotations().get(annotation::HOLDERS).map(String::as_str);
    let slots: Value = serde_json::from_str(text.unwrap_or_default()).unwrap_or_default();
    ["active", "incoming"].iter().filter(|slot| !slots[**slot].is_null()).count()
}

/// Checks that a program still runs.
pub(super) fn runs(controller: &Process) -> Result<()> {
    ensure!(controller.is_running(), "the controller has ended");
    Ok(())
}
