//! `tenure check`: compares everything with everything on a live system, and names each difference with what
//! to do.
//!
//! A difference may be a change in progress. So if anything differs, everything is read again a little later,
//! and only differences that were seen both times are reported.

mod agents;
mod aliases;
mod nodes;
mod objects;
mod pods;
mod ranges;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::query::{QueryOptions, Source};
use crate::snapshot::Snapshot;
use crate::table::{self, COULD_NOT_LOOK, Format, Output};

/// The exit code for differences.
const DIFFERENCES: u8 = 1;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// How long after the first look the second one is, if anything differs
    #[arg(long, default_value = "3s", value_parser = tenure_daemon::duration)]
    settle: Duration,
}

/// The output of `tenure check -o json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Findings {
    /// What is not as it should be.
    pub(crate) differences: Vec<Difference>,
    /// What could not be read.
    pub(crate) unseen: Vec<Unseen>,
    /// How much was compared.
    pub(crate) compared: Compared,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    /// The comparison that found it, as one stable word.
    pub(crate) kind: &'static str,
    /// The object.
    pub(crate) subject: String,
    /// What is wrong.
    pub(crate) problem: String,
    /// What to do.
    pub(crate) advice: String,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unseen {
    /// What.
    pub(crate) subject: String,
    /// Why.
    pub(crate) reason: String,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compared {
    pools: usize,
    blocks: usize,
    requests: usize,
    nodes: usize,
    holds: usize,
    pods: usize,
    /// Records of Whereabouts' ledgers.
    records: usize,
    slices: usize,
}

/// Runs the verb.
pub(crate) async fn run(options: CheckOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let (_, findings) = observe(&source, options.settle).await?;
    say(&findings, options.query.output)
}

/// What is found twice, and what the second look saw.
pub(crate) async fn observe(source: &Source, settle: Duration) -> Result<(Snapshot, Findings)> {
    let snapshot = Snapshot::of_everything(source).await?;
    let first = compare(&snapshot);
    if first.differences.is_empty() && first.unseen.is_empty() {
        return Ok((snapshot, first));
    }
    tokio::time::sleep(settle).await;
    let snapshot = Snapshot::of_everything(source).await?;
    let findings = first.and_still(compare(&snapshot));
    Ok((snapshot, findings))
}

/// Compares everything with everything.
pub(crate) fn compare(snapshot: &Snapshot) -> Findings {
    let mut findings = Findings::default();
    objects::compare(snapshot, &mut findings);
    agents::compare(snapshot, &mut findings);
    pods::compare(snapshot, &mut findings);
    ranges::compare(snapshot, &mut findings);
    nodes::compare(snapshot, &mut findings);
    aliases::compare(snapshot, &mut findings);
    findings.differences.sort();
    findings.differences.dedup();
    findings.unseen.sort();
    findings.unseen.dedup();
    let told = snapshot.agents.values().filter_map(|told| told.as_ref().ok());
    findings.compared = Compared {
        pools: snapshot.pools.len(),
        blocks: snapshot.blocks.len(),
        requests: snapshot.requests.len(),
        nodes: told.clone().count(),
        holds: told.map(|node| node.holds.len()).sum(),
        pods: snapshot.pods.as_ref().map_or(0, Vec::len),
        records: snapshot.ranges.records().count(),
        slices: snapshot.ranges.slices().count(),
    };
    findings
}

impl Findings {
    fn differ(
        &mut self,
        kind: &'static str,
        subject: impl Into<String>,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let (subject, problem, advice) = (subject.into(), problem.into(), advice.into());
        self.differences.push(Difference { kind, subject, problem, advice });
    }

    fn unseen(&mut self, subject: impl Into<String>, reason: impl Into<String>) {
        self.unseen.push(Unseen { subject: subject.into(), reason: reason.into() });
    }

    /// What a later check still finds of it. Both are sorted.
    pub(crate) fn and_still(self, later: Self) -> Self {
        let mut still = later;
        still.differences.retain(|difference| self.differences.binary_search(difference).is_ok());
        still
    }

    fn code(&self) -> u8 {
        match (self.differences.is_empty(), self.unseen.is_empty()) {
            (false, _) => DIFFERENCES,
            (true, false) => COULD_NOT_LOOK,
            (true, true) => 0,
        }
    }
}

fn say(findings: &Findings, format: Format) -> Result<Output> {
    let said = Output::either(format, findings, || text(findings))?;
    let unseen = findings.unseen.iter().map(|it| format!("? {}: {}", it.subject, it.reason));
    let said = said.noting(format, &unseen.collect::<Vec<_>>());
    Ok(Output { code: findings.code(), ..said })
}

fn text(findings: &Findings) -> String {
    let Compared { pools, blocks, requests, nodes, holds, pods, records, slices } = findings.compared;
    let ranges = match (records, slices) {
        (0, 0) => String::new(),
        (records, slices) => format!(" {records} records, {slices} slices,"),
    };
    let compared = format!(
        "Compared {pools} pools, {blocks} blocks, {requests} requests, {holds} holds of {nodes} nodes,{ranges} and {pods} pods."
    );
    match (findings.differences.as_slice(), findings.unseen.len()) {
        ([], 0) => format!("{compared} No differences.\n"),
        ([], unseen) => format!("{compared} No differences, but {unseen} could not be looked at.\n"),
        (differences, _) => {
            let mut text = String::new();
            for it in differences {
                let lines =
                    [format!("{}: {}: {}", it.kind, it.subject, it.problem), format!("    {}", it.advice)];
                text += &lines.map(|line| line + "\n").concat();
            }
            format!("{text}\n{compared} Differences: {}.\n", table::list([differences.len().to_string()]))
        }
    }
}

#[cfg(test)]
mod tests;
