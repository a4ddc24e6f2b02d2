//! The agent of this host and its surroundings: pages for people and programs, and the network's
//! configuration for the runtime.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::{FutureExt as _, TryFutureExt as _};
use kube::Client;
use tenure_agent::Agent;
use tenure_agent::inspect::Inspector;
use tenure_agent::run::AgentOptions;
use tenure_daemon::{Pages, listen, listen_unix, serve};
use tenure_handles::{SystemClock, SystemEntropy};
use tokio_util::sync::CancellationToken;

use crate::flags::{CniRewrite, Flags};
use crate::install;

/// Coil's metrics port.
const PORT: u16 = 9384;

/// Runs the agent until told to stop; `more` extends its pages.
pub async fn run(
    client: Client,
    options: AgentOptions,
    flags: &Flags,
    more: impl FnOnce(&Inspector, Pages) -> Pages,
    stop: CancellationToken,
) -> Result<()> {
    let entropy = Arc::new(SystemEntropy::new().context("asking the system for randomness")?);
    tracing::info!(
        node = options.node.node,
        directory = %options.paths.run.display(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    let paths = options.paths.clone();
    let listener = listen(flags.metrics_address, PORT).await?;
    let api = (!options.outside_kubernetes).then(|| client.clone());
    let (node, rewriter) = (options.node.node.clone(), client.clone());
    let agent = Agent::start(client, options, SystemClock, entropy, stop.clone()).await?;
    let inspector = agent.inspector();
    let pages = more(&inspector, inspector.pages());
    // No other agent has this socket: the journal beside it is locked.
    let local = tokio::spawn(serve(listen_unix(&paths.state_socket())?, pages.clone()));
    let remote = tokio::spawn(serve(listener, inspector.pages_for_others(pages, api)));
    let socket = paths.socket();
    let network = install::Network { socket: &socket, persistent_ips: flags.persistent_ips };
    let configured =
        install::configuration_once_serving(flags.install_config_to.as_deref(), network, agent.progress());
    let configured = configured.inspect_err(|_| stop.cancel());
    let (labels, serving, rewriting) =
        (install::gke::Labels::new(rewriter, node), agent.progress(), stop.child_token());
    let rewritten = async {
        if flags.cni_rewrite == Some(CniRewrite::Gke) {
            install::gke::keep(&flags.cni_config_dir, labels, serving, rewriting.clone()).await;
        }
    };
    let ended = agent.wait().inspect(|_| rewriting.cancel());
    let (configured, (), ended) = tokio::join!(configured, rewritten, ended);
    local.abort();
    remote.abort();
    configured?;
    Ok(ended?)
}
