//! `cargo xtask scale`: many nodes' agents and the controller, as shipped except for the kernel, against one kube-apiserver and etcd.
//!
//! | module | owns |
//! |---|---|
//! | `kind` | where addresses come from, and what everything is called |
//! | `cluster` | the API server, and what people make on it |
//! | `run` | a cluster of nodes, and everything that happens to it |
//! | `crew`, `order`, `worker` | processes that have the nodes, and what they are asked |
//! | `node`, `churn` | a node with its agent and its pods |
//! | `peer` | somebody else's plugin for the same networks |
//! | `counted` | the layer that counts what passes between a program and the API server |
//! | `figures`, `chart` | what came of it, as tables and as charts |
//!
//! Each agent has a client, a journal, sockets and threads of its own, and a layer that counts what it sends and receives. Its
//! processor time and memory are shares of those of its process.

mod chart;
mod churn;
mod cluster;
mod counted;
mod crew;
mod figures;
mod kind;
mod node;
mod order;
mod peer;
mod run;
mod worker;

use std::fs::OpenOptions;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};

pub use counted::{Flow, Flows};
pub use figures::Figures;
pub use kind::Kind;
pub use run::Run;

use crate::host::say;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where addresses come from.
    pub kind: Kind,
    /// Nodes.
    pub nodes: usize,
    /// Networks.
    pub networks: usize,
    /// Pods of each node.
    pub pods: usize,
    /// Processes that have the nodes; none for small runs in this process.
    pub workers: usize,
    /// Whether every write is on the disk before it is answered.
    pub durable: bool,
}

/// What happens to the nodes, in this order, after all of them were started at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Scenario {
    /// The leading controller is killed in the middle of the cold start, and another takes over
    Failover,
    /// A pod more on each node, all at once; with --peer, also by that program
    Burst,
    /// All agents are restarted, a tenth of them at once
    Restart,
    /// A tenth of the nodes is deleted, and as many new ones come
    Replace,
    /// Pods come and go
    Churn,
    /// The API server is restarted while pods come and go
    Server,
    /// The API server is restarted, and all watches come back
    Reconnect,
}

/// Run many nodes against one API server.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask scale", bin_name = "cargo xtask scale")]
struct Flags {
    /// How many nodes; several numbers for a series, with the exponents
    #[arg(long, value_delimiter = ',', default_value = "50")]
    nodes: Vec<usize>,
    /// How many networks each pod has
    #[arg(long, default_value_t = 1)]
    networks: usize,
    /// How many pods each node has
    #[arg(long, default_value_t = 1)]
    pods: usize,
    /// Where addresses come from
    #[arg(long, value_enum, value_delimiter = ',', default_value = "blocks")]
    kind: Vec<Kind>,
    /// What happens after all nodes were started at once
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// How many processes have the nodes; one for each 250 if not given
    #[arg(long)]
    workers: Option<usize>,
    /// How many pods come in a second, and how many go, while pods come and go
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// For how long pods come and go, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Does not wait for the disk with every write to etcd
    #[arg(long)]
    no_sync: bool,
    /// Runs in this one process, on the embedded API server: shows that it works, not what it gives
    #[arg(long, conflicts_with = "workers")]
    embedded: bool,
    /// A file to which figures are appended, as lines of JSON
    #[arg(long)]
    results: Option<PathBuf>,
    /// Only draws charts of the figures in --results, into this directory
    #[arg(long, requires = "results")]
    charts: Option<PathBuf>,
    /// A directory with `whereabouts`, the CNI plugin of Whereabouts, to be measured next to ours on unsliced ranges
    #[arg(long)]
    peer: Option<PathBuf>,
    /// A file for where kube-apiserver spends its processor time in the first --profile-seconds of the cold start; `go tool pprof -top` reads it
    #[arg(long)]
    profile: Option<PathBuf>,
    /// For how long that is looked at
    #[arg(long, default_value_t = 30)]
    profile_seconds: u64,
    /// Has some of the nodes, for another process
    #[arg(long, hide = true)]
    worker: bool,
}

/// The whole program.
pub(crate) fn main() -> Result<()> {
    let flags = Flags::parse_from(std::env::args().skip(1));
    if flags.worker {
        return worker::run(BufReader::new(std::io::stdin()), std::io::stdout());
    }
    if let (Some(directory), Some(results)) = (&flags.charts, &flags.results) {
        let text =
            std::fs::read_to_string(results).with_context(|| format!("cannot read {}", results.display()))?;
        let all: Result<Vec<Figures>, _> = text.lines().map(serde_json::from_str).collect();
        return chart::draw(&all.context("--results has something that is no figures")?, directory);
    }
    ensure!(!flags.nodes.contains(&0), "--nodes has 0; accepted is at least 1");
    let mut out = std::io::stdout().lock();
    for kind in &flags.kind {
        let mut cold = Vec::new();
        for nodes in &flags.nodes {
            let plan = Plan {
                kind: *kind,
                nodes: *nodes,
                networks: flags.networks,
                pods: flags.pods,
                workers: if flags.embedded {
                    0
                } else {
                    flags.workers.unwrap_or_else(|| nodes.div_ceil(250))
                },
                durable: !flags.no_sync,
            };
            let all = flags.run(plan)?;
            let all: Vec<&Figures> = all.iter().collect();
            let title = format!("{} nodes, {} networks, {}", nodes, flags.networks, kind.name());
            writeln!(out, "{}\n{}", figures::table(&title, &all), figures::requests(&title, &all))?;
            cold.extend(all.first().map(|first| (*first).clone()));
        }
        if cold.len() > 1 {
            let title = format!("cold start, {} networks, {}", flags.networks, kind.name());
            writeln!(out, "{}", figures::table(&title, &cold.iter().collect::<Vec<_>>()))?;
        }
    }
    Ok(())
}

impl Flags {
    fn run(&self, plan: Plan) -> Result<Vec<Figures>> {
        say(&format!("an API server, {} nodes and {} pods", plan.nodes, plan.nodes * plan.pods));
        let mut run = if self.embedded { Run::embedded(plan)? } else { Run::start(plan)? };
        let mut all = Vec::new();
        let mut scenarios = self.scenario.clone();
        scenarios.sort_unstable();
        let failover = scenarios.first() == Some(&Scenario::Failover);
        let profile =
            self.profile.as_deref().map(|file| run.profile(self.profile_seconds, file)).transpose()?;
        self.keep(&mut all, run.cold(failover)?)?;
        profile.map(|profile| run.wait_for(profile)).transpose()?;
        for scenario in scenarios {
            let figures = match scenario {
                Scenario::Failover => continue,
                Scenario::Burst => {
                    self.keep(&mut all, run.burst()?)?;
                    let Some(program) = self.peer_of(plan.kind) else { continue };
                    run.peer(&program)?
                }
                Scenario::Restart => run.restart()?,
                Scenario::Replace => run.replace()?,
                Scenario::Churn => run.churn(self.rate, self.seconds, false)?,
                Scenario::Server => run.churn(self.rate, self.seconds, true)?,
                Scenario::Reconnect => run.reconnect()?,
            };
            self.keep(&mut all, figures)?;
        }
        Ok(all)
    }

    /// The peer's program, if it is for this kind.
    fn peer_of(&self, kind: Kind) -> Option<PathBuf> {
        let directory = self.peer.as_ref().filter(|_| kind == Kind::Unsliced)?;
        Some(directory.join("whereabouts"))
    }

    fn keep(&self, all: &mut Vec<Figures>, figures: Figures) -> Result<()> {
        if let Some(path) = &self.results {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{}", serde_json::to_string(&figures)?)?;
        }
        all.push(figures);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
