//! `tenure node`: a node's blocks, who holds what, and what it waits for.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use clap::Args;
use jiff::Timestamp;
use tenure_view::{Hold, Node};

use crate::place::Place;
use crate::snapshot;
use crate::table::{self, Said};

/// What can be said.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The node; on one host it need not be named
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Looks and says. With `-o json` it is what the agent tells.
pub(crate) async fn run(options: Options) -> Result<Said> {
    let source = options.place.source().await?;
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
    Said::either(options.place.output, &told, || text(&told, snapshot::now()))
}

fn text(node: &Node, now: Timestamp) -> String {
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
    if !node.holds.is_empty() {
        section("HOLDS", holds(node, now));
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
        (None, true) => "hands out addresses".to_owned(),
        (None, false) => "reads what is held; nothing is handed out yet".to_owned(),
    };
    let failing = node.api.watches.iter().filter_map(|watch| Some((&watch.kind, watch.problem.as_ref()?)));
    let failing: Vec<String> = failing.map(|(kind, problem)| format!("{kind}: {problem}")).collect();
    let api = match node.api.answered {
        None => "never answered".to_owned(),
        Some(at) => format!("answered {} ago", table::ago(at, now)),
    };
    let api = if failing.is_empty() { api } else { format!("{api}; {}", failing.join("; ")) };
    let started = node.started.map(|at| format!(", started {} ago", table::ago(at, now)));
    table::fields([
        ("node", node.node.clone()),
        ("agent", format!("{}{}", node.version, started.unwrap_or_default())),
        ("state", state),
        ("journal", node.journal.problem.clone().unwrap_or_else(|| "works".to_owned())),
        ("API server", api),
    ])
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
                (None, false) => "not handed out of".to_owned(),
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
