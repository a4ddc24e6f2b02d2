//! `cargo xtask bench`: every figure beside a peer that was measured in the same run, with the ratio.
//!
//! Machines are shared and noisy, so a figure alone says little: each measurement alternates between
//! ours and the peer, and shows the median of its rounds.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; nothing is decided by it")]

mod baseline;
mod engine;
mod measure;
mod report;
mod server;

use std::io::Write;
use std::process::ExitCode;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The allocation engine beside a sorted map walked from the bottom
    Engine,
    /// The embedded API server beside kube-apiserver and etcd
    Server,
}

fn main() -> ExitCode {
    let options = Options::parse();
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
        Ok(())
    })();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
