//! `tenure blocks`: the owner of each block, and how full it is.

use anyhow::Result;
use clap::Args;
use kube::ResourceExt;
use serde::Serialize;
use tenure_api::coil::AddressBlock;
use tenure_view::Counts;

use crate::query::QueryOptions;
use crate::snapshot::Snapshot;
use crate::table::{self, Format, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct BlocksOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Only blocks of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only blocks of this node
    #[arg(long)]
    node: Option<String>,
}

/// A block, as `tenure blocks -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    name: String,
    pool: Option<String>,
    node: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
    /// No node owns it: its addresses are for claims.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    floating: bool,
    /// Nobody assigns from it.
    reserved: bool,
    /// Its object is being deleted.
    deleting: bool,
    /// How many addresses are in each state; `None` if its agent does not answer.
    addresses: Option<Counts>,
    /// Why its agent does not answer, or why nothing is assigned from it.
    problem: Option<String>,
}

/// Runs the verb.
pub(crate) async fn run(options: BlocksOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let mut snapshot = Snapshot::of_objects(&source).await?;
    snapshot.blocks.retain(|block| {
        let is =
            |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
        is(&options.pool, block.pool()) && is(&options.node, block.node())
    });
    // Only the agents of the shown blocks are asked.
    let owners = snapshot.owners();
    snapshot.agents = source.agents.all(&owners).await;
    snapshot.agents.retain(|node, _| owners.contains(node));
    say(&snapshot, options.query.output)
}

fn say(snapshot: &Snapshot, format: Format) -> Result<Output> {
    let rows: Vec<Row> = snapshot.blocks.iter().map(|block| row(snapshot, block)).collect();
    let said = Output::either(format, &rows, || text(&rows))?;
    Ok(said.noting(format, &snapshot.silent()))
}

/// A block.
pub(crate) fn row(snapshot: &Snapshot, block: &AddressBlock) -> Row {
    let counts = snapshot.counts(block);
    let fenced = snapshot.told(block).ok().and_then(|told| told.fenced.clone());
    Row {
        name: block.name_any(),
        pool: block.pool().map(str::to_owned),
        node: block.node().map(str::to_owned),
        ipv4: block.spec.ipv4.clone(),
        ipv6: block.spec.ipv6.clone(),
        floating: block.is_floating(),
        reserved: block.is_reserved(),
        deleting: block.metadata.deletion_timestamp.is_some(),
        addresses: counts.as_ref().ok().copied(),
        problem: fenced.or_else(|| counts.err()),
    }
}

fn text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no blocks.\n".to_owned();
    }
    let header = ["BLOCK", "POOL", "NODE", "IPV4", "IPV6", "USED", "COOLING", "FREE", "STATE"];
    table::columns(
        header,
        rows.iter().map(|row| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            let count = |of: fn(&Counts) -> u64| {
                row.addresses.as_ref().map_or("?".to_owned(), |it| of(it).to_string())
            };
            [
                row.name.clone(),
                text(&row.pool),
                text(&row.node),
                text(&row.ipv4),
                text(&row.ipv6),
                count(|it| it.held),
                count(|it| it.cooling),
                count(|it| it.free),
                state(row),
            ]
        }),
    )
}

fn state(row: &Row) -> String {
    let words = [(row.floating, "for claims"), (row.reserved, "reserved"), (row.deleting, "deleting")];
    let words = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned());
    let fenced =
        row.addresses.is_some().then(|| row.problem.clone()).flatten().map(|why| format!("fenced: {why}"));
    let unknown = row.addresses.is_none().then(|| "unknown".to_owned());
    let said: Vec<String> = words.chain(fenced).chain(unknown).collect();
    if said.is_empty() { "ok".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests;
