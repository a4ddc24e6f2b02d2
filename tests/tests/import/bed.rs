//! A cluster to import into: the embedded API server or the real one, with nodes, pods, and a controller that runs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::AddressBlock;
use tenure_controller_testbed as controllers;
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_tests::definitions::define;
use tokio::process::{Child, Command};

const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");

/// The API server that is imported into.
enum Serving {
    Embedded { _server: Server },
    Real(Box<ControlPlane>),
}

/// The bed.
pub(crate) struct Bed {
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    serving: Serving,
    _directory: tempfile::TempDir,
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) notes: String,
}

impl Ended {
    /// What it wrote, if it succeeded.
    pub(crate) fn ok(self) -> Result<String> {
        ensure!(self.code == 0, "{self:?}");
        Ok(self.text)
    }
}

impl Bed {
    pub(crate) async fn embedded() -> Result<Self> {
        let api: LocalApi = controllers::server(7).await;
        let client = api.client();
        let server = Server::loopback(api, "127.0.0.1:0".parse()?).await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let address = server.address().context("an address")?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "local",
            "clusters": [{"name": "local", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "local", "user": {}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        });
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { client, kubeconfig, serving: Serving::Embedded { _server: server }, _directory: directory })
    }

    pub(crate) async fn real() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default().without_controller_manager()).await?;
        let client = plane.client()?;
        define(&client, tenure_api::crds()).await?;
        let kubeconfig = plane.kubeconfig().to_owned();
        let serving = Serving::Real(Box::new(plane));
        Ok(Self { client, kubeconfig, serving, _directory: tempfile::tempdir()? })
    }

    /// Starts `tenure import`.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new(TENURE);
        command.arg("import").args(arguments);
        if !arguments.contains(&"--offline") {
            command.arg("--kubeconfig").arg(&self.kubeconfig);
        }
        command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").env("HOME", "/nowhere");
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// Runs it to its end.
    pub(crate) async fn import(&self, arguments: &[&str]) -> Result<Ended> {
        ended(self.start(arguments)?).await
    }

    /// Applies manifests as kubectl does; on the real server it is kubectl.
    pub(crate) async fn apply(&self, yaml: &str) -> Result<()> {
        if let Serving::Real(plane) = &self.serving {
            return Ok(plane.kubectl_with_input(&["apply", "-f", "-"], yaml).await.map(drop)?);
        }
        for object in documents(yaml)? {
            let object: DynamicObject = serde_json::from_value(object)?;
            let types = object.types.clone().context("a kind")?;
            let kind = GroupVersionKind::try_from(&types)?;
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let name = object.name_any();
                    api.patch(&name, &PatchParams::default(), &Patch::Merge(&object)).await?;
                }
                created => drop(created?),
            }
        }
        Ok(())
    }

    pub(crate) async fn node(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        nodes.create(&PostParams::default(), &node).await?;
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if namespaces.get_opt(name).await?.is_none() {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            namespaces.create(&PostParams::default(), &namespace).await?;
        }
        Ok(())
    }

    /// A pod that runs with an address that another system gave it.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, node: &str, address: &str) -> Result<()> {
        self.namespace(namespace).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        pods.create(&PostParams::default(), &pod).await?;
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// The pod is gone, as after its containers.
    pub(crate) async fn delete_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    pub(crate) async fn blocks(&self) -> Result<Vec<AddressBlock>> {
        let blocks: Api<AddressBlock> = Api::all(self.client.clone());
        Ok(blocks.list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn reserved(&self) -> Result<BTreeSet<String>> {
        let blocks = self.blocks().await?;
        Ok(blocks.iter().filter(|it| it.is_reserved()).map(ResourceExt::name_any).collect())
    }

    /// No two blocks share an address, and none that can be assigned from has one of `used`.
    pub(crate) async fn check(&self, used: &[&str]) -> Result<()> {
        let used: Vec<IpAddr> = used.iter().map(|it| Ok(it.parse()?)).collect::<Result<_>>()?;
        let mut networks = Vec::new();
        for block in self.blocks().await? {
            let subnet = block.spec.to_subnet()?;
            for network in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
                let found = used.iter().find(|it| !block.is_reserved() && network.contains((**it).into()));
                ensure!(found.is_none(), "{found:?} can be assigned from {}", block.name_any());
                networks.push((network, block.name_any()));
            }
        }
        networks.sort();
        for pair in networks.windows(2) {
            ensure!(!pair[0].0.overlaps(&pair[1].0), "{pair:?} overlap");
        }
        Ok(())
    }

    /// Asks for a block, and returns its name; nothing if the pool is exhausted.
    pub(crate) async fn ask(&self, name: &str, node: &str, pool: &str) -> Result<Option<String>> {
        controllers::ask(&self.client, name, node, pool).await;
        match controllers::answer(&self.client, name).await {
            Ok(block) => Ok(Some(block)),
            Err(reason) if reason == "OutOfBlocks" => Ok(None),
            Err(reason) => bail!("{name}: {reason}"),
        }
    }
}

pub(crate) async fn ended(child: Child) -> Result<Ended> {
    let output = child.wait_with_output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().context("an exit code")?;
    Ok(Ended { code, text: text(&output.stdout), notes: text(&output.stderr) })
}

/// The objects of a stream of YAML documents.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents = yaml.split("---\n").filter(|it| !it.is_empty());
    documents.map(|it| serde_saphyr::from_str(it).with_context(|| it.to_owned())).collect()
}
