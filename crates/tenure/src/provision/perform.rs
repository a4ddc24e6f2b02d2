//! Reads what is there, and makes one change after another until the plan is done.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tenure_api::cloud::{AliasPool, AliasPoolSpec, AliasRange, IPLedger};
use tenure_cloud::gcp::{Gcp, Subnetwork};
use tenure_cloud::{CloudError, ErrorKind, Progress};
use tenure_handles::{Clock, Entropy, SystemClock, SystemEntropy};
use tenure_ipam::Cidr;

use super::discover::ClusterSubnet;
use super::plan::{self, Mode, Plan, Step, Wanted};
use super::seen::Seen;
use super::{advice, say};

/// The longest pause between two attempts, in pauses between two questions.
const LONGEST: u32 = 16;
/// A quota that is used up is there again after at most a minute.
const NEXT_WINDOW: u32 = 30;

/// What it takes to ask about a reservation under way.
const RESERVING: &str = "networkconnectivity.operations.get";
/// What it takes to ask about a change of a subnet under way.
const PATCHING: &str = "compute.regionOperations.get";

/// Who makes changes.
pub(super) struct Performer {
    pub(super) gcp: Gcp,
    pub(super) client: Client,
    pub(super) entropy: SystemEntropy,
    /// How often to ask.
    pub(super) poll: Duration,
    /// How long to try.
    pub(super) timeout: Duration,
    pub(super) place: ClusterSubnet,
}

/// Why something was not read or changed.
enum Failed {
    /// It may succeed if everything is read again, after a pause in units of `poll`.
    Again(anyhow::Error, u32),
    /// It will not.
    Finally(anyhow::Error),
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Self::Finally(error)
    }
}

type Done<T> = Result<T, Failed>;

impl Performer {
    /// The plan for what is there now. Changes nothing.
    pub(super) async fn plan(&self, wanted: Wanted) -> Result<Plan> {
        let mut until = Until::new(self);
        loop {
            match self.see(&wanted).await {
                Ok(seen) => return plan::plan(&wanted, &seen),
                Err(failed) => until.again(failed).await?,
            }
        }
    }

    /// Makes one change after another until none is left. Returns the plan with everything done.
    pub(super) async fn finish(&self, mut wanted: Wanted) -> Result<Plan> {
        let (mut until, mut made) = (Until::new(self), Vec::new());
        loop {
            let seen = match self.see(&wanted).await {
                Ok(seen) => seen,
                Err(failed) => {
                    until.again(failed).await?;
                    continue;
                }
            };
            wanted = wanted.settled(&seen);
            let plan = plan::plan(&wanted, &seen)?;
            let Some((row, step)) = plan.next() else {
                say("everything is there");
                // What is removed is not in the last plan.
                return Ok(if wanted.mode == Mode::Remove { plan.having_done(made) } else { plan });
            };
            say(&format!("{} {} ({})", row.act, row.object, row.addresses));
            match self.perform(&wanted, &seen, step).await {
                Ok(()) => {
                    made.push(row.clone());
                    until.progress();
                }
                Err(failed) => until.again(failed).await?,
            }
        }
    }

    /// Reads everything that the plan depends on.
    async fn see(&self, wanted: &Wanted) -> Done<Seen> {
        let subnet = self.subnet().await?;
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        let act = format!("reading IPPool \"{}\"", wanted.pool);
        let pool = pools.get_opt(&wanted.pool).await.map_err(|error| of_cluster(error, &act, "get"))?;
        let mut seen = Seen { subnet, pool, ..Seen::default() };
        for at in 0..wanted.reservations(&seen) {
            let name = wanted.reservation(at);
            let read = self.gcp.internal_range(&name).await;
            match read.map_err(self.of_cloud("networkconnectivity.internalRanges.get"))? {
                Some(range) => _ = seen.reservations.insert(name, range),
                // They are removed from the last to the first, so there are none behind it.
                None if wanted.mode == Mode::Remove => break,
                None => {}
            }
        }
        if wanted.uses_a_range_of_others(&seen) {
            seen.node_networks = self.node_networks().await?;
        }
        if wanted.mode == Mode::Remove && seen.pool.is_some() {
            let ledgers: Api<IPLedger> = Api::all(self.client.clone());
            let of_pool = ListParams::default().fields(&format!("pool={}", wanted.pool));
            let found = ledgers.list(&of_pool).await;
            let found =
                found.map_err(|error| of_cluster(error, "reading the IPLedgers", "list ipledgers"))?;
            seen.records = found.items.iter().map(|ledger| ledger.spec.records.len()).sum();
        }
        Ok(seen)
    }

    /// From which networks pods of the nodes have their addresses without us.
    async fn node_networks(&self) -> Done<Vec<(String, Cidr)>> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let act = "reading the Nodes, to see whether the range is the cluster's own (the role needs the verb list for nodes)";
        let found = nodes.list(&ListParams::default()).await.map_err(|error| {
            let again =
                !matches!(&error, kube::Error::Api(status) if status.code < 500 && status.code != 429);
            let error = anyhow::Error::new(error).context(act);
            if again { Failed::Again(error, 1) } else { Failed::Finally(error) }
        })?;
        let networks = found.items.into_iter().flat_map(|node| {
            let name = node.metadata.name.unwrap_or_default();
            let spec = node.spec.unwrap_or_default();
            let all = spec.pod_cidrs.unwrap_or_default().into_iter().chain(spec.pod_cidr);
            all.filter_map(move |text| Some((name.clone(), text.parse().ok()?))).collect::<Vec<_>>()
        });
        Ok(networks.collect())
    }

    async fn subnet(&self) -> Done<Subnetwork> {
        let read = self.gcp.subnetwork(&self.place.region, &self.place.subnet).await;
        read.map_err(self.of_cloud("compute.subnetworks.get"))
    }

    async fn perform(&self, wanted: &Wanted, seen: &Seen, step: &Step) -> Done<()> {
        let (region, subnet) = (&self.place.region, &self.place.subnet);
        let request = self.entropy.uuid();
        match step {
            Step::Reserve { name, addresses } => {
                let ticket = self.gcp.reserve_internal_range(name, &seen.subnet.network, addresses).await;
                let ticket = ticket.map_err(self.of_cloud("networkconnectivity.internalRanges.create"))?;
                let follow = async || self.gcp.reservation(&ticket).await;
                self.follow(follow, RESERVING, "networkconnectivity.internalRanges.create").await
            }
            Step::Release(name) => {
                let ticket = self.gcp.release_internal_range(name).await;
                let ticket = ticket.map_err(self.of_cloud("networkconnectivity.internalRanges.delete"))?;
                let follow = async || self.gcp.reservation(&ticket).await;
                self.follow(follow, RESERVING, "networkconnectivity.internalRanges.delete").await
            }
            Step::AddRange(range) => {
                let range = range.clone();
                let ticket =
                    self.gcp.add_secondary_range(region, subnet, &seen.subnet, range, &request).await;
                let ticket = ticket.map_err(self.of_cloud("compute.subnetworks.update"))?;
                let follow = async || self.gcp.subnetwork_change(region, &ticket).await;
                self.follow(follow, PATCHING, "compute.subnetworks.update").await
            }
            Step::RemoveRange(range) => {
                let ticket =
                    self.gcp.remove_secondary_range(region, subnet, &seen.subnet, range, &request).await;
                let ticket = ticket.map_err(self.of_cloud("compute.subnetworks.update"))?;
                let follow = async || self.gcp.subnetwork_change(region, &ticket).await;
                self.follow(follow, PATCHING, "compute.subnetworks.update").await
            }
            Step::CreatePool(spec) => self.create_pool(wanted, spec).await,
            Step::AppendToPool(ranges) => self.append_to_pool(wanted, seen, ranges).await,
            Step::DeletePool => self.delete_pool(wanted, seen).await,
            Step::AwaitAddresses(name) => {
                Err(Failed::Again(anyhow!("internal range {name} has no addresses yet"), 1))
            }
            Step::Later => {
                Err(Failed::Finally(anyhow!("a step of the plan comes before the one it depends on")))
            }
        }
    }

    /// Waits until an operation has ended.
    async fn follow(
        &self,
        ask: impl AsyncFn() -> Result<Progress, CloudError>,
        to_ask: &'static str,
        permission: &'static str,
    ) -> Done<()> {
        let start = SystemClock.elapsed();
        loop {
            match ask().await.map_err(self.of_cloud(to_ask))? {
                Progress::Done => return Ok(()),
                Progress::Failed(error) => return Err(self.of_cloud(permission)(error)),
                Progress::Running => {}
            }
            if SystemClock.elapsed().saturating_sub(start) > self.timeout {
                return Err(Failed::Finally(anyhow!(
                    "an operation did not end within {} s; run the same command again to go on",
                    self.timeout.as_secs()
                )));
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn create_pool(&self, wanted: &Wanted, spec: &AliasPoolSpec) -> Done<()> {
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        let pool = AliasPool::new(&wanted.pool, spec.clone());
        let created = pools.create(&PostParams::default(), &pool).await;
        let act = format!("creating IPPool \"{}\"", wanted.pool);
        created.map(drop).map_err(|error| of_cluster(error, &act, "create"))
    }

    async fn append_to_pool(&self, wanted: &Wanted, seen: &Seen, ranges: &[AliasRange]) -> Done<()> {
        let Some(pool) = &seen.pool else { return Ok(()) };
        let all: Vec<&AliasRange> = pool.spec.ranges.iter().chain(ranges).collect();
        // The version makes sure that nothing was appended since.
        let change = json!({
            "metadata": {"resourceVersion": pool.metadata.resource_version},
            "spec": {"ranges": all},
        });
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        let patched = pools.patch(&wanted.pool, &PatchParams::default(), &Patch::Merge(&change)).await;
        let act = format!("appending to IPPool \"{}\"", wanted.pool);
        patched.map(drop).map_err(|error| of_cluster(error, &act, "patch"))
    }

    /// Deletes the pool as it was read, and waits until it is gone.
    async fn delete_pool(&self, wanted: &Wanted, seen: &Seen) -> Done<()> {
        let Some(pool) = &seen.pool else { return Ok(()) };
        let act = format!("deleting IPPool \"{}\"", wanted.pool);
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        if pool.metadata.deletion_timestamp.is_none() {
            let as_read = Preconditions {
                uid: pool.metadata.uid.clone(),
                resource_version: pool.metadata.resource_version.clone(),
            };
            let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::background() };
            match pools.delete(&wanted.pool, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                deleted => deleted.map(drop).map_err(|error| of_cluster(error, &act, "delete"))?,
            }
        }
        let start = SystemClock.elapsed();
        loop {
            let left = pools.get_opt(&wanted.pool).await.map_err(|error| of_cluster(error, &act, "get"))?;
            if left.is_none_or(|left| left.metadata.uid != pool.metadata.uid) {
                return Ok(());
            }
            if SystemClock.elapsed().saturating_sub(start) > self.timeout {
                return Err(Failed::Finally(anyhow!(
                    "{act}: a finalizer keeps it; kubectl describe says which"
                )));
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    /// What follows from an error of the cloud.
    fn of_cloud(&self, permission: &'static str) -> impl Fn(CloudError) -> Failed {
        move |error| {
            let pause = match error.kind {
                ErrorKind::Transient | ErrorKind::Conflict | ErrorKind::NotReady => 1,
                ErrorKind::Throttled(_) => NEXT_WINDOW,
                _ => return Failed::Finally(advice::about(&error, &self.place.project, permission)),
            };
            Failed::Again(advice::about(&error, &self.place.project, permission), pause)
        }
    }
}

/// What follows from an error of the cluster.
fn of_cluster(error: kube::Error, act: &str, verb: &str) -> Failed {
    let again = match &error {
        kube::Error::Api(status) => status.code == 409 || status.code == 429 || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    };
    let error = advice::about_cluster(error, act, verb);
    if again { Failed::Again(error, 1) } else { Failed::Finally(error) }
}

/// Attempts and the time that they may take.
struct Until<'p> {
    performer: &'p Performer,
    since: Duration,
    pause: u32,
}

impl<'p> Until<'p> {
    fn new(performer: &'p Performer) -> Self {
        Self { performer, since: SystemClock.elapsed(), pause: 1 }
    }

    /// A change was made.
    fn progress(&mut self) {
        (self.since, self.pause) = (SystemClock.elapsed(), 1);
    }

    /// Pauses before the next attempt, or says that there is none.
    async fn again(&mut self, failed: Failed) -> Result<()> {
        let (error, least) = match failed {
            Failed::Again(error, least) => (error, least),
            Failed::Finally(error) => return Err(error),
        };
        let limit = self.performer.timeout;
        if SystemClock.elapsed().saturating_sub(self.since) > limit {
            bail!("{error:#}; nothing helped for {} s", limit.as_secs());
        }
        say(&format!("again: {error:#}"));
        tokio::time::sleep(self.performer.poll * self.pause.max(least)).await;
        self.pause = (self.pause * 2).min(LONGEST);
        Ok(())
    }
}
