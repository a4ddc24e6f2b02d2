//! Who had what when: the histories of several nodes as one, and `tenure who ADDRESS --at` and `--history`.
//!
//! What is said follows from what was told ([`Told`]) alone. Each answer says what it cannot know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use tenure_handles::{Clock, SystemClock};
use tenure_history::Query;
use tenure_view::{End, GapKind, Had, Period};

use crate::agents::Histories;
use crate::query::Source;
use crate::table::{self, COULD_NOT_LOOK, Format, Output};

/// Which time, and which nodes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PastOptions {
    /// At which time: such as 2026-11-15T09:00:00Z, or how long ago, such as 2h, 90m or 3d
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub(crate) at: Option<Timestamp>,
    /// Ask this node alone about the past; may be given several times
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
}

/// A time, or how long it is ago.
fn moment(text: &str) -> Result<Timestamp, String> {
    moment_before(text, SystemClock.now().to_jiff())
}

fn moment_before(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let age = text.strip_prefix('-').unwrap_or(text).trim_end_matches(" ago");
    let ago = tenure_daemon::age(age).ok().and_then(|age| now.checked_sub(age).ok());
    ago.ok_or_else(|| {
        format!(
            "\"{text}\" is no time; accepted are such as 2026-11-15T09:00:00Z, or how long ago: 2h, 90m, 3d"
        )
    })
}

/// What nodes told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) histories: Histories,
    /// When nodes were made, if there are objects of them.
    pub(crate) made: BTreeMap<String, Timestamp>,
    /// Whether nodes come and go.
    pub(crate) cluster: bool,
}

/// A period on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) node: String,
    #[serde(flatten)]
    pub(crate) period: Period,
}

/// What is not known of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unknown {
    node: String,
    kind: GapKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Timestamp>,
    message: String,
}

/// The histories of all nodes as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Past {
    /// Who had what, oldest first.
    pub(crate) periods: Vec<Row>,
    /// What is not known.
    pub(crate) unknown: Vec<Unknown>,
    /// Nodes that have more, older than these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) more: Vec<String>,
}

/// Asks the nodes.
pub(crate) async fn ask(source: &Source, options: &PastOptions, query: &Query) -> Result<Told> {
    let mut told = Told { cluster: source.cluster, ..Told::default() };
    if let Ok(client) = source.client()
        && source.cluster
    {
        let nodes: Api<Node> = Api::all(client.clone());
        // Who may not list nodes hears of those that have agents.
        for node in nodes.list(&ListParams::default()).await.into_iter().flatten() {
            let made = node.creation_timestamp().map_or(Timestamp::MIN, |time| time.0);
            told.made.insert(node.name_any(), made);
        }
    }
    let nodes: BTreeSet<String> = told.made.keys().chain(&options.nodes).cloned().collect();
    told.histories = source.agents.histories(&options.nodes, &nodes, &query.encode()).await;
    anyhow::ensure!(
        !told.histories.is_empty(),
        "nobody could be asked: no agent was found; accepted is --agents-namespace NAMESPACE, or --run-dir DIRECTORY for one host"
    );
    Ok(told)
}

/// Puts histories together.
pub(crate) fn merge(told: &Told, (from, to): (Option<Timestamp>, Option<Timestamp>)) -> Past {
    let mut past = Past { periods: Vec::new(), unknown: Vec::new(), more: Vec::new() };
    for (node, history) in &told.histories {
        let history = match history {
            Ok(history) => history,
            Err(message) => {
                let (kind, message) = (GapKind::Unreachable, message.clone());
                past.unknown.push(Unknown { node: node.clone(), kind, from: None, to: None, message });
                continue;
            }
        };
        let period = |period: &Period| Row { node: node.clone(), period: period.clone() };
        past.periods.extend(history.periods.iter().filter(|it| it.overlaps(from, to)).map(period));
        past.more.extend(history.more.then(|| node.clone()));
        // Before a node was made there was nothing to know of it.
        let made = told.made.get(node).copied();
        let matters = |gap: &&tenure_view::Gap| {
            gap.kind != GapKind::Before || made.zip(to).is_none_or(|(made, to)| to >= made)
        };
        past.unknown.extend(history.gaps.iter().filter(matters).map(|gap| Unknown {
            node: node.clone(),
            kind: gap.kind,
            from: gap.from,
            to: gap.to,
            message: gap.message.clone(),
        }));
    }
    past.periods.sort_by(|one, other| {
        let order = |row: &Row| (row.period.from, row.period.to.unwrap_or(Timestamp::MAX), row.node.clone());
        order(one).cmp(&order(other))
    });
    past
}

impl Past {
    /// Whether a node could not be asked.
    fn is_incomplete(&self) -> bool {
        self.unknown.iter().any(|it| it.kind == GapKind::Unreachable)
    }

    /// What is not known, a line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        const FEW: usize = 5;
        let is_before = |it: &&Unknown| it.kind == GapKind::Before;
        let line = |it: &Unknown| format!("node {}: {}", it.node, it.message);
        let before: Vec<&Unknown> = self.unknown.iter().filter(is_before).collect();
        let mut notes: Vec<String> = Vec::new();
        if before.len() > FEW {
            let begins = |it: &&&Unknown| it.to;
            let ends = before.iter().min_by_key(begins).zip(before.iter().max_by_key(begins));
            notes.extend(ends.map(|(first, last)| {
                format!(
                    "the histories of {} nodes begin later: {} first ({}), {} last ({})",
                    before.len(),
                    first.node,
                    first.message,
                    last.node,
                    last.message
                )
            }));
        } else {
            notes.extend(before.into_iter().map(line));
        }
        notes.extend(self.unknown.iter().filter(|it| !is_before(it)).map(line));
        notes.extend(self.more.iter().map(|node| {
            format!("node {node}: there is more, and older; --at TIME says who had it at one time")
        }));
        notes
    }

    /// As a list; with the exit code of a list.
    pub(crate) fn output(&self, format: Format, columns: impl FnOnce(&[Row]) -> String) -> Result<Output> {
        let output = Output::either(format, self, || columns(&self.periods))?.noting(format, &self.notes());
        Ok(Output { code: if self.is_incomplete() { COULD_NOT_LOOK } else { 0 }, ..output })
    }

    /// Those who had it at a moment, or may have had it, best first.
    pub(crate) fn at(&self, at: Timestamp) -> Vec<(Had, &Row)> {
        let mut had: Vec<(Had, &Row)> = self
            .periods
            .iter()
            .map(|row| (row.period.had(at), row))
            .filter(|(had, _)| *had > Had::No)
            .collect();
        // While a claim moves, two holders have it.
        had.sort_by_key(|(had, row)| (std::cmp::Reverse(*had), !row.period.is_reached()));
        had
    }
}

/// The answer of `tenure who ADDRESS --at TIME`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AnswerAt {
    address: IpAddr,
    at: Timestamp,
    state: StateAt,
    /// One sentence with the answer.
    summary: String,
    /// Who had it, or may have had it, best first.
    holders: Vec<Row>,
    unknown: Vec<Unknown>,
}

/// The state of an address at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum StateAt {
    /// Somebody had it.
    Held,
    /// Somebody had it shortly before, and nobody saw the end.
    Maybe,
    /// No node that is there now had given it to anybody.
    Nobody,
    /// A node cannot tell.
    Unknown,
}

/// Runs `tenure who ADDRESS --at TIME` or `--history`.
pub(crate) async fn who(
    source: &Source,
    address: IpAddr,
    options: &PastOptions,
    format: Format,
) -> Result<Output> {
    let who = tenure_history::Who::Address(address);
    let query = Query { who, from: options.at, to: options.at };
    let told = ask(source, options, &query).await?;
    let past = merge(&told, (query.from, query.to));
    let Some(at) = options.at else { return past.output(format, holders) };
    let answer = answer_at(&past, address, at, told.cluster);
    let code = if matches!(answer.state, StateAt::Held | StateAt::Nobody) { 0 } else { COULD_NOT_LOOK };
    // Whoever had it, the others had not.
    let notes = if answer.state == StateAt::Held { Vec::new() } else { past.notes() };
    let output = Output::either(format, &answer, || text_at(&answer))?.noting(format, &notes);
    Ok(Output { code, ..output })
}

fn answer_at(past: &Past, address: IpAddr, at: Timestamp, cluster: bool) -> AnswerAt {
    let had = past.at(at);
    let removed = if cluster { "; nodes that were removed since then cannot be asked" } else { "" };
    let (state, summary) = match had.first() {
        Some((Had::Yes, row)) => (
            StateAt::Held,
            format!("{address} was held by {} on node {} at {at}", row.period.holder, row.node),
        ),
        Some((_, row)) => (
            StateAt::Maybe,
            format!(
                "{address} may have been held by {} on node {} at {at}: {}",
                row.period.holder,
                row.node,
                uncertainty(&row.period)
            ),
        ),
        None if past.unknown.is_empty() => {
            (StateAt::Nobody, format!("nobody held {address} at {at}{removed}"))
        }
        None => (
            StateAt::Unknown,
            format!(
                "it is not known whether anybody held {address} at {at}: no node knows a holder, and not all can know"
            ),
        ),
    };
    let holders = had.into_iter().map(|(_, row)| row.clone()).collect();
    AnswerAt { address, at, state, summary, holders, unknown: past.unknown.clone() }
}

/// Why it is not certain that a holder still had something.
fn uncertainty(period: &Period) -> String {
    match (period.seen, period.to) {
        (Some(seen), Some(to)) => format!("it had it at {seen}, and at {to} it was found to be over"),
        (None, Some(to)) => format!("at {to} it was found to be over"),
        _ => "it is not known since when".to_owned(),
    }
}

fn text_at(answer: &AnswerAt) -> String {
    let blocks = answer.holders.iter().map(|row| {
        let Row { node, period } = row;
        let (holder, claim) = (&period.holder, period.claim.as_ref());
        let other = period.addresses.iter().filter(|it| **it != answer.address).map(ToString::to_string);
        table::fields([
            ("pod", holder.pod.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("claim", claim.map(|claim| claim.name.clone()).unwrap_or_default()),
            (
                "packets",
                claim
                    .map(|claim| if claim.reached { "arrived" } else { "did not arrive" }.to_owned())
                    .unwrap_or_default(),
            ),
            (
                "interface",
                format!("{} of container {}, network {}", holder.interface, holder.container, holder.network),
            ),
            ("node", node.clone()),
            ("block", period.block.clone()),
            ("pool", period.pool.clone()),
            ("from", since(period)),
            ("to", until(period)),
            ("with", other.collect::<Vec<_>>().join(", ")),
        ])
    });
    let blocks: Vec<String> = blocks.collect();
    format!("{}\n{}", answer.summary, blocks.join("\n"))
}

/// When a period began.
pub(crate) fn since(period: &Period) -> String {
    period.from.map_or_else(|| "unknown".to_owned(), |from| from.to_string())
}

/// When and how a period ended.
pub(crate) fn until(period: &Period) -> String {
    let Some(to) = period.to else { return "now".to_owned() };
    match (period.end, period.seen) {
        (Some(End::Unseen), Some(seen)) => format!("{to} (unseen, held at {seen})"),
        (Some(End::Unseen), None) => format!("{to} (unseen)"),
        (Some(End::Replaced), _) => format!("{to} (replaced)"),
        (Some(End::Moved), _) => format!("{to} (moved)"),
        _ => to.to_string(),
    }
}

/// A dash for nothing.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn holders(rows: &[Row]) -> String {
    let row = |Row { node, period }: &Row| {
        let claim = period.claim.as_ref().map(|claim| {
            if claim.reached { claim.name.clone() } else { format!("{} (no packets)", claim.name) }
        });
        [
            since(period),
            until(period),
            period.holder.to_string(),
            node.clone(),
            or_dash(&period.pool),
            claim.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table::columns(["FROM", "TO", "HOLDER", "NODE", "POOL", "CLAIM"], rows.iter().map(row))
}

#[cfg(test)]
mod tests;
