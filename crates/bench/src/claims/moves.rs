//! Moves: two pods on two hosts have one claim, and an annotation says whose turn it is. From the moment that it is asked for
//! until the kernel of the target's host has its route.
//!
//! Beside it, in turns: an annotation is asked for, somebody who watches writes another object as soon as he hears of it, and
//! that is heard of. A commit is such a chain, with a decision in its middle and a route at its end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tenure_api::claims::annotation;
use tenure_testbed::hosts::HostChild;

use super::CLAIMED;
use super::cluster::Cluster;
use super::node::Node;
use super::size::Size;
use crate::host::machine::SOON;
use crate::host::objects::made;
use crate::host::sampled::nanoseconds;
use crate::host::say;

/// The table with the routes to a node's own pods.
const POD_TABLE: &str = "116";
/// Between moves, so that one has ended before the next begins.
const BETWEEN: Duration = Duration::from_millis(50);
/// The claim.
const CLAIM: &str = "moving";
/// What the chain is made of.
const CHAIN: [&str; 2] = ["signal", "commit"];

/// What was measured, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// From the signal to the target's route.
    pub(super) commits: Vec<f64>,
    /// From the signal until the API server had it.
    pub(super) signals: Vec<f64>,
    /// The chain of two writes.
    pub(super) chains: Vec<f64>,
}

impl Moves {
    pub(super) fn measure(&mut self, cluster: &Cluster, nodes: [&mut Node; 2], size: &Size) -> Result<()> {
        say("moves between two hosts");
        cluster.make_claims(vec![CLAIM.to_owned()])?;
        let names = ["moving-0", "moving-1"];
        let mut routes = Vec::new();
        let mut address = String::new();
        for (number, (node, name)) in nodes.into_iter().zip(names).enumerate() {
            cluster.make_pods(CLAIMED, &node.name, vec![(name.to_owned(), Some(CLAIM.to_owned()))])?;
            cluster.wait_for_holders_of(CLAIM, number + 1)?;
            node.make(&[name.to_owned()])?;
            routes.push(Routes::watch(node)?);
            let (_, added) = node.add(CLAIMED, &[name.to_owned()], true)?;
            address = added.addresses.into_iter().next().context("a pod with a claim has an address")?;
        }
        let address = address.split('/').next().unwrap_or_default().to_owned();
        let chain = Chain::begin(cluster)?;
        let pods = cluster.pods(CLAIMED);
        for number in 1..=size.moves {
            let (name, [target, source]) =
                (names[number % 2], [&routes[number % 2], &routes[(number + 1) % 2]]);
            std::thread::sleep(BETWEEN);
            [target, source].into_iter().for_each(Routes::forget);
            let patch =
                Patch::Merge(json!({"metadata": {"annotations": {annotation::ACTIVE: number.to_string()}}}));
            let asked = Instant::now();
            cluster.runtime.block_on(pods.patch(name, &PatchParams::default(), &patch))?;
            self.signals.push(nanoseconds(&asked.elapsed()));
            let at = target.wait_for(&address, false).with_context(|| format!("move {number}, to {name}"))?;
            self.commits.push(nanoseconds(&at.saturating_duration_since(asked)));
            // A route that is still there when its turn comes again would not be put there again.
            source.wait_for(&address, true).with_context(|| format!("after move {number}, to {name}"))?;
            std::thread::sleep(BETWEEN);
            self.chains.push(nanoseconds(&chain.once(cluster, number)?));
        }
        Ok(())
    }
}

/// What happens to a host's routes.
struct Routes {
    lines: Receiver<(Instant, String)>,
    child: HostChild,
}

impl Routes {
    fn watch(node: &Node) -> Result<Self> {
        let command = node.machine.host.command("ip").args(["monitor", "route"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("ip has no pipe")?;
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Whoever does not listen any more needs nothing more.
                let _ = told.send((Instant::now(), line));
            }
        });
        Ok(Self { lines, child })
    }

    /// What has happened so far is of no interest.
    fn forget(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// When a route to a pod with this address came, or went.
    fn wait_for(&self, address: &str, goes: bool) -> Result<Instant> {
        loop {
            match self.lines.recv_timeout(SOON) {
                Ok((at, line)) => {
                    let gone = line.starts_with("Deleted ");
                    let words: Vec<&str> = line.split_whitespace().skip(usize::from(gone)).collect();
                    let in_table = words.windows(2).any(|pair| pair == ["table", POD_TABLE]);
                    if gone == goes && in_table && words.first() == Some(&address) {
                        return Ok(at);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("no route to {address} came or went in {SOON:?}"),
                Err(RecvTimeoutError::Disconnected) => bail!("ip monitor has ended"),
            }
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        // It may have ended with its host.
        let _ = self.child.kill();
    }
}

/// Two objects: as soon as the first is heard of, the second is written.
struct Chain {
    maps: Api<ConfigMap>,
    heard: tokio::sync::watch::Receiver<(String, Option<Instant>)>,
}

impl Chain {
    fn begin(cluster: &Cluster) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), CLAIMED);
        for name in CHAIN {
            let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            made(cluster.runtime.block_on(maps.create(&PostParams::default(), &map)))?;
        }
        let (tell, heard) = tokio::sync::watch::channel((String::new(), None));
        let writer = maps.clone();
        cluster.runtime.spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(writer.clone(), watcher::Config::default()));
            while let Some(event) = events.next().await {
                let Ok(Event::Apply(map)) = event else { continue };
                let number = map.annotations().get("number").cloned().unwrap_or_default();
                if map.name_any() == CHAIN[0] {
                    // One that fails is waited for in vain, and that is said.
                    let (writer, patch) = (writer.clone(), numbered(&number));
                    tokio::spawn(async move {
                        let _ = writer.patch(CHAIN[1], &PatchParams::default(), &patch).await;
                    });
                } else if map.name_any() == CHAIN[1] {
                    tell.send_replace((number, Some(Instant::now())));
                }
            }
        });
        Ok(Self { maps, heard })
    }

    fn once(&self, cluster: &Cluster, number: usize) -> Result<Duration> {
        let number = number.to_string();
        let mut heard = self.heard.clone();
        cluster.runtime.block_on(async {
            let asked = Instant::now();
            self.maps.patch(CHAIN[0], &PatchParams::default(), &numbered(&number)).await?;
            let seen = tokio::time::timeout(SOON, heard.wait_for(|(seen, _)| *seen == number)).await;
            let (_, at) = seen.context("the second of two writes was not heard of")??.clone();
            Ok(at.context("it was heard of at some time")?.saturating_duration_since(asked))
        })
    }
}

fn numbered(number: &str) -> Patch<serde_json::Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"number": number}}}))
}
