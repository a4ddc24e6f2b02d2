//! A real cluster of three nodes with the product installed as a user would, its pods, and what can be asked of it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::{Cluster, ClusterOptions, CniChoice};
use tenure_testbed::wait::PATIENCE;

use crate::steps::Steps;

pub const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Pods that tell their names over HTTP, and a Service for them.
const PODS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: COUNT
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: tenure.test/busybox:1
          command: [sh, -c, "hostname >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// A pod, as far as the test cares. Two that are equal are the same one, which nothing has happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub node: String,
    pub address: Ipv4Addr,
    pub restarts: i32,
}

/// Builds the image, as a user would, if it is not up to date. `TENURE_IMAGE` names another one to try instead.
pub async fn image() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("TENURE_IMAGE") {
        return Ok(given.into());
    }
    let made = tokio::task::spawn_blocking(|| {
        Command::new(env!("CARGO"))
            .args(["xtask", "image", "--profile", "quick"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .output()
    });
    let made = made.await?.context("cargo xtask image")?;
    ensure!(made.status.success(), "cargo xtask image: {}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8(made.stdout)?;
    Ok(said.lines().next().context("cargo xtask image says where the image is")?.into())
}

/// Three nodes without a network that have the image.
pub async fn three_nodes(steps: &Steps) -> Result<Cluster> {
    let image = image().await?;
    steps.done("the image is there");
    let cluster = Cluster::start(ClusterOptions { nodes: 3, cni: CniChoice::None }).await?;
    cluster.import_saved(&image).await?;
    steps.done("three nodes without a network have the image");
    Ok(cluster)
}

/// Installs the product and a pool as a user would, and waits until the nodes are ready by it.
pub async fn install(cluster: &Cluster) -> Result<()> {
    install_from(cluster, DEPLOY).await
}

/// The same, with addresses of both families.
pub async fn install_dual_stack(cluster: &Cluster) -> Result<()> {
    let ipv6 = format!("\n      ipv6: {}/114", cluster.ipv6(0x4000));
    install_with(cluster, DEPLOY, &ipv6).await
}

/// The same, by a kustomization that has [`DEPLOY`] in it.
pub async fn install_from(cluster: &Cluster, kustomization: &str) -> Result<()> {
    install_with(cluster, kustomization, "").await
}

async fn install_with(cluster: &Cluster, kustomization: &str, ipv6: &str) -> Result<()> {
    cluster.kubectl(&["apply", "-k", kustomization]).await?;
    let established =
        ["wait", "crd/addresspools.coil.cybozu.com", "--for=condition=Established", "--timeout=300s"];
    cluster.kubectl(&established).await?;
    // The example, with addresses of which this cluster knows the way.
    let pool = std::fs::read_to_string(format!("{DEPLOY}/examples/pool.yaml"))?;
    let [a, b, ..] = cluster.machine().octets();
    let range = format!("{a}.{b}.64.0/18{ipv6}");
    ensure!(pool.contains("10.100.0.0/16"));
    cluster.apply(&pool.replace("10.100.0.0/16", &range)).await?;
    for what in ["daemonset/tenured", "deployment/tenure-controller"] {
        cluster.kubectl(&["rollout", "status", what, "-n", "kube-system", "--timeout=300s"]).await?;
    }
    cluster.ready(PATIENCE).await?;
    Ok(())
}

/// Makes `count` pods and waits until they run; how long that took.
pub async fn start_pods(cluster: &Cluster, count: usize) -> Result<Duration> {
    let before = SystemClock.now();
    cluster.apply(&PODS.replace("COUNT", &count.to_string())).await?;
    await_pods(cluster, count).await?;
    Ok(SystemClock.now().since(before))
}

pub async fn await_pods(cluster: &Cluster, count: usize) -> Result<()> {
    let all = format!("--for=jsonpath={{.status.readyReplicas}}={count}");
    cluster.kubectl(&["wait", "deployment/web", &all, "--timeout=300s"]).await?;
    Ok(())
}

/// The pods of the Deployment.
pub async fn pods(cluster: &Cluster) -> Result<BTreeSet<Pod>> {
    let pods: Api<core::Pod> = Api::namespaced(cluster.client()?, "default");
    let listed = pods.list(&ListParams::default().labels("app=web")).await?;
    listed.items.iter().map(|pod| pod_of(pod).with_context(|| format!("pod {pod:?}"))).collect()
}

fn pod_of(pod: &core::Pod) -> Option<Pod> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    Some(Pod {
        name: pod.name_any(),
        uid: pod.uid()?,
        node: spec.node_name.clone()?,
        address: status.pod_ip.as_ref()?.parse().ok()?,
        restarts: status.container_statuses.as_ref()?.first()?.restart_count,
    })
}

/// The UIDs of the product's pods with this name, if all of them are ready.
pub async fn product(cluster: &Cluster, name: &str) -> Result<Option<BTreeSet<String>>> {
    let pods: Api<core::Pod> = Api::namespaced(cluster.client()?, "kube-system");
    let listed = pods.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={name}"))).await?;
    let is_ready = |pod: &core::Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        let ready =
            conditions.unwrap_or_default().iter().any(|it| it.type_ == "Ready" && it.status == "True");
        ready && pod.metadata.deletion_timestamp.is_none()
    };
    let all = listed.items.iter().all(is_ready);
    Ok(all.then(|| listed.items.iter().filter_map(ResourceExt::uid).collect()))
}
