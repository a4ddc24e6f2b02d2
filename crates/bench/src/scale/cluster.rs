//! The API server of a run, and what people make on it before anything begins.
//!
//! It is the real one with etcd, or, to see whether a run works at all, the embedded one, which has no figures of its own.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::AddressPool;
use tenure_api::networks::NetworkAttachmentDefinition;
use tenure_handles::{SystemClock, SystemEntropy};
use tenure_localapi::LocalApi;
use tenure_testbed::control_plane::{ApiRequests, ControlPlane, ControlPlaneOptions, Part};

use super::Plan;
use super::kind::{self, Kind, NAMESPACE};
use super::worker::Way;
use crate::host::objects::{self, create};
use crate::host::process::{processor_time, resident};

/// The kind that networks of Multus are made with.
const ATTACHMENTS: &str = include_str!("../../../../deploy/optional/network-attachment-definitions.yaml");
/// Objects that people make at once.
const AT_ONCE: usize = 64;
/// The accounts of agents and controllers, by which the API server queues their requests where it is busy.
const ACCOUNTS: [&str; 2] =
    ["system:serviceaccount:kube-system:tenured", "system:serviceaccount:kube-system:tenure-controller"];
/// How it queues them.
const FLOW_CONTROL: &str = include_str!("../../../../deploy/flow-control.yaml");

/// An API server.
pub(super) struct Cluster {
    server: Server,
    client: Client,
}

enum Server {
    /// kube-apiserver and etcd, and the configurations of agents and controllers.
    Real(Box<ControlPlane>, [PathBuf; 2]),
    Embedded(LocalApi),
}

/// What API server and etcd have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Processor time in nanoseconds.
    pub(super) processor: f64,
    /// Memory in bytes.
    pub(super) memory: f64,
}

impl Cluster {
    /// The embedded API server.
    pub(super) async fn embedded() -> Result<Self> {
        let server = LocalApi::temporary(SystemClock, SystemEntropy::new()?);
        let client = server.client();
        Self::install(&client).await?;
        Ok(Self { server: Server::Embedded(server), client })
    }

    /// kube-apiserver and etcd; with `durable`, every write is on the disk before it is answered.
    pub(super) async fn real(durable: bool) -> Result<Self> {
        let options = ControlPlaneOptions::default().without_controller_manager();
        let options = if durable { options.durable() } else { options };
        let plane = ControlPlane::start(options).await?;
        let client = plane.client()?;
        Self::install(&client).await?;
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
        let users = ACCOUNTS
            .map(|name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}));
        create(&bindings, json!({"metadata": {"name": "scale"}, "roleRef": role, "subjects": users})).await?;
        Self::queue(&client).await?;
        let of = |account| plane.kubeconfig_for(&plane.url(), account, &["system:serviceaccounts"]);
        let kubeconfigs = [of(ACCOUNTS[0])?, of(ACCOUNTS[1])?];
        Ok(Self { server: Server::Real(Box::new(plane), kubeconfigs), client })
    }

    async fn install(client: &Client) -> Result<()> {
        let attachments: CustomResourceDefinition =
            serde_saphyr::from_str(ATTACHMENTS).context("cannot read the definition of attachments")?;
        objects::install(client, [attachments]).await
    }

    /// Has requests queued as in a cluster.
    async fn queue(client: &Client) -> Result<()> {
        let (levels, schemas) = (Api::all(client.clone()), Api::all(client.clone()));
        for text in FLOW_CONTROL.split("\n---\n") {
            let object: Value =
                serde_saphyr::from_str(text).context("cannot read deploy/flow-control.yaml")?;
            match object["kind"].as_str() {
                Some("FlowSchema") => create::<FlowSchema>(&schemas, object).await?,
                _ => create::<PriorityLevelConfiguration>(&levels, object).await?,
            }
        }
        Ok(())
    }

    /// How agents reach it.
    pub(super) fn way_of_agents(&self) -> Way {
        self.way(|[agents, _]| agents)
    }

    /// How controllers reach it.
    pub(super) fn way_of_controllers(&self) -> Way {
        self.way(|[_, controllers]| controllers)
    }

    fn way(&self, whose: impl Fn(&[PathBuf; 2]) -> &PathBuf) -> Way {
        match &self.server {
            Server::Real(_, kubeconfigs) => Way::Kubeconfig(whose(kubeconfigs).clone()),
            Server::Embedded(server) => Way::Inside(server.clone()),
        }
    }

    /// The real one, if it is that.
    pub(super) fn plane(&self) -> Option<&ControlPlane> {
        match &self.server {
            Server::Real(plane, _) => Some(plane),
            Server::Embedded(_) => None,
        }
    }

    /// Makes networks.
    pub(super) async fn networks(&self, plan: &Plan) -> Result<()> {
        let configs = plan.kind.networks(plan.networks, plan.nodes)?;
        let pools: Api<AddressPool> = Api::all(self.client.clone());
        let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(self.client.clone(), NAMESPACE);
        for (number, config) in configs.iter().enumerate() {
            let name = kind::network(number);
            if plan.kind.has_pools() {
                let spec = json!({"blockSizeBits": 5, "subnets": [{"ipv4": kind::range(number)}]});
                create(&pools, json!({"metadata": {"name": name}, "spec": spec})).await?;
            }
            let spec = json!({"config": config.to_string()});
            create(&definitions, json!({"metadata": {"name": name}, "spec": spec})).await?;
        }
        Ok(())
    }

    /// Makes nodes, and pods on them.
    pub(super) async fn nodes(&self, plan: &Plan, nodes: &[usize], pods: usize) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let each = nodes.iter().map(|number| {
            let (api, name) = (api.clone(), kind::node(*number));
            async move { create(&api, json!({"metadata": {"name": name}})).await }
        });
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.pods(plan, nodes, 0..pods).await
    }

    /// Makes pods of these numbers on each node, and their claims.
    pub(super) async fn pods(&self, plan: &Plan, nodes: &[usize], pods: Range<usize>) -> Result<()> {
        let people = People::new(&self.client, plan.kind, plan.networks);
        let all = nodes.iter().flat_map(|node| pods.clone().map(move |pod| (*node, kind::pod(*node, pod))));
        let each = all.map(|(node, name)| {
            let people = &people;
            async move { people.make(node, &name).await }
        });
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Deletes nodes and their pods.
    pub(super) async fn remove(&self, plan: &Plan, nodes: &[usize]) -> Result<()> {
        let people = People::new(&self.client, plan.kind, plan.networks);
        let all = nodes.iter().flat_map(|node| (0..plan.pods).map(move |pod| kind::pod(*node, pod)));
        let each = all.map(|name| {
            let people = &people;
            async move { people.delete(&name).await }
        });
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let api: Api<Node> = Api::all(self.client.clone());
        let each = nodes.iter().map(|number| {
            let (api, name) = (api.clone(), kind::node(*number));
            async move {
                let gone = api.delete(&name, &DeleteParams::default()).await;
                gone.map(drop).with_context(|| format!("cannot delete node {name}"))
            }
        });
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// A configuration of the administrator, whose objects are in this namespace.
    pub(super) async fn administrator(&self, namespace: &str, path: &Path) -> Result<()> {
        let plane =
            self.plane().context("the embedded API server has no configuration for other programs")?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        create(&namespaces, json!({"metadata": {"name": namespace}})).await?;
        let text = std::fs::read_to_string(plane.kubeconfig())?;
        let mut config: Value =
            serde_json::from_str(&text).context("cannot read the administrator's kubeconfig")?;
        config["contexts"][0]["context"]["namespace"] = json!(namespace);
        std::fs::write(path, config.to_string()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What the API server has answered so far.
    pub(super) async fn requests(&self) -> Result<ApiRequests> {
        match self.plane() {
            Some(plane) => Ok(plane.api_requests().await?),
            None => Ok(ApiRequests::default()),
        }
    }

    /// What a part of the control plane has used.
    pub(super) fn used(&self, part: Part) -> Result<Used> {
        let Some(plane) = self.plane() else { return Ok(Used::default()) };
        used(plane.process_id(part).with_context(|| format!("{part} has ended"))?)
    }

    /// Where the API server spends its processor time during the next `seconds`, as a file for `go tool pprof`.
    pub(super) fn profile(
        &self,
        seconds: u64,
        file: &Path,
    ) -> Result<impl Future<Output = Result<()>> + use<>> {
        let (client, file) = (self.client.clone(), file.to_owned());
        ensure!(self.plane().is_some(), "the embedded API server has no profile of its own");
        let path = format!("/debug/pprof/profile?seconds={seconds}");
        let request = http::Request::get(&path).body(kube::client::Body::empty())?;
        Ok(async move {
            let answer = client.send(request).await.with_context(|| format!("cannot read {path}"))?;
            ensure!(answer.status().is_success(), "the API server answers {} to {path}", answer.status());
            let profile = answer.into_body().collect().await?.to_bytes();
            std::fs::write(&file, profile).with_context(|| format!("cannot write {}", file.display()))
        })
    }

    /// How many connections the API server has; nothing of an embedded one.
    pub(super) fn connections(&self) -> Result<Option<usize>> {
        let Some(plane) = self.plane() else { return Ok(None) };
        let url = plane.url();
        let port: Option<u16> = url.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.with_context(|| format!("the API server's address {url} has no port"))?;
        let mut count = 0;
        for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
            count += text.lines().filter(|line| is_connected_to(line, port)).count();
        }
        Ok(Some(count))
    }

    /// How large etcd's file is, in bytes.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(super) fn database(&self) -> Result<f64> {
        let Some(plane) = self.plane() else { return Ok(0.0) };
        let file = plane.directory().join("etcd/member/snap/db");
        let size = std::fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.len();
        Ok(size as f64)
    }
}

/// Whether a line of the kernel's list of sockets is the near end of a connection to this port that is established.
fn is_connected_to(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace();
    let (remote, state) = (fields.nth(2).unwrap_or_default(), fields.next());
    remote.ends_with(&format!(":{port:04X}")) && state == Some("01")
}

/// What a process has used.
pub(super) fn used(pid: u32) -> Result<Used> {
    let pid = i32::try_from(pid)?;
    Ok(Used { processor: processor_time(pid)?.0, memory: resident(pid)? })
}

/// Those who make pods, and claims if pods keep addresses by them.
#[derive(Clone)]
pub(super) struct People {
    pods: Api<Pod>,
    claims: Api<IPAMClaim>,
    kind: Kind,
    networks: usize,
}

impl People {
    pub(super) fn new(client: &Client, kind: Kind, networks: usize) -> Self {
        let pods = Api::namespaced(client.clone(), NAMESPACE);
        Self { pods, claims: Api::namespaced(client.clone(), NAMESPACE), kind, networks }
    }

    /// Makes a pod on a node.
    pub(super) async fn make(&self, node: usize, name: &str) -> Result<()> {
        if self.kind == Kind::Claims {
            for network in 0..self.networks {
                let spec = json!({"network": kind::network(network), "interface": kind::interface(network)});
                let claim = json!({"metadata": {"name": kind::claim(name, network)}, "spec": spec});
                create(&self.claims, claim).await?;
            }
        }
        let annotations = if self.kind == Kind::Claims { self.selection(name) } else { json!({}) };
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": kind::node(node), "containers": [{"name": "main", "image": "none"}]},
        });
        create(&self.pods, pod).await
    }

    /// The annotation by which a pod refers to its claims.
    fn selection(&self, name: &str) -> Value {
        let selected = (0..self.networks).map(|network| {
            json!({
                "name": kind::network(network), "namespace": NAMESPACE, "interface": kind::interface(network),
                "ipam-claim-reference": kind::claim(name, network),
            })
        });
        let selected: Value = selected.collect();
        json!({"k8s.v1.cni.cncf.io/networks": selected.to_string()})
    }

    /// Deletes a pod and its claims.
    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        let how = DeleteParams::default().grace_period(0);
        self.pods.delete(name, &how).await.with_context(|| format!("cannot delete pod {name}"))?;
        let claims = if self.kind == Kind::Claims { self.networks } else { 0 };
        for claim in (0..claims).map(|network| kind::claim(name, network)) {
            let gone = self.claims.delete(&claim, &DeleteParams::default()).await;
            gone.with_context(|| format!("cannot delete claim {claim}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_connected_to;

    #[test]
    fn established_connections_are_counted_at_their_near_end() {
        let near = "  1: 0100007F:A1B2 0100007F:192B 01 00000000:00000000 00:00000000 00000000 0 0 1";
        let far = "  2: 0100007F:192B 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000 0 0 2";
        let closing = "  3: 0100007F:A1B3 0100007F:192B 06 00000000:00000000 00:00000000 00000000 0 0 3";
        let counted = [near, far, closing, "  sl  local_address rem_address   st", ""]
            .map(|line| is_connected_to(line, 0x192B));
        assert_eq!(counted, [true, false, false, false, false]);
    }
}
