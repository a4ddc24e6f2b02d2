//! A control plane with everything of `deploy/`, and clients with nodes' tokens.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest, FINALIZER, label};
use tenure_api::whereabouts::IPPool;
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::PATIENCE;

pub const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// A control plane with everything of `deploy/`, two nodes, and a pool.
pub struct Bed {
    pub plane: ControlPlane,
    pub admin: Client,
    /// Where agents are.
    namespace: String,
    /// The agents' account.
    account: String,
}

impl Bed {
    pub async fn start() -> Result<Self> {
        Box::pin(Self::start_with(DEPLOY, "kube-system", "tenured")).await
    }

    /// The same, with what is in a directory, and the agents' account in that namespace.
    pub async fn start_with(directory: &str, namespace: &str, account: &str) -> Result<Self> {
        let options = ControlPlaneOptions::default().without_controller_manager();
        let plane = ControlPlane::start(options).await?;
        let admin = plane.client()?;
        let (namespace, account) = (namespace.to_owned(), account.to_owned());
        let bed = Self { plane, admin, namespace, account };
        if bed.namespace != "kube-system" {
            bed.make::<Namespace>(json!({"metadata": {"name": bed.namespace}})).await?;
        }
        bed.plane.kubectl(&["apply", "-k", directory]).await?;
        let established = ["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"];
        bed.plane.kubectl(&established).await?;
        for name in ["node-1", "node-2"] {
            bed.make::<Node>(json!({"metadata": {"name": name}})).await?;
        }
        let spec = json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.1.0.0/24"}]});
        bed.make::<AddressPool>(json!({"metadata": {"name": "default"}, "spec": spec})).await?;
        bed.await_policy().await?;
        Ok(bed)
    }

    /// The policy begins to hold a moment after it was applied.
    async fn await_policy(&self) -> Result<()> {
        let requests: Api<BlockRequest> = Api::all(self.agent_of("node-1").await?);
        let (start, dry_run) = (SystemClock.now(), PostParams { dry_run: true, ..PostParams::default() });
        while requests.create(&dry_run, &request("probe", "node-2")?).await.is_ok() {
            ensure!(SystemClock.now().since(start) < PATIENCE, "the policy does not hold");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    pub async fn make<K>(&self, object: Value) -> Result<K>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        Ok(Api::all(self.admin.clone())
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?)
    }

    pub async fn block(&self, index: u8, node: &str) -> Result<AddressBlock> {
        self.make(json!({
            "metadata": {
                "name": format!("default-{index}"),
                "labels": {label::NODE: node, label::POOL: "default"},
                "finalizers": [FINALIZER],
            },
            "index": index,
            "ipv4": format!("10.1.0.{}/30", index * 4),
        }))
        .await
    }

    /// A client with the token that the kubelet gives to the pod of the `DaemonSet` on a node.
    pub async fn agent_of(&self, node: &str) -> Result<Client> {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), &self.namespace);
        let name = format!("tenured-{node}");
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "serviceAccountName": self.account,
                "nodeName": node,
                "containers": [{"name": "tenured", "image": "tenure:0.1.0"}],
            },
        });
        let pod = match pods.get_opt(&name).await? {
            Some(pod) => pod,
            None => pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?,
        };
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod.uid()});
        self.with_token(json!({"spec": {"audiences": [], "boundObjectRef": bound}})).await
    }

    pub async fn with_token(&self, asked: Value) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), &self.namespace);
        let asked: TokenRequest = serde_json::from_value(asked)?;
        let granted = accounts.create_token_request(&self.account, &PostParams::default(), &asked).await?;
        Ok(self.plane.client_with_token(&granted.status.context("a token")?.token)?)
    }
}

pub fn request(name: &str, node: &str) -> Result<BlockRequest> {
    let spec = json!({"nodeName": node, "poolName": "default"});
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?)
}

pub fn event(name: &str, host: &str) -> Result<Event> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        "reason": "PoolExhausted", "message": "no block is free", "type": "Warning",
        "source": {"component": "tenured", "host": host},
    }))?)
}

/// Networks that pods may name: somebody else's kind, which need not be there.
pub fn networks(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions"))
}

/// What a refusal said; an error if it was none.
pub fn refused<T: Debug>(what: &str, outcome: kube::Result<T>) -> Result<String> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => {
            Ok(status.message.clone())
        }
        other => bail!("{what} was not refused: {other:?}"),
    }
}

pub fn only_finalizers(block: &AddressBlock, finalizers: &[&str]) -> Value {
    json!({"metadata": {"resourceVersion": block.resource_version(), "finalizers": finalizers}})
}

/// A ledger: of a node where a label says so, in a state where an annotation does.
pub fn ledger(name: &str, range: &str, node: Option<&str>, state: Option<&str>) -> Result<IPPool> {
    let labels = node.map(|node| json!({"whereabouts.cni.cncf.io/node": node}));
    let annotations = state.map(|state| json!({"whereabouts.cni.cncf.io/state": state}));
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    Ok(serde_json::from_value(json!({"metadata": metadata, "spec": {"range": range, "allocations": {}}}))?)
}

/// A record of a node's agent.
pub fn taken(key: &str, node: &str) -> Patch<Value> {
    let record = json!({"id": "c", "podref": "ns/p", "ifname": "net1", "node": node});
    Patch::Merge(json!({"spec": {"allocations": {key: record}}}))
}
