//! `tenured`, the program that runs on every node.
//!
//! | module | owns |
//! |---|---|
//! | [`flags`] | the command line's flags and their defaults |
//! | [`host`] | the agent and its surroundings: pages for people, the network's configuration |
//! | [`cluster`] | an agent in a cluster |
//! | [`install`] | the plugin and the network's configuration, where the container runtime looks for them |
//! | [`standalone`] | one host without Kubernetes: API, controller and pool files beside the agent |
//!
//! `tenure-agent` does the work; this crate configures it.

pub mod cluster;
pub mod flags;
pub mod host;
pub mod install;
pub mod standalone;

use anyhow::{Context, Result};
use clap::Parser;
use tenure_daemon::{start_logging, stop_on_signals};

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
    if let Some(directory) = &flags.install_plugin_to {
        install::plugin(directory, flags.replace_whereabouts)?;
    }
    if flags.prepare {
        let prepared = tenure_linux::Host::open(flags.options()?.kernel)?.prepare()?;
        tracing::info!(?prepared, "the host is prepared");
        return Ok(());
    }
    let stop = stop_on_signals().context("listening for signals")?;
    if flags.standalone { standalone::run(&flags, stop).await } else { cluster::run(&flags, stop).await }
}
