//! Installed as a user would install it: a cluster of three real nodes without a network gets our image, `kubectl apply -k
//! deploy` and a pool, and nothing else. Needs root; builds the image.

mod reader;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tenure_api::coil::{AddressBlock, BlockRequest};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::{Cluster, ClusterOptions, CniChoice};

use tenure_testbed::wait::eventually;
use tenure_tests::installed::{DEPLOY, await_pods, pods, product, start_pods, three_nodes};
use tenure_tests::pod_traffic::{Connection, Namespaces, get};
use tenure_tests::reference::metrics;
use tenure_tests::steps::Steps;

const PODS: usize = 90;
const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn applied_by_kubectl_it_serves_ninety_pods_through_an_upgrade_and_leaves_nothing() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    let ours = ended(&cluster, live(&cluster, &steps).await)?;
    drop(cluster);
    steps.done("ended");

    let cluster = Cluster::start(ClusterOptions { nodes: 3, cni: CniChoice::PtpHostLocal }).await?;
    let peers = ended(&cluster, compare(&cluster).await)?;
    steps.done("the same pods ran with ptp and host-local");
    // Past the capture: this is what one wants to read in the log of a run.
    writeln!(
        std::io::stderr(),
        "{PODS} pods on three nodes: started in {:.1} s, deleted in {:.1} s; with ptp and host-local {:.1} s and {:.1} s",
        ours.started.as_secs_f64(),
        ours.deleted.as_secs_f64(),
        peers.started.as_secs_f64(),
        peers.deleted.as_secs_f64(),
    )?;
    Ok(())
}

/// How long all pods took.
struct Times {
    started: Duration,
    deleted: Duration,
}

/// Keeps the logs if something went wrong.
fn ended<T>(cluster: &Cluster, outcome: Result<T>) -> Result<T> {
    outcome.inspect_err(|_| cluster.keep_logs())
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<Times> {
    all_of_the_product_becomes_ready_and_so_do_the_nodes(cluster).await?;
    steps.done("kubectl apply: the nodes are ready by our network");
    let started = start_pods(cluster, PODS).await?;
    steps.done("90 pods run");
    let namespaces = pods_of_all_nodes_reach_each_other_and_a_service(cluster).await?;
    steps.done("each reaches each, and the Service");
    the_export_table_has_each_nodes_blocks(cluster).await?;
    let add = agents_and_controllers_tell_their_metrics(cluster)?;
    steps.done(&format!("blocks are exported, metrics told: an ADD took the agent {add:?} on average"));
    an_upgrade_under_traffic_loses_neither_pod_nor_connection(cluster, &namespaces, steps).await?;
    all_agents_deleted_at_once_come_back_to_the_same_blocks(cluster).await?;
    steps.done("all agents were deleted and are back");
    drop(namespaces);
    let deleted = no_block_is_left_when_pods_and_pool_are_deleted(cluster).await?;
    steps.done("pods and pool are deleted, no block is left");
    nothing_is_left_on_the_nodes(cluster).await?;
    cluster.kubectl(&["delete", "-k", DEPLOY, "--wait", "--timeout=300s"]).await?;
    // These kinds may be somebody else's: they stay until people say otherwise, as the guide has it.
    let of_others = [
        "ipamclaims.k8s.cni.cncf.io",
        "nodenetworkconfigurationpolicies.nmstate.io",
        "nodenetworkconfigurationenactments.nmstate.io",
    ];
    let delete = [&["delete", "crd", "--timeout=300s"], &of_others[..]].concat();
    cluster.kubectl(&delete).await?;
    let left = cluster.kubectl(&["get", "pods,crd", "-A", "-o", "name"]).await?;
    ensure!(left.trim().is_empty(), "left: {left}");
    steps.done("everything is deleted");
    Ok(Times { started, deleted })
}

async fn compare(cluster: &Cluster) -> Result<Times> {
    let started = start_pods(cluster, PODS).await?;
    Ok(Times { started, deleted: delete_pods(cluster).await? })
}

/// Deletes all pods and waits until they are gone; how long that took.
async fn delete_pods(cluster: &Cluster) -> Result<Duration> {
    let before = SystemClock.now();
    cluster
        .kubectl(&["delete", "deployment/web", "service/web", "--cascade=foreground", "--timeout=300s"])
        .await?;
    Ok(SystemClock.now().since(before))
}

async fn all_of_the_product_becomes_ready_and_so_do_the_nodes(cluster: &Cluster) -> Result<()> {
    reader::follow(cluster, "docs/start-cluster.md").await?;
    let agents = eventually("agents are ready", async || product(cluster, "tenured").await).await?;
    ensure!(agents.len() == 3, "{agents:?}");
    Ok(())
}

async fn pods_of_all_nodes_reach_each_other_and_a_service(cluster: &Cluster) -> Result<Namespaces> {
    let pods = pods(cluster).await?;
    let nodes: BTreeSet<_> = pods.iter().map(|pod| pod.node.clone()).collect();
    ensure!(nodes.len() == 3, "pods are on {nodes:?} only");
    let service = cluster.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]).await?;
    let service = SocketAddr::new(service.parse()?, 80);
    let namespaces = Namespaces::find(cluster)?;
    let (here, there): (BTreeSet<_>, BTreeSet<_>) =
        (namespaces.addresses().collect(), pods.iter().map(|pod| pod.address).collect());
    ensure!(here == there && there.len() == PODS, "the kernel has {here:?}, the API server {there:?}");
    tokio::task::spawn_blocking(move || {
        let pings = namespaces.all_reach_all()?;
        ensure!(pings == PODS * PODS);
        // Each pod of one node asks one of the next node for its name; the Service answers everyone.
        let mut elsewhere = 0;
        for (index, pod) in pods.iter().enumerate() {
            let next = pods.iter().skip(index).chain(&pods).find(|other| other.node != pod.node);
            let other = next.context("a pod of another node")?;
            let said = namespaces.get(pod.address, SocketAddr::from((other.address, 8080)))?;
            ensure!(said == other.name, "{} said {said:?}", other.name);
            let said = namespaces.get(pod.address, service)?;
            let server = pods.iter().find(|pod| pod.name == said).with_context(|| format!("pod {said:?}"))?;
            elsewhere += usize::from(server.node != pod.node);
        }
        ensure!(elsewhere > 0, "the Service was never answered from another node");
        Ok(namespaces)
    })
    .await?
}

/// The blocks by name, UID and node.
async fn blocks(cluster: &Cluster) -> Result<BTreeSet<(String, String, String)>> {
    let blocks: Api<AddressBlock> = Api::all(cluster.client()?);
    let listed = blocks.list(&ListParams::default()).await?;
    let facts = |block: &AddressBlock| Some((block.name_any(), block.uid()?, block.node()?.to_owned()));
    Ok(listed.items.iter().filter_map(facts).collect())
}

async fn the_export_table_has_each_nodes_blocks(cluster: &Cluster) -> Result<()> {
    let all: Api<AddressBlock> = Api::all(cluster.client()?);
    let all = all.list(&ListParams::default()).await?;
    for node in cluster.nodes() {
        let own: BTreeSet<&str> = all
            .items
            .iter()
            .filter(|it| it.node() == Some(node.name()))
            .filter_map(|it| it.spec.ipv4.as_deref())
            .collect();
        let routes = node.host().namespace().ip_json(&["-4", "route", "show", "table", "119"])?;
        let exported: BTreeSet<&str> =
            routes.as_array().into_iter().flatten().filter_map(|route| route["dst"].as_str()).collect();
        ensure!(!own.is_empty() && own == exported, "{} has {own:?} and exports {exported:?}", node.name());
    }
    Ok(())
}

/// How long the agents took for an ADD, on average.
fn agents_and_controllers_tell_their_metrics(cluster: &Cluster) -> Result<Duration> {
    let (mut controllers, mut seconds, mut adds) = (Vec::new(), 0.0, 0.0);
    for node in cluster.nodes() {
        let ask = |port| node.host().run(|| get(SocketAddr::from((node.address(), port)), "/metrics"));
        let agent = ask(9384)??;
        is_metrics(&agent).with_context(|| format!("the agent of {}: {agent}", node.name()))?;
        seconds += value(&agent, r#"tenure_agent_call_seconds_sum{verb="ADD"}"#)?;
        adds += value(&agent, r#"tenure_agent_call_seconds_count{verb="ADD"}"#)?;
        if let Ok(controller) = ask(9386)? {
            is_metrics(&controller)
                .with_context(|| format!("the controller on {}: {controller}", node.name()))?;
            controllers.push(controller);
        }
    }
    let leaders: Vec<_> =
        controllers.iter().filter(|told| told.contains("tenure_controller_leader 1")).collect();
    ensure!(controllers.len() == 2 && leaders.len() == 1, "{controllers:?}");
    ensure!(leaders[0].contains("tenure_pool_blocks{"), "{}", leaders[0]);
    Ok(Duration::from_secs_f64(seconds / adds))
}

/// The value of a metric.
fn value(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("{name} is not told: {metrics}"))?.parse()?)
}

/// Whether each line is a comment or a name with a number.
fn is_metrics(text: &str) -> Result<()> {
    let mut values = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').with_context(|| format!("the line {line:?}"))?;
        ensure!(name.starts_with(|c: char| c.is_ascii_lowercase()), "the line {line:?}");
        value.parse::<f64>().with_context(|| format!("the line {line:?}"))?;
        values += 1;
    }
    ensure!(values > 0, "there is none");
    let wrong = metrics::wrong(text);
    ensure!(wrong.is_empty(), "docs/reference/metrics.md: {wrong:?}");
    Ok(())
}

async fn an_upgrade_under_traffic_loses_neither_pod_nor_connection(
    cluster: &Cluster,
    namespaces: &Namespaces,
    steps: &Steps,
) -> Result<()> {
    let before = pods(cluster).await?;
    let (agents, owned) = (product(cluster, "tenured").await?.context("agents")?, blocks(cluster).await?);
    // From a pod of each node to one of each other.
    let one_of =
        |node: &str| before.iter().find(|pod| pod.node == node).map(|pod| pod.address).context("a pod");
    let mut connections: Vec<Connection> = Vec::new();
    for from in cluster.nodes() {
        for to in cluster.nodes().filter(|to| to.name() > from.name()) {
            connections.push(namespaces.connect(one_of(from.name())?, one_of(to.name())?)?);
        }
    }
    cluster.kubectl(&["rollout", "restart", "daemonset/tenured", "-n", "kube-system"]).await?;
    // Pods that come meanwhile wait for their node's agent at most.
    cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={}", PODS + 6)]).await?;
    cluster
        .kubectl(&["rollout", "status", "daemonset/tenured", "-n", "kube-system", "--timeout=300s"])
        .await?;
    await_pods(cluster, PODS + 6).await?;
    for connection in connections {
        let exchanged = connection.end()?;
        ensure!(exchanged.rounds > 100, "{exchanged:?}");
        steps.done(&format!("a connection lived through the upgrade: {exchanged:?}"));
    }
    let replaced = product(cluster, "tenured").await?.context("agents")?;
    ensure!(replaced.len() == 3 && replaced.is_disjoint(&agents), "{replaced:?}");
    let after = pods(cluster).await?;
    ensure!(after.is_superset(&before), "lost, moved or restarted: {:?}", before.difference(&after));
    let addresses: BTreeSet<_> = after.iter().map(|pod| pod.address).collect();
    ensure!(
        after.len() == PODS + 6 && addresses.len() == after.len(),
        "an address has two holders: {after:?}"
    );
    let kept = blocks(cluster).await?;
    ensure!(kept.is_superset(&owned), "blocks that changed: {:?}", owned.difference(&kept));
    steps.done("the agents were replaced, one after the other");
    Ok(())
}

async fn all_agents_deleted_at_once_come_back_to_the_same_blocks(cluster: &Cluster) -> Result<()> {
    let (before, owned) = (product(cluster, "tenured").await?.context("agents")?, blocks(cluster).await?);
    let all = ["delete", "pods", "-n", "kube-system", "-l", "app.kubernetes.io/name=tenured"];
    cluster.kubectl(&all).await?;
    eventually("three new agents are ready", async || {
        let now = product(cluster, "tenured").await?;
        Ok(now.filter(|now| now.len() == 3 && now.is_disjoint(&before)))
    })
    .await?;
    ensure!(blocks(cluster).await? == owned, "the same blocks");
    cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={}", PODS + 9)]).await?;
    await_pods(cluster, PODS + 9).await?;
    let addresses: BTreeSet<_> = pods(cluster).await?.into_iter().map(|pod| pod.address).collect();
    ensure!(addresses.len() == PODS + 9, "{addresses:?}");
    Ok(())
}

async fn no_block_is_left_when_pods_and_pool_are_deleted(cluster: &Cluster) -> Result<Duration> {
    let took = delete_pods(cluster).await?;
    for node in cluster.nodes() {
        eventually(&format!("{} holds nothing", node.name()), async || {
            let told = view_of(cluster, node.name()).await?;
            let (holds, waiting) = (told["holds"].as_array(), told["waiting"].as_array());
            Ok((holds.is_none_or(Vec::is_empty) && waiting.is_none_or(Vec::is_empty)).then_some(()))
        })
        .await?;
    }
    // A node keeps its last block, ready for the next pod, for as long as there is a pool.
    cluster.kubectl(&["delete", "addresspools", "--all", "--timeout=300s"]).await?;
    ensure!(blocks(cluster).await?.is_empty(), "{:?}", blocks(cluster).await?);
    let requests: Api<BlockRequest> = Api::all(cluster.client()?);
    let requests = requests.list(&ListParams::default()).await?;
    ensure!(requests.items.is_empty(), "{:?}", requests.items);
    Ok(took)
}

/// What an agent tells the command line, through the API server; whoever asks the agent itself and is nobody is refused.
async fn view_of(cluster: &Cluster, node: &str) -> Result<Value> {
    let address = cluster.nodes().find(|it| it.name() == node).context("a node")?;
    let refused = address.host().run(|| get(SocketAddr::from((address.address(), 9384)), "/v1/node"))?;
    let refused = refused.err().context("pods and addresses are told to nobody")?.to_string();
    ensure!(refused.contains(" 401 "), "{refused}");
    let mut command = tokio::process::Command::new(TENURE);
    command.args(["node", node, "-o", "json", "--kubeconfig"]).arg(cluster.control_plane().kubeconfig());
    let output = command.env_remove("KUBECONFIG").output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn nothing_is_left_on_the_nodes(cluster: &Cluster) -> Result<()> {
    let [a, b, ..] = cluster.machine().octets();
    for node in cluster.nodes() {
        // Links are deleted in groups, a moment later.
        eventually(&format!("{} is clean", node.name()), async || {
            let namespace = node.host().namespace();
            let links = namespace.ip_json(&["link", "show"])?;
            let links: Vec<&str> =
                links.as_array().into_iter().flatten().filter_map(|link| link["ifname"].as_str()).collect();
            ensure!(links == ["lo", "eth0"], "{links:?}");
            let routes = namespace.ip_json(&["-4", "route", "show", "table", "all"])?;
            let ours = |route: &&Value| {
                route["dst"].as_str().is_some_and(|dst| {
                    dst.starts_with(&format!("{a}.{b}.")) && !dst.starts_with(&format!("{a}.{b}.0."))
                })
            };
            let left: Vec<&Value> = routes.as_array().into_iter().flatten().filter(ours).collect();
            ensure!(left.is_empty(), "{left:?}");
            let namespaces = std::fs::read_dir(node.path("/run/netns")?)?.count();
            let tombstones =
                std::fs::read_dir(node.path("/run/tenure/tombstones")?).map_or(0, Iterator::count);
            ensure!((namespaces, tombstones) == (0, 0), "{namespaces} namespaces, {tombstones} tombstones");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
