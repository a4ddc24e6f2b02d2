//! `tenured`, the program that runs on every node.
//!
//! | module | owns |
//! |---|---|
//! | [`flags`] | what can be said on the command line, and its defaults |
//! | [`cluster`] | an agent in a cluster |
//!
//! The work is done by `tenure-agent`; this says where everything is.

pub mod cluster;
pub mod flags;

use anyhow::{Context, Result};
use tenure_daemon::{start_logging, stop_on_signals};

pub use flags::Flags;

/// The whole program, from its flags to its end.
pub async fn run(flags: Flags) -> Result<()> {
    start_logging(flags.log_format);
    let stop = stop_on_signals().context("listening for signals")?;
    cluster::run(&flags, stop).await
}
