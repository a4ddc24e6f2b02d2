//! The embedded API server beside kube-apiserver and etcd: both durable, both asked by the same client code.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tenure_handles::{SystemClock, SystemEntropy};
use tenure_localapi::LocalApi;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};

use crate::measure::Effort;
use crate::report::{Report, Unit};

/// Requests under way at once, as from the agents of a few nodes.
const AT_ONCE: usize = 16;
const WATCHERS: usize = 20;

/// All figures of the server.
pub(crate) fn measure(effort: Effort) -> Result<Report> {
    tokio::runtime::Runtime::new()?.block_on(both(effort))
}

async fn both(effort: Effort) -> Result<Report> {
    let directory = tempfile::tempdir()?;
    let entropy = SystemEntropy::new()?;
    let embedded = LocalApi::open(directory.path().join("api.redb"), SystemClock, entropy)?;
    let real =
        ControlPlane::start(ControlPlaneOptions::default().without_controller_manager().durable()).await?;
    let (ours, peer) = (embedded.client(), real.client()?);

    let count = if effort == Effort::Quick { 100 } else { 1_000 };
    let mut report = Report::new("The embedded API server: every write on disk", "kube-apiserver + etcd");
    let mut figures = [const { (Vec::new(), Vec::new()) }; 4];
    for round in 0..3 {
        for (client, is_ours) in [(&ours, true), (&peer, false)] {
            let one_round = measure_one(client, round, count).await?;
            for (figure, value) in figures.iter_mut().zip(one_round) {
                if is_ours { &mut figure.0 } else { &mut figure.1 }.push(value);
            }
        }
    }
    let names = [
        format!("creates, {AT_ONCE} at once"),
        format!("merge patches, {AT_ONCE} at once"),
        "creates, one at a time".to_owned(),
        format!("events seen by {WATCHERS} watches"),
    ];
    for (name, (our_rounds, peer_rounds)) in names.iter().zip(figures) {
        report.more_is_better(name, middle(our_rounds), middle(peer_rounds), Unit::PerSecond, "");
    }
    Ok(report)
}

/// One round on one server: the figures in the order of the report.
async fn measure_one(client: &Client, round: usize, count: usize) -> Result<[f64; 4]> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let name = |n: usize| format!("bench-{round}-{n}");

    let creating = rate(count, create(&maps, (0..count).map(name).collect(), AT_ONCE)).await?;
    let patching = rate(count, patch(&maps, (0..count).map(name).collect())).await?;
    let few = count / 10;
    let alone = rate(few, create(&maps, (count..count + few).map(name).collect(), 1)).await?;
    let watching = fan_out(&maps, few, (2 * count..2 * count + few).map(name).collect()).await?;

    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("bench=yes")).await?;
    Ok([creating, patching, alone, watching])
}

async fn create(maps: &Api<ConfigMap>, names: Vec<String>, at_once: usize) -> Result<()> {
    let requests = stream::iter(names).map(|name| async move {
        let map = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "labels": {"bench": "yes"}},
            "data": {"holder": "namespace/pod-with-a-usual-name", "address": "10.64.0.1"},
        }))?;
        maps.create(&PostParams::default(), &map).await.context("cannot create")?;
        anyhow::Ok(())
    });
    requests.buffer_unordered(at_once).try_collect().await
}

async fn patch(maps: &Api<ConfigMap>, names: Vec<String>) -> Result<()> {
    let requests = stream::iter(names).map(|name| async move {
        let change = Patch::Merge(serde_json::json!({"data": {"address": "10.64.0.2"}}));
        maps.patch(&name, &PatchParams::default(), &change).await.context("cannot patch")?;
        anyhow::Ok(())
    });
    requests.buffer_unordered(AT_ONCE).try_collect().await
}

/// Creates objects while watches look on; events a second until each watch has seen all of them.
async fn fan_out(maps: &Api<ConfigMap>, events: usize, names: Vec<String>) -> Result<f64> {
    let from =
        maps.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        let (maps, from) = (maps.clone(), from.clone());
        watches.push(tokio::spawn(async move {
            let mut stream = maps.watch(&WatchParams::default(), &from).await?.boxed();
            let mut seen = 0;
            while seen < events {
                match stream.try_next().await?.context("a watch ended early")? {
                    WatchEvent::Added(_) => seen += 1,
                    WatchEvent::Error(status) => anyhow::bail!("a watch failed: {}", status.message),
                    _ => {}
                }
            }
            anyhow::Ok(())
        }));
    }
    // The watches are to be there before the events are.
    tokio::time::sleep(Duration::from_millis(200)).await;
    rate(events * WATCHERS, async {
        create(maps, names, AT_ONCE).await?;
        for watch in watches {
            watch.await??;
        }
        Ok(())
    })
    .await
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
async fn rate(operations: usize, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let start = Instant::now();
    work.await?;
    Ok(operations as f64 / start.elapsed().as_secs_f64())
}

fn middle(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}
