//! A real cluster whose machines are those of the fake cloud: aliases become routes between the nodes.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1 as core;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::compute::{Call, FakeCloud, PROJECT, Settings, TOKEN};
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::cloud::Routes;
use tenure_tests::installed::DEPLOY;

/// The zones of the nodes: a move between the last two is one between zones.
const ZONES: [&str; 3] = ["europe-west4-c", "europe-west4-a", "europe-west4-b"];
const REGION: &str = "europe-west4";
const SUBNET: &str = "nodes";
/// The name that the provisioner gives to the pool.
pub const POOL: &str = "ippool-nodes";
/// How long an update takes, as users of the cloud saw it.
const UPDATE: Duration = Duration::from_secs(3);

/// The cloud around a cluster.
pub struct Cloud<'c> {
    cluster: &'c Cluster,
    pub fake: FakeCloud,
    metadata: String,
    /// The names of the nodes, the first of which has no alias addresses.
    pub nodes: Vec<String>,
}

impl<'c> Cloud<'c> {
    /// Makes the cluster's nodes machines of a cloud, with the network that Google's agents configure.
    pub async fn around(cluster: &'c Cluster) -> Result<Self> {
        let update = UPDATE..UPDATE + Duration::from_millis(200);
        let arrival = Duration::from_millis(50)..Duration::from_millis(200);
        let settings = Settings { update, arrival, ..Settings::default() };
        let fake = FakeCloud::start_at(cluster.machine().into(), settings).await?;
        fake.add_subnet(REGION, SUBNET, &format!("{}/24", network_of(cluster.machine())))?;
        let addresses = addresses(cluster).await?;
        let nodes: Vec<String> = cluster.nodes().map(|node| node.name().to_owned()).collect();
        ensure!(nodes.len() == ZONES.len(), "one node in each zone");
        let mut machines = BTreeMap::new();
        for (node, zone) in nodes.iter().zip(ZONES) {
            fake.add_instance(zone, node, SUBNET);
            machines.insert(addresses[node], (zone.to_owned(), node.clone()));
        }
        let metadata = fake.metadata_by_address(machines).await?;
        let hosts: Vec<NetworkNamespace> = std::iter::once(NetworkNamespace::current())
            .chain(
                cluster
                    .nodes()
                    .map(|node| NetworkNamespace::open(node.name(), &node.host().namespace().path())),
            )
            .collect::<Result<_, _>>()?;
        let routes = Routes::new(hosts, addresses);
        fake.on_arrival(move |arrivals| routes.change(arrivals));
        let cloud = Self { cluster, fake, metadata, nodes };
        cloud.mark_nodes().await?;
        cloud.configure_as_google_does()?;
        Ok(cloud)
    }

    /// What the cloud's own controllers write into the nodes' objects, and the label of docs/gcp.md.
    async fn mark_nodes(&self) -> Result<()> {
        let nodes: Api<core::Node> = Api::all(self.cluster.client()?);
        for (at, node) in self.nodes.iter().enumerate() {
            let mut patch = json!({"spec": {"providerID": format!("gce://{PROJECT}/{}/{node}", ZONES[at])}});
            if at > 0 {
                patch["metadata"] = json!({"labels": {"tenure/alias-addresses": "true"}});
            }
            nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    }

    /// Gives each node its configuration under the name and in the form of Google's agents.
    fn configure_as_google_does(&self) -> Result<()> {
        for node in self.cluster.nodes() {
            let own = node.path("/etc/cni/net.d/10-testbed.conflist")?;
            let mut list: Value = serde_json::from_str(&fs::read_to_string(&own)?)?;
            list["name"] = "gke-pod-network".into();
            list["cniVersion"] = "0.3.1".into();
            node.write("/etc/cni/net.d/10-gke-ptp.conflist", &list.to_string())?;
            fs::remove_file(own)?;
        }
        Ok(())
    }

    /// Runs `tenure provision gcp` on a machine of the cloud, as a user would.
    pub fn provision(&self, tenure: &Path) -> Result<()> {
        let [a, b, ..] = self.cluster.machine().octets();
        let node = self.cluster.node(1);
        let kubeconfig = self.cluster.control_plane().kubeconfig();
        let ran = node
            .host()
            .command(tenure)
            .args(["provision", "gcp", "--poll=50ms", &format!("--cidr={a}.{b}.192.0/22")])
            .args(["--kubeconfig", kubeconfig.to_str().context("a path")?])
            .args(["--metadata-host", &self.metadata, "--compute-endpoint", &self.fake.compute()])
            .args(["--connectivity-endpoint", &self.fake.connectivity()])
            .output()?;
        ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Ok(())
    }

    /// Installs the product as docs/gcp.md says, with the fake's addresses.
    pub async fn install(&self) -> Result<()> {
        let directory = self.kustomization()?;
        self.cluster.kubectl(&["apply", "-k", directory.to_str().context("a path")?]).await?;
        for what in ["deployment/tenure-controller", "daemonset/tenured"] {
            self.cluster.kubectl(&["rollout", "status", what, "-n", "kube-system", "--timeout=300s"]).await?;
        }
        self.cluster.ready(PATIENCE).await?;
        Ok(())
    }

    /// Installs the kinds, which the provisioner needs.
    pub async fn install_kinds(&self) -> Result<()> {
        for kind in ["ippools", "ipledgers", "nodealiases"] {
            let file = format!("{DEPLOY}/crds/ipam.gcp-cni.cast.ai_{kind}.yaml");
            self.cluster.kubectl(&["apply", "--server-side", "-f", &file]).await?;
            let established = format!("crd/{kind}.ipam.gcp-cni.cast.ai");
            let wait = ["wait", &established, "--for=condition=Established", "--timeout=300s"];
            self.cluster.kubectl(&wait).await?;
        }
        Ok(())
    }

    fn kustomization(&self) -> Result<PathBuf> {
        let directory = self.cluster.directory().join("kustomization");
        fs::create_dir_all(&directory)?;
        // A base must be a relative path.
        let up = directory.components().count() - 1;
        let deploy = fs::canonicalize(DEPLOY)?;
        let base = format!("{}{}", "../".repeat(up), deploy.strip_prefix("/")?.display());
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let flag = |flag: String| add("/spec/template/spec/containers/0/args/-", flag.into());
        let patch = |kind: &str, name: &str, all: Vec<Value>| json!({"target": {"kind": kind, "name": name}, "patch": Value::from(all).to_string()});
        // The token comes from a file, because the fake's metadata server knows machines and no pods.
        let token = json!({"name": "token", "secret": {"secretName": "cloud-token"}});
        let mount = json!({"name": "token", "mountPath": "/token"});
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [base], "components": [format!("{base}/optional/gcp")],
            "secretGenerator": [{
                "name": "cloud-token", "namespace": "kube-system", "literals": [format!("token={TOKEN}")],
                "options": {"disableNameSuffixHash": true},
            }],
            "patches": [
                patch("Deployment", "tenure-controller", vec![
                    flag(format!("--cloud-endpoint={}", self.fake.compute())),
                    flag("--cloud-token-file=/token/token".to_owned()),
                    add("/spec/template/spec/volumes", json!([token])),
                    add("/spec/template/spec/containers/0/volumeMounts", json!([mount])),
                ]),
                patch("DaemonSet", "tenured", vec![flag(format!("--metadata-host={}", self.metadata))]),
                // Here programs can be started elsewhere, too.
                json!({"patch": json!({
                    "apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": {"name": "tenured", "namespace": "kube-system"},
                    "spec": {"template": {"spec": {"volumes": [{"name": "plugins", "hostPath": {"path": "/opt/cni/bin"}}]}}},
                }).to_string()}),
            ],
        });
        fs::write(directory.join("kustomization.yaml"), text.to_string())?;
        Ok(directory)
    }

    /// The aliases that the cloud has for a node.
    pub fn aliases(&self, node: usize) -> std::collections::BTreeSet<String> {
        self.fake.aliases(ZONES[node], &self.nodes[node])
    }

    /// How many updates of interfaces the cloud has accepted.
    pub fn updates(&self) -> usize {
        self.fake.accepted(Call::UpdateInterface)
    }
}

async fn addresses(cluster: &Cluster) -> Result<BTreeMap<String, IpAddr>> {
    let nodes: Api<core::Node> = Api::all(cluster.client()?);
    let listed = nodes.list(&ListParams::default()).await?;
    let address = |node: &core::Node| {
        let all = node.status.as_ref()?.addresses.as_ref()?;
        let found = all.iter().filter(|it| it.type_ == "InternalIP").find_map(|it| it.address.parse().ok());
        found.filter(IpAddr::is_ipv4)
    };
    listed.iter().map(|node| Ok((node.name_any(), address(node).context("a node has an address")?))).collect()
}

fn network_of(address: std::net::Ipv4Addr) -> std::net::Ipv4Addr {
    let [a, b, c, _] = address.octets();
    std::net::Ipv4Addr::new(a, b, c, 0)
}
