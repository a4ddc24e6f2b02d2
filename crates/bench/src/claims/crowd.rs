//! Many claims at once, and the same objects written plainly: what the API server can do at all.

use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_testbed::control_plane::{ApiRequests, Part};
use tenure_testbed::process::Process;

use super::cluster::{AT_ONCE, Cluster, runs};
use super::heard::Heard;
use super::size::Size;
use crate::host::machine::until;
use crate::host::process::processor_time;
use crate::host::sampled::count;
use crate::host::say;

/// What was measured; figures of each round, in operations a second.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Claims, from the first create to the last status, with a controller that waits for them.
    pub(super) at_once: Vec<f64>,
    /// Claims that were there before the controller, from its first status to its last.
    pub(super) waiting: Vec<f64>,
    /// The same, from the start of the controller's program.
    pub(super) from_start: Vec<f64>,
    /// Updates of the status of claims, by nobody in particular.
    pub(super) updates: Vec<f64>,
    /// Creates and updates of the status of as many claims, all creates first.
    pub(super) both: Vec<f64>,
    /// Writes of everybody but the creates, a claim.
    pub(super) writes: Vec<f64>,
    /// Processor time a claim, in milliseconds, of controller, kube-apiserver and etcd: of claims at once.
    pub(super) processor: Vec<[f64; 3]>,
    /// The same of plain creates and updates.
    pub(super) plain_processor: Vec<[f64; 3]>,
}

impl Crowd {
    pub(super) fn measure(&mut self, cluster: &Cluster, size: &Size) -> Result<()> {
        let status = example(cluster)?;
        for round in 0..size.rounds {
            say(&format!("round {}: {} claims, written plainly", round + 1, size.claims));
            self.plainly(cluster, size, &format!("plain-{round}"), &status)?;
            say(&format!("{} claims at once", size.claims));
            self.at_once(cluster, size, &format!("crowd-{round}"))?;
            say(&format!("{} claims that wait for the controller", size.claims));
            self.waiting(cluster, size, &format!("early-{round}"))?;
        }
        Ok(())
    }

    /// Without a controller.
    fn plainly(&mut self, cluster: &Cluster, size: &Size, kind: &str, status: &Value) -> Result<()> {
        let names = names(kind, size.claims);
        let used = processor(cluster, None)?;
        let began = Instant::now();
        cluster.make_claims(names.clone())?;
        let made = Instant::now();
        let claims = cluster.claims();
        let patch = Patch::Merge(json!({"status": status}));
        let updated = stream::iter(names).map(|name| {
            let (claims, patch) = (claims.clone(), patch.clone());
            async move {
                let updated = claims.patch_status(&name, &PatchParams::default(), &patch).await;
                updated.with_context(|| format!("cannot update claim {name}")).map(drop)
            }
        });
        cluster.runtime.block_on(updated.buffer_unordered(AT_ONCE).try_collect::<()>())?;
        let ended = Instant::now();
        self.updates.push(rate(size.claims, made, ended));
        self.both.push(rate(size.claims, began, ended));
        self.plain_processor.push(each(processor(cluster, None)?, used, size.claims));
        cluster.delete_claims()
    }

    /// With a controller that has nothing else to do.
    fn at_once(&mut self, cluster: &Cluster, size: &Size, kind: &str) -> Result<()> {
        let controller = cluster.controller()?;
        let first = Heard::begin(cluster)?;
        cluster.make_claims(vec![format!("{kind}-first")])?;
        first.wait(1, &controller)?;
        drop(first);
        cluster.delete_claims()?;
        cluster.wait_until_all_are_free()?;
        let heard = Heard::begin(cluster)?;
        let before = cluster.requests()?;
        let used = processor(cluster, Some(&controller))?;
        let began = Instant::now();
        cluster.make_claims(names(kind, size.claims))?;
        let (_, last) = heard.wait(size.claims, &controller)?;
        self.at_once.push(rate(size.claims, began, last));
        self.processor.push(each(processor(cluster, Some(&controller))?, used, size.claims));
        self.writes.push(writes(&cluster.requests()?.since(&before)) / count(size.claims));
        cluster.delete_claims()?;
        runs(&controller)?;
        cluster.wait_until_all_are_free()?;
        controller.stop()?;
        Ok(())
    }

    /// With a controller that comes when all are there.
    fn waiting(&mut self, cluster: &Cluster, size: &Size, kind: &str) -> Result<()> {
        cluster.make_claims(names(kind, size.claims))?;
        let heard = Heard::begin(cluster)?;
        let began = Instant::now();
        let controller = cluster.controller()?;
        let (first, last) = heard.wait(size.claims, &controller)?;
        self.waiting.push(rate(size.claims, first, last));
        self.from_start.push(rate(size.claims, began, last));
        cluster.delete_claims()?;
        cluster.wait_until_all_are_free()?;
        controller.stop()?;
        Ok(())
    }
}

/// The status of a claim that has its address.
fn example(cluster: &Cluster) -> Result<Value> {
    let controller = cluster.controller()?;
    let heard = Heard::begin(cluster)?;
    cluster.make_claims(vec!["example".to_owned()])?;
    heard.wait(1, &controller)?;
    let mut status = Value::Null;
    until("the status of a claim", || {
        let claim = cluster.runtime.block_on(cluster.claims().get("example"))?;
        status = serde_json::to_value(claim.status)?;
        Ok((!status.is_null()).then_some(()))
    })?;
    cluster.delete_claims()?;
    cluster.wait_until_all_are_free()?;
    controller.stop()?;
    Ok(status)
}

/// All that changed something, but for our own creates and who leads.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn writes(requests: &ApiRequests) -> f64 {
    let changed = requests.count(|request| {
        let reads = ["GET", "LIST", "WATCH"].contains(&request.verb.as_str());
        let our_own = request.verb == "POST" && request.resource == "ipamclaims";
        !reads && !our_own && request.resource != "leases"
    });
    changed as f64
}

/// How much processor time controller, kube-apiserver and etcd have had so far, in nanoseconds.
fn processor(cluster: &Cluster, controller: Option<&Process>) -> Result<[f64; 3]> {
    let of = |pid: u32| Ok::<_, anyhow::Error>(processor_time(i32::try_from(pid)?)?.0);
    let part = |part| of(cluster.plane.process_id(part).context("the API server has ended")?);
    let controller = controller.map_or(Ok(0.0), |controller| of(controller.id()))?;
    Ok([controller, part(Part::ApiServer)?, part(Part::Etcd)?])
}

/// What each of so many claims took of it, in milliseconds.
fn each(after: [f64; 3], before: [f64; 3], claims: usize) -> [f64; 3] {
    std::array::from_fn(|part| (after[part] - before[part]) / 1e6 / count(claims))
}

/// As long as the names of other rounds.
fn names(kind: &str, claims: usize) -> Vec<String> {
    (0..claims).map(|number| format!("{kind}-{number:05}")).collect()
}

fn rate(claims: usize, began: Instant, ended: Instant) -> f64 {
    count(claims) / (ended - began).as_secs_f64()
}
