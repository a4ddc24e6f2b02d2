//! `tenure-controller`: flags, signals, and the loop of the library.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tenure_controller::{ClaimSettings, Controller, Settings, Timing, Whereabouts};
use tenure_daemon::{
    LogFormat, connect, connect_unix, duration, hostname, listen, serve, start_logging, stop_on_signals,
};
use tenure_handles::{Entropy, SystemClock, SystemEntropy};

/// The port of Coil's metrics.
const PORT: u16 = 9386;

/// Carves blocks and slices for nodes, keeps pools' status, and collects what nobody uses any more.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Unix socket of the Kubernetes API, in place of a kubeconfig.
    #[arg(long, value_name = "PATH")]
    api_socket: Option<PathBuf>,
    /// Namespace of the lease by which replicas elect their leader.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    lease_namespace: String,
    /// Name of the lease. The default is Coil's, so that of the two systems only one leads.
    #[arg(long, default_value = "coil-ipam-leader")]
    lease_name: String,
    /// How long the others wait for a leader that says nothing: whole seconds, such as `30s`.
    #[arg(long, default_value = "30s", value_parser = duration)]
    lease_duration: Duration,
    /// How long a leader leads without a renewal; shorter than the lease.
    #[arg(long, default_value = "25s", value_parser = duration)]
    renew_deadline: Duration,
    /// How often a leader renews and the others look; at most half the deadline.
    #[arg(long, default_value = "2s", value_parser = duration)]
    retry_period: Duration,
    /// How often everything is looked at even if nothing was heard.
    #[arg(long, default_value = "10s", value_parser = duration)]
    check_interval: Duration,
    /// How many writes are under way at once, unless they are slow.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Namespace of Whereabouts' objects.
    #[arg(long, default_value = "kube-system")]
    whereabouts_namespace: String,
    /// Name of the cluster's default network as in its CNI configuration, if that has `"allowPersistentIPs": true`: then pods
    /// keep addresses of it by claims, too. Empty if it does not.
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster_network: String,
    /// How long an address that belonged to a claim is not given to another, where its pool does not say.
    #[arg(long, default_value = "30s", value_parser = duration)]
    cooling: Duration,
    /// How long a block or slice for claims rests empty before it is given back.
    #[arg(long, default_value = "5m", value_parser = duration)]
    rest: Duration,
    /// How long a node has to be missing, and no pod bound to it, before its blocks are given to others: longer than a kubelet
    /// takes to end the containers of pods that are gone.
    #[arg(long, default_value = "2m", value_parser = duration)]
    missing_node_rest: Duration,
    /// Where /metrics, /healthz and /readyz are served; on port 9386 of all addresses if not given.
    #[arg(long)]
    metrics_address: Option<SocketAddr>,
    /// How log lines look; `RUST_LOG` says which there are.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    start_logging(flags.log_format);
    let timing = Timing {
        duration: flags.lease_duration,
        renew_deadline: flags.renew_deadline,
        retry: flags.retry_period,
    };
    let timing = timing.check()?;
    let client = match &flags.api_socket {
        Some(socket) => connect_unix(socket),
        None => connect(flags.kubeconfig.as_deref(), None).await?,
    };
    let entropy = SystemEntropy::new().context("asking the system for randomness")?;
    let settings = Settings {
        lease_namespace: flags.lease_namespace,
        lease_name: flags.lease_name,
        timing,
        workers: flags.workers.into(),
        tick: flags.check_interval,
        cluster_network: Some(flags.cluster_network).filter(|name| !name.is_empty()),
        claims: ClaimSettings { empty_after: flags.rest, cooling: flags.cooling },
        missing_node_rest: flags.missing_node_rest,
        whereabouts: Whereabouts {
            namespace: flags.whereabouts_namespace,
            node_gone_after: flags.missing_node_rest,
            ..Whereabouts::default()
        },
        ..Settings::new(&format!("{}_{}", hostname().unwrap_or_default(), entropy.uuid()))
    };
    let listener = listen(flags.metrics_address, PORT).await?;
    let controller = Controller::new(client, SystemClock, settings);
    let serving = tokio::spawn(serve(listener, controller.pages()));
    let stop = stop_on_signals().context("listening for signals")?;
    let ended = controller.run(stop).await;
    serving.abort();
    Ok(ended?)
}
