//! An agent in a cluster: all shared state is in the API server.

use anyhow::Result;
use tenure_daemon::{connect, connect_unix};
use tokio_util::sync::CancellationToken;

use crate::flags::Flags;
use crate::host;

/// Runs until told to stop.
pub async fn run(flags: &Flags, stop: CancellationToken) -> Result<()> {
    let client = match &flags.api_socket {
        Some(socket) => connect_unix(socket),
        None => connect(flags.kubeconfig.as_deref(), None).await?,
    };
    host::run(client, flags.options()?, flags, |_, pages| pages, stop).await
}
