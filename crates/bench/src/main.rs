//! `cargo xtask bench`: every figure beside a peer that was measured in the same run, with the ratio.
//!
//! Machines are shared and noisy, so a figure alone says little: each measurement alternates between
//! ours and the peer, and shows the median of its rounds.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock; nothing is decided by it")]

mod baseline;
mod claims;
mod cloud;
mod egress;
mod engine;
mod host;
mod measure;
mod nodes;
mod plan;
mod pods;
mod report;
mod server;
mod whereabouts;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Parser, ValueEnum};

use host::programs::Programs;
use report::Measured;

/// Measure Tenure beside its peers.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that people give")]
struct BenchOptions {
    /// What to measure; everything when nothing is named
    #[arg(value_enum)]
    what: Vec<What>,
    /// Fewer rounds: shows that the measurements run, not what they give
    #[arg(long)]
    quick: bool,
    /// For pods: 10,000 ADDs at once on nodes without blocks, to count failures
    #[arg(long)]
    long: bool,
    /// For claims: how many are made at once, in place of 5,000 (500 if `--quick`)
    #[arg(long)]
    claims: Option<usize>,
    /// For plan: only these parts of the controller; all when nothing is named
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<plan::PartName>,
    /// A peer to be measured in the same run. For pods: a directory with `coil`, `coild` and `coil-ipam-controller` of Coil
    /// 2.15. For whereabouts: the file of Whereabouts' CNI plugin
    #[arg(long)]
    peer: Option<PathBuf>,
    /// For pods, whereabouts, claims and egress: the directory of `tenured` and `tenure-controller`; `cargo xtask` says it
    #[arg(long, env = "TENURE_DAEMONS")]
    daemons: Option<PathBuf>,
    /// For pods, whereabouts, claims and egress: the file of `tenure-cni`; `cargo xtask` says it
    #[arg(long, env = "TENURE_PLUGIN")]
    plugin: Option<PathBuf>,
    /// For nodes: a program with nmstate's own kernel mode; `cargo xtask` says it
    #[arg(long, env = "TENURE_NMSTATE_KERNEL")]
    nmstate: Option<PathBuf>,
    /// Be the container runtime on a host
    #[arg(long, hide = true)]
    runtime: bool,
    /// Measure egress in a virtual machine, from inside
    #[arg(long, hide = true)]
    in_machine: bool,
}

impl BenchOptions {
    fn programs(&self) -> anyhow::Result<Programs> {
        let (Some(daemons), Some(plugin)) = (&self.daemons, &self.plugin) else {
            bail!(
                "--daemons and --plugin say where the programs are; `cargo xtask bench` builds them and says it"
            );
        };
        Ok(Programs {
            agent: daemons.join("tenured"),
            controller: daemons.join("tenure-controller"),
            plugin: plugin.clone(),
        })
    }
}

impl BenchOptions {
    /// The peer, if it is for this: where both that have one are measured, a directory is Coil's and a file is Whereabouts'.
    fn peer_of(&self, what: What) -> Option<&Path> {
        let peer = self.peer.as_deref()?;
        let ours = self.what == [what] || peer.is_dir() == (what == What::Pods);
        ours.then_some(peer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The allocation engine beside a sorted map walked from the bottom
    Engine,
    /// The embedded API server beside kube-apiserver and etcd
    Server,
    /// The controller's plan after one event beside a plan of everything
    Plan,
    /// The CNI plugin, the agent and the controller beside other plugins; needs root
    Pods,
    /// Ranges of Whereabouts' dialect, beside Whereabouts and what the API server can do; needs root
    Whereabouts,
    /// Claims and their moves, beside what the API server can do and beside pods without claims; needs root
    Claims,
    /// Connections through egress gateways, beside plain routing; needs root
    Egress,
    /// Addresses of nodes, beside plain writes and nmstate's own kernel mode; needs root
    Nodes,
    /// Alias addresses on a fake of Google's cloud, beside the prototype's sequence; needs root
    Cloud,
}

fn main() -> ExitCode {
    let options = BenchOptions::parse();
    if options.runtime {
        return ended(host::runtime::serve());
    }
    let effort = if options.quick { measure::Effort::Quick } else { measure::Effort::Full };
    if options.in_machine {
        return ended(egress::measure_inside(effort));
    }
    let wanted = |what| options.what.is_empty() || options.what.contains(&what);
    let mut out = std::io::stdout().lock();
    let outcome = (|| -> anyhow::Result<()> {
        if wanted(What::Engine) {
            writeln!(out, "{}", engine::measure(effort))?;
        }
        if wanted(What::Server) {
            writeln!(out, "{}", server::measure(effort)?)?;
        }
        if wanted(What::Plan) {
            writeln!(out, "{}", plan::measure(effort, &options.parts)?)?;
        }
        if wanted(What::Pods) {
            let peer = options.peer_of(What::Pods);
            show(&mut out, pods::measure(effort, options.long, &options.programs()?, peer)?)?;
        }
        if wanted(What::Whereabouts) {
            let peer = options.peer_of(What::Whereabouts);
            show(&mut out, whereabouts::measure(effort, &options.programs()?, peer)?)?;
        }
        if wanted(What::Claims) {
            let reports = claims::measure(effort, options.claims, &options.programs()?)?;
            reports.iter().try_for_each(|report| writeln!(out, "{report}"))?;
        }
        if wanted(What::Egress) {
            let reports = egress::measure(effort, &options.programs()?)?;
            reports.iter().try_for_each(|report| writeln!(out, "{report}"))?;
        }
        if wanted(What::Nodes) {
            let reports = nodes::measure(effort, options.nmstate.as_deref())?;
            reports.iter().try_for_each(|report| writeln!(out, "{report}"))?;
        }
        if wanted(What::Cloud) {
            writeln!(out, "{}", cloud::measure(effort)?)?;
        }
        Ok(())
    })();
    ended(outcome)
}

/// Prints what was measured, also if something failed after it.
fn show(out: &mut impl Write, measured: Measured) -> anyhow::Result<()> {
    measured.reports.iter().try_for_each(|report| writeln!(out, "{report}"))?;
    measured.failure.map_or(Ok(()), Err)
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
