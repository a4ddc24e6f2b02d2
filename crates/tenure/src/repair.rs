//! `tenure repair [KIND…]`: does what `check` advises, where that is safe.
//!
//! ```text
//!  check, twice ──▶ plan (no I/O) ──▶ ask ──▶ for each step: read live, write with a guard ──▶ wait, and check again
//! ```
//!
//! It promises that no write gives an address a second holder: a step is data with its object's UID and version, and a step that depends
//! on an address being unused is planned again from everything, read again, immediately before its write. What an agent owns, only the
//! agent changes: `repair` marks the object, or restarts the agent.

mod blocks;
mod kinds;
mod perform;
mod plan;
mod ranges;
mod step;
mod usage;

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use tenure_handles::{Clock, SystemClock};

use crate::check::{self, Difference, Findings};
use crate::query::{QueryOptions, Source};
use crate::table::{COULD_NOT_LOOK, Format, Output};
pub(crate) use blocks::{and, users};
pub(crate) use kinds::all as all_kinds;
use perform::{Outcome, perform};
use plan::{Plan, plan, verdict};
use step::{Step, Verdict};

/// The exit code if findings remain.
const REMAIN: u8 = 1;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct RepairOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Kinds of findings, as `tenure check` names them; all if none is given
    #[arg(value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(kinds::names()), hide_possible_values = true)]
    kinds: Vec<String>,
    /// Do not ask before the writes
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long after the first look the second one is, if anything differs
    #[arg(long, default_value = "3s", value_parser = tenure_daemon::duration)]
    settle: Duration,
    /// How long to wait afterwards for agents and controller to do their part
    #[arg(long, default_value = "6m", value_parser = tenure_daemon::duration)]
    wait: Duration,
}

/// The output of `tenure repair -o json`.
#[derive(Debug, Serialize)]
struct Report {
    /// What was found, and what was planned for it.
    #[serde(flatten)]
    plan: Plan,
    /// What was done, in the order of the plan.
    done: Vec<Act>,
    /// What the last look still found.
    remaining: Vec<Difference>,
    /// What could not be read.
    unseen: Vec<check::Unseen>,
}

/// A step that was tried.
#[derive(Debug, Serialize)]
struct Act {
    kind: &'static str,
    subject: String,
    #[serde(flatten)]
    step: Step,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Runs the verb.
pub(crate) async fn run(options: RepairOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let (snapshot, findings) = check::observe(&source, options.settle).await?;
    let plan = plan(&snapshot, options.chosen(&findings));
    let found = findings.unseen;
    let mut report = Report { plan, done: Vec::new(), remaining: Vec::new(), unseen: found.clone() };
    let format = options.query.output;
    if format == Format::Table {
        say(&describe(&report.plan));
    }
    if options.dry_run || report.plan.findings.is_empty() {
        report.remaining = report.plan.findings.iter().map(|row| row.difference.clone()).collect();
        return finish(&report, format);
    }
    let steps = report.plan.steps().count();
    if steps > 0 && !options.yes {
        agree(steps, format)?;
    }
    report.done = carry_out(&source, &report.plan, format).await;
    let last = options.settled(&source, &report, &found).await?;
    report.remaining = options.chosen(&last).cloned().collect();
    report.unseen = last.unseen;
    finish(&report, format)
}

impl RepairOptions {
    /// The findings that are to be repaired.
    fn chosen<'a>(&'a self, findings: &'a Findings) -> impl Iterator<Item = &'a Difference> {
        findings
            .differences
            .iter()
            .filter(|it| self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == it.kind))
    }

    /// Waits for what heals after the steps, and returns what is left.
    async fn settled(&self, source: &Source, report: &Report, unseen: &[check::Unseen]) -> Result<Findings> {
        let began = SystemClock.elapsed();
        let restarted =
            report.done.iter().any(|act| act.step.object.kind == step::AGENT && act.outcome == Outcome::Done);
        let mut waited_for = BTreeSet::new();
        loop {
            // An agent that was restarted may not be there yet.
            let (snapshot, findings) = match check::observe(source, self.settle).await {
                Ok(seen) => seen,
                Err(error) if SystemClock.elapsed().saturating_sub(began) >= self.wait => return Err(error),
                Err(_) => {
                    tokio::time::sleep(self.settle).await;
                    continue;
                }
            };
            let heals =
                |it: &&Difference| matches!(verdict(&snapshot, it), Verdict::Heals(_)) || report.did(it);
            let open: Vec<&Difference> = self.chosen(&findings).filter(heals).collect();
            let starts = restarted && findings.unseen.iter().any(|it| !unseen.contains(it));
            if open.is_empty() && !starts || SystemClock.elapsed().saturating_sub(began) >= self.wait {
                return Ok(findings);
            }
            for it in open {
                if self.query.output == Format::Table && waited_for.insert(it.clone()) {
                    say(&format!("waiting: {}: {}\n", it.kind, it.subject));
                }
            }
            // Without a difference the second look was not waited for.
            tokio::time::sleep(self.settle.min(Duration::from_secs(1))).await;
        }
    }
}

impl Report {
    /// Whether a step for this finding was written, which may take effect a little later.
    fn did(&self, it: &Difference) -> bool {
        self.done
            .iter()
            .any(|act| act.outcome == Outcome::Done && act.kind == it.kind && act.subject == it.subject)
    }
}

impl Plan {
    fn steps(&self) -> impl Iterator<Item = (&Difference, &Step)> {
        self.findings.iter().filter_map(|row| match &row.plan {
            Verdict::Repair(step) => Some((&row.difference, step.as_ref())),
            _ => None,
        })
    }
}

async fn carry_out(source: &Source, plan: &Plan, format: Format) -> Vec<Act> {
    let mut done = Vec::new();
    for (difference, step) in plan.steps() {
        let outcome = perform(source, difference, step).await;
        if format == Format::Table {
            let said = match &outcome {
                Outcome::Done => "done".to_owned(),
                Outcome::Skipped(why) => format!("skipped: {why}"),
                Outcome::Failed(why) => format!("failed: {why}"),
            };
            say(&format!("{}: {}: {said}\n", step.object, step.operation));
        }
        let subject = difference.subject.clone();
        done.push(Act { kind: difference.kind, subject, step: step.clone(), outcome });
    }
    done
}

/// The plan, for people.
fn describe(plan: &Plan) -> String {
    let rows = plan.findings.iter().map(|row| {
        let it = &row.difference;
        let plan = match &row.plan {
            Verdict::Repair(step) => {
                format!("    repair: {}: {}\n    safe: {}\n", step.object, step.operation, step.safe)
            }
            Verdict::Heals(how) => format!("    nothing to do: {how}\n"),
            Verdict::Cannot { because, instead } => {
                format!("    not repaired: {because}\n    instead: {instead}\n")
            }
        };
        format!("{}: {}: {}\n{plan}", it.kind, it.subject, it.problem)
    });
    rows.collect::<Vec<_>>().concat()
}

/// Asks whoever sits at the terminal.
fn agree(steps: usize, format: Format) -> Result<()> {
    if format == Format::Json || !io::stdin().is_terminal() {
        bail!(
            "nobody can be asked about {steps} writes here; accepted is --yes to make them, or --dry-run to see the plan"
        );
    }
    say(&format!("\nMake these {steps} writes? [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}

fn finish(report: &Report, format: Format) -> Result<Output> {
    let failed = report.done.iter().filter(|act| act.outcome != Outcome::Done).count();
    let said = Output::either(format, report, || {
        let done = report.done.len() - failed;
        match (report.remaining.len(), report.unseen.len()) {
            (0, 0) => format!("{done} repairs were made, and no difference is left.\n"),
            (0, unseen) => format!("{done} repairs were made; {unseen} could not be looked at.\n"),
            (left, _) => {
                let rows: Vec<String> =
                    report.remaining.iter().map(|it| format!("{}: {}\n", it.kind, it.subject)).collect();
                format!("{done} repairs were made. Left are {left}:\n{}", rows.concat())
            }
        }
    })?;
    let notes: Vec<String> =
        report.unseen.iter().map(|it| format!("? {}: {}", it.subject, it.reason)).collect();
    let code = match (report.remaining.is_empty(), report.unseen.is_empty()) {
        (false, _) => REMAIN,
        (true, false) => COULD_NOT_LOOK,
        (true, true) => 0,
    };
    Ok(Output { code, ..said.noting(format, &notes) })
}

fn say(text: &str) {
    // Whoever reads it may have gone; the work goes on.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    let _ = io::stdout().lock().flush();
}

#[cfg(test)]
mod tests;
