//! `tenured`, the program that runs on every node.
//!
//! | module | owns |
//! |---|---|
//! | [`flags`] | the command line's flags and their defaults |
//! | [`host`] | the agent and its surroundings: pages for people, the network's configuration |
//! | [`cluster`] | an agent in a cluster |
//! | [`install`] | the plugin and the network's configuration, where the container runtime looks for them |
//! | [`removal`] | taking all of it off the node again |
//! | `parameters` | which kernel parameters were changed, so that they can be changed back |
//! | `watching` | when a directory changes |
//! | [`standalone`] | one host without Kubernetes: API, controller and pool files beside the agent |
//!
//! `tenure-agent` does the work; this crate configures it.

pub mod cluster;
pub mod flags;
pub mod host;
pub mod install;
mod parameters;
pub mod removal;
pub mod standalone;
mod watching;

use anyhow::{Context, Result};
use clap::Parser;
use tenure_daemon::{start_logging, stop_on_signals};

use flags::CniRewrite;
pub use flags::Flags;

/// The program.
pub fn main() -> Result<()> {
    let flags = Flags::parse();
    // The node waits for the kernel, for which the agent has its own threads, and not for this: more threads
    // would only cost memory.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting to run tasks")?;
    runtime.block_on(run(flags))
}

/// The whole program, from its flags to its end.
pub async fn run(flags: Flags) -> Result<()> {
    start_logging(flags.log_format);
    if flags.cni_rewrite == Some(CniRewrite::Undo) {
        let undone = install::gke::undo(&flags.cni_config_dir)?;
        tracing::info!(directory = %flags.cni_config_dir.display(), undone, "the cloud's own network is as its agents write it");
        return Ok(());
    }
    if flags.cni_rewrite == Some(CniRewrite::None) {
        let stop = stop_on_signals().context("listening for signals")?;
        install::gke::keep_away(&flags.cni_config_dir, &stop).await;
        return Ok(());
    }
    if let Some(when) = flags.remove_from_node {
        return removal::run(&flags, when).await;
    }
    if let Some(directory) = &flags.install_plugin_to {
        let rewrites = flags.cni_rewrite == Some(CniRewrite::Gke);
        install::plugin(directory, flags.replace_whereabouts, rewrites)?;
    }
    if flags.prepare {
        let prepared = tenure_linux::Host::open(flags.options()?.kernel)?.prepare()?;
        parameters::note(&flags.state_dir, &prepared.parameters);
        tracing::info!(?prepared, "the host is prepared");
        if flags.enable_egress && flags.egress_datapath == flags::EgressDatapath::Kernel {
            tenure_linux::egress::load_modules();
        }
        return Ok(());
    }
    let stop = stop_on_signals().context("listening for signals")?;
    if flags.standalone
        && flags.enable_ipam
        // The agent does the same, and says what keeps it from that.
        && let Ok(prepared) = tenure_linux::Host::open(flags.kernel()?)?.prepare()
    {
        parameters::note(&flags.state_dir, &prepared.parameters);
    }
    if flags.standalone { standalone::run(&flags, stop).await } else { cluster::run(&flags, stop).await }
}
