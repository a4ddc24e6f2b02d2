//! A cluster that comes from Whereabouts: three real nodes that have its plugin and get Tenure as `docs/whereabouts.md` says, ten
//! networks of macvlan and bridge over all of them, and a caller that does with them what Multus does. Needs root; builds the
//! image.

mod ledgers;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use ipnet::IpNet;
use kube::Client;
use serde_json::{Value, json};
use tenure_api::whereabouts::NodeSlicePool;
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::{Cluster, images};
use tenure_testbed::hosts::{Host, Mounts, NetworkNamespace};

use ledgers::{expected, records, reservations, reserved, slice_pools};
use tenure_testbed::wait::{PATIENCE, eventually};
use tenure_tests::caller::{Attached, find};
use tenure_tests::installed::{DEPLOY, install, product, three_nodes};
use tenure_tests::networks::{APPS, NETS, Network, Wires};
use tenure_tests::steps::Steps;

const PLUGIN: &str = "/opt/cni/bin/whereabouts";
/// A program that is Whereabouts' own as far as we are concerned.
const THEIRS: &str = "#!/bin/sh\necho '{\"code\": 999, \"msg\": \"theirs\"}'\nexit 1\n";
/// Has the command that makes every node's `whereabouts` ours, node by node.
const GUIDE: &str = include_str!("../../../docs/whereabouts.md");
/// The range that Whereabouts gave addresses of.
const POOL: &str = "10.81.0.0-24";
/// What a pod had from Whereabouts.
const KEPT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 81, 0, 7));

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pods_with_ten_networks_on_a_cluster_that_had_whereabouts() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    let outcome = live(&cluster, &steps).await;
    outcome.inspect_err(|_| cluster.keep_logs())
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<()> {
    the_plugin_of_whereabouts_stays_until_the_operator_replaces_it(cluster, steps).await?;
    let networks = tenure_tests::networks::all();
    let wires = Wires::new(cluster, &networks)?;
    let slices = define(cluster, &networks).await?;
    let stage = Stage { cluster, client: cluster.client()?, networks, slices };
    steps.done("ten networks are defined, and nodes have slices");
    start_pods(cluster, &stage.networks).await?;
    steps.done("pods run");
    let forgotten = a_pod_has_ten_networks_and_goes_without_a_del(&stage).await?;
    steps.done("one pod had all networks, and is gone without a DEL");
    let mut pods = pods_of_all_nodes_get_theirs_at_once(&stage).await?;
    steps.done("seven pods got ten networks each, at once");
    stage.says(&pods, Some(&forgotten)).await?;
    steps.done("pools, slices and reservations say who has what");
    tokio::task::block_in_place(|| all_reach_all(&pods))?;
    steps.done("each reaches each, on all networks");
    a_new_agent_finds_all_in_order(&stage, &pods).await?;
    steps.done("an agent was replaced; CHECK finds all in order");

    let quiet = pods.pop().context("the quiet one")?;
    delete(cluster, &pods).await?;
    let began = SystemClock.now();
    stage.says([&quiet], Some(&forgotten)).await?;
    let took = SystemClock.now().since(began);
    steps.done(&format!("six pods are deleted, and out of all pools {took:?} after the last DEL"));
    what_was_forgotten_is_released_and_nothing_else(&stage, &quiet).await?;
    steps.done("what no DEL came for is released; a pod without a network status keeps everything");
    without_the_flags_of_the_guide_all_stays_as_it_is(&stage, &quiet).await?;
    steps.done("the flags are taken away, and the plugin is still ours");
    tokio::task::block_in_place(|| quiet.del())?;
    stage.says([], None).await?;
    cluster.kubectl(&["delete", "network-attachment-definitions", "--all", "-A"]).await?;
    eventually("no slices are left", async || slice_pools(cluster, &[]).await.map(Some)).await?;
    drop(wires);
    steps.done("nothing is left");
    Ok(())
}

/// A cluster with ten networks.
struct Stage<'c> {
    cluster: &'c Cluster,
    client: Client,
    networks: Vec<Network>,
    slices: BTreeMap<String, NodeSlicePool>,
}

impl<'c> Stage<'c> {
    /// Waits until pools, slices and reservations are exactly what these pods have; what `going` had may be there or not.
    async fn says<'a>(
        &self,
        attached: impl IntoIterator<Item = &'a Attached<'c>> + Clone,
        going: Option<&'a Attached<'c>>,
    ) -> Result<()>
    where
        'c: 'a,
    {
        let (networks, slices) = (&self.networks, &self.slices);
        let (least, least_reserved) =
            (expected(attached.clone(), networks, slices)?, reserved(attached, networks)?);
        let (may, may_reserved) = (expected(going, networks, slices)?, reserved(going, networks)?);
        eventually("records are what is held", async || {
            let (mut records, mut reservations) =
                (records(&self.client).await?, reservations(&self.client).await?);
            for (object, gone) in &may {
                let ledger = records.entry(object.clone()).or_default();
                ledger.retain(|record| !gone.contains(record));
            }
            records.retain(|_, ledger| !ledger.is_empty());
            reservations.retain(|name, _| !may_reserved.contains_key(name));
            ensure!(records == least, "records: {records:#?}\nbut expected: {least:#?}");
            ensure!(
                reservations == least_reserved,
                "reserved: {reservations:#?}\nbut expected: {least_reserved:#?}"
            );
            Ok(Some(()))
        })
        .await?;
        ensure!(slice_pools(self.cluster, networks).await?.keys().eq(slices.keys()));
        Ok(())
    }
}

/// The pod: nothing releases what it had.
async fn a_pod_has_ten_networks_and_goes_without_a_del<'c>(stage: &Stage<'c>) -> Result<Attached<'c>> {
    // The other one that has something, from Whereabouts. (A record without a pod would not be kept for long.)
    let mut before = find(stage.cluster, APPS, "ten-1").await?;
    let left = left_by_whereabouts(&before.container);
    stage.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": left}).to_string()).await?;
    let mut forgotten = find(stage.cluster, APPS, "forgotten").await?;
    tokio::task::block_in_place(|| forgotten.add())?;
    forgotten.has_what_was_said()?;
    a_lone_caller_has_the_lowest(&forgotten, &stage.networks)?;
    forgotten.publish(&stage.client).await?;
    before.delegates.truncate(1);
    before.delegates[0].result = json!({"ips": [{"address": format!("{KEPT}/24")}]});
    stage.says([&forgotten, &before], None).await?;
    let delete = ["delete", "pod", "forgotten", "-n", APPS, "--force", "--grace-period=0"];
    stage.cluster.kubectl(&delete).await?;
    Ok(forgotten)
}

/// All pods but the forgotten one, each attached as a runtime would: at the same time. The last one has no network status.
async fn pods_of_all_nodes_get_theirs_at_once<'c>(stage: &Stage<'c>) -> Result<Vec<Attached<'c>>> {
    let mut pods = Vec::new();
    for name in ["ten-1", "ten-2", "ten-3", "ten-4", "ten-5", "ten-6", "quiet"] {
        pods.push(find(stage.cluster, APPS, name).await?);
    }
    at_once(&mut pods, |pod| {
        pod.add()?;
        pod.has_what_was_said()
    })?;
    for pod in pods.iter().filter(|pod| pod.name != "quiet") {
        pod.publish(&stage.client).await?;
    }
    let kept = pods[0].delegates[0].addresses()?;
    ensure!(kept.iter().map(IpNet::addr).eq([KEPT]), "{} had {KEPT} and has {kept:?}", pods[0].name);
    Ok(pods)
}

/// The agent of the last node, where nothing was forgotten: a new one begins to look anew.
async fn a_new_agent_finds_all_in_order(stage: &Stage<'_>, pods: &[Attached<'_>]) -> Result<()> {
    let agents = product(stage.cluster, "tenured").await?.context("agents")?;
    let field = format!("spec.nodeName={}", stage.cluster.node(2).name());
    let own = ["-l", "app.kubernetes.io/name=tenured", "--field-selector", &field];
    stage.cluster.kubectl(&[&["delete", "pod", "-n", "kube-system"], &own[..]].concat()).await?;
    eventually("a new agent is ready", async || {
        Ok(product(stage.cluster, "tenured").await?.filter(|now| now.len() == 3 && *now != agents))
    })
    .await?;
    pods.iter().try_for_each(|pod| tokio::task::block_in_place(|| pod.check()))
}

async fn what_was_forgotten_is_released_and_nothing_else(
    stage: &Stage<'_>,
    quiet: &Attached<'_>,
) -> Result<()> {
    let left = expected([quiet], &stage.networks, &stage.slices)?;
    eventually("what was forgotten is released", async || {
        Ok((records(&stage.client).await? == left).then_some(()))
    })
    .await?;
    stage.says([quiet], None).await?;
    quiet.has_what_was_said()
}

/// The last step of the guide. Nothing goes that was made with the flags, and a DEL releases it all the same.
async fn without_the_flags_of_the_guide_all_stays_as_it_is(
    stage: &Stage<'_>,
    quiet: &Attached<'_>,
) -> Result<()> {
    stage.cluster.kubectl(&["apply", "-k", DEPLOY]).await?;
    await_agents(stage.cluster).await?;
    the_plugin_is_ours(stage.cluster)?;
    tokio::task::block_in_place(|| quiet.check())?;
    stage.says([quiet], None).await
}

async fn await_agents(cluster: &Cluster) -> Result<()> {
    let status = ["rollout", "status", "daemonset/tenured", "-n", "kube-system", "--timeout=300s"];
    cluster.kubectl(&status).await?;
    Ok(())
}

fn the_plugin_is_ours(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        let (theirs, ours) = (fs::read(node.path(PLUGIN)?)?, fs::read(node.path("/opt/cni/bin/tenure")?)?);
        ensure!(theirs == ours, "it is not ours on {}", node.name());
    }
    Ok(())
}

/// The commands of the guide that patch something, as arguments.
fn patches() -> Result<Vec<Vec<&'static str>>> {
    let lines = GUIDE.lines().filter_map(|line| line.trim_start().strip_prefix("$ kubectl patch "));
    let split = |line: &'static str| {
        let (head, patch) = line.split_once(" -p '").context("a patch")?;
        let patch = patch.strip_suffix('\'').context("the end of the patch")?;
        Ok(["patch"].into_iter().chain(head.split(' ')).chain(["-p", patch]).collect())
    };
    lines.map(split).collect()
}

async fn the_plugin_of_whereabouts_stays_until_the_operator_replaces_it(
    cluster: &Cluster,
    steps: &Steps,
) -> Result<()> {
    for node in cluster.nodes() {
        node.write(PLUGIN, THEIRS)?;
    }
    install(cluster).await?;
    for node in cluster.nodes() {
        ensure!(fs::read_to_string(node.path(PLUGIN)?)? == THEIRS, "of {}", node.name());
    }
    steps.done("applied; the nodes are ready, and Whereabouts' plugin is where it was");
    let patches = patches()?;
    ensure!(!patches.is_empty(), "the guide has no command");
    for patch in patches {
        cluster.kubectl(&patch).await?;
    }
    await_agents(cluster).await?;
    the_plugin_is_ours(cluster)?;
    steps.done("every node's Whereabouts plugin is ours");
    Ok(())
}

/// What Whereabouts gave to a pod's sandbox: the first network's [`KEPT`].
fn left_by_whereabouts(sandbox: &str) -> [Value; 2] {
    let (group, podref) = ("whereabouts.cni.cncf.io/v1alpha1", format!("{APPS}/ten-1"));
    let record = json!({"id": sandbox, "podref": podref, "ifname": "net1"});
    let pool = json!({
        "apiVersion": group, "kind": "IPPool", "metadata": {"name": POOL, "namespace": "kube-system"},
        "spec": {"range": "10.81.0.0/24", "allocations": {"7": record}},
    });
    let reservation = json!({
        "apiVersion": group, "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": KEPT.to_string(), "namespace": "kube-system"},
        "spec": {"podref": podref, "ifname": "net1"},
    });
    [pool, reservation]
}

/// Defines the networks, and waits until every node has its slices.
async fn define(cluster: &Cluster, networks: &[Network]) -> Result<BTreeMap<String, NodeSlicePool>> {
    cluster
        .kubectl(&["apply", "-f", &format!("{DEPLOY}/optional/network-attachment-definitions.yaml")])
        .await?;
    let crd = "crd/network-attachment-definitions.k8s.cni.cncf.io";
    cluster.kubectl(&["wait", crd, "--for=condition=Established", "--timeout=300s"]).await?;
    let namespaces = [APPS, NETS].map(namespace);
    let definitions = networks.iter().map(Network::definition);
    let items: Vec<Value> = namespaces.into_iter().chain(definitions).collect();
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    eventually("slices of all nodes", async || slice_pools(cluster, networks).await.map(Some)).await
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Two pods of each node, one that will be forgotten, and one that will have no network status.
async fn start_pods(cluster: &Cluster, networks: &[Network]) -> Result<()> {
    let names: Vec<String> = networks.iter().map(Network::selected).collect();
    let list = names.join(", ");
    let objects: Vec<Value> = networks
        .iter()
        .map(|it| json!({"name": it.name, "namespace": it.namespace, "interface": format!("net{}", it.number)}))
        .collect();
    let pods = ["ten-1", "ten-2", "ten-3", "ten-4", "ten-5", "ten-6", "forgotten", "quiet"];
    let pod = |(index, name): (usize, &str)| {
        // Both ways to say it.
        let selected = if index % 2 == 0 { list.clone() } else { json!(objects).to_string() };
        let container = json!({"name": "c", "image": images::BUSYBOX, "command": ["sleep", "1000000"]});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": APPS, "annotations": {"k8s.v1.cni.cncf.io/networks": selected}},
            "spec": {
                "nodeName": cluster.node(index % 3).name(), "terminationGracePeriodSeconds": 4,
                "containers": [container],
            },
        })
    };
    let items: Vec<Value> = pods.into_iter().enumerate().map(pod).collect();
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    let ready = ["wait", "pod", "--all", "-n", APPS, "--for=condition=Ready", "--timeout=300s"];
    cluster.kubectl(&ready).await?;
    Ok(())
}

fn a_lone_caller_has_the_lowest(pod: &Attached<'_>, networks: &[Network]) -> Result<()> {
    ensure!(pod.delegates.len() == networks.len());
    for (delegate, network) in pod.delegates.iter().zip(networks) {
        let ips = delegate.addresses()?;
        ensure!(ips.len() == network.ranges.len(), "one of each range: {delegate:?}");
        for (ip, range) in ips.iter().zip(&network.ranges) {
            ensure!(range.cidr.contains(&ip.addr()), "{delegate:?}");
            ensure!(range.lowest.is_none_or(|lowest| lowest == ip.addr()), "{delegate:?}");
        }
    }
    Ok(())
}

/// Does something with each, all at the same time.
fn at_once<P: Send>(pods: &mut [P], act: impl Fn(&mut P) -> Result<()> + Sync) -> Result<()> {
    let act = &act;
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            let all: Vec<_> = pods.iter_mut().map(|pod| scope.spawn(move || act(pod))).collect();
            let joined = all.into_iter().map(|one| one.join().map_err(|_| anyhow!("it panicked"))?);
            joined.collect::<Result<Vec<()>>>().map(drop)
        })
    })
}

/// Each pod pings each other, on every network.
fn all_reach_all(pods: &[Attached<'_>]) -> Result<()> {
    for from in pods {
        let inside = NetworkNamespace::open(&from.name, &from.inside.path())?;
        let inside = Host::in_namespace(inside, Mounts::default());
        for to in pods.iter().filter(|to| to.name != from.name) {
            for delegate in &to.delegates {
                for ip in delegate.addresses()? {
                    let way = || format!("{} to {} on {}", from.name, to.name, delegate.definition);
                    inside.ping(ip.addr(), PATIENCE).with_context(way)?;
                }
            }
        }
    }
    Ok(())
}

/// Deletes pods, with their DELs: of all but one while they end, of the last one when it is gone with its namespace.
async fn delete(cluster: &Cluster, pods: &[Attached<'_>]) -> Result<()> {
    let (last, others) = pods.split_last().context("pods")?;
    let names: Vec<&str> = others.iter().map(|pod| pod.name.as_str()).collect();
    cluster.kubectl(&[&["delete", "pod", "-n", APPS, "--wait=false"], &names[..]].concat()).await?;
    let mut others: Vec<&Attached<'_>> = others.iter().collect();
    at_once(&mut others, |pod| {
        pod.del()?;
        let left = pod.interfaces()?;
        // Where the kubelet was faster, the namespace's path is gone, and with it what a DEL could find: the kernel removes the rest.
        let ended = !left.contains_key("eth0");
        ensure!(ended || left.keys().eq(["eth0", "lo"]), "{} has {left:?} after its DELs", pod.name);
        // Whoever was not answered in time asks again.
        pod.del()
    })?;
    cluster.kubectl(&["delete", "pod", &last.name, "-n", APPS, "--grace-period=1"]).await?;
    tokio::task::block_in_place(|| last.del_late())
}
