//! The Helm chart, with the real helm: what it renders, and how it is installed, upgraded, rolled back and uninstalled on a real
//! cluster of three nodes while pods run, and taken off its nodes. Needs root; builds the image.

mod leaving;
mod rendering;
mod takeover;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tenure_api::coil::AddressBlock;
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::wait::{PATIENCE, eventually};
use tenure_tests::chart::Helm;
use tenure_tests::installed::{await_pods, pods, product, start_pods, three_nodes};
use tenure_tests::pod_traffic::{Connection, Namespaces};
use tenure_tests::steps::Steps;

const PODS: usize = 24;
/// What every command that changes the release has.
const RELEASE: [&str; 5] = ["--namespace=kube-system", "--wait", "--timeout=10m", "-o", "json"];
const POOLS: &str = "plain/crds/coil.cybozu.com_addresspools.yaml";
const DESCRIPTION: &str = "Blocks that nodes own";
const LATER: &str = "Blocks that nodes own, in a later version";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pods_live_through_upgrade_rollback_and_uninstall_and_removal_leaves_nothing() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    live(&cluster, &steps).await.inspect_err(|_| cluster.keep_logs())
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let helm = Helm::new(Some(cluster.control_plane().kubeconfig())).await?;
    let [a, b, ..] = cluster.machine().octets();
    leaving::prepare(cluster)?;
    let before = leaving::nodes(cluster)?;
    let package = helm.package().await?;
    let chart = package.to_str().context("a path")?;
    let pool = format!("pool.subnets[0].ipv4={a}.{b}.64.0/18");
    let install = [&["install", "tenure", chart, "--set", &pool], &RELEASE[..]].concat();
    helm.run(&install).await?;
    cluster.ready(PATIENCE).await?;
    steps.done("helm install: the nodes are ready by our network");
    start_pods(cluster, PODS).await?;
    let all = Running::now(cluster).await?;
    steps.done("pods run");

    // Other values, and a kind that has changed.
    let later = helm.later(&package, POOLS, |text| text.replace(DESCRIPTION, LATER))?;
    let values =
        ["--reset-then-reuse-values", "--set", "cooling=20s", "--set", "agent.resources.limits.memory=512Mi"];
    let upgrade = [&["upgrade", "tenure", &later], &values[..], &RELEASE].concat();
    let agents = agents(cluster).await?;
    helm.run(&upgrade).await?;
    await_new_agents(cluster, &agents).await?;
    let agents = self::agents(cluster).await?;
    ensure!(flags(cluster, "daemonset/tenured").await?.contains("--cooling=20s"));
    ensure!(flags(cluster, "deployment/tenure-controller").await?.contains("--cooling=20s"));
    ensure!(definition(cluster).await?.contains(LATER), "the upgrade has not changed the kind");
    all.go_on(cluster, PODS + 3).await?;
    steps.done("helm upgrade: agents were replaced, pods went on");

    let all = Running::now(cluster).await?;
    helm.run(&["rollback", "tenure", "1", "--namespace=kube-system", "--wait", "--timeout=10m"]).await?;
    await_new_agents(cluster, &agents).await?;
    ensure!(!flags(cluster, "daemonset/tenured").await?.contains("--cooling"));
    ensure!(!definition(cluster).await?.contains(LATER), "the rollback has not changed the kind back");
    all.go_on(cluster, PODS + 6).await?;
    steps.done("helm rollback: agents were replaced, pods went on");

    let all = Running::now(cluster).await?;
    helm.run(&["uninstall", "tenure", "--namespace=kube-system", "--wait", "--timeout=10m"]).await?;
    eventually("the agents are gone", async || {
        Ok(agents_or_none(cluster).await?.is_some_and(|agents| agents.is_empty()).then_some(()))
    })
    .await?;
    ensure!(blocks(cluster).await?.is_superset(&all.blocks), "blocks went with the chart");
    let left = cluster
        .kubectl(&["get", "addresspools,clusterroles,validatingadmissionpolicies,flowschemas", "-o", "name"])
        .await?;
    let left: Vec<&str> =
        left.lines().filter(|name| name.contains("tenure") || name.contains("coil")).collect();
    ensure!(left == ["addresspool.coil.cybozu.com/default"], "{left:?}");
    steps.done("helm uninstall: the kinds and their objects stay, and pods answer each other");

    // Again: it takes over what it has left.
    helm.run(&install).await?;
    all.go_on(cluster, PODS + 9).await?;
    steps.done("installed again: the same pods, blocks and addresses");

    leaving::it_stays_while_pods_have_addresses(cluster, &helm, chart).await?;
    steps.done("taking it off was refused while pods run, and they go on");
    leaving::nothing_is_left(cluster, &helm, chart, &before).await?;
    steps.done("nothing is left on the nodes, and no object");
    Ok(())
}

/// The pods that run, the blocks, and connections between the nodes.
struct Running {
    pods: BTreeSet<tenure_tests::installed::Pod>,
    blocks: BTreeSet<String>,
    connections: Vec<Connection>,
}

impl Running {
    async fn now(cluster: &Cluster) -> Result<Self> {
        let (pods, namespaces) = (pods(cluster).await?, Namespaces::find(cluster)?);
        let one_of =
            |node: &str| pods.iter().find(|pod| pod.node == node).map(|pod| pod.address).context("a pod");
        let mut connections = Vec::new();
        for from in cluster.nodes() {
            for to in cluster.nodes().filter(|to| to.name() > from.name()) {
                connections.push(namespaces.connect(one_of(from.name())?, one_of(to.name())?)?);
            }
        }
        Ok(Self { blocks: blocks(cluster).await?, pods, connections })
    }

    /// Nothing has happened to them, and new pods of the Deployment get addresses that nobody has.
    async fn go_on(self, cluster: &Cluster, count: usize) -> Result<()> {
        cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={count}")]).await?;
        await_pods(cluster, count).await?;
        for connection in self.connections {
            let exchanged = connection.end()?;
            ensure!(exchanged.rounds > 10, "{exchanged:?}");
        }
        let after = pods(cluster).await?;
        ensure!(
            after.is_superset(&self.pods),
            "lost, moved or restarted: {:?}",
            self.pods.difference(&after)
        );
        let addresses: BTreeSet<_> = after.iter().map(|pod| pod.address).collect();
        ensure!(after.len() == count && addresses.len() == count, "an address has two holders: {after:?}");
        ensure!(blocks(cluster).await?.is_superset(&self.blocks), "blocks are gone");
        let namespaces = Namespaces::find(cluster)?;
        let pings = tokio::task::spawn_blocking(move || namespaces.all_reach_all()).await??;
        ensure!(pings == count * count);
        Ok(())
    }
}

async fn agents_or_none(cluster: &Cluster) -> Result<Option<BTreeSet<String>>> {
    product(cluster, "tenured").await
}

async fn agents(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let agents = eventually("the agents are ready", async || agents_or_none(cluster).await).await?;
    ensure!(agents.len() == 3, "{agents:?}");
    Ok(agents)
}

async fn await_new_agents(cluster: &Cluster, old: &BTreeSet<String>) -> Result<()> {
    eventually("three new agents are ready", async || {
        let now = agents_or_none(cluster).await?;
        Ok(now.filter(|now| now.len() == 3 && now.is_disjoint(old)).map(drop))
    })
    .await
}

/// The blocks, each by name and UID.
async fn blocks(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let blocks: Api<AddressBlock> = Api::all(cluster.client()?);
    let listed = blocks.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(|block| format!("{} {:?}", block.name_any(), block.uid())).collect())
}

/// The flags of a program, as its object has them.
async fn flags(cluster: &Cluster, what: &str) -> Result<String> {
    let flags = "jsonpath={.spec.template.spec.containers[0].args}";
    Ok(cluster.kubectl(&["get", what, "-n", "kube-system", "-o", flags]).await?)
}

async fn definition(cluster: &Cluster) -> Result<String> {
    let told = cluster.kubectl(&["get", "crd/addresspools.coil.cybozu.com", "-o", "json"]).await?;
    Ok(serde_json::from_str::<Value>(&told)?["spec"].to_string())
}
