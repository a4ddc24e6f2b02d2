//! What the cluster has already, compared with a plan. Reading is here, and deciding is without I/O.
//!
//! The manifests are applied onto what is there. So nothing may be planned that would take a block from a node, change a pool, or
//! create a namespace: `kubectl apply` does all of that without asking.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tenure_api::coil::{AddressBlock, AddressPool, annotation};
use tenure_api::overlap::shared_networks;
use tenure_ipam::{Cidr, Subnet};

use super::finding::{Finding, quoted};
use super::plan::Plan;
use super::{IMPORTED, records::Records};
use crate::snapshot::every_if_known;

/// What is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) pools: Vec<AddressPool>,
    pub(super) blocks: Vec<AddressBlock>,
    pub(super) nodes: BTreeSet<String>,
    /// The pool that each namespace names.
    pub(super) namespaces: BTreeMap<String, Option<String>>,
}

impl Cluster {
    /// Reads it. Kinds that are not installed yet have no objects.
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let everything = ListParams::default();
        let nodes: Api<Node> = Api::all(client.clone());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespaces = namespaces.list(&everything).await.context("cannot list Namespaces")?;
        Ok(Self {
            pools: every_if_known(client, "AddressPools").await?,
            blocks: every_if_known(client, "AddressBlocks").await?,
            nodes: nodes
                .list(&everything)
                .await
                .context("cannot list Nodes")?
                .iter()
                .map(ResourceExt::name_any)
                .collect(),
            namespaces: namespaces
                .iter()
                .map(|it| (it.name_any(), it.annotations().get(annotation::POOL).cloned()))
                .collect(),
        })
    }
}

/// Adapts a plan to what is there.
pub(super) fn adapt(plan: &mut Plan, cluster: &Cluster) {
    pools(plan, cluster);
    blocks(plan, cluster);
    namespaces(plan, cluster);
    plan.findings.sort();
    plan.findings.dedup();
}

/// Without a cluster, only namespaces whose pods have addresses are known to exist.
pub(super) fn guess_namespaces(plan: &mut Plan, records: &Records) {
    let used = |namespace: &str| {
        let start = format!("pod {namespace}/");
        records.uses.iter().any(|used| used.holder.starts_with(&start))
    };
    plan.namespaces.retain(|namespace, _| used(namespace));
}

fn pools(plan: &mut Plan, cluster: &Cluster) {
    let subnets = |pool: &AddressPool| -> Vec<Option<Subnet>> {
        pool.spec.subnets.iter().map(|subnet| subnet.to_subnet().ok()).collect()
    };
    for pool in &mut plan.pools {
        let name = pool.name_any();
        let Some(there) = cluster.pools.iter().find(|there| there.name_any() == name) else { continue };
        if there.spec.block_size_bits == pool.spec.block_size_bits
            && subnets(there).starts_with(&subnets(pool))
        {
            // It may have grown since it was imported.
            pool.spec = there.spec.clone();
        } else {
            plan.findings.push(Finding::error(
                format!("AddressPool {name}"),
                "the cluster has it with other subnets or blocks",
                "give the imported one another name with --rename OLD=NEW, or delete the one that is there",
            ));
        }
    }
    let others =
        cluster.pools.iter().filter(|there| plan.pools.iter().all(|it| it.name_any() != there.name_any()));
    let all: Vec<&AddressPool> = plan.pools.iter().chain(others).collect();
    let networks = all.iter().enumerate().flat_map(|(position, pool)| {
        let networks = subnets(pool).into_iter().flatten();
        let networks = networks.flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten();
        networks.map(move |network| (network, position))
    });
    let shared: Vec<(Cidr, usize, usize)> = shared_networks(networks.collect());
    let imported = plan.pools.len();
    let findings = shared.iter().filter(|(_, one, other)| *one < imported && *other >= imported).filter_map(
        |(network, one, other)| {
            let (one, other) = (all.get(*one)?.name_any(), all.get(*other)?.name_any());
            Some(Finding::error(
                format!("AddressPool {other}"),
                format!(
                    "it has {network}, which pool \"{one}\" has, too, and may have assigned addresses in use"
                ),
                "accepted are pools that share no address; delete it before you import",
            ))
        },
    );
    let findings: Vec<Finding> = findings.collect();
    plan.findings.extend(findings);
}

fn blocks(plan: &mut Plan, cluster: &Cluster) {
    let there: BTreeMap<String, &AddressBlock> =
        cluster.blocks.iter().map(|block| (block.name_any(), block)).collect();
    for block in &plan.blocks {
        let name = block.object.name_any();
        if let Some(node) = block.object.node().filter(|node| !cluster.nodes.contains(*node)) {
            plan.findings.push(Finding::note(
                format!("AddressBlock {name}"),
                format!("the cluster has no node {}", quoted(node)),
                "it is reserved until `tenure import finish`",
            ));
        }
        let Some(other) = there.get(&name) else { continue };
        let same = other.spec.to_subnet().ok() == block.object.spec.to_subnet().ok();
        if !other.is_reserved() {
            let whose = other.node().map_or("nobody".to_owned(), |node| format!("node {node}"));
            plan.findings.push(Finding::error(
                format!("AddressBlock {name}"),
                format!("it is there already, is {whose}'s, and is not reserved"),
                "import before anything assigns from the pool; if this was imported before, there is nothing to do",
            ));
        } else if !same {
            plan.findings.push(Finding::error(
                format!("AddressBlock {name}"),
                "it is there already, with other addresses",
                "delete it if no pod has any of them",
            ));
        } else if !other.labels().contains_key(IMPORTED) {
            plan.findings.push(Finding::note(
                format!("AddressBlock {name}"),
                "somebody else has reserved it",
                "it becomes one that `tenure import finish` removes",
            ));
        }
    }
}

fn namespaces(plan: &mut Plan, cluster: &Cluster) {
    let findings = &mut plan.findings;
    plan.namespaces.retain(|namespace, pool| match cluster.namespaces.get(namespace) {
        None => {
            findings.push(Finding::note(
                format!("Namespace {}", quoted(namespace)),
                format!("it is not there, so that pool \"{pool}\" serves nobody"),
                "name the pool in the annotation of the namespaces that are to use it",
            ));
            false
        }
        Some(Some(other)) if other != pool => {
            findings.push(Finding::note(
                format!("Namespace {namespace}"),
                format!("it names pool {} already, and not \"{pool}\"", quoted(other)),
                "it stays as it is",
            ));
            false
        }
        Some(_) => true,
    });
}

#[cfg(test)]
mod tests;
