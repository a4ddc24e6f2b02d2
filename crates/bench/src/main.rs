//! `cargo xtask bench`: every figure beside a peer that was measured in the same run, with the ratio.
//!
//! Machines are shared and noisy, so a figure alone says little: each measurement alternates between
//! ours and the peer, and shows the median of its rounds.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; nothing is decided by it")]

mod baseline;
mod engine;
mod measure;
mod pods;
mod report;
mod server;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Parser, ValueEnum};

/// Measure Tenure beside its peers.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Options {
    /// What to measure; everything when nothing is named
    #[arg(value_enum)]
    what: Vec<What>,
    /// Fewer rounds: shows that the measurements run, not what they give
    #[arg(long)]
    quick: bool,
    /// For pods: 10,000 ADDs at once on nodes without blocks, to count failures
    #[arg(long)]
    long: bool,
    /// For pods: a directory with `coil`, `coild` and `coil-ipam-controller` of Coil 2.15, to be measured in the same run
    #[arg(long)]
    peer: Option<PathBuf>,
    /// For pods: the directory of `tenured` and `tenure-controller`; `cargo xtask` says it
    #[arg(long, env = "TENURE_DAEMONS")]
    daemons: Option<PathBuf>,
    /// For pods: the file of `tenure-cni`; `cargo xtask` says it
    #[arg(long, env = "TENURE_PLUGIN")]
    plugin: Option<PathBuf>,
    /// Be the container runtime on a host
    #[arg(long, hide = true)]
    runtime: bool,
}

impl Options {
    fn programs(&self) -> anyhow::Result<pods::Programs> {
        let (Some(daemons), Some(plugin)) = (&self.daemons, &self.plugin) else {
            bail!(
                "--daemons and --plugin say where the programs are; `cargo xtask bench` builds them and says it"
            );
        };
        Ok(pods::Programs {
            agent: daemons.join("tenured"),
            controller: daemons.join("tenure-controller"),
            plugin: plugin.clone(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The allocation engine beside a sorted map walked from the bottom
    Engine,
    /// The embedded API server beside kube-apiserver and etcd
    Server,
    /// The CNI plugin, the agent and the controller beside other plugins; needs root
    Pods,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.runtime {
        return ended(pods::serve_as_runtime());
    }
    let wanted = |what| options.what.is_empty() || options.what.contains(&what);
    let effort = if options.quick { measure::Effort::Quick } else { measure::Effort::Full };
    let mut out = std::io::stdout().lock();
    let outcome = (|| -> anyhow::Result<()> {
        if wanted(What::Engine) {
            writeln!(out, "{}", engine::measure(effort))?;
        }
        if wanted(What::Server) {
            writeln!(out, "{}", server::measure(effort)?)?;
        }
        if wanted(What::Pods) {
            let reports = pods::measure(effort, options.long, &options.programs()?, options.peer.as_deref())?;
            for report in reports {
                writeln!(out, "{report}")?;
            }
        }
        Ok(())
    })();
    ended(outcome)
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
