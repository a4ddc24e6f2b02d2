//! An agent in a cluster: all that is shared with others is in the API server.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure_agent::Agent;
use tenure_daemon::connect;
use tenure_handles::{SystemClock, SystemEntropy};
use tokio_util::sync::CancellationToken;

use crate::flags::Flags;

/// Runs until told to stop.
pub async fn run(flags: &Flags, stop: CancellationToken) -> Result<()> {
    let options = flags.options()?;
    let client = connect(flags.kubeconfig.as_deref(), None).await?;
    let entropy = Arc::new(SystemEntropy::new().context("asking the system for randomness")?);
    tracing::info!(
        node = options.node.node,
        directory = %options.paths.run.display(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    let agent = Agent::start(client, options, SystemClock, entropy, stop).await?;
    Ok(agent.wait().await?)
}
