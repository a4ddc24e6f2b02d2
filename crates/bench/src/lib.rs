//! `cargo xtask bench`: every figure beside a peer that was measured in the same run, with the ratio.
//!
//! `cargo xtask scale` ([`scale`]): many nodes' agents and the controller against one API server.
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
pub mod scale;
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
    fn measure(&self, what: What, effort: measure::Effort) -> anyhow::Result<Measured> {
        Ok(match what {
            What::Engine => engine::measure(effort).into(),
            What::Server => server::measure(effort)?.into(),
            What::Plan => plan::measure(effort, &self.parts)?.into(),
            What::Pods => pods::measure(effort, self.long, &self.programs()?, self.peer_of(what))?,
            What::Whereabouts => whereabouts::measure(effort, &self.programs()?, self.peer_of(what))?,
            What::Claims => claims::measure(effort, self.claims, &self.programs()?)?,
            What::Egress => egress::measure(effort, &self.programs()?)?.into(),
            What::Nodes => nodes::measure(effort, self.nmstate.as_deref())?.into(),
            What::Cloud => cloud::measure(effort)?.into(),
        })
    }

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

/// The whole program.
pub fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("scale") {
        return ended(scale::main());
    }
    let options = BenchOptions::parse();
    if options.runtime {
        return ended(host::runtime::serve());
    }
    let effort = if options.quick { measure::Effort::Quick } else { measure::Effort::Full };
    if options.in_machine {
        return ended(egress::measure_inside(effort));
    }
    let mut out = std::io::stdout().lock();
    let wanted = |what: &&What| options.what.is_empty() || options.what.contains(what);
    let shown = What::value_variants().iter().filter(wanted).map(|what| {
        let measured = options.measure(*what, effort);
        show(&mut out, *what, measured.unwrap_or_else(Measured::failed))
    });
    // One that fails does not keep the others from being measured.
    let failed = shown.filter(|is_all| !is_all).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what was measured, also if something failed after it, and then what failed. Returns whether that is all.
fn show(out: &mut impl Write, what: What, measured: Measured) -> bool {
    let Measured { reports, failure } = measured;
    let printed = reports.iter().try_for_each(|report| writeln!(out, "{report}"));
    let failure = printed.map_err(anyhow::Error::from).err().or(failure);
    if let Some(error) = &failure {
        let what = what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let _ = writeln!(out, "The measurement of {what} ended early: {error:#}\n");
        let _ = writeln!(std::io::stderr(), "bench: {what}: {error:#}");
    }
    failure.is_none()
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
