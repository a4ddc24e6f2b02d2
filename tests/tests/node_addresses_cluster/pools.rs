//! Pools that people reset and make again.

use anyhow::{Result, ensure};
use kube::{Api, ResourceExt};
use tenure_api::nmstate::NodeIPPool;
use tenure_testbed::cluster::Cluster;
use tenure_testbed::wait::eventually;

use super::POOLS;
use super::bed::{addresses, available, connected, pool, pool_says};

/// Of a pool: everyone keeps its address. Of a policy: everyone gets another. (Of an enactment, see the main test.)
pub async fn reset(cluster: &Cluster) -> Result<()> {
    let before = addresses(cluster, "eth1")?;
    cluster.kubectl(&["annotate", "nodeippool", "traffic-1", "nmstate.io/reset-ippool="]).await?;
    let pools: Api<NodeIPPool> = Api::all(cluster.client()?);
    eventually("the reset of the pool", async || {
        let pool = pools.get("traffic-1").await?;
        Ok(pool.annotations().get("nmstate.io/reset-ippool").is_none().then_some(()))
    })
    .await?;
    pool_says(cluster, "traffic-1", "ReconciledPool").await?;
    ensure!(addresses(cluster, "eth1")? == before, "a reset of the pool keeps what is held");
    cluster.kubectl(&["annotate", "nncp", "static-ip", "nmstate.io/reset-ippool=traffic-1"]).await?;
    eventually("other addresses everywhere", async || {
        let now = addresses(cluster, "eth1")?;
        Ok((now.len() == 3 && now.iter().all(|(node, it)| before[node] != *it)).then_some(()))
    })
    .await?;
    available(cluster, "static-ip", 3).await?;
    connected(cluster, 3)
}

/// The pool is deleted and made again, larger.
pub async fn made_again(cluster: &Cluster) -> Result<()> {
    let before = addresses(cluster, "eth1")?;
    cluster.kubectl(&["delete", "nodeippool", "traffic-1", "--timeout=300s"]).await?;
    ensure!(addresses(cluster, "eth1")? == before, "nodes do not need the pool");
    cluster.apply(&POOLS.replace("end: 10.10.10.10", "end: 10.10.10.20")).await?;
    eventually("the pool to know what is taken", async || {
        let taken = pool(cluster, "traffic-1").await?.allocated_offsets.unwrap_or_default();
        Ok((taken.len() == 3).then_some(()))
    })
    .await?;
    available(cluster, "static-ip", 3).await?;
    ensure!(addresses(cluster, "eth1")? == before, "everyone keeps its address");
    Ok(())
}
