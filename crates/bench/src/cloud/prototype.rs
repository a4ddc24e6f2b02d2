//! The prototype's sequence as a plain loop: each machine has a lock, and for one pod after the other it reads the instance, allocates an
//! address in one object that has all of them, patches the instance, and asks every 100 ms whether the operation is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenure_cloud::gcp::{Endpoints, Gcp, Metadata, TokenSource, Tokens};
use tenure_cloud::{AliasRange, Cloud as _, InterfaceId, Progress, Update};
use tenure_handles::{Entropy as _, SystemClock, SystemEntropy};
use tenure_testbed::compute::PROJECT;

use super::bed::{Bed, Cost, NAMESPACE, RANGE, SUBNET, Side};
use crate::host::objects::create;

/// How often the prototype asks about an operation.
const ASK: Duration = Duration::from_millis(100);
/// The object with all allocations.
const POOL: &str = "allocations";

/// The prototype.
pub(super) struct Prototype {
    cloud: Gcp,
    pools: Api<ConfigMap>,
    entropy: SystemEntropy,
}

impl Prototype {
    pub(super) async fn new(bed: &Bed) -> Result<Self> {
        let zone = Side::Prototype.zone();
        bed.fake.add_instance(&zone, "helper", SUBNET);
        let metadata = Metadata::at(&bed.fake.metadata(&zone, "helper").await?);
        let tokens = Tokens::new(TokenSource::Metadata(metadata), Arc::new(SystemClock));
        let endpoints = Endpoints { compute: bed.fake.compute(), connectivity: bed.fake.connectivity() };
        let pools: Api<ConfigMap> = Api::namespaced(bed.client.clone(), NAMESPACE);
        create(&pools, json!({"metadata": {"name": POOL}})).await?;
        Ok(Self { cloud: Gcp::new(PROJECT, endpoints, tokens)?, pools, entropy: SystemEntropy::new()? })
    }

    /// What so many pods cost, and their moves.
    pub(super) async fn measure(&self, bed: &Bed, pods: usize) -> Result<[Cost; 2]> {
        let [source, target] =
            ["source", "target"].map(|name| Self::machine(bed, &format!("{name}-of-{pods}")));
        let (started, ranges) = bed.cost(Side::Prototype, self.start(&source, pods)).await?;
        let (moved, ()) = bed.cost(Side::Prototype, self.move_all(&source, &target, &ranges)).await?;
        Ok([started, moved])
    }

    fn machine(bed: &Bed, name: &str) -> InterfaceId {
        let zone = Side::Prototype.zone();
        bed.fake.add_instance(&zone, name, SUBNET);
        InterfaceId::first(&zone, name)
    }

    async fn start(&self, machine: &InterfaceId, pods: usize) -> Result<Vec<AliasRange>> {
        let lock = tokio::sync::Mutex::new(());
        let mut ranges = Vec::new();
        for number in 0..pods {
            let _locked = lock.lock().await;
            let range = self.allocate(&format!("pod-{number}"), machine).await?;
            self.change(machine, |aliases| aliases.insert(range.clone())).await?;
            ranges.push(range);
        }
        Ok(ranges)
    }

    async fn move_all(
        &self,
        source: &InterfaceId,
        target: &InterfaceId,
        ranges: &[AliasRange],
    ) -> Result<()> {
        let lock = tokio::sync::Mutex::new(());
        for range in ranges {
            let _locked = lock.lock().await;
            self.change(source, |aliases| aliases.remove(range)).await?;
            self.change(target, |aliases| aliases.insert(range.clone())).await?;
            self.note(range, target).await?;
        }
        Ok(())
    }

    /// The first free address, written into the object.
    async fn allocate(&self, pod: &str, machine: &InterfaceId) -> Result<AliasRange> {
        let mut object = self.pools.get(POOL).await?;
        let taken = object.data.get_or_insert_default();
        let free =
            (1..=u8::MAX).map(|last| format!("10.113.0.{last}")).find(|address| !taken.contains_key(address));
        let address = free.context("no address is free")?;
        let range = AliasRange { cidr: format!("{address}/32").parse()?, range: RANGE.to_owned() };
        taken.insert(address, json!({"node": machine.instance, "pod": pod}).to_string());
        self.pools.replace(POOL, &PostParams::default(), &object).await?;
        Ok(range)
    }

    /// Writes where an address is now.
    async fn note(&self, range: &AliasRange, machine: &InterfaceId) -> Result<()> {
        let mut object = self.pools.get(POOL).await?;
        let entries: &mut BTreeMap<String, String> = object.data.get_or_insert_default();
        entries.insert(range.cidr.first().to_string(), json!({"node": machine.instance}).to_string());
        self.pools.replace(POOL, &PostParams::default(), &object).await?;
        Ok(())
    }

    /// Get, patch, wait.
    async fn change(
        &self,
        machine: &InterfaceId,
        change: impl FnOnce(&mut BTreeSet<AliasRange>) -> bool,
    ) -> Result<()> {
        let observed = self.cloud.observe(machine).await?;
        let mut aliases = observed.aliases.clone();
        change(&mut aliases);
        let update = Update {
            interface: machine.clone(),
            added: aliases.difference(&observed.aliases).cloned().collect(),
            removed: observed.aliases.difference(&aliases).cloned().collect(),
            aliases,
            version: observed.version,
            request: self.entropy.uuid(),
        };
        let ticket = self.cloud.apply(&update).await?;
        loop {
            match self.cloud.poll(machine, &ticket).await? {
                Progress::Done => return Ok(()),
                Progress::Failed(error) => bail!("{error}"),
                Progress::Running => tokio::time::sleep(ASK).await,
            }
        }
    }
}
