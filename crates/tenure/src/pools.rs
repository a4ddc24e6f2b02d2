//! `tenure pools`: size, use, blocks and conditions of each pool, of Whereabouts' ranges and slices, of pools of node addresses, and of
//! pools of alias addresses.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use kube::ResourceExt;
use serde::Serialize;
use tenure_api::coil::{AddressBlock, AddressPool, PoolUsage, condition};
use tenure_api::nmstate::condition::AVAILABLE;
use tenure_api::overlap::overlaps;
use tenure_ipam::IntervalSet;

use crate::conditions::Condition;
use crate::query::{QueryOptions, Source};
use crate::snapshot::{Snapshot, subnet};
use crate::table::{self, Format, Output};

mod of_aliases;
mod of_nodes;
mod of_ranges;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct PoolsOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Only these pools
    #[arg(value_name = "POOL")]
    names: Vec<String>,
}

/// A pool, as `tenure pools -o json` shows it. Counts are decimal strings, because an IPv6 pool has more addresses than
/// fit into a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// `AddressPool`, `IPPool` (a range that all nodes share, all of its objects together), `NodeSlicePool`, `NodeIPPool` (addresses
    /// of nodes) or `IPPool.ipam.gcp-cni.cast.ai` (alias addresses, whose blocks are the ranges of each node).
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) subnets: Vec<String>,
    addresses: Use,
    blocks: Option<PoolUsage>,
    blocks_per_node: BTreeMap<String, u64>,
    /// The problem, if there is one.
    problem: Option<String>,
    conditions: Vec<Condition>,
}

/// Addresses, an IPv4 and IPv6 pair counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Use {
    /// All assignable addresses, without excluded ones.
    size: String,
    /// Addresses with a holder.
    used: String,
    /// Addresses that cool before they are assigned again.
    cooling: String,
    /// The others.
    free: String,
    /// Nodes whose agent could not be asked: what their pods use is not counted.
    unknown_nodes: Vec<String>,
}

/// Runs the verb.
pub(crate) async fn run(options: PoolsOptions) -> Result<Output> {
    look(&options.query.source().await?, &options.names, options.query.output).await
}

/// The same for a known source.
pub(crate) async fn look(source: &Source, names: &[String], format: Format) -> Result<Output> {
    let snapshot = Snapshot::of_use(source).await?;
    let known: Vec<String> = rows(&snapshot).into_iter().map(|row| row.name).collect();
    for name in names {
        anyhow::ensure!(
            known.contains(name),
            "there is no pool \"{name}\"; there are {}",
            table::list(known.iter().cloned())
        );
    }
    say(&snapshot, names, format)
}

fn say(snapshot: &Snapshot, names: &[String], format: Format) -> Result<Output> {
    let mut rows = rows(snapshot);
    rows.retain(|row| names.is_empty() || names.contains(&row.name));
    let said = Output::either(format, &rows, || text(&rows))?;
    Ok(said.noting(format, &snapshot.silent()))
}

/// Takes the place of a node for blocks that no node owns; no node can have this name.
const OF_CLAIMS: &str = "(claims)";

/// All pools.
pub(crate) fn rows(snapshot: &Snapshot) -> Vec<Row> {
    let (engines, overlaps) = (snapshot.engines(), overlaps(&snapshot.pools));
    let row = |pool: &AddressPool| {
        let name = pool.name_any();
        let mut row = Row {
            kind: "AddressPool",
            subnets: pool
                .spec
                .subnets
                .iter()
                .flat_map(|it| [&it.ipv4, &it.ipv6])
                .flatten()
                .cloned()
                .collect(),
            addresses: Use::default(),
            blocks: None,
            blocks_per_node: BTreeMap::new(),
            problem: overlaps.invalid.get(&name).map(ToString::to_string),
            conditions: conditions(pool),
            name: name.clone(),
        };
        let mut carved = IntervalSet::new();
        let (mut held, mut cooling) = (0_u128, 0_u128);
        let own = |block: &&AddressBlock| block.pool() == Some(&name) && !block.is_withheld();
        for block in snapshot.blocks.iter().filter(own) {
            let of_claims = block.is_floating().then_some(OF_CLAIMS);
            let node = block.node().or(of_claims).unwrap_or_default().to_owned();
            if let (Some(engine), Some(subnet)) = (engines.get(&name), subnet(block))
                && let Some(index) = engine.pool().index_of(&subnet)
            {
                carved.insert(index, index);
            }
            *row.blocks_per_node.entry(node.clone()).or_default() += 1;
            match snapshot.counts(block) {
                Ok(counts) => {
                    held += u128::from(counts.held);
                    cooling += u128::from(counts.cooling);
                }
                Err(_) if block.is_reserved() => {}
                Err(_) if !row.addresses.unknown_nodes.contains(&node) => {
                    row.addresses.unknown_nodes.push(node);
                }
                Err(_) => {}
            }
        }
        if let Some(engine) = engines.get(&name) {
            let withheld =
                overlaps.younger.get(&name).map(|overlap| overlap.withheld.clone()).unwrap_or_default();
            row.blocks = Some(engine.usage(&carved, &withheld).0);
            let size = engine.address_capacity();
            row.addresses.size = size.to_string();
            row.addresses.used = held.to_string();
            row.addresses.cooling = cooling.to_string();
            row.addresses.free = size.saturating_sub(held).saturating_sub(cooling).to_string();
        }
        row
    };
    let mut rows: Vec<Row> = snapshot.pools.iter().map(row).collect();
    rows.extend(of_ranges::rows(&snapshot.ranges));
    rows.extend(of_nodes::rows(&snapshot.node_pools, snapshot.now));
    rows.extend(of_aliases::rows(&snapshot.aliases));
    rows
}

fn conditions(pool: &AddressPool) -> Vec<Condition> {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let mut conditions: Vec<Condition> = conditions.map(Condition::from).collect();
    if pool.metadata.deletion_timestamp.is_some()
        && !conditions.iter().any(|it| it.reason == condition::reason::DELETING)
    {
        conditions.push(Condition {
            type_: condition::READY.to_owned(),
            status: "False".to_owned(),
            reason: condition::reason::DELETING.to_owned(),
            message: "the pool is being deleted".to_owned(),
        });
    }
    conditions
}

/// The same for people.
pub(crate) fn text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no pools.\n".to_owned();
    }
    let header = ["POOL", "SIZE", "USED", "COOLING", "FREE", "BLOCKS", "BLOCKS PER NODE", "CONDITIONS"];
    table::columns(
        header,
        rows.iter().map(|row| {
            let unknown = if row.addresses.unknown_nodes.is_empty() { "" } else { "+?" };
            let at_most = if row.addresses.unknown_nodes.is_empty() { "" } else { "-?" };
            let count = |number: &str, mark: &str| {
                if number.is_empty() { "-".to_owned() } else { format!("{number}{mark}") }
            };
            let blocks =
                row.blocks.as_ref().map(|blocks| format!("{}/{}", blocks.allocated, blocks.capacity));
            [
                row.name.clone(),
                count(&row.addresses.size, ""),
                count(&row.addresses.used, unknown),
                count(&row.addresses.cooling, unknown),
                count(&row.addresses.free, at_most),
                blocks.unwrap_or_else(|| "-".to_owned()),
                per_node(&row.blocks_per_node),
                state(row),
            ]
        }),
    )
}

/// The nodes with the most blocks first, and not a whole cluster in one line.
fn per_node(blocks: &BTreeMap<String, u64>) -> String {
    const SHOWN: usize = 4;
    let mut nodes: Vec<(&String, &u64)> = blocks.iter().collect();
    nodes.sort_by_key(|(node, count)| (std::cmp::Reverse(**count), (*node).clone()));
    let more = nodes.len().saturating_sub(SHOWN);
    let shown = nodes.iter().take(SHOWN).map(|(node, count)| format!("{node} {count}"));
    table::list(shown.chain((more > 0).then(|| format!("{more} more"))))
}

fn state(row: &Row) -> String {
    if row.problem.is_some() {
        return condition::reason::INVALID.to_owned();
    }
    let said = row.conditions.iter().filter_map(|it| match (it.type_.as_str(), it.status.as_str()) {
        (condition::READY, "True") => Some(condition::READY.to_owned()),
        (AVAILABLE, "True") => Some(AVAILABLE.to_owned()),
        (AVAILABLE, _) => Some(format!("not available ({})", it.reason)),
        (condition::READY, _) => Some(format!("not ready ({})", it.reason)),
        (_, "True") => Some(it.type_.clone()),
        _ => None,
    });
    table::list(said)
}

#[cfg(test)]
mod tests;
