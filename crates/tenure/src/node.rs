//! `tenure node`: a node's blocks and slices, its holds, and what it waits for.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use tenure_view::{Hold, Node};

use crate::query::QueryOptions;
use crate::ranges::{Ranges, used};
use crate::snapshot::{self, Snapshot};
use crate::table::{self, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// The node; on one host it need not be named
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Runs the verb. With `-o json` the output is the agent's state and the node's slices.
pub(crate) async fn run(options: NodeOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let name = match &options.name {
        Some(name) => name.as_str(),
        None if source.cluster => anyhow::bail!("which node? accepted is `tenure node NAME`"),
        None => "",
    };
    let told =
        source.agents.one(name).await.map_err(|problem| anyhow!("cannot look at the node: {problem}"))?;
    if !name.is_empty() && told.node != name {
        anyhow::bail!("this host is node \"{}\", not \"{name}\"; accepted is its name, or none", told.node);
    }
    let ranges = match source.client() {
        Ok(_) => Snapshot::of_ranges(&source).await?,
        // A host of a cluster: its blocks include what it knows of slices.
        Err(_) => Ranges::default(),
    };
    let slices = slices(&ranges, &told.node);
    let shown = Shown { node: &told, slices: &slices };
    Output::either(options.query.output, &shown, || text(&told, &slices, snapshot::now()))
}

/// The output of `-o json`: the agent's state, and the node's slices.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    #[serde(flatten)]
    pub(crate) node: &'a Node,
    pub(crate) slices: &'a [SliceRow],
}

/// A slice of the node, according to the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceRow {
    /// The `NodeSlicePool`.
    pool: String,
    slice: String,
    /// Its `IPPool`, if anything was ever held.
    ledger: Option<String>,
    /// As decimal strings, because an IPv6 slice has more addresses than fit into a number.
    used: String,
    free: String,
}

/// The slices of a node.
pub(crate) fn slices(ranges: &Ranges, node: &str) -> Vec<SliceRow> {
    let own = ranges.slices().filter(|slice| slice.node == node);
    let row = |slice: crate::ranges::Slice<'_>| {
        let used = used(slice.ledger);
        SliceRow {
            pool: slice.pool.to_owned(),
            slice: slice.cidr.to_string(),
            ledger: slice.ledger.map(ResourceExt::name_any),
            used: used.to_string(),
            free: slice.cidr.size().saturating_sub(used).to_string(),
        }
    };
    own.map(row).collect()
}

fn text(node: &Node, slices: &[SliceRow], now: Timestamp) -> String {
    let mut text = head(node, now);
    let mut section = |title: &str, body: String| {
        _ = write!(text, "\n{title}\n{body}");
    };
    if !node.pools.is_empty() {
        section("POOLS", pools(node));
    }
    if !node.blocks.is_empty() {
        section("BLOCKS", blocks(node));
    }
    if !slices.is_empty() {
        let row = |it: &SliceRow| {
            let ledger = it.ledger.clone().unwrap_or_else(|| "-".to_owned());
            [it.pool.clone(), it.slice.clone(), it.used.clone(), it.free.clone(), ledger]
        };
        section(
            "SLICES",
            table::columns(["POOL", "SLICE", "USED", "FREE", "IPPOOL"], slices.iter().map(row)),
        );
    }
    if !node.holds.is_empty() {
        section("HOLDS", holds(node, now));
    }
    if !node.node_addresses.is_empty() {
        section("NODE ADDRESSES", node_addresses(node));
    }
    if !node.cooling.is_empty() {
        section("COOLING", cooling(node, now));
    }
    if !node.waiting.is_empty() {
        section("WAITING", waiting(node, now));
    }
    let differences = node.kernel.iter().flat_map(|kernel| &kernel.differences);
    let differences: Vec<_> = differences.map(|it| [it.subject.clone(), it.problem.clone()]).collect();
    if !differences.is_empty() {
        section("KERNEL", table::columns(["SUBJECT", "PROBLEM"], differences));
    }
    text
}

fn head(node: &Node, now: Timestamp) -> String {
    let state = match (&node.problem, node.ready) {
        (Some(problem), _) => problem.clone(),
        (None, true) => "assigns addresses".to_owned(),
        (None, false) => "reads the existing holds; nothing is assigned yet".to_owned(),
    };
    let failing = node.api.watches.iter().filter_map(|watch| Some((&watch.kind, watch.problem.as_ref()?)));
    let failing: Vec<String> = failing.map(|(kind, problem)| format!("{kind}: {problem}")).collect();
    let api = match node.api.answered {
        None => "never answered".to_owned(),
        Some(at) => format!("answered {} ago", table::ago(at, now)),
    };
    let api = if failing.is_empty() { api } else { format!("{api}; {}", failing.join("; ")) };
    let started = node.started.map(|at| format!(", started {} ago", table::ago(at, now)));
    let egress = node.egress.as_ref().map(|it| {
        let datapath = if it.datapath.is_empty() { "none" } else { &it.datapath };
        let pods = format!("{} clients, {} gateways, {} failing", it.clients, it.gateways, it.failing);
        ("egress", format!("{datapath} ({}); {pods}", it.reason))
    });
    let fields = [
        ("node", node.node.clone()),
        ("agent", format!("{}{}", node.version, started.unwrap_or_default())),
        ("state", state),
        ("journal", node.journal.problem.clone().unwrap_or_else(|| "works".to_owned())),
        ("API server", api),
    ];
    table::fields(fields.into_iter().chain(egress))
}

fn pools(node: &Node) -> String {
    let header = ["POOL", "BLOCKS", "USED", "COOLING", "FREE", "WAITING", "ASKED", "PROBLEM"];
    table::columns(
        header,
        node.pools.iter().map(|pool| {
            let counts = &pool.addresses;
            [
                pool.name.clone(),
                pool.blocks.to_string(),
                counts.held.to_string(),
                counts.cooling.to_string(),
                counts.free.to_string(),
                pool.waiting.to_string(),
                pool.asked.to_string(),
                pool.problem.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }),
    )
}

fn blocks(node: &Node) -> String {
    let header = ["BLOCK", "POOL", "NETWORKS", "USED", "COOLING", "FREE", "STATE"];
    table::columns(
        header,
        node.blocks.iter().map(|block| {
            let counts = &block.addresses;
            let state = match (&block.fenced, block.usable) {
                (Some(why), _) => format!("fenced: {why}"),
                (None, true) => "ok".to_owned(),
                (None, false) => "not assigned from".to_owned(),
            };
            [
                block.name.clone(),
                block.pool.clone(),
                table::list(block.networks.iter().map(ToString::to_string)),
                counts.held.to_string(),
                counts.cooling.to_string(),
                counts.free.to_string(),
                state,
            ]
        }),
    )
}

fn holds(node: &Node, now: Timestamp) -> String {
    let header = ["HOLDER", "ADDRESSES", "BLOCK", "SINCE", "INTERFACE", "RECEIVED", "SENT"];
    let dash = || "-".to_owned();
    table::columns(
        header,
        node.holds.iter().map(|hold: &Hold| {
            let traffic = hold.traffic.as_ref();
            [
                hold.holder.to_string(),
                table::list(hold.addresses.iter().map(ToString::to_string)),
                hold.block.clone().unwrap_or_else(|| "none of this node".to_owned()),
                hold.since.map_or_else(dash, |since| table::ago(since, now)),
                hold.host_interface.clone().unwrap_or_else(dash),
                traffic.map_or_else(dash, |it| table::bytes(it.received_bytes)),
                traffic.map_or_else(dash, |it| table::bytes(it.sent_bytes)),
            ]
        }),
    )
}

fn node_addresses(node: &Node) -> String {
    let header = ["POLICY", "ADDRESSES", "PROBLEM"];
    table::columns(
        header,
        node.node_addresses.iter().map(|it| {
            let addresses = it.addresses.iter().map(|it| format!("{} {}", it.interface, it.address));
            let problem = it.problem.clone().unwrap_or_else(|| "-".to_owned());
            [it.policy.clone(), table::list(addresses), problem]
        }),
    )
}

fn cooling(node: &Node, now: Timestamp) -> String {
    table::columns(
        ["ADDRESSES", "BLOCK", "FOR", "LAST HOLDER"],
        node.cooling.iter().map(|cooling| {
            [
                table::list(cooling.addresses.iter().map(ToString::to_string)),
                cooling.block.clone(),
                table::ago(now, cooling.until),
                cooling.last.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            ]
        }),
    )
}

fn waiting(node: &Node, now: Timestamp) -> String {
    table::columns(
        ["WHO", "POOL", "SINCE"],
        node.waiting.iter().map(|waiting| {
            [waiting.holder.to_string(), waiting.pool.clone(), table::ago(waiting.since, now)]
        }),
    )
}

#[cfg(test)]
mod tests;
