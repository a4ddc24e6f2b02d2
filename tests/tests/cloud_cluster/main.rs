//! Alias addresses on a real cluster of three nodes in a fake cloud that carries real packets: provisioned and installed as
//! docs/gcp.md says, a hundred pods at once, moves between zones, and addresses that nobody may take. Needs root; builds the image.

mod cloud;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger, NodeAliases, annotation};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::{Cluster, ClusterOptions, CniChoice};
use tenure_testbed::compute::{Call, Fault, Harm};
use tenure_testbed::wait::eventually;
use tenure_tests::installed::image;
use tenure_tests::monitoring::{Has, every_query_returns_data};
use tenure_tests::steps::Steps;

use cloud::{Cloud, POOL};

/// So many pods start at once.
const CROWD: usize = 100;
/// So many move at once.
const MOVERS: usize = 3;
/// So many addresses wait for pods, and so many pods come for them at once.
const WARM: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pods_get_aliases_in_few_updates_and_keep_them_when_they_move() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let image = image().await?;
    let cluster = Cluster::start(ClusterOptions { nodes: 3, cni: CniChoice::PtpHostLocal }).await?;
    cluster.import_saved(&image).await?;
    steps.done("three nodes have the image");
    let outcome = scenes(&cluster, &steps).await;
    if outcome.is_err() {
        cluster.keep_logs();
    }
    outcome
}

async fn scenes(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let cloud = Cloud::around(cluster).await?;
    cloud.install_kinds().await?;
    cloud.provision(Path::new(env!("CARGO_BIN_EXE_bed-tenure")))?;
    // Without a warm set, every pod waits for the cloud.
    set_warm(cluster, 0).await?;
    cloud.install().await?;
    steps.done("provisioned and installed");

    let pods = Api::<core::Pod>::namespaced(cluster.client()?, "default");
    let stage = Stage { cluster, cloud: &cloud, pods };
    stage.a_crowd_costs_two_updates().await?;
    steps.done("a hundred pods at once: at most two updates");
    stage.pods_reach_each_other().await?;
    steps.done("pods of both zones reach each other");
    stage.movers_share_updates().await?;
    steps.done("three pods moved to another zone");
    // The agents of the nodes with alias addresses, and two controllers.
    drop(every_query_returns_data(cluster, 4, Has::Cloud).await?);
    steps.done("a Prometheus has data for every alert and panel of a cloud");
    stage.a_forged_address_moves_nothing().await?;
    steps.done("a pod that names another's address gets nothing");
    stage.a_warm_set_costs_none().await?;
    steps.done("pods with a warm set: no update");
    Ok(())
}

struct Stage<'c> {
    cluster: &'c Cluster,
    cloud: &'c Cloud<'c>,
    pods: Api<core::Pod>,
}

impl Stage<'_> {
    async fn a_crowd_costs_two_updates(&self) -> Result<()> {
        let before = self.cloud.updates();
        let aliases: Api<NodeAliases> = Api::all(self.cluster.client()?);
        let asked = async || {
            let found = aliases.get(&self.cloud.nodes[1]).await;
            found.is_ok_and(|it| usize::try_from(it.spec.wanted).is_ok_and(|wanted| wanted >= CROWD))
        };
        let pods = (0..CROWD).map(|number| self.pod(&format!("crowd-{number}"), "crowd", 1, &[]));
        self.apply_during_an_update(pods, "the node asks for all of them", asked).await?;
        let addresses = self.running("crowd", CROWD).await?;
        ensure!(addresses.len() == CROWD, "each has its own address: {addresses:?}");
        let updates = self.cloud.updates() - before;
        ensure!(updates <= 2, "{updates} updates for {CROWD} pods");
        let attached = self.cloud.aliases(1);
        let missing: Vec<_> = addresses.iter().filter(|it| !attached.contains(&format!("{it}/32"))).collect();
        ensure!(missing.is_empty(), "not attached: {missing:?}");
        Ok(())
    }

    async fn pods_reach_each_other(&self) -> Result<()> {
        self.apply([self.pod("far", "far", 2, &[])]).await?;
        let far = self.running("far", 1).await?.into_iter().next().context("far has an address")?;
        let near = self.address("crowd-0").await?.context("crowd-0 has an address")?;
        for (from, to, name) in [("crowd-0", far, "far"), ("far", near, "crowd-0")] {
            let said = self.fetch(from, to).await?;
            ensure!(said == name, "{from} asked {to} and got {said:?}");
        }
        Ok(())
    }

    async fn movers_share_updates(&self) -> Result<()> {
        let sources: Vec<String> = (0..MOVERS).map(|number| format!("crowd-{number}")).collect();
        let mut addresses = Vec::new();
        for source in &sources {
            addresses.push(self.address(source).await?.context("a source has an address")?);
            let mark = format!("{}=true", annotation::MOVE_OUT);
            self.cluster.kubectl(&["annotate", "pod", source, &mark]).await?;
        }
        let node = &self.cloud.nodes[1];
        let moved = addresses.iter().enumerate().map(|(number, address)| {
            let annotations =
                [(annotation::ADDRESS, address.to_string()), (annotation::ORIGINAL_INSTANCE, node.clone())];
            self.pod(&format!("moved-{number}"), "moved", 2, &annotations)
        });
        let ledgers: Api<IPLedger> = Api::all(self.cluster.client()?);
        let heard = async || {
            let listed = ledgers.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default();
            let records = listed.iter().flat_map(|it| it.spec.records.values());
            let holders = records.filter_map(|it| Some(&it.moving.as_ref()?.holders));
            holders.filter(|it| it.contains("moved-")).count() == MOVERS
        };
        // Another pod keeps the source's machine busy until all moves are heard of, however busy this machine is.
        self.cloud.fake.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
        self.apply([self.pod("late", "late", 1, &[])]).await?;
        until("the update for another pod", async || self.cloud.fake.harm_left() == 0).await?;
        let before = self.cloud.updates();
        self.apply(moved).await?;
        until("all moves are heard of", heard).await?;
        self.cloud.fake.calm();
        let arrived = self.running("moved", MOVERS).await?;
        ensure!(arrived == addresses.iter().copied().collect(), "{arrived:?} instead of {addresses:?}");
        self.running("late", 1).await?;
        let updates = self.cloud.updates() - before;
        ensure!(updates <= 2, "{updates} updates for {MOVERS} moves");
        for (address, source) in addresses.iter().zip(&sources) {
            let range = format!("{address}/32");
            ensure!(!self.cloud.aliases(1).contains(&range), "{range} is still on the source");
            ensure!(self.cloud.aliases(2).contains(&range), "{range} is not on the target");
            self.delete(source).await?;
        }
        // The end of the sources takes nothing away.
        for (number, address) in addresses.iter().enumerate() {
            let said = self.fetch("far", *address).await?;
            ensure!(said == format!("moved-{number}"), "{address} is {said:?}");
        }
        Ok(())
    }

    async fn a_forged_address_moves_nothing(&self) -> Result<()> {
        let victim = self.address("crowd-50").await?.context("crowd-50 has an address")?;
        let aliases = [self.cloud.aliases(1), self.cloud.aliases(2)];
        self.apply([self.pod("forger", "forger", 2, &[(annotation::ADDRESS, victim.to_string())])]).await?;
        let said = async || {
            let events =
                self.cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.name=forger"]);
            events.await.is_ok_and(|events| events.contains("FailedCreatePodSandBox"))
        };
        until("the forger is told", said).await?;
        ensure!(self.address("forger").await?.is_none(), "the forger has an address");
        ensure!(aliases == [self.cloud.aliases(1), self.cloud.aliases(2)], "something moved");
        self.delete("forger").await?;
        Ok(())
    }

    async fn a_warm_set_costs_none(&self) -> Result<()> {
        set_warm(self.cluster, i32::try_from(WARM)?).await?;
        let warm = async || self.free(2).await.is_ok_and(|free| free >= WARM);
        until("a warm set", warm).await?;
        let attached = self.cloud.aliases(2);
        // As many pods as the set has addresses. The update that refills the set does not end, so nobody waits for it.
        self.cloud.fake.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
        self.apply((0..WARM).map(|number| self.pod(&format!("warm-{number}"), "warm", 2, &[]))).await?;
        let addresses = self.running("warm", WARM).await?;
        // All had their addresses of what was attached before the first of them was created: they needed no update.
        let waited: Vec<_> = addresses.iter().filter(|it| !attached.contains(&format!("{it}/32"))).collect();
        ensure!(waited.is_empty(), "pods got {waited:?}, which were not in the warm set");
        self.cloud.fake.calm();
        Ok(())
    }

    fn pod(&self, name: &str, app: &str, node: usize, annotations: &[(&str, String)]) -> Value {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}, "annotations": annotations},
            "spec": {
                "nodeName": self.cloud.nodes[node], "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "web", "image": "tenure.test/busybox:1",
                    "command": ["sh", "-c", "hostname >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
                }],
            },
        })
    }

    async fn apply(&self, items: impl IntoIterator<Item = Value>) -> Result<()> {
        // At once: one after the other would take longer than an update.
        let created = items.into_iter().map(async |item| {
            let pod: core::Pod = serde_json::from_value(item)?;
            self.pods.create(&PostParams::default(), &pod).await?;
            anyhow::Ok(())
        });
        futures::future::try_join_all(created).await?;
        Ok(())
    }

    /// Creates pods, and lets the next update end only when something is so: how many updates there are does not depend on how busy
    /// this machine is.
    async fn apply_during_an_update(
        &self,
        pods: impl IntoIterator<Item = Value>,
        what: &str,
        is_so: impl AsyncFn() -> bool,
    ) -> Result<()> {
        self.cloud.fake.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
        self.apply(pods).await?;
        until(what, is_so).await?;
        self.cloud.fake.calm();
        Ok(())
    }

    /// The addresses of the pods of an app, when so many run.
    async fn running(&self, app: &str, count: usize) -> Result<BTreeSet<Ipv4Addr>> {
        until(&format!("{count} pods of {app} run"), async || self.is_running(app, count).await).await?;
        let listed = self.pods.list(&of_app(app)).await?;
        listed.iter().map(|pod| address_of(pod).context("a running pod has an address")).collect()
    }

    async fn is_running(&self, app: &str, count: usize) -> bool {
        let listed = self.pods.list(&of_app(app)).await;
        listed.is_ok_and(|pods| pods.iter().filter(|pod| is_running(pod)).count() == count)
    }

    async fn address(&self, pod: &str) -> Result<Option<Ipv4Addr>> {
        Ok(address_of(&self.pods.get(pod).await?))
    }

    async fn fetch(&self, from: &str, to: Ipv4Addr) -> Result<String> {
        let url = format!("http://{to}:8080/");
        let said = self.cluster.kubectl(&["exec", from, "--", "timeout", "5", "wget", "-qO-", &url]).await?;
        Ok(said.trim().to_owned())
    }

    async fn delete(&self, pod: &str) -> Result<()> {
        self.cluster.kubectl(&["delete", "pod", pod, "--grace-period=0", "--wait=true"]).await?;
        Ok(())
    }

    /// How many aliases of a node no pod has.
    async fn free(&self, node: usize) -> Result<usize> {
        let listed = self.pods.list(&ListParams::default()).await?;
        let used: BTreeSet<String> =
            listed.iter().filter_map(address_of).map(|address| format!("{address}/32")).collect();
        Ok(self.cloud.aliases(node).difference(&used).count())
    }
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) -> Result<()> {
    eventually(what, async || Ok(is_so().await.then_some(()))).await
}

async fn set_warm(cluster: &Cluster, warm: i32) -> Result<()> {
    let patch = json!({"spec": {"warm": warm}}).to_string();
    cluster.kubectl(&["patch", "ippools.ipam.gcp-cni.cast.ai", POOL, "--type=merge", "-p", &patch]).await?;
    let pools: Api<AliasPool> = Api::all(cluster.client()?);
    ensure!(pools.get(POOL).await?.spec.warm == Some(warm));
    Ok(())
}

fn of_app(app: &str) -> ListParams {
    ListParams::default().labels(&format!("app={app}"))
}

fn is_running(pod: &core::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && address_of(pod).is_some() && pod.metadata.deletion_timestamp.is_none()
}

fn address_of(pod: &core::Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
