//! `tenured --standalone`: the parts of one host, and its agent on top of them.

use anyhow::{Context, Result};
use tenure_agent::inspect::Inspector;
use tenure_agent::run::AgentOptions;
use tenure_daemon::hostname;
use tenure_handles::{SystemClock, SystemEntropy};
use tokio_util::sync::CancellationToken;

use super::pages::Beside;
use super::{Standalone, StandaloneOptions};
use crate::flags::Flags;
use crate::host;

/// Runs until told to stop. The agent ends before the parts that it depends on.
pub async fn run(flags: &Flags, stop: CancellationToken) -> Result<()> {
    let options = StandaloneOptions {
        state_dir: flags.state_dir.clone(),
        pools_dir: flags.pools_dir.clone(),
        run_dir: flags.run_dir.clone(),
        node: flags.given_name(),
        hostname: hostname().unwrap_or_default(),
        whereabouts_namespace: flags.whereabouts_namespace.clone(),
    };
    // Before anything is written to disk.
    flags.options_as(String::new())?;
    let entropy = SystemEntropy::new().context("asking the system for randomness")?;
    let parts_stop = CancellationToken::new();
    let standalone = Standalone::start(options, SystemClock, entropy, parts_stop.clone()).await?;
    let agent_options =
        AgentOptions { outside_kubernetes: true, ..flags.options_as(standalone.node().to_owned())? };
    let (client, beside) = (standalone.client(), Beside::of(&standalone));
    let mut parts = tokio::spawn(standalone.wait());
    let pages = |inspector: &Inspector, pages| beside.pages(inspector, pages);
    let agent = host::run(client, agent_options, flags, pages, stop.clone());
    tokio::pin!(agent);
    let ended = tokio::select! {
        ended = &mut agent => {
            parts_stop.cancel();
            parts.await??;
            ended
        }
        failed = &mut parts => {
            stop.cancel();
            // The part that ended first has the real cause.
            _ = agent.await;
            failed?.map_err(Into::into)
        }
    };
    ended
}
